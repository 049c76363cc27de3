"""Runs slow tests within a time limit: those of changed packages, then a part of all files.

    python -m tools.slow_tests [--minutes=40] [--parts=10] [--part=K]

The default part changes with the date, so --parts days run every slow test. Each file runs in a
process, two at a time. No file starts in the last ten minutes, and what runs at the end is stopped.
Prints the files that were not reached; exits with status 1 if a test failed.
"""

from __future__ import annotations

import argparse
import collections
import datetime
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
from concurrent import futures

from common import python_version

if __name__ == "__main__":
    python_version.require()

ROOT = pathlib.Path(__file__).resolve().parents[1]
_PROCESSES = 2
_LAST_START = 600.0  # seconds before the end
_NO_TESTS = 5  # exit status of pytest


def changed_files(root: pathlib.Path) -> list[str] | None:
    """Returns the files that differ from the main branch, or on it from the previous commit.

    None if the checkout is shallow and has no such commit, or is not a checkout.
    """

    def git(*arguments):
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True)
        return done.stdout.split() if done.returncode == 0 else []

    head = git("rev-parse", "HEAD")
    for branch in ("origin/main", "main"):
        base = git("merge-base", "HEAD", branch)
        if base and base != head:
            return git("diff", "--name-only", *base, "HEAD")
    before = git("rev-parse", "--verify", "--quiet", "HEAD~1")
    return git("diff", "--name-only", *before, "HEAD") if before else None


def tests_of(changed: list[str], root: pathlib.Path) -> list[str]:
    """Returns the slow test files of changed packages, and those that changed.

    A package such as `models/text` has the tests below `tests/models/text`, and those elsewhere
    that import it.
    """
    folders = {path.rpartition("/")[0] for path in changed if path.endswith(".py")}
    packages = {folder for folder in folders if folder and not folder.startswith("tests")}
    names = [re.escape(package.replace("/", ".")) for package in packages]
    split = [package.rpartition("/") for package in packages]
    names += [
        rf"{parent.replace('/', '.')} import [^\n]*\b{name}\b"
        for parent, _, name in split
        if parent
    ]
    imports = re.compile(rf"^\s*(from|import) ({'|'.join(names)})\b", re.MULTILINE)
    found = []
    for path in sorted(root.glob("tests/**/test_*.py")):
        name, text = str(path.relative_to(root)), path.read_text()
        below = name.rpartition("/")[0].partition("/")[2]
        is_of_package = below in packages or bool(names and imports.search(text))
        if re.search(r"\bslow\b", text) and (name in changed or is_of_package):
            found.append(name)
    return found


def tests_of_part(part: int, parts: int) -> list[str]:
    """Returns the files of `pytest --slow_part`, in the order of the collection."""
    arguments = ("--collect-only", "-m", "slow", f"--slow_part={part}/{parts}")
    done = subprocess.run(_pytest(*arguments), cwd=ROOT, capture_output=True, text=True)
    if done.returncode not in (0, _NO_TESTS):
        sys.exit(done.stdout + done.stderr)
    lines = [line for line in done.stdout.splitlines() if "::" in line]
    return list(dict.fromkeys(line.partition("::")[0] for line in lines))


def _pytest(*arguments):
    return [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]


class Runner:
    """Runs test files in processes until a deadline.

    Attributes:
      waiting: files that did not start.
      stopped: files that ran at the deadline.
      failed: files with failures.
    """

    def __init__(self, files: list[str], deadline: float):
        """Stores the files, and the deadline as a `time.monotonic`."""
        self.waiting = collections.deque(files)
        self.stopped: list[str] = []
        self.failed: list[str] = []
        self._deadline = deadline

    def run(self) -> None:
        """Runs the files; returns at the deadline at the latest."""
        with futures.ThreadPoolExecutor(_PROCESSES) as pool:
            done = [pool.submit(self._run_next) for _ in range(_PROCESSES)]
        for worker in done:
            worker.result()  # raises its exception

    def _run_next(self):
        while self.waiting and time.monotonic() < self._deadline - _LAST_START:
            file, started = self.waiting.popleft(), time.monotonic()
            process = subprocess.Popen(
                _pytest("-m", "slow", file),
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
            try:
                output, _ = process.communicate(timeout=self._deadline - started)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)  # with the programs that a test started
                process.communicate()
                self.stopped.append(file)
                continue
            took = f"{file}: {time.monotonic() - started:.0f} s"
            if process.returncode in (0, _NO_TESTS):
                print(took, flush=True)
            else:
                self.failed.append(file)
                print(f"{took}, FAILED\n{output}", flush=True)


def main() -> None:
    """Runs the files, prints the rest and exits."""
    today = datetime.date.today().toordinal()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=40.0, help="time limit")
    parser.add_argument("--parts", type=int, default=10, help="number of parts")
    parser.add_argument("--part", type=int, help="from 1; default: changes with the date")
    arguments = parser.parse_args()
    deadline = time.monotonic() + 60 * arguments.minutes
    part = arguments.part or today % arguments.parts + 1
    changed = changed_files(ROOT)
    if changed is None:
        print("no earlier commit in this checkout: the changed packages are unknown")
    files = [*tests_of(changed or [], ROOT), *tests_of_part(part, arguments.parts)]
    files = list(dict.fromkeys(files))
    print(f"slow tests of changed packages and part {part}/{arguments.parts}: {len(files)} files")
    runner = Runner(files, deadline)
    runner.run()
    for what, names in (("not reached", runner.waiting), ("stopped", runner.stopped)):
        if names:
            print(f"{what} in {arguments.minutes:.0f} minutes: {' '.join(names)}")
    if runner.failed:
        sys.exit(f"failed: {' '.join(runner.failed)}")


if __name__ == "__main__":
    main()
