"""Cases as files: what a case gives a program, independent of the generator that made it.

`tests/tools/fuzz_cases/<kind>.json` is a list of cases that found faults. `python -m tools.fuzz
--case=KIND:SEED --store` appends one.
"""

from __future__ import annotations

import base64
import gzip
import json
import os
import pathlib
import shutil
import stat
from typing import Any

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "tests" / "tools" / "fuzz_cases"
# Longer contents are compressed: JSON may be nested 100,000 times.
_LONGEST = 2000


def read(kind: str) -> list[dict[str, Any]]:
    """Returns the stored cases of a kind."""
    path = FOLDER / f"{kind}.json"
    return json.loads(path.read_text()) if path.exists() else []


def append(kind: str, case: dict[str, Any]) -> None:
    """Adds a case to those of a kind."""
    FOLDER.mkdir(exist_ok=True)
    text = json.dumps([*read(kind), case], indent=1)
    (FOLDER / f"{kind}.json").write_text(f"{text}\n")


def dump(case, plan: dict[str, Any]) -> dict[str, Any]:
    """Returns the input of a program: the plan, and what differs from the copied valid files.

    Args:
      case: a `Case` whose `work` is complete.
      plan: JSON of how to run the program.
    """
    original = {}
    for name, source in case.copied.items():
        for path in (case.base / source).rglob("*"):
            original[os.path.join(name, path.relative_to(case.base / source))] = path
    found = {
        os.path.relpath(os.path.join(folder, name), case.work): os.path.join(folder, name)
        for folder, folders, names in os.walk(case.work)
        for name in (*folders, *names)
    }
    paths = _paths(case)
    entries = {
        name: _replace(_entry(path), paths)
        for name, path in found.items()
        if name not in case.copied
    }
    files = {
        name: entry
        for name, entry in sorted(entries.items())
        if name != "cwd" and (name not in original or entry != _entry(original[name]))
    }
    return {
        "plan": _replace(plan, _paths(case)),
        "copied": dict(case.copied),
        "removed": sorted(original.keys() - found.keys() - case.copied.keys()),
        "files": files,
    }


def load(case, stored: dict[str, Any]) -> dict[str, Any]:
    """Replaces the files in the `work` of a case by the stored ones; returns the plan."""
    for path in case.work.iterdir():
        if path.name != "cwd":
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    for name, source in stored["copied"].items():
        case.copy_base(source, name)
    for name in [*stored["removed"], *stored["files"]]:
        path = case.work / name
        if path.is_symlink() or path.is_file():
            path.unlink()
        elif path.is_dir() and "folder" not in stored["files"].get(name, ()):
            shutil.rmtree(path)
    paths = {name: path for path, name in _paths(case).items()}
    for name, entry in stored["files"].items():
        _write(case.work / name, _replace(entry, paths))
    return _replace(stored["plan"], paths)


def _paths(case):
    """Returns the placeholders of the folders of a case, `{path: placeholder}`."""
    return {str(case.work): "@WORK@", str(case.base): "@BASE@"}


def _entry(path):
    mode = os.lstat(path).st_mode
    if stat.S_ISLNK(mode):
        return {"link": os.readlink(path)}
    if stat.S_ISDIR(mode):
        return {"folder": True}
    if stat.S_ISFIFO(mode):
        return {"fifo": True}
    content = pathlib.Path(path).read_bytes()
    if len(content) > _LONGEST:
        return {"gzip": base64.b64encode(gzip.compress(content, mtime=0)).decode()}
    try:
        return {"text": content.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}


def _write(path, entry):
    ((kind, value),) = entry.items()
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "link":
        path.symlink_to(value)
    elif kind == "folder":
        path.mkdir(exist_ok=True)
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "text":
        path.write_bytes(value.encode())
    else:
        content = base64.b64decode(value)
        path.write_bytes(gzip.decompress(content) if kind == "gzip" else content)


def _replace(value, names):
    """Returns JSON with parts of its texts replaced."""
    if isinstance(value, str):
        for old, new in names.items():
            value = value.replace(old, new)
        return value
    if isinstance(value, list):
        return [_replace(item, names) for item in value]
    if isinstance(value, dict):
        return {name: _replace(item, names) for name, item in value.items()}
    return value
