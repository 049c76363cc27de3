"""The BERT encoder and its heads: names of the variables, padding, losses and predictions."""

import numpy as np
import pytest
import tensorflow as tf

from models import registry
from models.model import ModelError
from models.text import bert
from tests import numerics, variable_values
from tests.marks import slow

BATCH, LENGTH, VOCAB, HIDDEN, FFN = 3, 7, 37, 8, 16
SIZES = {"num_layers": 1, "hidden_size": HIDDEN, "num_heads": 2, "ffn_size": FFN}
TASKS = ("pretraining", "classifier", "regressor", "token_classifier", "squad")
# Attention 12 (tests/models/layers/test_attention.py), the feed-forward net 4, GELU 8, three sums
# and layer norms of 7.
ENCODER = {"terms": FFN, "depth": 12 + 4 + 8 + 3 * 8}


def params(task, **changes):
    defaults = registry.find(f"bert_tiny_{task}").default_params()
    sizes = {**SIZES, "vocab_size": VOCAB, "max_positions": 16}
    return {**defaults, **sizes, "dropout": 0.0, "attention_dropout": 0.0, **changes}


def features(length=LENGTH, num_tokens=(7, 5, 2)):
    """Rows of token ids, padded to `length`."""
    random = np.random.default_rng(0)
    mask = np.arange(length) < np.array(num_tokens)[:, np.newaxis]
    rows = np.zeros([2, BATCH, length], np.int32)
    rows[0, :, :LENGTH] = random.integers(1, VOCAB, [BATCH, LENGTH])
    rows[1, :, 2:LENGTH] = 1
    names = ("input_ids", "segment_ids", "input_mask", "masked_lm_positions")
    values = (*(rows * mask), mask.astype(np.int32), [[1, 4], [2, 0], [1, 0]])
    return {name: tf.constant(value, tf.int32) for name, value in zip(names, values)}


def value_of(variable):
    """The value of a variable, a function of its name."""
    random = np.random.default_rng(list(variable.op.name.encode()))
    return random.normal(size=variable.shape, scale=0.4) + ("gamma" in variable.op.name)


def run(session, fetches):
    variable_values.assign_all(session, value_of)
    return session.run(fetches)


def test_variables_have_the_public_names_and_shapes(graph):
    registry.find("bert_tiny_pretraining").inference(features(), params("pretraining"), True)
    found = {v.op.name: tuple(v.shape) for v in tf.compat.v1.trainable_variables()}
    layer, square, row = "bert/encoder/layer_0", (HIDDEN, HIDDEN), (HIDDEN,)
    expected = {
        "bert/embeddings/word_embeddings": (VOCAB, HIDDEN),
        "bert/embeddings/token_type_embeddings": (2, HIDDEN),
        "bert/embeddings/position_embeddings": (16, HIDDEN),
        f"{layer}/intermediate/dense/kernel": (HIDDEN, FFN),
        f"{layer}/intermediate/dense/bias": (FFN,),
        f"{layer}/output/dense/kernel": (FFN, HIDDEN),
        f"{layer}/output/dense/bias": row,
        "bert/pooler/dense/kernel": square,
        "bert/pooler/dense/bias": row,
        "cls/predictions/transform/dense/kernel": square,
        "cls/predictions/transform/dense/bias": row,
        "cls/predictions/output_bias": (VOCAB,),
        "cls/seq_relationship/output_weights": (2, HIDDEN),
        "cls/seq_relationship/output_bias": (2,),
    }
    for name in ("self/query", "self/key", "self/value", "output/dense"):
        expected[f"{layer}/attention/{name}/kernel"] = square
        expected[f"{layer}/attention/{name}/bias"] = row
    for name in (
        "bert/embeddings",
        f"{layer}/attention/output",
        f"{layer}/output",
        "cls/predictions/transform",
    ):
        expected[f"{name}/LayerNorm/gamma"] = expected[f"{name}/LayerNorm/beta"] = row
    assert found == expected


