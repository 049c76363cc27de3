"""The Transformer: what each output depends on, and that search and training agree."""

import contextlib
import functools

import numpy as np
import pytest
import tensorflow as tf

from common.constants import EOS
from models import registry
from models.model import ModelError
from models.text import seq2seq, transformer
from tests import numerics, variable_values
from tests.marks import runs_bfloat16, slow

LENGTH, VOCAB = 11, 37
LAYERS, HIDDEN, FFN = 2, 16, 24
# Operations that follow one another: of attention 12 (tests/models/layers/test_attention.py), of a
# feed-forward net 4, of what is around each the sum with its input and 7 of layer norm.
_ENCODER_LAYER = (12 + 8) + (4 + 8)
_DECODER_LAYER = 2 * (12 + 8) + (4 + 8)
# Before them the scaled embedding and the position, after them a norm and the logits.
NETWORK = {"terms": FFN, "depth": LAYERS * (_ENCODER_LAYER + _DECODER_LAYER) + 2 + 7 + 1}


def params(**changes):
    sizes = {"num_layers": LAYERS, "hidden_size": HIDDEN, "ffn_size": FFN, "num_heads": 2}
    return {**transformer.default_params(), **sizes, "vocab_size": VOCAB, "beam_size": 3, **changes}


def rows(*lengths_of_rows, seed=0):
    """Random rows of sentences of these lengths, int32 `[rows, LENGTH]`."""
    random = np.random.default_rng(seed)
    found = np.zeros([len(lengths_of_rows), LENGTH], np.int32)
    for row, lengths in zip(found, lengths_of_rows):
        sentences = [[*random.integers(3, VOCAB, length - 1), EOS] for length in lengths]
        row[: sum(lengths)] = np.concatenate(sentences)
    return found


SOURCE, TARGET = rows([4, 5], [11], [3, 3, 3]), rows([3, 6], [2], [2, 2, 5], seed=1)


def value_of(variable):
    """The value of a variable, a function of its name."""
    random = np.random.default_rng(list(variable.op.name.encode()))
    return random.normal(size=variable.shape, scale=0.4) + ("gamma" in variable.op.name)


@functools.cache
def build(shapes, training, hyperparameters):
    """Builds a model once for all tests that run it; returns its session, inputs and outputs."""
    with tf.Graph().as_default() as graph:
        inputs = {name: tf.compat.v1.placeholder(tf.int32, shape) for name, shape in shapes}
        is_bfloat16 = ("precision", "bfloat16") in hyperparameters
        with tf.compat.v1.tpu.bfloat16_scope() if is_bfloat16 else contextlib.nullcontext():
            if "target" in inputs:
                outputs = transformer.inference(inputs, dict(hyperparameters), training)
            else:
                outputs = transformer.decode(inputs, dict(hyperparameters))
        session = tf.compat.v1.Session(graph=graph)
        variable_values.assign_all(session, value_of)
        return session, inputs, outputs


def infer(features, training=False, **changes):
    """Outputs of a model whose variables are functions of their names."""
    shapes = tuple((name, value.shape) for name, value in features.items())
    session, inputs, outputs = build(shapes, training, tuple(params(**changes).items()))
    return session.run(outputs, {inputs[name]: value for name, value in features.items()})


def logits(source, target, **changes):
    return infer({"source": source, "target": target}, **changes)["logits"]


@pytest.mark.parametrize(
    ("name", "layers", "hidden", "ffn", "heads", "dropout"),
    [
        ("transformer_base", 6, 512, 2048, 8, 0.1),
        ("transformer_big", 6, 1024, 4096, 16, 0.3),
    ],
)
def test_defaults_are_those_of_the_paper(name, layers, hidden, ffn, heads, dropout):
    defaults = registry.find(name).default_params()
    names = ("num_layers", "hidden_size", "ffn_size", "num_heads", "dropout", "label_smoothing")
    found = [defaults[name] for name in names]
    assert found == [layers, hidden, ffn, heads, dropout, 0.1]


def test_logits_of_every_target_token(graph):
    features = {"source": tf.constant(SOURCE), "target": tf.constant(TARGET)}
    outputs = transformer.inference(features, params(), training=True)
    assert outputs["logits"].shape == (3, LENGTH, VOCAB)
    assert outputs["logits"].dtype == tf.float32


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize("pre_norm", [True, slow(False)])
def test_every_variable_is_trained(graph, pre_norm):
    features = {"source": tf.constant(SOURCE), "target": tf.constant(TARGET)}
    outputs = transformer.inference(features, params(pre_norm=pre_norm), training=True)
    losses = seq2seq.losses(features, features["target"], outputs, params())
    loss = tf.reduce_sum(losses["cross_entropy"].values)
    variables = tf.compat.v1.trainable_variables()
    assert all(gradient is not None for gradient in tf.gradients(loss, variables))
    assert variables == tf.compat.v1.global_variables()


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize("pre_norm", [True, slow(False)])
def test_sentences_that_share_a_row_do_not_see_each_other(pre_norm):
    together = logits(SOURCE, TARGET, pre_norm=pre_norm)
    alone = logits(rows([4])[:1], rows([3], seed=1)[:1], pre_norm=pre_norm)
    numerics.assert_close(together[0, :3], alone[0, :3], **NETWORK)

    second_source, second_target = np.zeros_like(SOURCE[:1]), np.zeros_like(TARGET[:1])
    second_source[0, :5], second_target[0, :6] = SOURCE[0, 4:9], TARGET[0, 3:9]
    alone = logits(second_source, second_target, pre_norm=pre_norm)
    numerics.assert_close(together[0, 3:9], alone[0, :6], **NETWORK)


