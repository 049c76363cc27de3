"""Finds the files that tables and annotations name, as written by other tools and systems."""

from __future__ import annotations

import os
import posixpath
import re
import urllib.parse
from collections.abc import Callable, Iterable

from common import folders
from common.names import normalized, printable
from input_fns import DataError
from input_fns.convert import inventory
from input_fns.convert.options import Options

_LOCAL_FILES = "/data/local-files/?d="  # of Label Studio, before a path


class Finder:
    """Finds files below a folder by names from a table. Lists each folder once; never leaves it.

    A name may have the back slashes of Windows, another Unicode form or case of its extension, or
    no extension. Of a path that leads out of the folder, such as `C:/photos/a.jpg`,
    `../../media/upload/4/a.jpg` or `https://host/media/a.jpg`, the longest end that is a file below
    the folder counts.
    """

    def __init__(
        self,
        folder: str,
        extensions: tuple[str, ...] = (),
        names_in: Callable[[str], Iterable[str]] = folders.names,
    ):
        """Takes the folder, the extensions of names that have none, and what lists a folder."""
        self.folder, self._extensions, self._names_in = folder, extensions, names_in
        self._listed: dict[str, dict[str, str]] = {}

    def find(self, name: str) -> str | None:
        """Returns the path of a file, or None if it is not there."""
        name = normalized(name)
        if not name or "\0" in name:
            return None
        below_root = name.partition(_LOCAL_FILES)[2]
        name = f"/{below_root}" if below_root else name  # the root of its files is unknown
        path_of_url = re.sub(r"[?#].*", "", name) if "://" in name else name
        spellings = (name, urllib.parse.unquote(name), urllib.parse.unquote(path_of_url))
        for spelling in dict.fromkeys(spellings):
            path = self._find_end(spelling.replace("\\", "/"))
            if path:
                return path
        return None

    def _find_end(self, name):
        parts = [p for p in posixpath.normpath(name).split("/") if p not in ("", ".", "..")]
        for start in range(len(parts) if leads_out(name) else min(1, len(parts))):
            path = self._path(parts[start:])
            if path:
                return path
        return None

    def _path(self, parts):
        *parents, base = parts
        folder = self.folder
        for parent in parents:
            real = self._real_name(folder, parent)
            if real is None:
                return None
            folder = os.path.join(folder, real)
        for extension in ("", *self._extensions):
            real = self._real_name(folder, base + extension)
            if real is not None:
                return os.path.join(folder, real)
        return None

    def _real_name(self, folder, name):
        if folder not in self._listed:
            found = list(self._names_in(folder))
            # Names as they are hide those that differ in the case of the extension.
            self._listed[folder] = {
                **{_key(name): name for name in found},
                **{normalized(name): name for name in found},
            }
        return self._listed[folder].get(name) or self._listed[folder].get(_key(name))


class FinderByName:
    """Finds a file by its path below a folder, or by its name if only one file has it."""

    def __init__(self, options: Options, extensions: tuple[str, ...]):
        """Uses `source` and `skip` of the options; `extensions` as in `Finder`."""
        self._options, self._extensions = options, extensions
        self._finder = Finder(options.source, extensions)
        self._by_name: dict[str, list[str]] = {}

    def find(self, where: str, name: str) -> str | None:
        """Returns the path of a file, or None if it is not there.

        Raises:
          DataError: several files have the name.
        """
        path = self._finder.find(name)
        if path is not None and not folders.is_folder(path):
            return path
        if not name or "/" in name or "\\" in name:
            return None
        if not self._by_name:
            for path in inventory.files(self._options.source, self._options):
                self._by_name.setdefault(_key(os.path.basename(path)), []).append(path)
        names = [normalized(name) + extension for extension in ("", *self._extensions)]
        alike = [path for each in map(_key, names) for path in self._by_name.get(each, ())]
        found = [path for path in alike if normalized(os.path.basename(path)) in names] or alike
        if len(found) > 1:
            raise DataError(
                f"{where}: '{printable(name)}' may be {printable(found[0])} or "
                f"{printable(found[1])}. Write the folder in the table, too"
            )
        return found[0] if found else None


def leads_out(name: str) -> bool:
    """Whether a name is not that of a file below a folder: `/a`, `../a`, `C:/a`, `https://a`."""
    inside = posixpath.normpath(name.replace("\\", "/"))
    is_below = not inside.startswith(("/", "../")) and ":" not in inside.split("/")[0]
    return not is_below or inside in (".", "..") or "\0" in inside


def is_another(name: str, other: str) -> bool:
    """Whether names that `Finder` found in one file, maybe by their ends, are of two files."""
    name, other = (re.sub(r"(://[^?#]*).*", r"\1", n.replace("\\", "/")) for n in (name, other))
    return name != other and (leads_out(name) or leads_out(other))


def _key(name):
    """Returns a name in composed form with its extension in lower case."""
    stem, extension = os.path.splitext(normalized(name))
    return stem + extension.lower()
