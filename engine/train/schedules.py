"""Learning rate schedules: functions of the global step, each after a linear warm-up."""

from __future__ import annotations

import tensorflow as tf

from common.errors import UsageError
from common.messages import did_you_mean
from common.params import Ints
from models.model import check_not_negative, check_positive


def default_params():
    """Returns the hyperparameters of `learning_rate`."""
    return {
        "learning_rate": 1e-3,  # peak, reached at the end of the warm-up
        # Linear scaling rule: all rates are multiplied by the global batch size divided by this
        # one (Goyal et al. 2017, arXiv:1706.02677); 0: off.
        "base_batch_size": 0,
        # constant, step, exponential, cosine, polynomial, inverse_sqrt, or noam: inverse_sqrt with
        # a peak of learning_rate * (hidden_size * warmup_steps) ** -0.5 (Vaswani et al. 2017, 5.3).
        "schedule": "constant",
        "warmup_steps": 0,  # steps of linear warm-up from 0
        "decay_steps": 0,  # steps of the decay, after the warm-up; 0: until the end of training
        "decay_rate": 0.1,  # of step: factor at each boundary; of exponential: over decay_steps
        "decay_boundaries": Ints(),  # of step: global steps after which the rate is decayed
        "decay_power": 1.0,  # of polynomial; 1 is linear decay
        "end_learning_rate": 0.0,  # of cosine and polynomial: the rate after decay_steps
    }


# Hyperparameters and the only schedules that read them.
READ_BY = {
    "decay_steps": ("exponential", "cosine", "polynomial"),
    "decay_rate": ("step", "exponential"),
    "decay_power": ("polynomial",),
    "end_learning_rate": ("cosine", "polynomial"),
}


def check_params(params):
    """Raises `UsageError` for a value out of range."""
    schedule = params["schedule"]
    if schedule not in _SCHEDULES:
        raise UsageError(f"schedule={schedule} is unknown.{did_you_mean(schedule, _SCHEDULES)}")
    check_positive(params, "learning_rate", "decay_rate", "decay_power")
    check_not_negative(
        params, "base_batch_size", "warmup_steps", "decay_steps", "end_learning_rate"
    )
    boundaries = params["decay_boundaries"]
    if list(boundaries) != sorted(set(boundaries)) or min(boundaries, default=0) < 0:
        raise UsageError(
            f"decay_boundaries={boundaries} must be increasing steps, such as [3000,6000]"
        )
    if schedule in ("inverse_sqrt", "noam") and not params["warmup_steps"]:
        raise UsageError(f"schedule={schedule} decays after a warm-up. Set warmup_steps")
    if schedule == "noam" and "hidden_size" not in params:
        raise UsageError("schedule=noam needs a model with a hidden_size. Use inverse_sqrt")
    if (schedule == "step") != bool(boundaries):
        raise UsageError("schedule=step and decay_boundaries need each other. Set both or neither")


def learning_rate(params, global_step, train_steps, batch_size):
    """Returns the learning rate at `global_step`, float32 scalar tensor.

    Args:
      params: see `default_params`.
      global_step: integer scalar tensor, number of updates already made.
      train_steps: global step at which training ends.
      batch_size: global batch size.
    """
    step = tf.cast(global_step, tf.float32)
    warmup_steps = params["warmup_steps"]
    if params["schedule"] == "noam":
        peak = params["learning_rate"] * (params["hidden_size"] * warmup_steps) ** -0.5
        params = {**params, "learning_rate": peak}
    decay_steps = params["decay_steps"] or max(1, train_steps - warmup_steps)
    rate = _SCHEDULES[params["schedule"]](params, step, step - warmup_steps, decay_steps)
    if warmup_steps:
        rate = tf.where(step < warmup_steps, params["learning_rate"] * step / warmup_steps, rate)
    if params["base_batch_size"]:
        rate *= batch_size / params["base_batch_size"]
    return rate


# A schedule takes the global step, that step minus the warm-up steps, and the length of the decay.


def _constant(params, step, decay_step, decay_steps):
    del step, decay_step, decay_steps
    return tf.constant(params["learning_rate"], tf.float32)


def _step(params, step, decay_step, decay_steps):
    del decay_step, decay_steps
    boundaries = [float(boundary) for boundary in params["decay_boundaries"]]
    rates = [
        params["learning_rate"] * params["decay_rate"] ** i for i in range(len(boundaries) + 1)
    ]
    # piecewise_constant adds assertions with string tensors, which a TPU does not support.
    passed = tf.reduce_sum(tf.cast(step > boundaries, tf.int32))
    return tf.gather(rates, passed)


def _exponential(params, step, decay_step, decay_steps):
    del step
    return tf.compat.v1.train.exponential_decay(
        params["learning_rate"], decay_step, decay_steps, params["decay_rate"]
    )


def _cosine(params, step, decay_step, decay_steps):
    del step
    alpha = params["end_learning_rate"] / params["learning_rate"]
    return tf.compat.v1.train.cosine_decay(params["learning_rate"], decay_step, decay_steps, alpha)


def _polynomial(params, step, decay_step, decay_steps):
    del step
    return tf.compat.v1.train.polynomial_decay(
        params["learning_rate"],
        decay_step,
        decay_steps,
        params["end_learning_rate"],
        params["decay_power"],
    )


def _inverse_sqrt(params, step, decay_step, decay_steps):
    del decay_step, decay_steps
    return params["learning_rate"] * tf.math.rsqrt(
        tf.maximum(step, params["warmup_steps"]) / params["warmup_steps"]
    )


_SCHEDULES = {
    "constant": _constant,
    "step": _step,
    "exponential": _exponential,
    "cosine": _cosine,
    "polynomial": _polynomial,
    "inverse_sqrt": _inverse_sqrt,
    "noam": _inverse_sqrt,
}