@pytest.mark.parametrize(
    ("task", "prefix", "outputs"),
    [("classifier", "", 5), ("regressor", "", 1), ("squad", "cls/squad/", 2)],
)
def test_heads_of_fine_tuning_have_the_public_names(graph, task, prefix, outputs):
    changes = {"num_classes": outputs} if task == "classifier" else {}
    registry.find(f"bert_tiny_{task}").inference(features(), params(task, **changes), True)
    shapes = {v.op.name: tuple(v.shape) for v in tf.compat.v1.trainable_variables()}
    assert shapes[f"{prefix}output_weights"] == (outputs, HIDDEN)
    assert shapes[f"{prefix}output_bias"] == (outputs,)


@pytest.mark.parametrize(
    ("size", "layers", "hidden", "heads"),
    [("tiny", 2, 128, 2), ("small", 4, 512, 8), ("base", 12, 768, 12), ("large", 24, 1024, 16)],
)
def test_sizes_are_those_of_the_released_checkpoints(size, layers, hidden, heads):
    found = registry.find(f"bert_{size}_squad").default_params()
    assert (found["num_layers"], found["hidden_size"], found["num_heads"]) == (
        layers,
        hidden,
        heads,
    )
    assert found["ffn_size"] == 4 * hidden


def test_padding_does_not_change_the_output_of_tokens(session):
    outputs = []
    for length in (LENGTH, 11):
        with tf.compat.v1.variable_scope("", reuse=tf.compat.v1.AUTO_REUSE):
            x = bert.encode(features(length), params("squad"), training=False)
        assert x.shape == (BATCH, length, HIDDEN)
        outputs.append([x[0, :7], x[1, :5], x[2, :2]])
    for padded, whole in zip(*run(session, outputs)):
        numerics.assert_close(padded, whole, **ENCODER)


@pytest.mark.parametrize("name", ["input_mask", "segment_ids"])
def test_the_mask_and_the_segments_change_the_output(session, name):
    changed = {**features(), name: tf.ones([BATCH, LENGTH], tf.int32)}
    outputs = []
    for values in (features(), changed):
        with tf.compat.v1.variable_scope("", reuse=tf.compat.v1.AUTO_REUSE):
            outputs.append(bert.encode(values, params("squad"), training=False)[2, 0])
    numerics.assert_far(*run(session, outputs), **ENCODER)


def test_a_row_of_padding_only_is_finite(session):
    x = bert.encode(features(num_tokens=(0, 0, 0)), params("squad"), training=False)
    assert np.isfinite(run(session, x)).all()


def labels_of(task):
    return {
        "pretraining": {
            "masked_lm_ids": tf.constant([[5, 6], [7, 0], [0, 0]]),
            "masked_lm_weights": tf.constant([[1, 1], [1, 0], [0, 0]]),
            "next_sentence_labels": tf.constant([0, 1, 1]),
        },
        "classifier": tf.constant([0, 1, 1]),
        "regressor": {"score": tf.constant([0.5, 1.0, 4.0])},
        "token_classifier": {
            "tag_ids": tf.constant([[-1, 8, 0, -1, 2, 3, -1], [-1, 1] + [-1] * 5, [-1] * 7])
        },
        "squad": {
            "start_positions": tf.constant([2, 0, 1]),
            "end_positions": tf.constant([4, 0, 1]),
        },
    }[task]


@pytest.mark.parametrize("task", [TASKS[0], *map(slow, TASKS[1:])])
def test_every_variable_is_trained(graph, task):
    model, hyperparameters = registry.find(f"bert_tiny_{task}"), params(task)
    outputs = model.inference(features(), hyperparameters, True)
    terms = model.losses(features(), labels_of(task), outputs, hyperparameters).values()
    loss = tf.add_n([tf.reduce_sum(term.values) for term in terms])
    variables = tf.compat.v1.trainable_variables()
    assert all(gradient is not None for gradient in tf.gradients(loss, variables))
    assert variables == tf.compat.v1.global_variables()


