"""Evaluates checkpoints: metrics, host metrics, reports, and the result file."""

from __future__ import annotations

import functools
import gc
import os

import numpy as np

from engine.evaluation import host_metrics, reports
from engine.evaluation.eval_session import EvalSession, PredictSession
from engine.hooks import progress, results, summaries
from input_fns import DataError
from models.model import CollapseFinder, ModelError, Report


class Evaluator:
    """Evaluates one checkpoint after another, each on all splits."""

    def __init__(self, estimator, settings, input_fns):
        """Initializes with an Estimator or TPUEstimator, `RunSettings` and `modes.InputFns`."""
        self._splits = [
            _SplitEvaluator(estimator, settings, input_fns, split)
            for split in settings.evaluation.splits
        ]

    def evaluate(self, checkpoint, print_reports=False):
        """Evaluates each example of the splits once; prints and writes the metrics.

        Args:
          checkpoint: path of the checkpoint.
          print_reports: whether to print the reports of the model, such as a confusion matrix.

        Returns:
          `{name: number or array}` of the first split.

        Raises:
          DataError: the number of examples differs from that of the split.
        """
        first, *_ = [split.evaluate(checkpoint, print_reports) for split in self._splits]
        return first


class _SplitEvaluator:
    """Evaluates checkpoints on one split."""

    def __init__(self, estimator, settings, input_fns, split):
        self._estimator, self._settings, self._split = estimator, settings, split
        self._input_fn, host_input_fn = input_fns.evaluate(split), input_fns.host(split)
        self._size = settings.evaluation.num_examples(settings.dataset, split)
        self._session = None
        self._predict = functools.partial(
            estimator.predict, host_input_fn, yield_single_examples=False
        )
        if not settings.use_tpu:
            self._session = EvalSession(estimator, self._input_fn)
            self._predict = PredictSession(estimator, host_input_fn).predict

    def evaluate(self, checkpoint, print_reports):
        """Returns `{name: number or array}`."""
        settings, split = self._settings, self._split
        name = results.evaluation_name(settings, split, checkpoint)
        examples = self._session and self._session.hook(reports.ExamplesHook)
        of_host = self._session and self._session.hook(host_metrics.UpdateHook)
        if of_host:
            of_host.split = split
        metrics, step = self._metrics(checkpoint, name)
        if of_host:
            updated = of_host.updated
        else:
            updated = host_metrics.predict(settings, split, self._predict, checkpoint)
        found = {name: value for metric in updated for name, value in metric.result().items()}
        clash = found.keys() & metrics.keys()
        if clash:
            raise ModelError(f"{sorted(clash)} are host metrics and streaming metrics. Rename one")
        metrics = {**found, **metrics}
        scalars = {name: value for name, value in metrics.items() if np.ndim(value) == 0}
        data = settings.dataset.split(split)
        section = {"split": split, "checkpoint": checkpoint, "data": data.identity}
        shown = split
        if settings.evaluation.is_partial(settings.dataset, split):
            section["of_examples"] = data.num_examples
            shown = f"the first {self._size} of {section['of_examples']} examples of {split}"
        section.update(scalars)
        evaluation = reports.Evaluation(
            folder=os.path.join(settings.model_dir, name),
            step=step,
            metrics=metrics,
            worst=examples.worst if examples else {},
            requested=examples.requested if examples else {},
            **(examples.first if examples else {}),
        )
        host_metrics.write_files(updated, evaluation.folder)
        of_model = settings.model.reports(settings.params, settings.pipeline)
        model_reports = [
            *of_model,
            *(metric for metric in updated if isinstance(metric, Report)),
        ]
        if found:
            summaries.write_scalars(evaluation.folder, step, found)
        for report in model_reports:
            section.update(report.write(evaluation))
        results.write(settings.model_dir, step, name, section)
        num_examples = scalars.pop("examples")
        line = ", ".join(f"{name} {value:.4f}" for name, value in scalars.items())
        print(f"eval of step {step} on {shown}: {line}, examples {num_examples}", flush=True)
        if step:  # before the first step predictions are the initial ones
            _print_collapse([*of_model, *updated], evaluation)
        if print_reports:
            print("".join(report.text(evaluation) for report in model_reports), end="")
        return metrics

    def _metrics(self, checkpoint, name):
        """Returns the metrics of the graph and the global step."""
        batch_size = self._settings.evaluation.batch_size
        num_batches = -(-self._size // batch_size)
        name = name.partition("_")[2] or None  # eval_dir(name) of an Estimator is eval_NAME
        if self._session is not None:
            hooks = [progress.EvalProgressHook("eval", self._size, batch_size)]
            metrics = self._session.evaluate(num_batches, hooks, checkpoint, name)
        else:  # a TPU evaluates in one session.run
            metrics = self._estimator.evaluate(self._input_fn, num_batches, (), checkpoint, name)
            gc.collect()  # each evaluation leaves a graph with reference cycles
        step = int(metrics.pop("global_step"))
        # The Estimator's loss is a mean over batches, padded or not; average_loss is exact.
        metrics.pop("loss")
        if metrics["examples"] != self._size:
            raise DataError(
                f"evaluated {metrics['examples']} examples of split '{self._split}', not "
                f"{self._size}: the shards and dataset.json disagree"
            )
        return metrics, step


def _print_collapse(finders, evaluation):
    for finder in finders:
        line = finder.find_collapse(evaluation) if isinstance(finder, CollapseFinder) else ""
        if line:
            print(line, flush=True)
