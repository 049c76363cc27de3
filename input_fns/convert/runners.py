"""Runs the tasks that write shards: in this process, or in a pool of processes.

`beam_runner.Beam` is the third `Runner`.
"""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import multiprocessing
import os
from collections.abc import Iterable, Iterator
from concurrent.futures.process import BrokenProcessPool

from input_fns import DataError
from input_fns.convert import shard_tasks
from input_fns.convert.shard_tasks import ShardResult, ShardTask


class LostWorkerError(DataError):
    """A process that wrote shards was killed."""


class Runner:
    """Runs tasks in any order.

    Attributes:
      min_examples: the writer uses `InProcess` for fewer examples, and for one shard; 0: for none.
      yields_early: whether results come as shards are written, rather than together at the end.
      replaced_note: line to print if the source has one reader and `InProcess` runs the tasks.
    """

    min_examples = 0
    yields_early = True
    replaced_note = ""

    def map(self, tasks: Iterable[ShardTask]) -> Iterator[ShardResult]:
        """Yields the result of each task, in their order."""
        raise NotImplementedError


def of(workers: int) -> Runner:
    """Returns the runner of --workers, the number of processes; 0: one per core."""
    workers = workers or os.cpu_count()
    return InProcess() if workers == 1 else Processes(workers)


class InProcess(Runner):
    """Runs one task after the other in this process."""

    def map(self, tasks: Iterable[ShardTask]) -> Iterator[ShardResult]:
        """Yields the result of each task."""
        for task in tasks:
            yield shard_tasks.run(task)


class Processes(Runner):
    """Runs tasks in a pool of processes, which import no TensorFlow for local files."""

    min_examples = 2000  # with fewer, starting processes takes longer than writing

    def __init__(self, workers: int):
        """Takes the number of processes."""
        self._workers = workers

    def map(self, tasks: Iterable[ShardTask]) -> Iterator[ShardResult]:
        """Yields the result of each task. A few tasks are prepared before they are needed.

        Raises:
          LostWorkerError: a process was killed.
        """
        # Not by fork: it would copy the state of TensorFlow's threads.
        context = multiprocessing.get_context("spawn")
        back = {"initializer": os.chdir, "initargs": (os.getcwd(),)}
        with _in_root_folder():  # this starts a process, and so may each task
            pool = concurrent.futures.ProcessPoolExecutor(self._workers, context, **back)
        waiting: collections.deque = collections.deque()
        try:
            for task in tasks:
                if len(waiting) > 2 * self._workers:
                    yield _result(*waiting.popleft())
                try:
                    with _in_root_folder():
                        future = pool.submit(shard_tasks.run, task)
                except BrokenProcessPool as error:
                    future = concurrent.futures.Future()
                    future.set_exception(error)
                waiting.append((future, task.split, task.begin, task.end))
            while waiting:
                yield _result(*waiting.popleft())
        finally:
            pool.shutdown(cancel_futures=True)


def _result(future, split, begin, end):
    try:
        return future.result()
    except BrokenProcessPool as error:
        raise LostWorkerError(
            f"a worker process was killed, perhaps out of memory, while examples {begin} to "
            f"{end - 1} of '{split}' were written. Use --workers=1 to save memory"
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
