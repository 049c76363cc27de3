"""Explains errors of TPUEstimator, XLA and the TPU compiler."""

from __future__ import annotations

import re
import traceback

import tensorflow as tf

from tpu.findings import user_line_in
from tpu.interruption import StopProgram
from tpu.tf1 import old_python

# How AutoGraph begins the message of an error in a function that it has converted.
_AUTOGRAPH = "in user code:"
_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
# An error at run time is a stack, the message, and the stack again; \1 is the message.
_GRAPH_ERROR = re.compile(
    r"^Graph execution error:.*?^Node: '[^\n]*\n(.*?)(?:\n\t [^\n]*)?\n\nOriginal stack trace.*",
    re.DOTALL | re.MULTILINE,
)
# TensorFlow's advice for a tensor that cannot be fetched, which does not help on a TPU.
_FETCH_ADVICE = re.compile(r"\. Typically this happens when it is defined in another function.*")
# TPUEstimator's error about a train_op without a sum over the cores.
NO_SUM = "CrossShardOptimizer must be used for model training on TPUs"


def _nearest_batch_sizes(match):
    """Returns which batch sizes the number of replicas divides."""
    size, replicas = int(match["size"]), int(match["replicas"])
    below = size // replicas * replicas
    sizes = f"{below} or {below + replicas}" if below else str(replicas)
    return f"use a {match['mode']} batch size of {sizes}"


# Pattern of a TPUEstimator error -> explanation, or function of the match that returns it.
_ESTIMATOR_ERRORS = (
    (
        r"unsupported operand type\(s\) for \*=: 'NoneType' and 'int'|"
        r"must have a fixed size for dimension 0 that is known",
        "the batches of input_fn have no static size. Use batch(..., drop_remainder=True)",
    ),
    (
        r"Cannot use '.*' as input to '[^']*(HashTable|LookupTable|InitializeTable)[^']*' because",
        "a TPU cannot look up tables. Convert words to ids in input_fn, and ids to words after "
        "predict",
    ),
    (
        r"Cannot use '.*' as input to '[^']*MergeSummary[^']*' because",
        "model_fn calls tf.compat.v1.summary, but a summary cannot be written inside of the TPU "
        "loop. Remove it, and write the summary in host_call",
    ),
    (
        r"Cannot use '.*' as input to '.*' because .* is in a while loop",
        "a tensor of the TPU loop is used outside of it. Pass it to host_call or eval_metrics",
    ),
    (r"^Cannot reshape a tensor with \d+ elements to shape \[1\]", "the loss must be a scalar"),
    (r"object has no attribute 'training_chief_hooks'", "model_fn must return a TPUEstimatorSpec"),
    (r"^Can not convert a NoneType into a Tensor or Operation", "the train_op or the loss is None"),
    (
        r"TPUEstimator\.evaluate is only supported under three conditions",
        "the slice has several hosts. Evaluate on one host, such as a v3-8, or with PER_HOST_V2",
    ),
    (
        r"TPUEstimator\.predict is only supported under three conditions",
        "the slice has several hosts. Predict on one host, such as a v3-8, or with use_tpu=False",
    ),
    (
        r"^End of sequence",
        "input_fn ended before the last step. It needs more examples, or repeat()",
    ),
    (
        r"Failed to convert elements of SparseTensor|'RaggedTensor' object has no attribute 'op'",
        "a TPU needs dense tensors. Call tf.sparse.to_dense, or to_tensor of a RaggedTensor, with "
        "a static shape in input_fn",
    ),
    (
        r"signal only works in main thread",
        "TPUEstimator trains in the main thread only. Call train there",
    ),
    (
        r"has been marked as not fetchable",
        "a hook reads a tensor inside the TPU loop. Pass it to host_call instead",
    ),
    (
        r"(?P<mode>\w+) batch size (?P<size>\d+) must be divisible by number of replicas "
        r"(?P<replicas>\d+)",
        _nearest_batch_sizes,
    ),
    (
        NO_SUM,
        "the gradients are not summed over the cores. Wrap the optimizer in "
        "tf.compat.v1.tpu.CrossShardOptimizer",
    ),
    (
        r"maximum_iterations was not passed to the tf.while_loop",
        "a loop with gradients needs maximum_iterations",
    ),
)
# `shape[0].value` of a program for TensorFlow 1.x that runs with the shapes of version 2.
_OLD_DIMENSION = re.compile(r"^'(int|NoneType)' object has no attribute 'value'$")
# A *_pb2.py that protoc before 3.19 generated, with the protobuf 4 of TensorFlow 2.15.
_OLD_PROTO = "Descriptors cannot be created directly."
_COLAB_CREDENTIALS = "/content/adc.json"
_MISSING_NAME = re.compile(
    r"^module '(?P<module>\w+)' has no attribute '(?P<name>\w+)'|"
    r"^cannot import name '(?P<imported>\w+)' from '(?P<source>\w+)'"
)
# A method with the signature of TensorFlow 1.x, to which batch norm of Keras 2.15 passes a mask.
_NO_MASK = re.compile(r"_(moments|calculate_mean_and_var)\(\) got an unexpected .* 'mask'")
# Pattern of an XLA error with the name and type of a node -> explanation.
_XLA_ERRORS = (
    (
        r"No registered '(?P<kind>\w+)' OpKernel for \w+ devices compatible with node "
        r"\{\{node (?P<name>[^}]+)\}",
        "{} cannot be compiled by XLA",
    ),
    (
        r"to node `(?P<name>[^`]+)` with op (?P<kind>\w+) must be a compile-time constant",
        "{} needs a static shape, but its shape depends on data",
    ),
)


