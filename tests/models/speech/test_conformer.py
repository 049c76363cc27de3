"""Conformer and keyword CNN: attention against its definition, padding, masks, XLA, parameters."""

import numpy as np
import pytest
import tensorflow as tf

from models.model import ModelError
from models.speech import conformer, conformer_ctc, keyword_cnn
from tests import numerics

PARAMS = {
    **conformer_ctc.default_params(),
    "num_blocks": 2,
    "hidden_size": 12,
    "num_heads": 3,
    "sample_rate": 8000,
    "num_mels": 11,
    "kernel_size": 5,
    "vocab_size": 7,
    "max_tokens": 5,
}
ONE_BLOCK = {**PARAMS, "num_blocks": 1}
CNN = {**keyword_cnn.default_params(), "sample_rate": 8000, "num_mels": 11, "channels": (3, 5)}
SIZE = 1511  # 19 frames, 5 after the subsampling
NUM_SAMPLES = np.array([1511, 1280, 700, 81, 1], np.int32)
# Two convolutions and a projection; a block has about 50 consecutive operations.
ARITHMETIC = {"terms": 4 * 12 * 9, "depth": 20 + 2 * 50}


def waveforms(size=SIZE, seed=0):
    samples = np.random.default_rng(seed).normal(size=[5, size], scale=0.1)
    return (samples * (np.arange(size) < NUM_SAMPLES[:, np.newaxis])).astype(np.float32)


def infer(model, params, *inputs):
    """Returns the outputs for each of `inputs`, arrays of waveforms, from the same variables."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tf.compat.v1.set_random_seed(1)
        networks = {}
        for shape in dict.fromkeys(waveform.shape for waveform in inputs):
            fed = tf.compat.v1.placeholder(tf.float32, shape)
            features = {"waveform": fed, "num_samples": tf.constant(NUM_SAMPLES)}
            with tf.compat.v1.variable_scope("", reuse=tf.compat.v1.AUTO_REUSE):
                networks[shape] = fed, model.inference(features, params, False)
        session.run(tf.compat.v1.global_variables_initializer())
        used = [(waveform, *networks[waveform.shape]) for waveform in inputs]
        return [session.run(outputs, {fed: waveform}) for waveform, fed, outputs in used]


def test_logits_have_a_quarter_of_the_frames():
    (outputs,) = infer(conformer_ctc, ONE_BLOCK, waveforms())
    assert outputs["logits"].shape == (5, 5, 7)
    assert outputs["num_frames"].tolist() == [5, 4, 3, 1, 1]
    assert conformer_ctc.MODEL.default_params()["hidden_size"] == 144


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize(("model", "params"), [(conformer_ctc, PARAMS), (keyword_cnn, CNN)])
def test_what_is_after_the_end_of_a_recording_has_no_effect(model, params):
    padded = np.pad(waveforms(), ((0, 0), (0, 777)))
    noise = waveforms() + (np.arange(SIZE) >= NUM_SAMPLES[:, np.newaxis]).astype(np.float32)
    plain, longer, noisy, other = infer(
        model, params, waveforms(), padded, noise, waveforms(seed=1)
    )
    counts = plain.get("num_frames", [None] * 5)
    for i, count in enumerate(counts):
        row = (i, slice(count)) if count else i
        expected = plain["logits"][row]
        magnitude = np.abs(plain["logits"]).max()
        for found in (longer, noisy):
            numerics.assert_close(found["logits"][row], expected, magnitude=magnitude, **ARITHMETIC)
    assert np.abs(other["logits"] - plain["logits"]).max() > 0.01


def test_relative_attention_equals_its_definition():
    batch, frames, size, heads = 2, 5, 6, 3
    random = np.random.default_rng(0)
    x = random.normal(size=[batch, frames, size]).astype(np.float32)
    mask = np.array([[True] * 5, [True] * 3 + [False] * 2])
    distances = np.arange(1 - frames, frames)[:, np.newaxis]
    angles = distances * 10000.0 ** -(np.arange(0, size, 2) / size)
    positions = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        initializer = tf.compat.v1.random_normal_initializer(seed=1)
        with tf.compat.v1.variable_scope("", initializer=initializer):
            params = {"num_heads": heads, "attention_dropout": 0.0}
            output = conformer.relative_self_attention(
                tf.constant(x), tf.constant(mask), conformer.sinusoids(frames, size), params, False
            )
        variables = tf.compat.v1.trainable_variables()
        for number, variable in enumerate(variables):  # biases start at 0
            value = np.random.default_rng(number).normal(size=variable.shape.as_list())
            session.run(variable.assign(value))
        found, values = session.run([output, variables])
    v = {variable.op.name: value for variable, value in zip(variables, values)}

    def dense(y, name):
        return y @ v[f"{name}/kernel"] + v.get(f"{name}/bias", 0)

    query, key, value = (dense(x, name) for name in ("query", "key", "value"))
    relative = dense(positions, "relative")  # of distance 1 - frames first
    joined = np.zeros_like(x)
    width = size // heads
    for b in range(batch):
        for h in range(heads):
            part = slice(h * width, (h + 1) * width)
            for i in range(frames):
                scores = [
                    (query[b, i, part] + v["content_bias"][h, 0]) @ key[b, j, part]
                    + (query[b, i, part] + v["position_bias"][h, 0])
                    @ relative[frames - 1 + (i - j), part]
                    for j in range(frames)
                ]
                powers = np.exp(np.array(scores) / width**0.5) * mask[b]
                joined[b, i, part] = powers @ value[b, :, part] / powers.sum()
    numerics.assert_close(found, dense(joined, "output"), terms=size, depth=20)


@pytest.mark.slow
def test_xla_computes_the_same():
    def run(jit_compile):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            tf.compat.v1.set_random_seed(1)
            with tf.compat.v1.variable_scope("", use_resource=True):
                features = {
                    "waveform": tf.compat.v1.placeholder(tf.float32, [5, SIZE]),
                    "num_samples": tf.compat.v1.placeholder(tf.int32, [5]),
                }

                def predict():
                    outputs = conformer_ctc.inference(features, ONE_BLOCK, False)
                    return outputs["logits"]

                if jit_compile:
                    (logits,) = tf.compat.v1.xla.experimental.compile(predict)
                else:
                    logits = predict()
            session.run(tf.compat.v1.global_variables_initializer())
            feed = {features["waveform"]: waveforms(), features["num_samples"]: NUM_SAMPLES}
            return session.run(logits, feed)

    numerics.assert_close(run(True), run(False), **ARITHMETIC)


@pytest.mark.parametrize(
    "wrong",
    [
        {"num_blocks": 0},
        {"hidden_size": 13},
        {"kernel_size": 4},
        {"dropout": 1.0},
        {"vocab_size": 1},
        {"max_tokens": 0},
        {"beam_width": 0},
    ],
)
def test_invalid_parameters(wrong):
    with pytest.raises(ModelError, match=next(iter(wrong))):
        conformer_ctc.check_params({**PARAMS, **wrong})


def test_recordings_too_short_for_their_text_have_no_weight():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        features = {"num_samples": tf.constant([8000, 80])}
        labels = {"tokens": tf.constant([[1, 1, 2, 0, 0]] * 2)}
        outputs = {"logits": tf.zeros([2, 25, 7])}
        loss = conformer_ctc.losses(features, labels, outputs, PARAMS)["ctc"]
        values, weights = session.run([loss.values, loss.weights])
    assert weights.tolist() == [3, 0]
    assert values[0] > 0
