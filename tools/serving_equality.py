"""How far each runtime's answers are from `Estimator.predict`, on real examples.

    python -m tools.serving_equality --flagfile=runs/leaf/flags.cfg --checkpoint=best

Exports a checkpoint of a training, and asks every runtime that is installed for the first
`--predict_batch_size` examples of `--eval_split` (of text `--predict_batch_size` sentences).
"""

from __future__ import annotations

import dataclasses
import os
import sys
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

import run_cpu
from engine.cli import resolve_flags, runtime
from engine.cli.flags import FLAGS
from engine.serving import export, export_check
from input_fns import serving
from tools import runtimes


@dataclasses.dataclass(frozen=True)
class Exported:
    """A SavedModel and what it should answer.

    Attributes:
      path: of the SavedModel.
      requests: by signature, `{input: array}`, for the same examples each.
      predictions: of the Estimator for them, `{name: array}`.
    """

    path: str
    requests: dict[str, dict[str, np.ndarray]]
    predictions: dict[str, np.ndarray]


def export_of(export_dir: str, *arguments: str) -> Exported:
    """Exports what the flags of run_cpu.py say into `export_dir`."""
    FLAGS.unparse_flags()
    FLAGS(["run_cpu", *arguments, "--mode=export", f"--export_dir={export_dir}"])
    settings, state = resolve_flags.resolve()
    estimator = run_cpu.build_estimator(settings, state)
    predictions = export_check.predict_batch(estimator, settings, settings.checkpoint)
    path = export.export_saved_model(estimator, settings, settings.checkpoint)
    count = len(next(iter(predictions.values())))
    requests = serving.first_requests(settings.pipeline, settings.evaluation.split, count)
    return Exported(path, requests, predictions)


def differences(exported: Exported, answer: dict[str, np.ndarray]) -> dict[str, float]:
    """Returns the largest difference to each prediction."""
    return {
        name: float(np.max(np.abs(predicted.astype(np.float64) - answer[name])))
        for name, predicted in exported.predictions.items()
    }


def main() -> None:
    """Prints a line for each runtime."""
    runtime.prepare()
    with tempfile.TemporaryDirectory() as folder:
        exported = export_of(os.path.join(folder, "export"), *sys.argv[1:])
        count = len(next(iter(exported.predictions.values())))
        print(f"largest difference to Estimator.predict of {count} examples:")
        for name, load in runtimes.RUNTIMES.items():
            if runtimes.missing(name):
                print(f"{name:22}needs {runtimes.missing(name)}")
                continue
            found = differences(exported, load(exported.path)(exported.requests[serving.RAW]))
            print(f"{name:22}{', '.join(f'{key} {value:.2g}' for key, value in found.items())}")


if __name__ == "__main__":
    main()
