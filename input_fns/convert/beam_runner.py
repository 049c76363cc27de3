"""Reads parts of a source and writes shards with Apache Beam, on this machine or on a cluster.

Most Beam runners return no values to the program that starts a pipeline. So items and results are
files in a folder, which the workers must see: it is below data_dir.
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import secrets
import shlex
import signal
import sys
import threading

from common import files, folders, names
from input_fns import DataError
from input_fns.convert.runners import LostWorkerError, Runner

# Names of classes.
_DIRECT = "SwitchingDirectRunner"
_ON_THIS_MACHINE = (_DIRECT, "FnApiRunner", "BundleBasedDirectRunner", "PrismRunner")
_NETWORK_FILE_SYSTEMS = (
    *("9p", "afs", "beegfs", "ceph", "cifs", "fuse.ceph", "fuse.gcsfuse", "fuse.glusterfs"),
    *("fuse.sshfs", "gpfs", "lustre", "nfs", "nfs4", "smb3", "virtiofs"),
)
_FOLDER = "work.partial"
_ITEM, _RESULT = "item-", "result-"
_MAX_ERROR = 500  # characters


class Beam(Runner):
    """Runs items as the elements of a Beam pipeline.

    An item may run more than once, also at the same time: Beam retries, and some runners start a
    second attempt of a slow one.
    """

    yields_early = False
    replaced_note = "read by this process, not by Beam: the source has one reader"

    def __init__(self, options: str, data_dir: str):
        """Takes pipeline options, such as "--runner=DirectRunner --direct_num_workers=2".

        Args:
          options: pipeline options of Beam.
          data_dir: the temporary folder is in it.

        Raises:
          DataError: Apache Beam is not installed, or an option is invalid.
        """
        try:
            from apache_beam.options import pipeline_options
            from apache_beam.runners.runner import create_runner
        except ImportError as error:
            raise DataError(
                "--runner=beam needs Apache Beam: pip install '.[beam]', in a separate environment "
                f"({error})"
            ) from error
        self._data_dir, self._has_folder = data_dir, False
        printed = io.StringIO()
        try:
            with contextlib.redirect_stderr(printed):
                self._options = pipeline_options.PipelineOptions(shlex.split(options))
                self._options.get_all_options()  # parses them
        except SystemExit as error:  # by argparse
            problem = printed.getvalue().strip().rpartition("error: ")[2]
            raise DataError(f"--beam_options: {problem}") from error
        name = self._options.view_as(pipeline_options.StandardOptions).runner or "DirectRunner"
        try:
            self.name = type(create_runner(name)).__name__
        except (AttributeError, ImportError, ValueError) as error:
            raise DataError(f"--beam_options: --runner={name}: {error}") from error
        if self.name == _DIRECT:
            # DirectRunner would first try to download and run Prism, which has other options.
            self._options.view_as(pipeline_options.TypeOptions).allow_unsafe_triggers = True
        logs = self._options.view_as(pipeline_options.WorkerOptions)
        logs.default_sdk_harness_log_level = logs.default_sdk_harness_log_level or "WARNING"
        self._has_local_workers = _has_local_workers(self.name, self._options)

    def require_visible(self, **paths: str) -> None:
        """Checks that workers on other machines see the folders of flags, `{flag: path}`.

        Raises:
          DataError: one is on this machine only.
        """
        for flag, path in paths.items():
            is_seen = self._has_local_workers or not path or names.is_remote(path)
            if not is_seen and (self.name == "DataflowRunner" or not _is_shared(path)):
                raise DataError(
                    f"--{flag}={path} is on this machine, where the workers of {self.name} do not "
                    "run. Use gs://, or except on Dataflow a network file system"
                )

    @property
    def folder(self) -> str:
        """A folder in data_dir."""
        path = os.path.join(self._data_dir, _FOLDER)
        if not self._has_folder:
            folders.make(path)
            self._has_folder = True
        return path

    def __exit__(self, *error) -> None:
        if self._has_folder:
            folders.remove(self.folder)

    def apply(self, function, items, what=None):
        """See `Runner.apply`; yields the first result when all items are done.

        Raises:
          LostWorkerError: the pipeline failed.
        """
        run = secrets.token_hex(4)
        paths: list[str] = []
        try:
            for number, item in enumerate(items):
                paths.append(os.path.join(self.folder, f"{_ITEM}{run}-{number:05d}"))
                with files.open_bytes(paths[-1], "wb") as file:
                    file.write(pickle.dumps((function, item)))
            self._run(paths)
            for path in paths:
                yield self._result(path)
        finally:
            for path in (each for item in paths for each in (item, _result_path(item))):
                with contextlib.suppress(folders.missing_error(path)):
                    folders.gfile().remove(path) if names.is_remote(path) else os.unlink(path)

    def _run(self, paths):
        import apache_beam as beam
        from apache_beam.runners.runner import PipelineState

        pipeline = beam.Pipeline(options=self._options)
        _ = (
            pipeline
            | "ListItems" >> beam.Create([(path, None) for path in paths], reshuffle=False)
            # Else one worker runs all that it lists. Not each runner has beam.Reshuffle.
            | "SpreadItems" >> beam.GroupByKey()
            | "RunItems" >> beam.MapTuple(run_item)
        )
        job = None
        try:
            with _python_path(), _killed_workers_end_the_run():
                job = pipeline.run()
                state = job.wait_until_finish()
        except (KeyboardInterrupt, SystemExit):
            if job:
                with contextlib.suppress(Exception):
                    job.cancel()
            raise
        except Exception as error:
            raise self._error(_summary(error)) from error
        if state != PipelineState.DONE:
            raise self._error(f"its state is {state}")

    def _result(self, path):
        path = _result_path(path)
        try:
            with files.open_bytes(path) as file:
                return pickle.loads(file.read())
        except folders.missing_error(path) as error:
            raise self._error(f"no worker has written {path}") from error

    def _error(self, problem):
        return LostWorkerError(
            f"the Beam pipeline failed on {self.name}: {problem}. The logs of the workers say "
            "more. Run the same command again, which uses the finished shards, or with "
            "--runner=process"
        )


def run_item(path: str, _: object) -> None:
    """Runs the function and the item of a file in a worker, and writes the result beside it.

    Raises:
      DataError: the worker does not see the file.
    """
    try:
        with files.open_bytes(path) as file:
            function, item = pickle.loads(file.read())
    except folders.missing_error(path) as error:
        raise DataError(f"the worker does not see {path}") from error
    result = pickle.dumps(function(item))
    with files.atomic_write(_result_path(path), "wb") as file:
        file.write(result)


def _result_path(path):
    folder, name = os.path.split(path)
    return os.path.join(folder, _RESULT + name[len(_ITEM) :])


@contextlib.contextmanager
def _python_path():
    """Lets worker processes on this machine import what this process imports."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(path or os.getcwd() for path in sys.path)
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


