"""The programs as Python calls, for notebooks and scripts.

    import estimator_models as em

    em.prepare_data(dataset="digits", data_dir="data/digits")
    trained = em.train("digits", data_dir="data/digits", model_dir="runs/digits")
    trained.metrics["test"]["accuracy"]
    em.evaluate(model_dir="runs/digits", checkpoint="best")["test"]["accuracy"]
    for prediction in em.predict(model_dir="runs/digits"):
        prediction["classes"], prediction["probabilities"]
    em.export(model_dir="runs/digits", export_dir="runs/digits/export")

Arguments are the flags of the command line: `--train_steps=100` is `train_steps=100`, a list is
`eval_splits=["validation", "test"]`, and `params` is a dict. A call runs in this process with the
checks, the messages and the files of the program, and raises its errors. It leaves no flag set, and
TensorFlow with the behaviour that it had before. With `tpu=...` it runs `run_tpu.py`, else
`run_cpu.py`.
"""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import importlib
import io
import os
import pickle
import signal
import sys
import tempfile
import types
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, BinaryIO
from unittest import mock

from common import files, folders
from common.errors import Interrupted, RunError, UsageError
from common.messages import did_you_mean
from common.names import is_remote
from engine.cli import io_errors, startup
from input_fns import DataError

__all__ = [
    "DataError",
    "Predictions",
    "RunError",
    "Trained",
    "UsageError",
    "evaluate",
    "export",
    "predict",
    "prepare_data",
    "train",
]

startup.set_environment()

_RECIPES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "configs")
_WORDS = {" ": "space", "\t": "tab"}  # how flags name these characters
_SHARED = "engine.cli.flags"
_OF_PROGRAM = {"run_cpu": "engine.cli.cpu_flags", "run_tpu": "tpu.connect.flags"}


@dataclasses.dataclass(frozen=True)
class Trained:
    """What `train` returns.

    Attributes:
      model_dir: folder of the checkpoints and results.
      checkpoint: path of the latest checkpoint.
      step: its global step.
      metrics: `{split: {name: number}}` of its evaluation; {} without one.
      export: path of the SavedModel; "" without `export_dir`.
      best: `metric`, `split`, `value` and `step` of the best checkpoint; {} without `best_metric`.
    """

    model_dir: str
    checkpoint: str
    step: int
    metrics: dict[str, dict[str, Any]]
    export: str
    best: dict[str, Any]


