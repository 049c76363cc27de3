"""ALBERT and ELECTRA: the equations of their papers in NumPy, names of variables, sizes."""

import math

import numpy as np
import pytest
import tensorflow as tf

from models.layers import dropout
from models.model import ModelError
from models.text import encoders
from tests import encoder_data, numerics

HIDDEN, FFN, COLUMNS = (24, 50, 10)
# Products of HIDDEN or FFN terms; a layer has 12 + 4 + 8 + 3 * 8 rounded results, see test_bert.
ENCODER = {"terms": FFN, "depth": encoder_data.SIZES["num_layers"] * 48}
LAYER = {  # of the variables that both papers' code names in the same way
    "self/query": (HIDDEN, HIDDEN),
    "self/key": (HIDDEN, HIDDEN),
    "self/value": (HIDDEN, HIDDEN),
    "output/dense": (HIDDEN, HIDDEN),
}


def shapes_of(family):
    with tf.Graph().as_default():
        encoder_data.encode(encoder_data.params(family))
        return {v.op.name: tuple(v.shape) for v in tf.compat.v1.trainable_variables()}


def dense(name, size, *units):
    return {f"{name}/kernel": (size, *units), f"{name}/bias": units}


def norm(name, size):
    return {f"{name}/gamma": (size,), f"{name}/beta": (size,)}


def embeddings(scope):
    rows = {"word_embeddings": 101, "token_type_embeddings": 2, "position_embeddings": 40}
    found = {f"{scope}/embeddings/{name}": (count, COLUMNS) for name, count in rows.items()}
    return {**found, **norm(f"{scope}/embeddings/LayerNorm", COLUMNS)}


def test_names_of_albert_are_those_of_its_releases():
    layer = "bert/encoder/transformer/group_0/inner_group_0"
    expected = {
        **embeddings("bert"),
        **dense("bert/encoder/embedding_hidden_mapping_in", COLUMNS, HIDDEN),
        **norm(f"{layer}/LayerNorm", HIDDEN),
        **norm(f"{layer}/LayerNorm_1", HIDDEN),
        **dense(f"{layer}/ffn_1/intermediate/dense", HIDDEN, FFN),
        **dense(f"{layer}/ffn_1/intermediate/output/dense", FFN, HIDDEN),
        **dense("bert/pooler/dense", HIDDEN, HIDDEN),
    }
    for name, shape in LAYER.items():
        expected.update(dense(f"{layer}/attention_1/{name}", *shape))
    assert shapes_of("albert") == expected


def test_names_of_electra_are_those_of_its_releases():
    expected = {**embeddings("electra"), **dense("electra/embeddings_project", COLUMNS, HIDDEN)}
    for i in range(encoder_data.SIZES["num_layers"]):
        layer = f"electra/encoder/layer_{i}"
        expected.update(norm(f"{layer}/attention/output/LayerNorm", HIDDEN))
        expected.update(norm(f"{layer}/output/LayerNorm", HIDDEN))
        expected.update(dense(f"{layer}/intermediate/dense", HIDDEN, FFN))
        expected.update(dense(f"{layer}/output/dense", FFN, HIDDEN))
        for name, shape in LAYER.items():
            expected.update(dense(f"{layer}/attention/{name}", *shape))
    assert shapes_of("electra") == expected


@pytest.mark.parametrize("family", ["bert", "electra_wide"])
def test_embeddings_as_wide_as_the_layers_have_no_projection(family):
    assert not [name for name in shapes_of(family) if "project" in name or "mapping" in name]


def test_albert_has_the_weights_of_one_layer():
    params = encoder_data.params("albert", num_layers=2)
    counts = []
    for values in (params, {**params, "num_layers": 7}):
        with tf.Graph().as_default():
            encoder_data.encode(values)
            counts.append(len(tf.compat.v1.trainable_variables()))
    assert counts[0] == counts[1]


# ALBERT's equations and ELECTRA's in float64; `w` maps names to weights.


def layer_norm(x, w, name):
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-12)
    return x * w[f"{name}/gamma"] + w[f"{name}/beta"]


def linear(x, w, name):
    return x @ w[f"{name}/kernel"] + w[f"{name}/bias"]