@contextlib.contextmanager
def _killed_workers_end_the_run():
    """Interrupts DirectRunner, which waits forever for a worker process that was killed."""
    before, main, killed = threading.excepthook, threading.main_thread(), []

    def end(raised):
        if raised.thread is None or raised.thread.name != "run_worker":
            before(raised)
        elif not killed:
            killed.append(raised.exc_value)
            signal.pthread_kill(main.ident, signal.SIGINT)

    threading.excepthook = end
    try:
        yield
    except KeyboardInterrupt:
        if killed:
            raise RuntimeError(f"{killed[0]}, perhaps out of memory") from None
        raise
    finally:
        threading.excepthook = before


def _summary(error):
    """Returns the last line of an error, which Beam gives the tracebacks of the worker."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return names.printable((lines or [type(error).__name__])[-1])[:_MAX_ERROR]


def _has_local_workers(name, options):
    """Whether all workers run on this machine, outside of containers."""
    from apache_beam.options import pipeline_options

    portable = options.view_as(pipeline_options.PortableOptions)
    environment = (portable.environment_type or "").upper()
    if name in _ON_THIS_MACHINE or environment == "LOOPBACK":
        return True
    if environment == "DOCKER":
        return False
    if name == "FlinkRunner":
        flink = options.view_as(pipeline_options.FlinkRunnerOptions)
        return flink.flink_master in ("[auto]", "[local]")
    if name == "SparkRunner":
        spark = options.view_as(pipeline_options.SparkRunnerOptions)
        return spark.spark_master_url.startswith("local")
    return False


def _is_shared(path):
    """Whether a local path is on a network file system."""
    path, longest, found = os.path.realpath(path), "", ""
    with open("/proc/self/mounts") as file:
        for line in file:
            _, mount, file_system, *_ = line.split()
            mount = mount.replace("\\040", " ")
            if os.path.commonpath([mount, path]) == mount and len(mount) >= len(longest):
                longest, found = mount, file_system
    return found in _NETWORK_FILE_SYSTEMS
