"""Signatures: values of requests that are refused, and independence of the order of dicts."""

import types

import numpy as np
import pytest
import tensorflow as tf

from common.errors import UsageError
from engine.serving import signatures
from input_fns import kinds
from input_fns.audio.audio_pipeline import AudioPipeline
from input_fns.core import serving
from input_fns.core.serving import Receiver
from input_fns.image.detection_pipeline import DetectionPipeline
from input_fns.tables.clicks_pipeline import ClicksPipeline
from input_fns.tables.ratings_pipeline import RatingsPipeline
from input_fns.text.text_pipeline import TextPipeline
from input_fns.text.token_pipeline import TokenPipeline

VALID, BATCH = 1, 3


def pipelines():
    """A pipeline of each kind of data whose requests have lengths, ids or numbers."""

    def synthetic(*task, **shapes):
        return kinds.synthetic(kinds.SyntheticShapes(*task, **shapes))

    return {
        "audio": AudioPipeline(synthetic(audio=(8000, 9, 6, 5))),
        "clicks": ClicksPipeline(synthetic("clicks", tables=(5, 7))),
        "boxes": DetectionPipeline(synthetic("detection", 2, (8, 8)), (8, 8)),
        "ratings": RatingsPipeline(synthetic("ratings", tables=(11, 13))),
        "text": TextPipeline(synthetic("translation", text=(7, 31))),
        "tokens": TokenPipeline(synthetic("pretraining", text=(9, 31))),
    }


def answer(pipeline, changes):
    """Runs the features of the raw signature on a batch with some other values."""
    limits = pipeline.input_limits
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        inputs = {
            name: tf.compat.v1.placeholder(feature.dtype, [None, *feature.shape])
            for name, feature in pipeline.features.items()
        }
        found = serving.checked(inputs, limits)
        batch = {name: np.full([BATCH, *inputs[name].shape[1:]], VALID) for name in inputs}
        for name, value in changes.items():
            batch[name] = batch[name].astype(inputs[name].dtype.as_numpy_dtype)
            batch[name].flat[-1] = value
        return session.run(found, {inputs[name]: batch[name] for name in inputs})


@pytest.mark.parametrize(
    ("kind", "name", "value", "message"),
    [
        ("audio", "num_samples", 0, "num_samples must be from 1 to 9"),
        ("audio", "num_samples", -1, "num_samples must be from 1 to 9"),
        ("audio", "num_samples", 10, r"num_samples must be from 1 to 9\. .* \[1\] \[10\]"),
        ("audio", "num_samples", 2**31 - 1, "num_samples must be from 1 to 9"),
        ("audio", "waveform", np.nan, "waveform must be finite"),
        ("audio", "waveform", np.inf, "waveform must be finite"),
        ("clicks", "numbers", -np.inf, "numbers must be finite"),
        ("clicks", "categories", 7, r"categories must be from -1 to \[4, 6\]"),
        ("clicks", "categories", -2, r"categories must be from -1 to \[4, 6\]"),
        ("boxes", "image_info", 0, "image_info must be finite and above 0"),
        ("boxes", "image_info", np.nan, "image_info must be finite and above 0"),
        ("ratings", "user", 11, "user must be from -1 to 10"),
        ("ratings", "items", -2, "items must be from -1 to 12"),
        ("text", "source", 31, "source must be from 0 to 30"),
        ("tokens", "input_ids", -1, "input_ids must be from 0 to 30"),
        ("tokens", "input_mask", 2, "input_mask must be from 0 to 1"),
        ("tokens", "segment_ids", 2, "segment_ids must be from 0 to 1"),
        ("tokens", "masked_lm_positions", 9, "masked_lm_positions must be from 0 to 8"),
    ],
)
def test_a_value_of_a_request_that_is_out_of_range_is_an_error(kind, name, value, message):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        answer(pipelines()[kind], {name: value})


def test_every_integer_and_length_of_a_request_has_limits():
    for kind, pipeline in pipelines().items():
        unchecked = pipeline.features.keys() - pipeline.input_limits.keys()
        assert unchecked <= {"image"}, kind  # all values of uint8


@pytest.mark.parametrize("kind", pipelines())
def test_valid_values_and_an_empty_batch_are_returned(kind):
    pipeline = pipelines()[kind]
    found = answer(pipeline, {})
    assert found.keys() == pipeline.features.keys()
    unknown = {"clicks": {"categories": -1}, "ratings": {"user": -1, "items": -1}}
    answer(pipeline, unknown.get(kind, {}))


