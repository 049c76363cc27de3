"""Compares the predictions of each installed runtime with `Estimator.predict`, on real examples.

    python -m tools.serving_equality --flagfile=runs/leaf/flags.cfg --checkpoint=best

Exports a checkpoint, and sends the first `--predict_batch_size` examples of `--eval_split` to every
runtime.
"""

from __future__ import annotations

import dataclasses
import os
import sys
import tempfile

from engine.cli import startup

if __name__ == "__main__":
    # Parse flags before the import of TensorFlow, which takes seconds.
    of_export = ["--mode=export", "--export_dir=export"]  # `export_run` sets the folder
    startup.start([*sys.argv, *of_export], __doc__, "engine.cli.flags", "engine.cli.cpu_flags")

import numpy as np

import run_cpu
from engine.cli import resolve_flags, runtime
from engine.cli.flags import FLAGS
from engine.serving import export, export_check
from input_fns.core import serving
from tools import runtimes


@dataclasses.dataclass(frozen=True)
class Exported:
    """A SavedModel, requests and the expected predictions.

    Attributes:
      path: folder of the SavedModel.
      requests: `{signature: {input: array}}`, with the same examples for each signature.
      predictions: predictions of the Estimator for these examples, `{name: array}`.
    """

    path: str
    requests: dict[str, dict[str, np.ndarray]]
    predictions: dict[str, np.ndarray]


def export_run(export_dir: str, *arguments: str) -> Exported:
    """Exports a run of run_cpu.py, given by its flags, to `export_dir`.

    Raises:
      UsageError: a flag is invalid.
    """
    FLAGS.unparse_flags()
    of_export = ["--mode=export", f"--export_dir={export_dir}"]
    startup.parse(FLAGS, ["run_cpu.py", *arguments, *of_export])
    settings, state = resolve_flags.resolve()
    estimator = run_cpu.build_estimator(settings, state)
    predictions = export_check.predict_batch(estimator, settings, settings.checkpoint)
    path = export.export_saved_model(estimator, settings, settings.checkpoint)
    count = len(next(iter(predictions.values())))
    requests = serving.first_requests(
        settings.pipeline, settings.evaluation.split, count, settings.signatures
    )
    return Exported(path, requests, predictions)


def differences(exported: Exported, answer: dict[str, np.ndarray]) -> dict[str, float]:
    """Returns the max abs difference of each prediction."""
    return {
        name: float(np.max(np.abs(predicted.astype(np.float64) - answer[name])))
        for name, predicted in exported.predictions.items()
    }


def main() -> None:
    """Prints a line per runtime."""
    runtime.prepare()
    with tempfile.TemporaryDirectory() as folder:
        exported = export_run(os.path.join(folder, "export"), *sys.argv[1:])
        count = len(next(iter(exported.predictions.values())))
        print(f"max abs difference to Estimator.predict on {count} examples:")
        for name, load in runtimes.RUNTIMES.items():
            if runtimes.missing(name):
                print(f"{name:22}needs {runtimes.missing(name)}")
                continue
            found = differences(exported, load(exported.path)(exported.requests[serving.RAW]))
            print(f"{name:22}{', '.join(f'{key} {value:.2g}' for key, value in found.items())}")


if __name__ == "__main__":
    startup.run(main)
