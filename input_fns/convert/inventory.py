"""What is in the folder of --source: visible files, and those that became no example.

Every file is an example, is read for one, or is counted with a reason: `unread` lists the rest.
"""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from types import MappingProxyType

from common import folders
from common.names import is_system, normalized, printable
from input_fns.audio.sources import compressed_audio
from input_fns.convert.archive_members import ENDINGS
from input_fns.convert.files import note
from input_fns.convert.options import Options
from input_fns.dataset_info import LeftOut

SYSTEM, SKIPPED = "hidden files and files of the system", "named by --skip"
NO_EXTENSION = "files without an extension that are not used"
# Extensions that an extra reads -> what to install.
_HINTS = {
    **dict.fromkeys((".heic", ".heif"), "pip install '.[heic]' to read them, or convert them"),
    ".avif": "pip install 'pillow>=11.3' to read them, or convert them",
    **dict.fromkeys((".jp2", ".ppm", ".pgm", ".dng"), "convert them to PNG"),
    **dict.fromkeys(
        () if compressed_audio.is_available() else compressed_audio.EXTENSIONS,
        "pip install '.[audio]' to read recordings",
    ),
    **dict.fromkeys(
        (".m4a", ".aac", ".wma", ".amr", ".aif", ".aiff", ".au", ".sph", ".webm", ".mp4", ".caf"),
        "convert them, such as with ffmpeg -i OLD NEW.wav",
    ),
}


def is_skipped(name: str, options: Options) -> bool:
    """Whether a file or folder of this name is hidden, of the system, or named by --skip."""
    return is_system(name) or _is_named(name, options)


def _is_named(name, options):
    clean = normalized(name)
    return any(fnmatch.fnmatchcase(clean, normalized(pattern)) for pattern in options.skip)


def names(folder: str, options: Options) -> list[str]:
    """Returns the sorted visible names in a folder; [] if it is not a folder."""
    return [name for name in folders.names(folder) if not is_skipped(name, options)]


def subfolders(folder: str, options: Options) -> list[str]:
    """Returns the sorted names of the visible folders in a folder."""
    return [n for n in names(folder, options) if folders.is_folder(os.path.join(folder, n))]


def files(
    folder: str, options: Options, visited: Collection[object] | None = None
) -> Iterator[str]:
    """Yields the visible files in a folder and its subfolders; see `folders.files`."""
    seen = {folders.identity(folder)} if visited is None else set(visited)
    yield from folders.files(folder, seen, lambda name: is_skipped(name, options))


def hint_of_folder(options: Options, is_wanted: Callable[[str], object]) -> str:
    """Returns the end of an error that names the folder below --source of wanted files, or ""."""
    for path in files(options.source, options):
        folder, below = os.path.split(path)
        if not is_wanted(path):
            continue
        if os.path.basename(folder).lower() == "annotations":  # of COCO and VOC
            folder, parent = os.path.split(folder)
            below = os.path.join(parent, below)
        if os.path.normpath(folder) != os.path.normpath(options.source):
            folder = printable(folder)
            return f". {folder} has {printable(below)}: try --source={folder}"
    return ""


def unread(
    options: Options, used: Collection[str], reasons: Mapping[str, str] = MappingProxyType({})
) -> LeftOut:
    """Returns the files below --source that are not used, by reason.

    Args:
      options: `source` and `skip` are used.
      used: paths of the files that were read, or will be.
      reasons: `{path: reason}` of files that are left out for a reason that the source knows.
    """
    found = LeftOut()
    source = options.source
    if not source or not folders.is_folder(source):
        return found
    used = {os.path.normpath(path) if "://" not in path else path for path in used}
    identities: set[object] = set()
    parts: set[str] = set()
    for path in folders.files(source, {folders.identity(source)}):
        if (os.path.normpath(path) if "://" not in path else path) in used:
            continue
        if not identities:
            identities = {folders.identity(other) for other in used}
        if folders.identity(path) in identities:  # by another link
            continue
        below = os.path.relpath(path, source) if "://" not in path else path[len(source) :]
        below = below.lstrip("/")
        parts.update(map(normalized, below.split("/")))
        found.add(reasons.get(path) or reason_of(below, options), below)
    if options.skip and any(path.lower().endswith(ENDINGS) for path in used):
        return found  # the files in an archive are not listed
    for pattern in options.skip:
        if not fnmatch.filter(parts, normalized(pattern)):
            note(f"warning: --skip={pattern} is the name of no file or folder in {source}")
    return found


def reason_of(path: str, options: Options) -> str:
    """Returns why a file is not used, from its path below --source."""
    parts = path.split("/")
    if any(map(is_system, parts)):
        return SYSTEM
    if any(_is_named(part, options) for part in parts):
        return SKIPPED
    extension = os.path.splitext(parts[-1])[1].lower()
    if not extension:
        return NO_EXTENSION
    hint = _HINTS.get(extension)
    return f"{printable(extension)} files that are not used{f' ({hint})' if hint else ''}"