class SpecError(Exception):
    """model_fn returned an invalid value.

    Attributes:
      message: what is wrong.
      where: "file:line" in the program; "" if the message says it.
    """

    def __init__(self, message: str, where: str):
        super().__init__(message)
        self.message, self.where = message, where


def is_of_program(error: BaseException) -> bool:
    """Returns True for an exception of the program; False for Ctrl-C and `StopProgram`."""
    return not isinstance(error, (KeyboardInterrupt, StopProgram))


def is_estimator_error(error) -> bool:
    """Returns True for a known error of TPUEstimator."""
    return any(re.search(pattern, text_of(error)) for pattern, _ in _ESTIMATOR_ERRORS)


def text_of(error: BaseException) -> str:
    """Returns the message of an exception; "" if it has none, or if its `__str__` raises."""
    try:
        return str(error)
    except Exception:
        return ""


def describe(error: BaseException, length: int = 400) -> str:
    """Returns "type: message" of an exception in one line, which says so if there is no message."""
    kind, text = type(error).__name__, " ".join(text_of(error).split())
    if isinstance(error, SystemExit) and error.code is None:
        text = "0"
    if text:
        return f"{kind}: {text.removeprefix(f'{kind}: ')[:length]}{advice_on_environment(error)}"
    raised = [frame for frame in _frames(error) if user_line_in([frame]) and frame.line]
    return f"{kind} without a message" + (f", raised by `{raised[-1].line}`" if raised else "")


def describe_with_place(error: BaseException, length: int = 400) -> str:
    """Returns `describe` and the line of the program that raised the exception, if known."""
    place = place_of(error)
    return f"{describe(error, length)}{f' (at {place})' if place else ''}"


def explain_error(error) -> str:
    """Returns the message of a TPUEstimator or user error, with an explanation if known."""
    if isinstance(error, SpecError):
        return error.message
    text = text_of(error)
    if text.startswith(_AUTOGRAPH):  # a traceback, and then the message
        text = text.rstrip().rpartition("\n\n")[2]
    text = _GRAPH_ERROR.sub(r"\1", text)
    text = _FETCH_ADVICE.sub("", " ".join(text.split()))
    for pattern, hint in _ESTIMATOR_ERRORS:
        match = re.search(pattern, text)
        if match:
            return f"{hint(match) if callable(hint) else hint} ({text[:200]})"
    kind = f"{type(error).__name__}: "
    if not text:
        return describe(error)
    return f"{kind}{text.removeprefix(kind)[:400]}{advice_on_environment(error)}"


