"""ALBERT and ELECTRA against the code of their papers with the same weights.

Needs ALBERT_CHECKOUT and ELECTRA_CHECKOUT, checkouts of google-research/albert and electra.
"""

import pytest
import tensorflow as tf

from models.text import encoders
from tests import encoder_data, google_families

# Largest difference, relative to the largest number of an array, but at least to 1.
TOLERANCE = 1e-4
NAMES = {
    "vocab_size": "vocab_size",
    "num_layers": "num_hidden_layers",
    "hidden_size": "hidden_size",
    "num_heads": "num_attention_heads",
    "ffn_size": "intermediate_size",
    "max_positions": "max_position_embeddings",
}


def build_google(params):
    modeling = google_families.load(params["family"])
    config = {theirs: params[ours] for ours, theirs in NAMES.items()}
    features = {name: tf.constant(value) for name, value in encoder_data.features().items()}
    inputs = {
        "input_ids": features["input_ids"],
        "input_mask": features["input_mask"],
        "token_type_ids": features["segment_ids"],
    }
    if params["family"] == "albert":
        config = modeling.AlbertConfig(embedding_size=params["embedding_size"], **config)
        model = modeling.AlbertModel(config, is_training=False, **inputs)
    else:
        size = params["embedding_size"] or None
        config = modeling.BertConfig(**config)
        model = modeling.BertModel(config, is_training=False, embedding_size=size, **inputs)
    return model.get_sequence_output(), model.get_pooled_output()


def compare(params, scale=0.2):
    ours, values = encoder_data.run(lambda: encoder_data.encode(params), scale=scale)
    theirs, _ = encoder_data.run(lambda: build_google(params), values)
    return encoder_data.largest_difference(ours, theirs)


@pytest.mark.parametrize("family", ["albert", "electra", "electra_wide"])
def test_outputs_loss_and_gradients_equal(family):
    assert compare(encoder_data.params(family)) < TOLERANCE


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize("size", ["albert_base_v2", "electra_small"])
def test_a_released_size(size):
    params = encoder_data.params(size.partition("_")[0])
    no_dropout = {"dropout": 0.0, "attention_dropout": 0.0}
    params = {**params, **encoders.SIZES[size], **no_dropout}
    assert compare(params, scale=params["initializer_range"]) < TOLERANCE