class TwoReceivers:
    """A pipeline with the raw receiver and one of doubled values, in one order or the other."""

    data, features, assets = None, {"x": None}, ()

    def __init__(self, names):
        self._names = names

    def receivers(self, top_k=0):
        del top_k

        def receiver(name, factor):
            spec = {name: tf.TensorSpec([None, 1], tf.float32)}
            return Receiver(
                spec,
                lambda inputs: {"added": tf.zeros([7, 1]), "x": factor * inputs[name]},
                lambda predictions, features: predictions,
                None,
            )

        found = {serving.RAW: receiver("x", 1), "doubled": receiver("raw_x", 2)}
        return {name: found[name] for name in self._names}


@pytest.mark.parametrize("names", [(serving.RAW, "doubled"), ("doubled", serving.RAW)])
def test_signatures_do_not_depend_on_the_order_of_the_receivers(names, session):
    pipeline = TwoReceivers(names)

    def predict(features):
        return {"y": features["x"] + 1}

    placeholders = signatures.serving_input_receiver_fn(pipeline)()
    features = placeholders.features
    outputs = signatures.export_outputs(features, predict(features), predict, pipeline, 0)
    fed = {tensor: [[5.0]] for tensor in placeholders.receiver_tensors.values()}
    answers = {name: session.run(output.outputs["y"], fed) for name, output in outputs.items()}
    assert answers == {serving.RAW: [[6.0]], "doubled": [[11.0]]}


def convolution(features):
    kernel = tf.ones([1, 1, 1, 2])
    return {"y": tf.nn.conv2d(tf.reshape(features["x"], [-1, 1, 1, 1]), kernel, 1, "SAME")}


def test_a_network_with_convolutions_refuses_an_empty_batch(session):
    pipeline = TwoReceivers((serving.RAW, "doubled"))
    placeholders = signatures.serving_input_receiver_fn(pipeline)()
    features = placeholders.features
    outputs = signatures.export_outputs(features, convolution(features), convolution, pipeline, 0)
    fed = {tensor: np.zeros([0, 1]) for tensor in placeholders.receiver_tensors.values()}
    assert session.run(outputs["doubled"].outputs["y"], fed).shape == (0, 1, 1, 2)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"x: an empty batch\. Send at"):
        session.run(outputs[serving.RAW].outputs["y"], fed)


class WithRecords:
    """A pipeline with the receivers of features and of tf.train.Examples, and class names."""

    features, assets = {"x": None}, ()

    def __init__(self, class_names):
        self.data = types.SimpleNamespace(all_class_names=class_names)

    def receivers(self, top_k=0):
        def outputs(predictions, features):
            return serving.class_outputs(predictions, self.data.all_class_names, top_k)

        def features(inputs):
            return {"x": tf.io.decode_raw(inputs[serving.EXAMPLES], tf.float32)}

        raw = {"x": tf.TensorSpec([None, 1], tf.float32)}
        examples = serving.string_inputs(serving.EXAMPLES)
        return {
            serving.RAW: Receiver(raw, dict, outputs, None),
            serving.TF_EXAMPLE: Receiver(examples, features, outputs, None),
        }


def signatures_of(class_names, shape, top_k=0):
    """The signatures of a model with probabilities `[batch, *shape]`."""
    pipeline = WithRecords(class_names)

    def predict(features):
        return {"probabilities": tf.zeros([tf.shape(features["x"])[0], *shape])}

    features = signatures.serving_input_receiver_fn(pipeline)().features
    return signatures.export_outputs(features, predict(features), predict, pipeline, top_k)


@pytest.mark.parametrize(
    ("class_names", "shape", "is_classifier"),
    [
        (("no", "yes"), [2], True),
        (("no", "yes"), [], False),  # of a click
        (("no", "yes"), [1], False),
        (("no", "yes"), [5, 2], False),  # of each pixel
        ((), [], False),
        ((), [2], False),
    ],
)
def test_classify_needs_a_probability_of_each_class(class_names, shape, is_classifier):
    with tf.Graph().as_default():
        assert (serving.CLASSIFY in signatures_of(class_names, shape)) == is_classifier


@pytest.mark.parametrize("shape", [[], [1], [5, 2]])
def test_top_k_needs_a_probability_of_each_class(shape):
    needed = r"--export_top_k=2 needs a model that predicts 'probabilities' of all classes, \[batch"
    with tf.Graph().as_default(), pytest.raises(UsageError, match=needed):
        signatures_of(("no", "yes"), shape, top_k=2)


def test_top_k_of_items_needs_no_class_names():
    with tf.Graph().as_default():
        assert signatures_of((), [7], top_k=2).keys() == {serving.RAW, serving.TF_EXAMPLE}
