"""Intercepts the calls that a program makes on its Estimators."""

from __future__ import annotations

import contextlib
import inspect
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple
from unittest import mock

import tensorflow as tf
from tensorflow_estimator.python.estimator import estimator as estimator_lib
from tensorflow_estimator.python.estimator.tpu import tpu_estimator

from tpu import findings

Estimator, TPUEstimator = estimator_lib.Estimator, tpu_estimator.TPUEstimator
# Every export method of an Estimator ends in the last one.
METHODS = ("train", "evaluate", "predict", "_export_all_saved_models")


class Call(NamedTuple):
    """A call that a program makes on an Estimator.

    Attributes:
      method: one of `METHODS`.
      estimator: the Estimator.
      arguments: `{name: value}` of the arguments.
      where: "file:line" of the program.
      execute: makes the call; takes changed arguments by name.
    """

    method: str
    estimator: Estimator
    arguments: dict[str, Any]
    where: str
    execute: Callable

    @property
    def name(self) -> str:
        """One of "train", "evaluate", "predict" and "export"."""
        return "export" if self.method == METHODS[-1] else self.method

    @property
    def on_tpu(self) -> bool:
        """True if it runs on a TPU."""
        return not self.without_tpu

    @property
    def without_tpu(self) -> str:
        """Why it runs without a TPU, and what to do; "" if it runs on a TPU."""
        if not isinstance(self.estimator, TPUEstimator):
            return (
                "a tf.estimator.Estimator never uses a TPU. Make it a TPUEstimator (instead of a "
                "canned Estimator, write a model_fn)"
            )
        if not self.estimator._ctx._use_tpu:
            return "use_tpu=False. Set use_tpu=True by the program's own flag"
        if self.method == "evaluate" and not self.estimator._ctx._eval_on_tpu:
            return "eval_on_tpu=False. Remove this argument of TPUEstimator"
        return ""

    @property
    def predict_batch_size(self) -> int:
        """The global batch size of predictions; 1 if it is unknown."""
        return getattr(getattr(self.estimator, "_ctx", None), "_predict_batch_size", None) or 1

    @property
    def yields_batches(self) -> bool:
        """True if a prediction yields batches, not examples."""
        return not self.arguments.get("yield_single_examples", True)


@contextlib.contextmanager
def intercept(handle: Callable[[Call], Any]):
    """Calls `handle` instead of the methods of Estimators, and returns its result."""

    def replacement(owner, method):
        original = vars(owner)[method]
        signature = inspect.signature(original)
        is_overridden = owner is Estimator and method in vars(TPUEstimator)

        def intercepted(self, *args, **kwargs):
            if is_overridden and isinstance(self, TPUEstimator):
                return original(self, *args, **kwargs)  # called by the method of TPUEstimator
            bound = signature.bind(self, *args, **kwargs).arguments
            bound.pop("self")
            where = findings.user_line_in(traceback.extract_stack())

            def execute(**changes):
                return original(self, **{**bound, **changes})

            return handle(Call(method, self, dict(bound), where, execute))

        return intercepted

    with contextlib.ExitStack() as stack:
        for owner in (Estimator, TPUEstimator):
            for method in METHODS:
                if method in vars(owner):
                    new = replacement(owner, method)
                    stack.enter_context(mock.patch.object(owner, method, new))
        yield


def global_step(estimator: Estimator) -> int:
    """Returns the step of the latest checkpoint of an Estimator; 0 if there is none."""
    path = tf.train.latest_checkpoint(estimator.model_dir)
    return int(tf.train.load_variable(path, "global_step")) if path else 0
