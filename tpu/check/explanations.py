"""What TPUEstimator, XLA and the TPU compiler say, in words of what to do."""

from __future__ import annotations

import re

# What TPUEstimator says, and what it means.
_TRANSLATIONS = (
    (
        r"unsupported operand type\(s\) for \*=: 'NoneType' and 'int'",
        "input_fn gives batches of unknown size: batch(..., drop_remainder=True)",
    ),
    (
        r"Cannot use '.*' as input to '.*' because .* is in a while loop",
        "a tensor of the TPU's loop is used outside of it: hand it to host_call or eval_metrics",
    ),
    (
        r"^Cannot reshape a tensor with \d+ elements to shape \[1\]",
        "the loss must be a scalar",
    ),
    (
        r"object has no attribute 'training_chief_hooks'",
        "model_fn must return a TPUEstimatorSpec",
    ),
    (
        r"^Can not convert a NoneType into a Tensor or Operation",
        "something that training needs is None: the train_op or the loss",
    ),
    (
        r"maximum_iterations was not passed to the tf.while_loop",
        "a loop that is differentiated needs maximum_iterations",
    ),
)
# What XLA says of a node (its name and its type), and what it means.
_REFUSALS = (
    (
        r"No registered '(?P<kind>\w+)' OpKernel for \w+ devices compatible with node "
        r"\{\{node (?P<name>[^}]+)\}",
        "{} cannot be compiled by XLA",
    ),
    (
        r"to node `(?P<name>[^`]+)` with op (?P<kind>\w+) must be a compile-time constant",
        "{} needs a size that is known before the program runs, and gets one from data",
    ),
)


def translated(error):
    """Returns what TPUEstimator or a user's function raised, and what it means if that is known."""
    text = " ".join(str(error).split())
    hints = [hint for pattern, hint in _TRANSLATIONS if re.search(pattern, text)]
    return f"{hints[0]} ({text[:200]})" if hints else f"{type(error).__name__}: {text[:400]}"


def refusals(error, where_of):
    """Returns what XLA refuses, as (message, "file:line")."""
    text = " ".join(str(error).split())
    for pattern, message in _REFUSALS:
        found = [(match["kind"], match["name"]) for match in re.finditer(pattern, text)]
        if found:
            return [(message.format(kind), where_of(name)) for kind, name in dict.fromkeys(found)]
    return [(f"XLA refuses the step: {text[:400]}", "")]


def too_large(compiled, mode, fits):
    """Says by how much a step does not fit, and with which batch it would."""
    advice = "--precision=bfloat16 needs less"
    if mode == "train":
        advice = "--accumulate_steps and --precision=bfloat16 need less"
    if fits:
        advice = f"--{mode}_batch_size={fits} fits; {advice}"
    if compiled.hbm_needed is None:
        return f"does not fit into memory: {compiled.error[:400]}. {advice}"
    over = compiled.hbm_needed - compiled.hbm_limit
    return (
        f"does not fit: {compiled.hbm_needed / 2**30:.2f} GiB of {compiled.hbm_limit / 2**30:.2f} "
        f"GiB a core, {over / 2**20:,.0f} MiB too much. {advice}"
    )