def advice_on_environment(error) -> str:
    """Returns advice for an error of versions of libraries, or of a missing Colab; "" for others.

    It continues the message: it begins with ": " or ". ".
    """
    if isinstance(error, AttributeError) and _OLD_DIMENSION.match(text_of(error)):
        return (
            ": the sizes of a shape are ints in TensorFlow 2. Add --tf1, or call "
            "tf.compat.v1.disable_v2_behavior()"
        )
    if isinstance(error, TypeError) and _NO_MASK.search(text_of(error)):
        return ": Keras 2.15 passes it to this method. Add --tf1, or add the argument mask=None"
    if isinstance(error, TypeError) and text_of(error).startswith(_OLD_PROTO):
        return (
            ". Set PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION=python in the environment, or generate "
            "the program's *_pb2.py again with protoc 3.19 or later"
        )
    is_colab = isinstance(error, ImportError) and (error.name or "").startswith("google.colab")
    if is_colab or (isinstance(error, OSError) and error.filename == _COLAB_CREDENTIALS):
        return (
            ". No TPU reads files with the credentials of Colab here: remove the lines that pass "
            "them to a TPU"
        )
    if isinstance(error, (AttributeError, ImportError)):
        match = _MISSING_NAME.match(text_of(error))
        if match:
            module, name = match["module"] or match["source"], match["name"] or match["imported"]
            library = old_python.library_without(module, name)
            return f". {library} removed it. Add --tf1" if library else ""
    return ""


def explain_second_call(error, what: str, other: str = "") -> str:
    """Returns why a function of the program raises when the check calls it again.

    Args:
      error: what the second call raised; the first did not.
      what: what was called again, such as "input_fn".
      other: what was different in the second call, such as "with another batch size".
    """
    other = f", or not {other}" if other else ""
    return f"{describe_with_place(error)}: {what} cannot be called twice{other}"


def place_of(error) -> str:
    """Returns "file:line" of the program's code that raised an error; "" if unknown."""
    if isinstance(error, SpecError):
        return error.where
    return user_line_in(_frames(error))


def _frames(error):
    frames, text = traceback.extract_tb(error.__traceback__), text_of(error)
    return frames + (frames_in(text) if text.startswith(_AUTOGRAPH) else [])


def frames_in(text: str) -> list[traceback.FrameSummary]:
    """Returns the frames of a stack that is part of a message."""
    return [
        traceback.FrameSummary(path, int(line), "", lookup_line=False)
        for path, line in _FRAME.findall(text)
    ]


def explain_xla_error(error, line_of_op):
    """Returns [(message, "file:line")] for the operations that XLA cannot compile."""
    text = " ".join(text_of(error).split())
    for pattern, message in _XLA_ERRORS:
        found = [(match["kind"], match["name"]) for match in re.finditer(pattern, text)]
        if found:
            return [(message.format(kind), line_of_op(name)) for kind, name in dict.fromkeys(found)]
    return [(f"XLA cannot compile the step: {text[:400]}", "")]


def is_xla_error(error) -> bool:
    """Returns True if XLA refuses the step; False for a fault of the check."""
    return isinstance(error, tf.errors.OpError) or "Failed getting HLO text" in text_of(error)


def missing_kernels(error) -> list[str]:
    """Returns the types of the operations for which XLA says that it has no kernel."""
    pattern = _XLA_ERRORS[0][0]
    text = " ".join(text_of(error).split())
    return list(dict.fromkeys(match["kind"] for match in re.finditer(pattern, text)))


def advise_on_memory(mode, fits):
    """Returns what to do if a step does not fit.

    Args:
      mode: "train", "eval" or "predict".
      fits: the largest global batch size that fits; 0 if unknown.
    """
    fitting = f"a global batch of {fits} fits; " if fits else ""
    smaller = "gradient accumulation and bfloat16" if mode == "train" else "a smaller batch"
    return f"{fitting}{smaller} need{'' if mode == 'train' else 's'} less"


def explain_out_of_memory(compiled, advice):
    """Returns by how much a step does not fit, and what to do."""
    if compiled.hbm_needed is None:
        return f"does not fit into memory: {compiled.error[:400]}. {advice}"
    over = compiled.hbm_needed - compiled.hbm_limit
    return (
        f"does not fit: needs {compiled.hbm_needed / 2**30:.2f} GiB per core, "
        f"{over / 2**20:,.0f} MiB more than the available {compiled.hbm_limit / 2**30:.2f} GiB. "
        f"{advice}"
    )
