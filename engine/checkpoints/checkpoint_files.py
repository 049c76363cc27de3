"""Names and files of checkpoints in a folder. Imports TensorFlow for remote folders only."""

from __future__ import annotations

import os
import re

from common import folders
from common.errors import UsageError

BEST_DIR = "best"
_ENSEMBLE = "ensemble:"

_FILE = re.compile(r"(?P<name>.+)\.(?P<part>index|meta|data-\d{5}-of-\d{5})")
# A checkpoint that training saved; others, such as published ones, may have any name.
_TRAINING_NAME = re.compile(r"model\.ckpt-(\d{1,18})")


def to_prefix(path: str) -> str:
    """Returns the path of the checkpoint that a path means: of one of its files, or with a slash.

    `model.ckpt-7.index`, `model.ckpt-7.data-00000-of-00001` and `model.ckpt-7/` are
    `model.ckpt-7`, and the file `checkpoint`, a list of checkpoints, is its folder.
    """
    path = path.rstrip("/") or path
    if folders.is_folder(path):
        return path
    folder, name = os.path.split(path)
    if name == "checkpoint" and not folders.exists(f"{path}.index"):
        return folder or "."
    match = _FILE.fullmatch(name)
    return os.path.join(folder, match["name"]) if match else path


def list_parts(folder: str) -> dict[str, set[str]]:
    """Returns `{name: {"index", "meta", "data-..."}}` of the checkpoints in `folder`."""
    found = {}
    for match in filter(None, map(_FILE.fullmatch, folders.names(folder))):
        found.setdefault(match["name"], set()).add(match["part"])
    return found


def list_steps(folder: str) -> dict[int, set[str]]:
    """Returns `list_parts` by global step, of the checkpoints `model.ckpt-<step>` only."""
    found = {}
    for name, parts in list_parts(folder).items():
        if match := _TRAINING_NAME.fullmatch(name):
            found[int(match[1])] = parts
    return found


def list_paths(folder: str) -> list[str]:
    """Returns the paths of the checkpoints in `folder` that have an index, oldest first."""
    found = [name for name, parts in list_parts(folder).items() if "index" in parts]
    found.sort(key=lambda name: (step_from_name(name), name))
    return [os.path.join(folder, name) for name in found]


def is_there(path: str) -> bool:
    """Returns True for a checkpoint or a folder that has one, valid or not; see `to_prefix`."""
    path = to_prefix(path)
    return bool(list_paths(path)) if folders.is_folder(path) else folders.exists(f"{path}.index")


def folder_or_path(model_dir: str, which: str) -> str:
    """Returns the folder of the checkpoints "latest" or "best"; `to_prefix` of any other path."""
    found = {"latest": model_dir, "best": os.path.join(model_dir, BEST_DIR)}.get(which)
    return to_prefix(which) if found is None else found


def is_made(which: str) -> bool:
    """Returns True for "average:N" and "ensemble:A,B", which this process makes of others."""
    return which.startswith(("average:", _ENSEMBLE))


def ensemble_parts(which: str) -> list[str]:
    """Returns the checkpoints of "ensemble:A,B": A and B; [] for others."""
    if not which.startswith(_ENSEMBLE):
        return []
    return [os.path.expanduser(part.strip()) for part in which[len(_ENSEMBLE) :].split(",")]


def not_found(model_dir: str, which: str) -> UsageError:
    """Returns the error for a missing checkpoint `which`; see `find.find_checkpoint`."""
    hint = "train with --best_metric to keep one"
    if which != "best":
        hint = ", ".join(list_paths(model_dir))
    message = f"no checkpoint in {folder_or_path(model_dir, which)}"
    return UsageError(f"{message} ({hint})" if hint else message)


def list_files(checkpoint: str) -> list[str]:
    """Returns the paths of a checkpoint's files, the index first: it is useless without it."""
    folder, name = os.path.split(checkpoint)
    parts = list_parts(folder).get(name, ())
    return [f"{checkpoint}.{part}" for part in sorted(parts, key=lambda p: p != "index")]


def newest_step(folder: str) -> int:
    """Returns the step of the newest checkpoint, whether valid or not; -1 if there is none."""
    return max((n for n, parts in list_steps(folder).items() if "index" in parts), default=-1)


def step_from_name(checkpoint: str) -> int:
    """Returns the number at the end of a checkpoint's name or path; -1 if it has none."""
    number = re.search(r"\d{1,18}$", os.path.basename(checkpoint))
    return int(number[0]) if number else -1


def path_for_step(folder: str, step: int) -> str:
    """Returns the path of the checkpoint of a global step."""
    return os.path.join(folder, f"model.ckpt-{step}")
