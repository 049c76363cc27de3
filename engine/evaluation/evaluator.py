"""Evaluates checkpoints: exactly, with BLEU and pictures, and writes down what came out."""

from __future__ import annotations

import gc

import numpy as np
import tensorflow as tf

from engine.checkpoints import find
from engine.evaluation import confusion_matrix
from engine.evaluation.eval_session import EvalSession
from engine.hooks import progress, results, summaries
from input_fns import DataError


class Evaluator:
    """Evaluates one checkpoint after another of a job, whatever its Estimator."""

    def __init__(self, estimator, job, input_fns):
        """Takes an Estimator or TPUEstimator, a `job.Job` and its `modes.InputFns`."""
        self._estimator, self._job, self._input_fns = estimator, job, input_fns
        self._session = None
        if not isinstance(estimator, tf.compat.v1.estimator.tpu.TPUEstimator):
            self._session = EvalSession(estimator, input_fns.evaluate)

    def evaluate(self, checkpoint):
        """Evaluates every example of the split once; prints, writes and returns the metrics.

        Raises:
          DataError: another number of examples was counted than the split has.
        """
        job = self._job
        metrics, step = self._metrics(checkpoint)
        if job.pipeline.corpus_metrics:
            from engine.evaluation import translation  # sacreBLEU is not installed with every other

            predict = self._input_fns.predict
            bleu = translation.bleu_of_split(self._estimator, job, predict, checkpoint)
            metrics = {"bleu": bleu, **metrics}
        section = {"split": job.eval_split, "checkpoint": checkpoint, **metrics}
        if "confusion_matrix" in metrics:
            section.update(self._explain(checkpoint, step, section.pop("confusion_matrix")))
        name = results.evaluation_section(job.model_dir, checkpoint)
        results.write(job.model_dir, step, name, section)
        print(f"eval of step {step} on {job.eval_split}: {_describe(metrics)}", flush=True)
        return metrics

    def _metrics(self, checkpoint):
        """Returns the metrics of the model itself, and the global step."""
        job = self._job
        size = job.dataset.split(job.eval_split).num_examples
        # A TPU evaluates in one session.run.
        hooks = [] if job.uses_tpu else [progress.PassHook("eval", size, job.eval_batch_size)]
        metrics = self._pass(
            -(-size // job.eval_batch_size),
            hooks,
            checkpoint,
            find.folder_label(job.model_dir, checkpoint) or None,
        )
        step = int(metrics.pop("global_step"))
        # The Estimator's own loss is a mean of batches, however full; average_loss of examples.
        metrics.pop("loss")
        if metrics["examples"] != size:
            raise DataError(
                f"evaluated {metrics['examples']} examples, but split '{job.eval_split}' has "
                f"{size}: the shards and dataset.json disagree"
            )
        return metrics, step

    def _pass(self, steps, *pass_of):
        if self._session is not None:
            return self._session.evaluate(steps, *pass_of)
        metrics = self._estimator.evaluate(self._input_fns.evaluate, steps, *pass_of)
        gc.collect()  # the graph of an evaluation is a web of cycles, and there is one each time
        return metrics

    def _explain(self, checkpoint, step, matrix):
        """Writes a confusion matrix for people; returns its figures."""
        folder = results.evaluation_dir(self._job.model_dir, checkpoint)
        names = self._job.dataset.class_names
        png = confusion_matrix.write(folder, step, matrix, names)
        summaries.write_confusion_matrix(folder, step, matrix, names, png)
        return confusion_matrix.figures(matrix, names)


def _describe(metrics):
    scalars = {name: value for name, value in metrics.items() if np.ndim(value) == 0}
    examples = scalars.pop("examples")
    return ", ".join(f"{name} {value:.4f}" for name, value in scalars.items()) + (
        f", examples {examples}"
    )
