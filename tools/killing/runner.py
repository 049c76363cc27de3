"""Runs a command, kills it before a system call, and summarizes its files."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pathlib
import re
import shutil
import sys
from collections.abc import Iterable

from tools.killing import seccomp

_MODEL = [
    "run_cpu.py",
    "--model=mlp",
    "--params=hidden_units=8",
    "--dataset=digits",
    "--data_dir=data",
    "--model_dir=model",
    "--train_batch_size=64",
    "--noexport_check",
    "--seed=1",
]
_TRAIN = ["--train_steps=6", "--save_checkpoints_steps=2", "--keep_checkpoint_max=2"]
_BEST = ["--mode=train_and_eval", *_TRAIN, "--best_metric=average_loss"]
_DIGITS = ["prepare_data.py", "--dataset=digits", "--data_dir=data"]
_HOLD_OUT = ["--validation_fraction=0.3"]
_MNIST = ["prepare_data.py", "--dataset=mnist", "--data_dir=new"]


@dataclasses.dataclass(frozen=True)
class Command:
    """A command to kill.

    Attributes:
      argv: the command line, with paths relative to its folder.
      before: commands that prepare the folder.
      raw: kind of `fuzzing.samples` that is written to the folder "raw".
    """

    argv: list[str]
    before: tuple[list[str], ...] = ()
    raw: str = "idx"


def _prepare(dataset, raw, *flags, source="raw"):
    """Returns the command that prepares a data set from files of `samples.write_{raw}`."""
    given = [f"--dataset={dataset}", f"--source={source}", "--data_dir=new", "--shards=3", *flags]
    return Command(["prepare_data.py", *given], raw=raw)


COMMANDS = {
    "train": Command([*_MODEL, "--mode=train", *_TRAIN], (_DIGITS,)),
    "train_and_eval": Command([*_MODEL, *_BEST, "--export_dir=export"], (_DIGITS,)),
    "export": Command(
        [*_MODEL, "--mode=export", "--checkpoint=best", "--export_dir=export"],
        (_DIGITS, [*_MODEL, *_BEST]),
    ),
    "eval": Command([*_MODEL, "--mode=eval", "--checkpoint=best"], (_DIGITS, [*_MODEL, *_BEST])),
    "predict": Command(
        [*_MODEL, "--mode=predict", "--checkpoint=best"], (_DIGITS, [*_MODEL, *_BEST])
    ),
    "prepare": Command([*_MNIST, "--source=raw", "--shards=2"]),
    "overwrite": Command(
        [*_MNIST, "--source=raw", "--shards=3", "--overwrite"],
        ([*_MNIST, "--source=raw", "--shards=2", "--test_fraction=0"],),
    ),
    "images": _prepare("image_folder", "images", *_HOLD_OUT, source="raw/images"),
    "boxes": _prepare(
        "coco", "annotated_images", "--task=detection", *_HOLD_OUT, source="raw/coco"
    ),
    "recordings": _prepare("audio_folder", "recordings", *_HOLD_OUT),
    "clicks": _prepare("criteo", "clicks", "--hash_rows=3", *_HOLD_OUT),
    "pairs": _prepare("parallel_text", "parallel_text", "--languages=en,de", "--vocab_size=512"),
    "sentences": _prepare(
        "text_files",
        "texts",
        *("--text_columns=text", "--label_columns=label", "--vocab_size=512", "--skip=wiki.txt"),
        *_HOLD_OUT,
    ),
    "documents": _prepare(
        "pretraining_text",
        "texts",
        *("--vocab_size=512", "--dupe_factor=2"),
        *_HOLD_OUT,
        source="raw/wiki.txt",
    ),
}
# Names of temporary files, which a completed run must not leave.
_LEFTOVER = re.compile(r"partial|temp-|_temp|tempstate|\.tmp|writable")
_EVENTS = re.compile(r"events\.out\.tfevents")
# Random parts of names, and versions of exports.
_RANDOM = re.compile(r"[0-9a-f]{8,}|(?<=writable-)\d+")
_VERSION = re.compile(r"^(export/)(\d{10})(/.*)?$")
# Sections and keys of result_<step>.json with times.
_TIMES = re.compile(r"^train$|seconds|per_second|time")


@dataclasses.dataclass(frozen=True)
class Killed:
    """The state after a kill.

    Attributes:
      call: description of the call that did not happen; "" if the run ended before.
      state: digest of all files.
    """

    call: str
    state: str


def summary(folder: pathlib.Path) -> dict[str, str]:
    """Returns `{path: digest}` of the files of a run, without times, events and old exports."""
    versions = sorted(path.name for path in folder.glob("export/*") if path.name.isdigit())
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        version = _VERSION.match(name)
        if version and version[2] != versions[-1]:
            continue
        if version:
            name = f"export/VERSION{version[3] or ''}"
        # No .meta: nothing reads it, and a resumed run does not write one that is missing.
        if not _EVENTS.search(name) and path.suffix != ".meta":
            found[name] = "folder" if path.is_dir() else _digest(path, folder)
    return found


def _digest(path, folder):
    if path.suffix == ".pbtxt":
        return "graph"  # its input pipeline starts at the step that training resumes from
    content = path.read_bytes()
    if path.name.startswith("result_"):
        content = json.dumps(_without_times(json.loads(content)), sort_keys=True).encode()
    content = content.replace(os.fsencode(str(folder)), b"@")
    if path.suffix == ".json":
        content = re.sub(rb"export/\d{10}", b"export/VERSION", content)
    return hashlib.sha1(content).hexdigest()


def _without_times(value):
    if not isinstance(value, dict):
        return value
    return {k: _without_times(v) for k, v in value.items() if not _TIMES.search(k)}


def state(folder: pathlib.Path, volatile: set[str]) -> str:
    """Returns a digest of all files.

    For files that differ between equal runs (volatile or temporary files, events), only whether
    they are empty counts.
    """
    lines = []
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        is_temporary = bool(_LEFTOVER.search(name))
        content = "folder"
        if path.is_file():
            is_exact = not (is_temporary or name in volatile or _EVENTS.search(name))
            data = path.read_bytes()
            content = hashlib.sha1(data).hexdigest() if is_exact else str(bool(data))
        if is_temporary or name.startswith("export/"):
            name = _RANDOM.sub("#", name)
        lines.append(f"{_EVENTS.split(name)[0]} {content}")
    return hashlib.sha1("\n".join(sorted(lines)).encode()).hexdigest()


def _step(path):
    """Returns the step of a checkpoint file in model_dir; -1 for other files."""
    found = re.fullmatch(r"model/model\.ckpt-(\d+)\..+", path)
    return int(found[1]) if found else -1


def _is_complete(path, found):
    prefix = path.partition(".data-")[0].removesuffix(".index")
    return {f"{prefix}.index", f"{prefix}.data-00000-of-00001"} <= found.keys()


class Runner:
    """Runs commands in separate folders, each in a fork of this process."""

    def __init__(self, folder: pathlib.Path):
        """Creates `folder`, for all files."""
        self.folder = folder
        self._log = folder / "log.txt"
        folder.mkdir(parents=True)

    def prepare(self, name: str, start: pathlib.Path) -> None:
        """Runs the commands before a command, in the new folder `start`."""
        from tools.fuzzing import samples

        start.mkdir(parents=True)
        getattr(samples, f"write_{COMMANDS[name].raw}")(start / "raw")
        for argv in COMMANDS[name].before:
            status = self._run(argv, start)
            if status:
                raise RuntimeError(f"{' '.join(argv)}: {self._log.read_text()}")

    def run_uninterrupted(self, name: str, start: pathlib.Path):
        """Runs a command; returns its watched calls and the summary of its files."""
        folder = self._copy(start)
        calls = []
        status = self._run(COMMANDS[name].argv, folder, calls.append)
        if status:
            raise RuntimeError(f"{name}: {self._log.read_text()}")
        return [_describe(call, folder) for call in calls], summary(folder)

    def kill(self, name: str, start: pathlib.Path, point: int, volatile: set[str]) -> Killed:
        """Runs a command and kills it before the watched call number `point`."""
        folder = self._copy(start)
        calls = []
        self._run(COMMANDS[name].argv, folder, calls.append, point)
        call = _describe(calls[point], folder) if len(calls) > point else ""
        return Killed(call, state(folder, volatile))

    def run_again(self, name: str, expected: dict[str, str], volatile: set[str]) -> list[str]:
        """Runs the killed command again; returns the differences to an uninterrupted run."""
        folder = self.folder / "run"
        try:
            status = self._run(COMMANDS[name].argv, folder)
        except TimeoutError as error:
            return [str(error)]
        if status:
            return [f"status {status}: {self._log.read_text()[-400:].strip()}"]
        found = summary(folder)
        lines = leftovers(found)
        lines += [f"{path} is missing" for path in sorted(expected.keys() - found.keys())]
        more = sorted(found.keys() - expected.keys())
        # A complete, older checkpoint that the saver was about to remove may stay.
        oldest = min((_step(path) for path in expected if _step(path) >= 0), default=-1)
        kept = {path for path in more if 0 <= _step(path) < oldest and _is_complete(path, found)}
        more = [path for path in more if path not in kept and not _LEFTOVER.search(path)]
        lines += [f"{path} is unexpected" for path in more]
        both = sorted(expected.keys() & found.keys() - volatile)
        return lines + [f"{path} differs" for path in both if found[path] != expected[path]]

    def _copy(self, start):
        folder = self.folder / "run"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(start, folder)
        return folder

    def _run(self, argv, folder, note=lambda call: None, kill_at=None):
        """Runs a program; calls `note` with its calls in `folder`, and kills it before one."""
        seen = 0

        def decide(call):
            nonlocal seen
            if not os.path.normpath(call.path).startswith(f"{folder}/"):
                return True
            note(call)
            seen += 1
            return seen - 1 != kill_at

        return seccomp.run(lambda: self._main(argv, folder), decide)

    def _main(self, argv, folder):
        with open(self._log, "wb") as log:
            for number in (1, 2):
                os.dup2(log.fileno(), number)
        os.chdir(folder)
        sys.argv = argv
        import prepare_data
        import run_cpu
        from engine.cli import startup

        if argv[0] == "run_cpu.py":
            startup.start(argv, "", "engine.cli.flags", "engine.cli.cpu_flags")
            startup.run(run_cpu.main)
        else:
            startup.start(argv, "", "input_fns.convert.flags")
            startup.run(prepare_data.main)


def leftovers(found: Iterable[str]) -> list[str]:
    """Returns a line per temporary file or folder, without the contents of folders."""
    paths = sorted(path for path in found if _LEFTOVER.search(path))
    outer = [path for path in paths if not any(path.startswith(f"{other}/") for other in paths)]
    return [f"{_RANDOM.sub('#', path)} is left behind" for path in outer]


def _describe(call, folder):
    path = os.path.relpath(os.path.normpath(call.path), folder)
    path = "/".join("events" if _EVENTS.search(part) else part for part in path.split("/"))
    return f"{call.name} {_RANDOM.sub('#', path)}"