def test_a_masked_lm_loss_is_a_mean_over_the_masked_tokens_of_an_example(session):
    logits = np.random.default_rng(3).normal(size=[BATCH, 2, VOCAB]).astype(np.float32)
    outputs = {
        "masked_lm_logits": tf.constant(logits),
        "next_sentence_logits": tf.zeros([BATCH, 2]),
    }
    model = registry.find("bert_tiny_pretraining")
    terms = model.losses({}, labels_of("pretraining"), outputs, {})
    values, weights, next_sentence = session.run(
        [terms["masked_lm"].values, terms["masked_lm"].weights, terms["next_sentence"].values]
    )
    log_probabilities = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    first = -(log_probabilities[0, 0, 5] + log_probabilities[0, 1, 6]) / 2
    np.testing.assert_array_equal(weights, [2, 1, 0])
    magnitude = np.abs(logits).max()
    wanted = [first, -log_probabilities[1, 0, 7], 0]
    numerics.assert_close(values, wanted, terms=VOCAB, depth=6, magnitude=magnitude)
    numerics.assert_close(next_sentence, np.full(3, np.log(2)), depth=6)


def test_words_without_a_tag_have_no_loss(session):
    logits = tf.constant(np.random.default_rng(4).normal(size=[BATCH, LENGTH, 9]), tf.float32)
    model = registry.find("bert_tiny_token_classifier")
    term = model.losses({}, labels_of("token_classifier"), {"logits": logits}, {})["cross_entropy"]
    other = tf.concat([logits[:, 1:], logits[:, :1]], 1)
    mask = labels_of("token_classifier")["tag_ids"] >= 0
    changed = tf.where(mask[..., tf.newaxis], logits, other)
    same = model.losses({}, labels_of("token_classifier"), {"logits": changed}, {})["cross_entropy"]
    values, weights, same_values = session.run([term.values, term.weights, same.values])
    np.testing.assert_array_equal(weights, [4, 1, 0])
    np.testing.assert_array_equal(values, same_values)
    assert values[2] == 0


def test_a_span_loss_is_the_mean_of_both_ends(session):
    logits = tf.math.log(tf.constant([[0.5, 0.25, 0.25]]))
    outputs = {"start_logits": logits, "end_logits": logits}
    labels = {"start_positions": tf.constant([0]), "end_positions": tf.constant([2])}
    term = registry.find("bert_tiny_squad").losses({}, labels, outputs, {})["cross_entropy"]
    numerics.assert_close(session.run(term.values), [1.5 * np.log(2)], terms=3, depth=6)


def test_tags_of_padding_are_minus_one(session):
    model, hyperparameters = registry.find("bert_tiny_token_classifier"), params("token_classifier")
    outputs = model.inference(features(), hyperparameters, False)
    found = run(session, model.predictions(features(), outputs, hyperparameters))
    np.testing.assert_array_equal(found["tag_ids"] >= 0, np.arange(7) < [[7], [5], [2]])
    assert (found["tag_probabilities"] > 0).sum() == 7 + 5 + 2


def test_predictions_of_tokens_are_padded_to_max_length(session):
    hyperparameters = params("token_classifier", max_length=9)
    model = registry.find("bert_tiny_token_classifier")
    shorter = tf.nest.map_structure(
        lambda tensor: tf.compat.v1.placeholder_with_default(tensor, [BATCH, None]), features()
    )
    found = model.predictions(
        shorter, model.inference(shorter, hyperparameters, False), hyperparameters
    )
    found = run(session, found)
    np.testing.assert_array_equal(found["tag_ids"] >= 0, np.arange(9) < [[7], [5], [2]])
    assert (found["tag_probabilities"][:, 7:] == 0).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_heads": 3}, "hidden_size=8 must be a multiple of num_heads=3"),
        ({"num_layers": 0}, "num_layers=0 must be at least 1"),
        ({"max_length": 17}, "rows of 17 tokens, but the model max_positions=16"),
        ({"initializer_range": 0.0}, "initializer_range=0.0 must be above 0"),
        ({"attention_dropout": 1.0}, r"attention_dropout=1.0 must be in \[0, 1\)"),
        ({"num_classes": 1}, "num_classes=1 must be at least 2"),
    ],
)
def test_invalid_hyperparameters_are_an_error(change, message):
    with pytest.raises(ModelError, match=message):
        registry.find("bert_tiny_classifier").check_params(params("classifier", **change))