class Predictions(Iterable):
    """What `predict` returns: a dict for each example, in order.

    It has the predictions as arrays and scalars, `index`, `name` if the examples come from files,
    and for predicted classes and labels `class_names`, as the file of the predictions.

    They are read from a temporary file, so any number of them takes little memory, and they can be
    read more than once.

    Attributes:
      path: the file or folder that `--mode=predict` has written.
    """

    def __init__(
        self, path: str, batches: BinaryIO, sizes: Sequence[int], class_names: Sequence[str] = ()
    ):
        """`batches` holds one pickle of `{name: array [size, ...]}` for each of `sizes`."""
        self.path = path
        self._batches, self._sizes, self._class_names = batches, sizes, class_names

    def __repr__(self) -> str:
        """Returns the number of predictions and the path of their file."""
        return f"<{len(self)} predictions, {self.path}>"

    def __len__(self) -> int:
        """Returns the number of examples."""
        return sum(self._sizes)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yields `{name: array, or scalar}` of each example."""
        place = index = 0
        for size in self._sizes:
            self._batches.seek(place)  # another iterator may have read since
            batch = pickle.load(self._batches)
            place = self._batches.tell()
            for number in range(size):
                row = {name: values[number] for name, values in batch.items()}
                yield {"index": index, **row, **self._names(row)}
                index += 1

    def _names(self, row):
        """Returns `{"class_names"}` of the class, the labels, or the detections of an example."""
        import numpy as np  # a missing environment is an error of the call

        names, classes, labels = self._class_names, row.get("classes"), row.get("labels")
        if not len(names) or "class_names" in row:
            return {}
        if np.ndim(labels) == 1 and len(labels) == len(names):
            return {"class_names": [names[i] for i in np.flatnonzero(labels)]}
        if np.ndim(classes) == 0 and classes is not None:
            return {"class_names": names[classes]}
        if np.ndim(classes) == 1 and "num_detections" in row:
            return {"class_names": [names[i] for i in classes[: row["num_detections"]]]}
        return {}


def train(flagfile: str | None = None, **flags: Any) -> Trained:
    """Trains, by default with evaluations (`mode="train_and_eval"`, or `mode="train"`).

    Args:
      flagfile: path of a flagfile, or name of a recipe in configs/; `flags` override it.
      **flags: flags of run_cpu.py, or of run_tpu.py with `tpu`.

    Raises:
      UsageError, DataError, ModelError, TPUError: invalid input, before anything is written.
      RunError: the training cannot continue; the message says why and what was saved.
      KeyboardInterrupt: it was interrupted, and has saved; the same call resumes.
      SystemExit: the same after SIGTERM or SIGHUP, to end this process.
    """
    mode = flags.pop("mode", "train_and_eval")
    if mode not in ("train", "train_and_eval"):
        raise UsageError(f"mode={mode!r}: train takes 'train' or 'train_and_eval'")
    if flags.get("max_restarts"):
        raise UsageError("max_restarts needs the command line: it restarts a process")
    with _running(mode, flagfile, flags) as (run, settings):
        from engine.checkpoints import best, find

        exported = run()
        checkpoint = find.latest(settings.model_dir)
        return Trained(
            settings.model_dir,
            checkpoint,
            find.read_step(checkpoint),
            _metrics(settings, checkpoint) if mode == "train_and_eval" else {},
            exported or "",
            best.read(settings.model_dir) if settings.evaluation.best_metric else {},
        )


def evaluate(flagfile: str | None = None, **flags: Any) -> dict[str, dict[str, Any]]:
    """Evaluates a checkpoint; returns `{split: {name: number}}`.

    Args:
      flagfile: as in `train`; default: flags.cfg of `model_dir`, which the training wrote.
      **flags: as in `train`.

    Raises:
      As `train`.
    """
    with _running("eval", flagfile, flags) as (run, settings):
        run()
        return _metrics(settings, settings.checkpoint)


def predict(flagfile: str | None = None, **flags: Any) -> Predictions:
    """Predicts the examples of a split, or of `input`; also writes the file of `--mode=predict`.

    Args:
      flagfile: as in `evaluate`.
      **flags: as in `train`.

    Raises:
      As `train`.
    """
    with _running("predict", flagfile, flags) as (run, settings):
        spool = _Spool(settings.prediction.writer)
        prediction = dataclasses.replace(settings.prediction, writer=spool)
        run(dataclasses.replace(settings, prediction=prediction))
        return Predictions(spool.path, spool.file, spool.sizes, spool.class_names)


def export(flagfile: str | None = None, **flags: Any) -> str:
    """Exports a SavedModel; returns its path, `export_dir/<version>`.

    Args:
      flagfile: as in `evaluate`.
      **flags: as in `train`.

    Raises:
      As `train`.
      ExportError: the SavedModel and the Estimator return different predictions.
    """
    with _running("export", flagfile, flags) as (run, _):
        return run()


def prepare_data(**flags: Any):
    """Converts a data set as prepare_data.py does; returns its `DatasetInfo`.

    Args:
      **flags: flags of prepare_data.py.

    Raises:
      DataError, UsageError: invalid input.
    """
    if flags.get("mode", "convert") != "convert":
        raise UsageError("prepare_data converts; inspect a data set with the command line")
    with _flags("prepare_data", ["input_fns.convert.flags"], _arguments(flags)) as values:
        importlib.import_module("input_fns.convert.flags").check_files()
        program = importlib.import_module("prepare_data")
        with _errors(), _not_main(), _tensorflow_1():
            program.main()
        from input_fns import dataset_info

        return dataset_info.read(values.data_dir)


@contextlib.contextmanager
def _running(mode, flagfile, flags):
    """Yields (function that runs the mode and returns its result, `RunSettings`)."""
    if flagfile is None and mode not in ("train", "train_and_eval"):
        flagfile = _flags_cfg(flags.get("model_dir"), "model" not in flags)
    name = "run_tpu" if flags.get("tpu") else "run_cpu"
    with (
        _flagfile_arguments(flagfile) as first,
        _flags(name, [_SHARED, _OF_PROGRAM[name]], [*first, *_arguments(flags), f"--mode={mode}"]),
        _errors(),
    ):
        from engine.cli import early_checks

        if name == "run_cpu" or flags["tpu"] in ("emulator", "pjrt"):  # others report all at once
            early_checks.check()
        program = importlib.import_module(name)
        from engine.cli import modes
        from engine.hooks import preemption

        with (
            startup.started_now(),
            _tensorflow_1(),
            preemption.called(),
            program.opened() as (estimator, settings, state, input_fns),
        ):
            yield lambda of=settings: modes.run(estimator, of, state, input_fns), settings


def _flags_cfg(model_dir, is_needed):
    """Returns the path of flags.cfg in a model_dir; None if it is missing."""
    if not model_dir:
        return None
    model_dir = os.fspath(model_dir)
    folder = os.path.expanduser(model_dir)
    path = os.path.join(folder, "flags.cfg")
    startup.check_environment()  # TensorFlow reads gs://
    with _errors():
        if folders.is_file(path):
            return path
    # gs:// has no folders without files.
    if is_needed and (is_remote(model_dir) or not os.path.isdir(folder)):
        problem = "has no flags.cfg" if is_remote(model_dir) else "does not exist"
        raise UsageError(f"model_dir={model_dir!r} {problem}; train writes it")
    return None


def _path_of(flagfile):
    """Returns the path of a flagfile, or of a recipe by its name."""
    path = os.fspath(flagfile)
    recipes = sorted(name[: -len(".cfg")] for name in os.listdir(_RECIPES))
    if path in recipes:  # the working folder may have a folder of that name
        return os.path.join(_RECIPES, f"{path}.cfg")
    if os.path.isdir(path):
        raise UsageError(f"{path!r} is a folder, not a flagfile: write model_dir={path!r}")
    if os.sep in path or path.endswith(".cfg"):
        return path
    raise UsageError(f"'{path}' is not a recipe.{did_you_mean(path, recipes)}")


@contextlib.contextmanager
def _flagfile_arguments(flagfile):
    """Yields the arguments that name a flagfile, or a local copy of one on gs://; [] for None."""
    path = _path_of(flagfile) if flagfile else ""
    if not is_remote(path):
        yield [f"--flagfile={path}"] if path else []
        return
    startup.check_environment()
    with tempfile.TemporaryDirectory() as folder:
        copy = os.path.join(folder, "flags.cfg")
        with _errors():
            files.copy(path, copy)
        yield [f"--flagfile={copy}"]


