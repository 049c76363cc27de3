"""Embeddings of texts and tokens against NumPy on the outputs of the encoder's layers."""

import numpy as np
import pytest
import tensorflow as tf

from models import registry
from models.model import ModelError
from models.text import bert, bert_embeddings
from tests import numerics

SIZES = {"num_layers": 3, "hidden_size": 6, "num_heads": 2, "ffn_size": 5, "vocab_size": 11}
LENGTHS = np.array([7, 2, 4])
MASK = (np.arange(7) < LENGTHS[:, None]).astype(np.int32)
FEATURES = {
    "input_ids": np.random.default_rng(0).integers(0, 11, [3, 7]).astype(np.int32) * MASK,
    "input_mask": MASK,
    "segment_ids": np.zeros_like(MASK),
}
# A mean of 7 tokens, of outputs of the same ops.
MEAN = {"terms": 7, "depth": 4}


def params(**changes):
    defaults = {**bert.default_params(), **bert_embeddings.default_params()}
    return {**defaults, **SIZES, "max_length": 7, **changes}


def computed(session, **changes):
    """The predictions, and the outputs of the layers, `[layers, batch, length, hidden_size]`."""
    features = tf.nest.map_structure(tf.constant, FEATURES)
    values = params(**changes)
    decode, predictions = bert_embeddings.PREDICTIONS
    found = predictions(features, decode(features, values), values)
    with tf.compat.v1.variable_scope(tf.compat.v1.get_variable_scope(), reuse=True):
        layers = bert.encode_layers(features, values, training=False)
    random = np.random.default_rng(1)
    for variable in tf.compat.v1.global_variables():
        variable.load(random.normal(size=variable.shape), session)
    return session.run((found, tf.stack(layers)))


@pytest.mark.slow(cost=0.1)
def test_the_mean_is_over_the_tokens_of_a_row(session):
    found, layers = computed(session)
    expected = [layers[-1][row, :length].mean(axis=0) for row, length in enumerate(LENGTHS)]
    assert found.keys() == {"embeddings"}
    numerics.assert_close(found["embeddings"], np.stack(expected), **MEAN)


@pytest.mark.slow(cost=0.1)
def test_cls_is_the_first_token(session):
    found, layers = computed(session, pooling="cls")
    np.testing.assert_array_equal(found["embeddings"], layers[-1][:, 0])


@pytest.mark.slow(cost=0.1)
def test_chosen_layers_are_concatenated(session):
    found, layers = computed(session, pooling="cls", embedding_layers=(-1, 0))
    expected = np.concatenate([layers[2][:, 0], layers[0][:, 0]], axis=1)
    np.testing.assert_array_equal(found["embeddings"], expected)


@pytest.mark.slow(cost=0.1)
def test_normalized_embeddings_have_the_norm_1(session):
    found, layers = computed(session, pooling="cls", normalize_embeddings=True)
    expected = layers[-1][:, 0] / np.linalg.norm(layers[-1][:, 0], axis=1, keepdims=True)
    numerics.assert_close(found["embeddings"], expected, terms=6, depth=3)


@pytest.mark.slow(cost=0.1)
def test_tokens_are_those_of_the_encoder_and_padding_is_0(session):
    found, layers = computed(session, pooling="tokens")
    expected = layers[-1] * MASK[..., None]
    np.testing.assert_array_equal(found["token_embeddings"], expected)
    np.testing.assert_array_equal(found["num_tokens"], LENGTHS)
    np.testing.assert_array_equal(found["token_ids"], FEATURES["input_ids"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pooling": "max"}, "pooling=max must be one of mean, cls, tokens"),
        ({"embedding_layers": (3,)}, "must be layers from -3 to 2"),
        ({"embedding_layers": ()}, "must be layers from -3 to 2"),
    ],
    ids=str,
)
def test_invalid_hyperparameters(changes, message):
    model = registry.find("bert_tiny_regressor")
    with pytest.raises(ModelError, match=message):
        model.check_params({**model.default_params(), **params(**changes)})


def test_every_bert_has_embeddings_and_others_name_what_they_have():
    for name in (name for name in registry.MODELS if name.startswith("bert_")):
        assert registry.find(name).predicting("embeddings").decode is not None
    with pytest.raises(ModelError, match=r"--predictions=vectors: .*: embeddings\. Remove"):
        registry.find("bert_tiny_squad").predicting("vectors")
    with pytest.raises(ModelError, match="model 'mlp' has other predictions: none"):
        registry.find("mlp").predicting("embeddings")
