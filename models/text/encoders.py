"""The encoders that the heads of BERT can have, by the name of their family.

    sequence_output = encode(features, params, training=True)  # [batch, length, hidden_size]
    pooled_output = pool(sequence_output, params)  # [batch, hidden_size]

A family is a module with `SIZES`, `encode_layers`, `pool` and `layer_scopes`; `SCOPE`, the variable
scope of the encoder; `QUERY`, the name of a variable of the first layer. To add one, write it and
add it to `FAMILIES`, its checkpoints to `checkpoint_families`.
"""

from __future__ import annotations

from models.model import ModelError
from models.text import albert, bert, electra

FAMILIES = {"bert": bert, "albert": albert, "electra": electra}
_MOST_COLUMNS = 1 << 16
# What a size does not set; `--params=size=A --params=size=B` has the values of B.
_DEFAULTS = {"family": "bert", "embedding_size": 0, "dropout": 0.1, "attention_dropout": 0.1}
SIZES = {
    name: {**_DEFAULTS, **size}
    for family in FAMILIES.values()
    for name, size in family.SIZES.items()
}


def encode(features, params, training):
    """Runs the encoder of `params["family"]`; see `bert.encode`."""
    return encode_layers(features, params, training)[-1]


def encode_layers(features, params, training):
    """Returns the output of each layer; see `bert.encode_layers`."""
    return FAMILIES[params["family"]].encode_layers(features, params, training)


def pool(sequence_output, params):
    """Returns the vector of each row for a classifier, `[batch, hidden_size]`; see `bert.pool`."""
    return FAMILIES[params["family"]].pool(sequence_output, params)


def layer_variables(params):
    """Returns the regular expressions of `Model.layer_variables`."""
    return [f"{scope}/.*" for scope in FAMILIES[params["family"]].layer_scopes(params)]


def check_params(params):
    """Raises `ModelError` for an unknown family, or a hyperparameter out of its range."""
    if params["family"] not in FAMILIES:
        raise ModelError(f"family={params['family']} must be one of {', '.join(FAMILIES)}")
    bert.check_params(params)
    size = params["embedding_size"]
    if not 0 <= size <= _MOST_COLUMNS:
        raise ModelError(f"embedding_size={size} must be from 0 to {_MOST_COLUMNS}")
    if size and params["family"] == "bert" and size != params["hidden_size"]:
        raise ModelError(
            f"embedding_size={size}: the embeddings of family=bert have hidden_size="
            f"{params['hidden_size']} columns. Remove it, or use --params=family=albert or electra"
        )
