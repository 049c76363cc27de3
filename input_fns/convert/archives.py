"""Tar and zip archives as folders: the files in one, and those of a source that has archives."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from common import folders
from common.names import normalized, printable
from input_fns import DataError
from input_fns.convert import inventory, tar_members, zip_members
from input_fns.convert.archive_members import ENDINGS, Member
from input_fns.convert.options import Options
from input_fns.dataset_info import LeftOut


def find(path: str, left_out: LeftOut) -> dict[str, tuple[int, int]]:
    """Returns `{name: (offset, size)}` of the files in an archive; see `Member`.

    Args:
      path: local or gs://; its name ends in one of `ENDINGS`.
      left_out: gets the members that are not files, and replaced ones.

    Raises:
      DataError: see `tar_members.find` and `zip_members.find`.
    """
    is_zip = path.lower().endswith(".zip")
    return (zip_members if is_zip else tar_members).find(path, left_out)


class SourceTree:
    """The visible files below --source, with those of its archives as if unpacked beside them.

    A file that is there hides one of the same path in an archive. --source may be an archive.
    """

    def __init__(self, options: Options, left_out: LeftOut):
        """Lists the archives; `left_out` gets the files in them that are not visible.

        Raises:
          DataError: an archive is not valid.
        """
        self._options, self._names = options, {}
        self._members: dict[str, Member] = {}
        self._again: dict[str, str] = {}
        source = options.source
        if folders.is_file(source):
            archives = [source] if source.lower().endswith(ENDINGS) else []
        else:
            archives = [p for p in inventory.files(source, options) if _is_archive(p)]
        for archive in archives:
            above = source if archive == source else os.path.dirname(archive)
            try:
                found = find(archive, left_out)
            except DataError as error:
                if archive == source:
                    raise
                name = os.path.basename(archive)
                raise DataError(f"{error}, or leave it out with --skip={name}") from error
            for name, place in found.items():
                if any(inventory.is_skipped(part, options) for part in name.split("/")):
                    left_out.add(inventory.reason_of(name, options), name)
                else:
                    self._add(Member(os.path.join(above, name), archive, *place))

    def _add(self, member):
        folder, name = os.path.split(member)
        if member in self._members:  # such as README, so this is an error if it is read
            self._again[member] = member.archive
            return
        if name in self._listed(folder):  # unpacked
            return
        self._members[member] = member
        while name not in self._listed(folder):
            self._names[folder].add(name)
            if folder == self._options.source:
                break
            folder, name = os.path.split(folder)

    def _listed(self, folder):
        if folder not in self._names:
            self._names[folder] = set(inventory.names(folder, self._options))
        return self._names[folder]

    def names(self, folder: str) -> list[str]:
        """Returns the sorted visible names in a folder; [] if it is not a folder."""
        return sorted(self._listed(folder))

    def is_folder(self, path: str) -> bool:
        """Whether a path is a folder, maybe in an archive."""
        return path not in self._members and bool(self._listed(path) or folders.is_folder(path))

    def child(self, folder: str, name: str) -> str:
        """Returns the path of the folder in a folder that has a name, in any case; or ""."""
        for each in self.names(folder):
            if normalized(each).lower() == name and self.is_folder(os.path.join(folder, each)):
                return os.path.join(folder, each)
        return ""

    def files(self, folder: str) -> Iterator[str]:
        """Yields the visible files in a folder and its subfolders, `Member`s of archives last."""
        if folders.is_folder(folder):
            yield from inventory.files(folder, self._options)
        yield from (path for path in self._members.values() if path.startswith(f"{folder}/"))

    def path(self, path: str) -> str:
        """Returns the path as a `Member` if it is in an archive.

        Raises:
          DataError: it is in two.
        """
        if path in self._again:
            raise DataError(
                f"{printable(path)} is in {self._members[path].archive} and in "
                f"{self._again[path]}. Leave one out with "
                f"--skip={os.path.basename(self._again[path])}"
            )
        return self._members.get(path, path)

    def add_unused(
        self, used: set[str], left_out: LeftOut, reasons: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """Adds the files in archives that are not in `used` to `left_out`.

        Args:
          used: paths of files.
          left_out: what to add them to.
          reasons: `{path: reason}`, of files that are left out for a reason that the source knows.
        """
        for path in self._members.keys() - used:
            below = path[len(self._options.source) :].lstrip("/")
            left_out.add(reasons.get(path) or inventory.reason_of(below, self._options), below)


def _is_archive(path):
    return path.lower().endswith(ENDINGS)