def _arguments(flags):
    """Returns a command line; None leaves a flag out."""
    found = []
    for name, value in flags.items():
        if name == "params" and isinstance(value, dict):
            found += [f"--params={key}={_param(each)}" for key, each in value.items()]
        elif value is not None:
            text = _text(value)
            if name in ("delimiter", "label_separator"):
                text = _WORDS.get(text, text)
            found.append(f"--{name}={text}")
    return found


def _param(value):
    """Returns the text of a hyperparameter, with a list in brackets."""
    is_list = isinstance(value, (list, tuple))
    return f"[{','.join(map(_text, value))}]" if is_list else _text(value)


def _text(value):
    """Returns the text of a flag, with a list as a line of CSV, which absl reads."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        line = io.StringIO()
        csv.writer(line, lineterminator="").writerow(map(_text, value))
        return line.getvalue()
    return str(value)


@contextlib.contextmanager
def _flags(program, modules, arguments):
    """Sets the flags of a program inside the `with`; other flags of this process stay."""
    from absl.testing import flagsaver

    startup.check_environment()
    importlib.import_module("tensorflow")  # the flags that it defines are not those of a call
    values = startup.define_flags(*modules)
    saved, was_parsed = flagsaver.save_flag_values(values), values.is_parsed()
    by_module = values.flags_by_module_dict()
    others = {
        flag.name: other
        for other, module in _OF_PROGRAM.items()
        if module not in modules
        for flag in by_module.get(module, ())
    }
    try:
        for name in {*modules, *_OF_PROGRAM.values()} & by_module.keys():
            for flag in by_module[name]:
                flag.unparse()
        for name in (argument[2:].partition("=")[0] for argument in arguments):
            if name in others:
                raise UsageError(f"--{name} is a flag of {others[name]}.py")
        startup.parse(values, [f"{program}.py", *arguments])
        yield values
    finally:
        flagsaver.restore_flag_values(saved, values)
        if not was_parsed:
            values.unparse_flags()


@contextlib.contextmanager
def _errors():
    """Raises I/O errors, and the exit of an interrupted training, as exceptions that say so."""
    try:
        yield
    except SystemExit as end:
        if end.code == 128 + signal.SIGINT:
            raise Interrupted("stopped; the same call resumes") from None
        if end.code in (128 + signal.SIGTERM, 128 + signal.SIGHUP):
            raise  # whoever sent it waits for the end of this process
        raise RunError(f"the run ended with status {end.code}") from end
    except (UsageError, RunError):
        raise
    except KeyboardInterrupt:
        raise Interrupted("stopped before its end; the same call runs it again") from None
    except Exception as error:
        problem = io_errors.describe(error)
        if problem is None:
            raise
        raise RunError(problem) from error


def _tensorflow_1():
    from engine.cli import runtime  # imports TensorFlow

    return runtime.tensorflow_1()


def _not_main():
    """Hides the main module: worker processes would run a script without a guard again."""
    return mock.patch.dict(sys.modules, {"__main__": types.ModuleType("__main__")})


def _metrics(settings, checkpoint):
    """Returns the metrics of an evaluation in `result_<step>.json`."""
    from engine.hooks import results

    found = {}
    for split in settings.evaluation.splits:
        section = results.read_evaluation(settings, split, checkpoint)
        others = ("split", "checkpoint", "data")
        found[split] = {name: value for name, value in section.items() if name not in others}
    return found


class _Spool:
    """A `PredictionWriter` that keeps what another one writes."""

    def __init__(self, writer):
        self._writer, self.endings = writer, writer.endings
        self.file = tempfile.TemporaryFile()  # noqa: SIM115, closed with the predictions
        self.sizes, self.path = [], ""
        self.class_names = [str(name) for name in getattr(writer, "class_names", ())]

    def write(self, path, batches):
        """Writes the predictions."""
        self.path = path
        self._writer.write(path, self._kept(batches))

    def _kept(self, batches):
        for batch in batches:
            pickle.dump(batch, self.file, protocol=pickle.HIGHEST_PROTOCOL)
            self.sizes.append(len(next(iter(batch.values()))))
            yield batch
