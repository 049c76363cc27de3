"""Runs functions on parts of a data set: in this process, or in a pool of processes.

The parts are those of the source that are read, and the tasks that write shards. `beam_runner.Beam`
is the third `Runner`.
"""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import itertools
import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from input_fns import DataError
from input_fns.convert import shard_tasks
from input_fns.convert.shard_tasks import ShardResult, ShardTask
from input_fns.convert.work_folder import WorkFolder


class LostWorkerError(DataError):
    """A process that read or wrote a part of the data set was killed."""


class Runner:
    """Runs functions on items. A context, whose end stops its processes and removes its folder.

    Attributes:
      min_examples: the writer uses `InProcess` for fewer examples, and for one shard; 0: for none.
      yields_early: whether results come as shards are written, rather than together at the end.
      replaced_note: line to print if the source has one reader and `InProcess` runs the tasks.
    """

    min_examples = 0
    yields_early = True
    replaced_note = ""
    _work_folder: WorkFolder | None = None

    @property
    def folder(self) -> str:
        """A folder for temporary files, which all workers see."""
        if self._work_folder is None:
            self._work_folder = WorkFolder()
        return self._work_folder.path

    def require_visible(self, **paths: str) -> None:
        """Checks that the workers see the folders of flags, `{flag: path}`: here, they do."""

    def apply(
        self,
        function: Callable[[Any], Any],
        items: Iterable[Any],
        what: Callable[[Any], str] = lambda item: "the source was read",
    ) -> Iterator[Any]:
        """Yields `function(item)` for each item, in their order.

        Args:
          function: a function that can be pickled, as items and results. It is pickled with each
            item: see `shared_array.SharedArray` for what is large.
          items: the items.
          what: returns what was done with an item, for the error if its process is killed.

        Raises:
          LostWorkerError: a process was killed.
          Exception: the function raised it.
        """
        raise NotImplementedError

    def map(self, tasks: Iterable[ShardTask]) -> Iterator[ShardResult]:
        """Yields the result of each task that writes a shard; see `apply`."""

        def what(task):
            return f"examples {task.begin} to {task.end - 1} of '{task.split}' were written"

        return self.apply(shard_tasks.run, tasks, what)

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *error) -> None:
        if self._work_folder is not None:
            self._work_folder.remove()


def of(workers: int) -> Runner:
    """Returns the runner of --workers, the number of processes; 0: one per core."""
    workers = workers or os.cpu_count()
    return InProcess() if workers == 1 else Processes(workers)


class InProcess(Runner):
    """Runs one item after the other in this process."""

    def apply(self, function, items, what=None):
        """See `Runner.apply`."""
        yield from map(function, items)


class Processes(Runner):
    """Runs items in a pool of processes, which import no TensorFlow for local files."""

    min_examples = 2000  # with fewer, starting processes takes longer than writing

    def __init__(self, workers: int):
        """Takes the number of processes, which start with the first items."""
        self._workers, self._pool = workers, None

    def apply(self, function, items, what=lambda item: "the source was read"):
        """See `Runner.apply`. One item is not worth a process, and runs in this one."""
        items = iter(items)
        first = list(itertools.islice(items, 2))
        if len(first) < 2:
            yield from map(function, first)
            return
        pool = self._start()
        waiting: collections.deque = collections.deque()
        try:
            for item in itertools.chain(first, items):
                if len(waiting) > 2 * self._workers:
                    yield _result(*waiting.popleft())
                try:
                    with _in_root_folder():
                        future = pool.submit(function, item)
                except BrokenProcessPool as error:
                    future = concurrent.futures.Future()
                    future.set_exception(error)
                waiting.append((future, what(item)))
            while waiting:
                yield _result(*waiting.popleft())
        finally:
            # What still runs may write files that the caller is about to remove.
            for future, _ in waiting:
                if not future.cancel():
                    future.exception()

    def _start(self):
        if self._pool is None:
            # Not by fork: it would copy the state of TensorFlow's threads.
            context = multiprocessing.get_context("spawn")
            back = {"initializer": os.chdir, "initargs": (os.getcwd(),)}
            with _in_root_folder():  # this starts a process, and so may each item
                self._pool = concurrent.futures.ProcessPoolExecutor(self._workers, context, **back)
        return self._pool

    def __exit__(self, *error) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        super().__exit__(*error)


def _result(future, what):
    try:
        return future.result()
    except BrokenProcessPool as error:
        raise LostWorkerError(
            f"a worker process was killed, perhaps out of memory, while {what}. Use --workers=1 to "
            "save memory"
        ) from error


@contextlib.contextmanager
def _in_root_folder():
    """Starts processes in "/"; their initializer returns to the working folder.

    multiprocessing starts them with `python -c`, which imports from the working folder first: it
    would run a pickle.py there.
    """
    before = os.open(".", os.O_RDONLY)
    try:
        os.chdir("/")
        yield
    finally:
        os.fchdir(before)
        os.close(before)
