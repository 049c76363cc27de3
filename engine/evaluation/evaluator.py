"""Evaluates checkpoints: metrics, host metrics, reports, and the result file."""

from __future__ import annotations

import functools
import gc

import numpy as np

from engine.checkpoints import find
from engine.evaluation import host_metrics, reports
from engine.evaluation.eval_session import EvalSession, PredictSession
from engine.hooks import progress, results, summaries
from input_fns import DataError
from models.model import ModelError, Report


class Evaluator:
    """Evaluates one checkpoint after another."""

    def __init__(self, estimator, settings, input_fns):
        """Initializes with an Estimator or TPUEstimator, `RunSettings` and `modes.InputFns`."""
        self._estimator, self._settings, self._input_fns = estimator, settings, input_fns
        self._session = None
        self._predict = functools.partial(
            estimator.predict, input_fns.host, yield_single_examples=False
        )
        if not settings.use_tpu:
            self._session = EvalSession(estimator, input_fns.evaluate)
            self._predict = PredictSession(estimator, input_fns.host).predict

    def evaluate(self, checkpoint, print_reports=False):
        """Evaluates each example of the split once; prints, writes and returns the metrics.

        Args:
          checkpoint: path of the checkpoint.
          print_reports: whether to print the reports of the model, such as a confusion matrix.

        Returns:
          `{name: number or array}`.

        Raises:
          DataError: the number of examples differs from that of the split.
        """
        settings = self._settings
        metrics, step = self._metrics(checkpoint)
        examples = self._session and self._session.hook(reports.ExamplesHook)
        of_host = self._session and self._session.hook(host_metrics.UpdateHook)
        if of_host:
            updated = of_host.updated
        else:
            updated = host_metrics.predict(settings, self._predict, checkpoint)
        found = {name: value for metric in updated for name, value in metric.result().items()}
        clash = found.keys() & metrics.keys()
        if clash:
            raise ModelError(f"{sorted(clash)} are host metrics and streaming metrics. Rename one")
        metrics = {**found, **metrics}
        scalars = {name: value for name, value in metrics.items() if np.ndim(value) == 0}
        section = {"split": settings.evaluation.split, "checkpoint": checkpoint, **scalars}
        evaluation = reports.Evaluation(
            folder=results.evaluation_dir(settings.model_dir, checkpoint),
            step=step,
            metrics=metrics,
            worst=examples.worst if examples else {},
            **(examples.first if examples else {}),
        )
        host_metrics.write_files(updated, evaluation.folder)
        model_reports = [
            *settings.model.reports(settings.params, settings.pipeline),
            *(metric for metric in updated if isinstance(metric, Report)),
        ]
        if found:
            summaries.write_scalars(evaluation.folder, step, found)
        for report in model_reports:
            section.update(report.write(evaluation))
        name = results.evaluation_section(settings.model_dir, checkpoint)
        results.write(settings.model_dir, step, name, section)
        examples = scalars.pop("examples")
        line = ", ".join(f"{name} {value:.4f}" for name, value in scalars.items())
        split = settings.evaluation.split
        print(f"eval of step {step} on {split}: {line}, examples {examples}", flush=True)
        if print_reports:
            print("".join(report.text(evaluation) for report in model_reports), end="")
        return metrics

    def _metrics(self, checkpoint):
        """Returns the metrics of the graph and the global step."""
        settings = self._settings
        split, batch_size = settings.evaluation.split, settings.evaluation.batch_size
        size = settings.dataset.split(split).num_examples
        num_batches = -(-size // batch_size)
        name = find.folder_label(settings.model_dir, checkpoint) or None
        if self._session is not None:
            hooks = [progress.EvalProgressHook("eval", size, batch_size)]
            metrics = self._session.evaluate(num_batches, hooks, checkpoint, name)
        else:  # a TPU evaluates in one session.run
            metrics = self._estimator.evaluate(
                self._input_fns.evaluate, num_batches, (), checkpoint, name
            )
            gc.collect()  # each evaluation leaves a graph with reference cycles
        step = int(metrics.pop("global_step"))
        # The Estimator's loss is a mean over batches, padded or not; average_loss is exact.
        metrics.pop("loss")
        if metrics["examples"] != size:
            raise DataError(
                f"evaluated {metrics['examples']} examples, but split '{split}' has {size}: the "
                "shards and dataset.json disagree"
            )
        return metrics, step