def test_a_token_does_not_see_itself_nor_what_comes_after():
    changed = TARGET.copy()
    changed[1, 0] = 7
    before, after = logits(SOURCE, TARGET), logits(SOURCE, changed)
    numerics.assert_close(after[1, 0], before[1, 0], **NETWORK)
    numerics.assert_far(after[1, 1], before[1, 1], **NETWORK)
    numerics.assert_close(after[[0, 2]], before[[0, 2]], **NETWORK)


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize("beam_size", [3, slow(1)])
@pytest.mark.parametrize("pre_norm", [False, slow(True)])
def test_the_score_of_a_search_is_that_of_its_target_in_training(beam_size, pre_norm):
    source = rows([4], [11], [7], seed=4)
    found = infer({"source": source}, beam_size=beam_size, pre_norm=pre_norm)
    target = found["target"]
    of_tokens = logits(source, target, pre_norm=pre_norm).astype(np.float64)
    log_probs = of_tokens - np.log(np.exp(of_tokens).sum(axis=-1, keepdims=True))
    log_probs = np.take_along_axis(log_probs, target[..., np.newaxis], axis=-1)[..., 0]
    tokens = np.count_nonzero(target, axis=1)
    total = (log_probs * (target > 0)).sum(axis=1)
    # A sum of as many logits as a row has tokens.
    magnitude = (np.abs(of_tokens).max() * tokens / ((5 + tokens) / 6) ** 0.6).max()
    for penalty, judge in ((0.6, numerics.assert_close), (0.5, numerics.assert_far)):
        scores = total / ((5 + tokens) / 6) ** penalty
        judge(found["score"], scores, **NETWORK, magnitude=magnitude)


def test_a_greedy_search_takes_the_most_probable_tokens():
    source = rows([4], [11], [7], seed=4)
    target = infer({"source": source}, beam_size=1)["target"]
    of_tokens = logits(source, target)
    taken = np.take_along_axis(of_tokens, target[..., np.newaxis], axis=-1)[..., 0]
    # A token may be as probable as another, and differ by rounding alone.
    best = of_tokens.max(axis=-1)
    numerics.assert_close(taken[target > 0], best[target > 0], **NETWORK)


@pytest.mark.slow(cost=0.1)
def test_any_number_of_sentences_can_be_searched(session):
    source = tf.compat.v1.placeholder(tf.int32, [None, LENGTH])
    outputs = transformer.decode({"source": source}, params())
    session.run(tf.compat.v1.global_variables_initializer())
    for size in (0, 1, 3):
        found = session.run(outputs, {source: SOURCE[:size]})
        assert found["target"].shape == (size, LENGTH)
        assert found["score"].shape == (size,)


@pytest.mark.slow(cost=0.1)
@runs_bfloat16
def test_bfloat16_is_near_float32():
    exact = logits(SOURCE, TARGET, num_layers=1)
    rounded = logits(SOURCE, TARGET, num_layers=1, precision="bfloat16")
    assert rounded.dtype == tf.bfloat16.as_numpy_dtype
    # To bfloat16 are rounded the embedding, its scale and the position, in an attention 3 kernels,
    # 3 biases, their results, the scores, the softmax and the mean; in a feed-forward network
    # 2, 2 and 3 such; around each 2 sums and norms; the logits.
    roundings = 3 + 3 * (3 + 3 + 6 + 3) + 2 * (2 + 2 + 3) + 5 * 2 + 1
    arithmetic = {"terms": roundings, "dtype": "bfloat16", "sides": 1}
    numerics.assert_close(rounded, exact, **arithmetic)
    of_larger_heads = logits(SOURCE, TARGET, num_layers=1, num_heads=1)
    numerics.assert_far(of_larger_heads, exact, **arithmetic)


@pytest.mark.slow
def test_tiny_is_as_large_as_published():
    model = registry.find("transformer_tiny")
    with tf.Graph().as_default():
        features = {"source": tf.constant(SOURCE), "target": tf.constant(TARGET)}
        model.inference(features, {**model.default_params(), "vocab_size": 10112}, True)
        size = sum(v.shape.num_elements() for v in tf.compat.v1.trainable_variables())
    assert size == pytest.approx(2.6e6, rel=0.02)  # Wu et al. 2021, table 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_layers": 0}, "num_layers=0 must be at least 1"),
        ({"hidden_size": 20, "num_heads": 8}, "hidden_size=20 must be a multiple of num_heads=8"),
        ({"hidden_size": 15, "num_heads": 3}, "hidden_size=15 must be even"),
        ({"dropout": 1.0}, r"dropout=1.0 must be in \[0, 1\)"),
        ({"beam_size": 0}, "beam_size=0 must be at least 1"),
    ],
)
def test_a_wrong_value_is_refused(changes, message):
    with pytest.raises(ModelError, match=message):
        transformer.check_params(params(**changes))
