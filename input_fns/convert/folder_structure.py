"""Understands which folders of a source are splits and which are classes, by their structure.

A folder of a split has folders of classes, and a folder of a class has files. What is neither is an
error that shows what was understood.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from common import folders
from common.names import is_line, normalized
from input_fns import DataError
from input_fns.convert import inventory
from input_fns.convert.options import Options
from input_fns.convert.split_names import is_split, split_in, split_names

# Words beside that of the split in the name of a folder that is plainly a split.
_NEUTRAL = {"set", "image", "images", "img", "imgs", "data", "dataset", "split", "folder", "files"}
_WORD = re.compile(r"[^\W\d_]+")
_SHOWN = 6


@dataclasses.dataclass(frozen=True)
class Structure:
    """Folders of a source.

    Attributes:
      classes: `{split: {class: path of its folder}}`.
      unlabelled: `{split: path of its folder}` of splits that have files but no classes.
    """

    classes: dict[str, dict[str, str]]
    unlabelled: dict[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class _Folder:
    """What is in a folder.

    Attributes:
      path: its path; that of a folder of the same name if this is all that is in it.
      has_files: whether it has files of the kind, not counting its folders.
      inside: `{normalized name: path}` of its folders.
    """

    path: str
    has_files: bool
    inside: Mapping[str, str]

    def content(self, noun: str) -> str:
        """Returns what is in the folder, for errors."""
        several = f"the folder{'s' * (len(self.inside) > 1)} {listed(self.inside)}"
        if self.has_files:
            return f"{noun}s and {several}" if self.inside else f"{noun}s"
        return several if self.inside else f"no {noun}"


class Tree:
    """Folders below --source.

    Attributes:
      choose: how a user chooses one of them as the source, before its path.
    """

    choose = "choose --source="

    def __init__(self, options: Options):
        """Takes the options, of which `skip` is used."""
        self._options = options

    def names(self, folder: str) -> Sequence[str]:
        """Returns the sorted names in a folder, without those of --skip."""
        return inventory.names(folder, self._options)

    def is_folder(self, path: str) -> bool:
        """Whether a path is a folder."""
        return folders.is_folder(path)

    def start(self, folder: str) -> str:
        """Returns the folder that has the splits or classes of a source or of a split."""
        return folder


class Reader:
    """Reads the structure of a source."""

    def __init__(
        self,
        options: Options,
        noun: str,
        extensions: tuple[str, ...],
        ignored: Collection[str],
        tree: Tree,
    ):
        """Takes the arguments of `class_folders.find`, and where the folders are."""
        self._options, self._noun, self._tree = options, noun, tree
        self._extensions, self._ignored = extensions, ignored
        self._where = f"--source={options.source}"
        self._given = tuple(map(normalized, options.class_names))

    def read(self) -> Structure:
        """Returns the folders of splits and classes, at least those of `class_names`.

        Raises:
          DataError: the structure is not understood.
        """
        if not self._tree.is_folder(self._options.source):
            raise DataError(f"{self._where} is not a folder")
        top = self._look(self._tree.start(self._options.source))
        found = self._look_into(top)
        if self._given and set(self._given) <= set(found):
            return self._classes_first({name: found[name] for name in self._given}, top)
        is_every_split = all(map(split_in, found))
        splits = {
            name: folder
            for name, folder in found.items()
            if is_every_split or _is_split_folder(name, folder)
        }
        others = {name: folder for name, folder in found.items() if name not in splits}
        flat = [name for name, folder in splits.items() if not folder.inside]
        if len(flat) == len(splits) and others:
            self._require_no_flat_split(flat, others)
            return self._classes_first(found, top)
        if not splits:
            return self._classes_first(found, top)
        if others:
            raise self._not_understood(splits, others)
        names = split_names(splits, self._where)
        empty = next((name for name in flat if not splits[name].has_files), None)
        if empty is not None:
            raise DataError(
                f"{self._where}: the folder '{empty}' has no {self._noun}. Leave it out with "
                f"--skip={empty}"
            )
        if len(flat) == len(splits) or names.get("train") in flat:
            raise DataError(
                f"{self._where}: the folder '{names.get('train', flat[0])}' has {self._noun}s, but "
                "no folders of classes. Make one for each class, or list files and labels in a "
                f"table: --dataset={self._options.dataset.replace('folder', 'csv')}"
            )
        return Structure(
            {o: self._classes_in(splits[name]) for o, name in names.items() if name not in flat},
            {o: splits[name].path for o, name in names.items() if name in flat},
        )

    def only_folder(self) -> str:
        """Returns the path of the only folder of the source, if that has folders; else ""."""
        found = list(self._look_into(self._look(self._options.source)).values())
        return found[0].path if len(found) == 1 and found[0].inside else ""

    def is_file(self, name: str) -> bool:
        """Whether a name is that of a file of the kind."""
        return name.lower().endswith(self._extensions)

    def _look(self, path, may_be_double=False):
        names = self._tree.names(path)
        files = [name for name in names if self.is_file(name)]
        inside: dict[str, str] = {}
        for name in names:
            below = os.path.join(path, name)
            if self.is_file(name) or name in self._ignored or not self._tree.is_folder(below):
                continue
            if not is_line(name):
                raise DataError(
                    f"{path} has a folder {name!a}, which cannot be the name of a class: it must "
                    "be UTF-8 without control characters"
                )
            first = inside.setdefault(normalized(name), below)
            if first != below:
                raise DataError(
                    f"{first} and {below} have one name, in two Unicode forms or with spaces. Join "
                    "the folders"
                )
        # Archives of Kaggle have train/train/CLASS.
        is_double = list(inside) == [normalized(os.path.basename(path))] and not files
        if may_be_double and is_double:
            return self._look(next(iter(inside.values())))
        return _Folder(path, bool(files), inside)

    def _look_into(self, folder):
        starts = {
            name: self._tree.start(path) if split_in(name) else path
            for name, path in folder.inside.items()
        }
        return {name: self._look(path, True) for name, path in starts.items()}

    def _classes_in(self, folder):
        """Returns `{class: path}` of the folders in the folder of a split."""
        self._require_alike(folder.path, self._look_into(folder))
        return dict(folder.inside)

    def _classes_first(self, found, top):
        """Returns the structure if the folders of the source are those of classes."""
        parts = {name: list(filter(is_split, folder.inside)) for name, folder in found.items()}
        if not any(parts.values()):
            self._require_alike(top.path, found)
            return Structure({"train": {name: top.inside[name] for name in found}})
        splits: dict[str, dict[str, str]] = {}
        for name, folder in found.items():
            if folder.has_files or list(folder.inside) != parts[name]:
                raise self._not_all_splits(found, parts, name)
            for ours, part in split_names(folder.inside, folder.path).items():
                splits.setdefault(ours, {})[name] = folder.inside[part]
        return Structure(splits)

    def _not_all_splits(self, found, parts, name):
        if len(found) == 1:
            advice = f"{self._tree.choose.capitalize()}{found[name].path}"
        else:
            others = [n for n in found[name].inside if n not in parts[name]] or ["NAME"]
            advice = (
                "Give all classes the same splits, or leave folders out with --skip="
                f"{','.join(others[:_SHOWN] if parts[name] else [name])}"
            )
        other = next((n for n in parts if parts[n] and n != name), name)
        return DataError(
            f"{self._where}: '{other}' has the folders of splits {listed(parts[other])}, and "
            f"'{name}' has {found[name].content(self._noun)}. {advice}"
        )

    def _require_alike(self, path, found):
        """Checks that the folders of classes are alike: with files, or with different folders."""
        nested = {name: of for name, of in found.items() if of.inside and not of.has_files}
        if self._given or not nested:
            return
        with_files = [name for name, folder in found.items() if folder.has_files]
        names = [name for folder in nested.values() for name in folder.inside]
        if not with_files and len(set(names)) == len(names) and not set(names) & set(found):
            return
        # CLASS/images of Tiny ImageNet: a folder with a name that means nothing is no class.
        has_neutral = len(set(names)) == 1 and names[0].lower() in _NEUTRAL
        if not with_files and has_neutral and len(nested) == len(found):
            return
        name, odd = next(iter(nested.items()))
        other = with_files[0] if with_files else list(nested)[-1]
        raise DataError(
            f"{path}: '{name}' has {odd.content(self._noun)}, and '{other}' has "
            f"{found[other].content(self._noun)}. A class has {self._noun}s, and a split has "
            f"classes. Leave folders out with --skip={name}, {self._tree.choose}{odd.path}, or "
            f"name the folders that are classes with --class_names={other},{name},..."
        )

    def _require_no_flat_split(self, flat, others):
        # "train" may be the class of trains: a split to train on has classes.
        doubtful = [name for name in flat if split_in(name) != "train" or len(flat) > 1]
        if doubtful:
            raise DataError(
                f"{self._where}: '{doubtful[0]}' beside {listed(others)} may be a split without "
                f"classes, or a class. Leave it out with --skip={doubtful[0]}, put the classes "
                "into a folder 'train', or name all classes with --class_names"
            )

    def _not_understood(self, splits, others):
        understood = ", ".join(
            f"'{name}' is the split '{split_in(name)}' ({folder.content(self._noun)})"
            for name, folder in splits.items()
        )
        unknown = ", ".join(
            f"'{name}' ({folder.content(self._noun)})"
            for name, folder in list(others.items())[:_SHOWN]
        )
        return DataError(
            f"{self._where} has folders of splits and others: {understood}; not understood: "
            f"{unknown}. Leave these out with --skip={','.join(list(others)[:_SHOWN])}, or name "
            "the folders that are classes with --class_names"
        )


def _is_split_folder(name, folder):
    """Whether a name means a split, and plainly so unless the folder has folders only."""
    words = {word.lower() for word in _WORD.findall(name)}
    is_plain = all(word in _NEUTRAL or is_split(word) or len(word) == 1 for word in words)
    return bool(split_in(name)) and (is_plain or bool(folder.inside and not folder.has_files))


def listed(names: Iterable[str]) -> str:
    """Returns the first names, for errors."""
    names = list(names)
    return ", ".join([*names[:_SHOWN], *(["..."] if names[_SHOWN:] else [])])