def tanh_gelu(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def exact_gelu(x):
    return 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def self_attention(x, mask, w, name, num_heads):
    batch, length, size = x.shape
    heads = (
        linear(x, w, f"{name}/{part}").reshape(batch, length, num_heads, -1)
        for part in ("query", "key", "value")
    )
    query, key, value = (part.transpose(0, 2, 1, 3) for part in heads)
    scores = query @ key.transpose(0, 1, 3, 2) / math.sqrt(size / num_heads)
    scores = np.where(mask[:, None, None] > 0, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return (weights @ value).transpose(0, 2, 1, 3).reshape(batch, length, size)


def numpy_layer(x, mask, w, scope, names, gelu):
    attended = self_attention(x, mask, w, f"{scope}/{names['self']}", num_heads=3)
    attended = linear(attended, w, f"{scope}/{names['attended']}")
    x = layer_norm(x + attended, w, f"{scope}/{names['first']}")
    hidden = gelu(linear(x, w, f"{scope}/{names['wide']}"))
    return layer_norm(
        x + linear(hidden, w, f"{scope}/{names['narrow']}"), w, f"{scope}/{names['second']}"
    )


ALBERT_NAMES = {
    "self": "attention_1/self",
    "attended": "attention_1/output/dense",
    "first": "LayerNorm",
    "wide": "ffn_1/intermediate/dense",
    "narrow": "ffn_1/intermediate/output/dense",
    "second": "LayerNorm_1",
}
ELECTRA_NAMES = {
    "self": "attention/self",
    "attended": "attention/output/dense",
    "first": "attention/output/LayerNorm",
    "wide": "intermediate/dense",
    "narrow": "output/dense",
    "second": "output/LayerNorm",
}


def numpy_outputs(family, w):
    features = encoder_data.features()
    scope, project = {
        "albert": ("bert", "bert/encoder/embedding_hidden_mapping_in"),
        "electra": ("electra", "electra/embeddings_project"),
    }[family]
    table = f"{scope}/embeddings"
    x = w[f"{table}/word_embeddings"][features["input_ids"]]
    x = x + w[f"{table}/token_type_embeddings"][features["segment_ids"]]
    x = x + w[f"{table}/position_embeddings"][: x.shape[1]]
    x = linear(layer_norm(x, w, f"{table}/LayerNorm"), w, project)
    for i in range(encoder_data.SIZES["num_layers"]):
        if family == "albert":
            layer, names, gelu = "transformer/group_0/inner_group_0", ALBERT_NAMES, tanh_gelu
        else:
            layer, names, gelu = f"layer_{i}", ELECTRA_NAMES, exact_gelu
        x = numpy_layer(x, features["input_mask"], w, f"{scope}/encoder/{layer}", names, gelu)
    pooled = np.tanh(linear(x[:, 0], w, "bert/pooler/dense")) if family == "albert" else x[:, 0]
    return x, pooled


def numpy_loss(family, w):
    sequence_output, pooled_output = numpy_outputs(family, w)
    weights = np.random.default_rng(7).normal(size=sequence_output.shape)
    return (sequence_output * weights).sum() + (pooled_output**2).sum()


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize("family", ["albert", "electra"])
def test_outputs_and_gradients_are_those_of_the_paper(family):
    """The gradient along a random direction equals the central difference of the loss."""
    found, values = encoder_data.run(lambda: encoder_data.encode(encoder_data.params(family)))
    w = {name: value.astype(np.float64) for name, value in values.items()}
    sequence_output, pooled_output = numpy_outputs(family, w)
    numerics.assert_close(found["sequence_output"], sequence_output, sides=1, **ENCODER)
    numerics.assert_close(found["pooled_output"], pooled_output, sides=1, **ENCODER)
    for name in ("word_embeddings", "kernel", "bias", "gamma"):  # each kind of variable
        direction = {
            n: np.random.default_rng(len(n)).normal(size=v.shape) * n.endswith(name)
            for n, v in w.items()
        }
        step = 1e-5
        ends = [
            numpy_loss(family, {n: v + sign * step * direction[n] for n, v in w.items()})
            for sign in (1, -1)
        ]
        along = sum((found[n] * direction[n]).sum() for n in w)
        # The forward and the backward pass round; the loss sums over all tokens.
        magnitude = sum(np.abs(found[n] * direction[n]).sum() for n in w)
        numerics.assert_close(
            along, (ends[0] - ends[1]) / (2 * step), magnitude=magnitude, sides=2, **ENCODER
        )


def test_the_forms_of_gelu_differ_by_more_than_rounding():
    """The negative control of the test above: each family needs its form."""
    x = np.linspace(-3, 3, 31)
    numerics.assert_far(tanh_gelu(x), exact_gelu(x), terms=FFN, depth=8)


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize("family", ["albert", "electra"])
def test_recomputed_layers_have_the_same_gradients(family):
    def build(recompute):
        def outputs():
            params = encoder_data.params(family, recompute=recompute)
            with dropout.seeded({}):
                return encoder_data.encode(params, training=True)

        return encoder_data.run(outputs)[0]

    assert numerics.excess(build(True), build(False), **ENCODER) <= 1


@pytest.mark.parametrize(
    ("size", "layers", "hidden", "heads", "columns"),
    [
        ("base", 12, 768, 12, 0),
        ("albert_base_v2", 12, 768, 12, 128),
        ("albert_xxlarge_v1", 12, 4096, 64, 128),
        ("electra_small", 12, 256, 4, 128),
        ("electra_large", 24, 1024, 16, 0),
    ],
)
def test_sizes_are_those_of_the_releases(size, layers, hidden, heads, columns):
    found = encoders.SIZES[size]
    names = ("num_layers", "hidden_size", "num_heads", "embedding_size", "ffn_size")
    assert [found[name] for name in names] == [layers, hidden, heads, columns, 4 * hidden]


@pytest.mark.parametrize(("size", "rate"), [("albert_base_v1", 0.1), ("albert_base_v2", 0.0)])
def test_version_2_of_albert_has_no_dropout(size, rate):
    assert encoders.SIZES[size]["dropout"] == encoders.SIZES[size]["attention_dropout"] == rate


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"family": "roberta"}, "family=roberta must be one of bert, albert, electra"),
        ({"embedding_size": 10}, "embedding_size=10: the embeddings of family=bert have hidden"),
        ({"family": "albert", "embedding_size": -1}, "embedding_size=-1 must be"),
    ],
)
def test_invalid_hyperparameters(changes, message):
    with pytest.raises(ModelError, match=message):
        encoders.check_params({**encoder_data.params("bert"), **changes})


def test_layers_of_layer_decay():
    scopes = encoders.layer_variables(encoder_data.params("electra", num_layers=1))
    assert scopes == ["electra/embeddings(_project)?/.*", "electra/encoder/layer_0/.*"]
    assert len(encoders.layer_variables(encoder_data.params("albert"))) == 2
