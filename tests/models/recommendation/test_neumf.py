"""NeuMF against NumPy, its losses, sparse gradients and unknown ids."""

import numpy as np
import pytest
import tensorflow as tf

from models import registry
from models.model import ModelError
from models.recommendation import neumf
from tests import numerics, variable_values

USERS, ITEMS, BATCH, CANDIDATES = 7, 11, 3, 5
NETWORK = {"terms": 12, "depth": 8}


def params(**changes):
    sizes = {"num_users": USERS, "num_items": ITEMS, "gmf_size": 4, "mlp_size": 3}
    return {**neumf.default_params(), **sizes, "hidden_units": (6, 2), **changes}


def features():
    random = np.random.default_rng(0)
    items = random.integers(0, ITEMS, [BATCH, CANDIDATES])
    items[1, 3:] = -1
    return {"user": np.array([2, 2, 6]), "items": items}


def as_tensors(values):
    return {name: tf.constant(value, tf.int32) for name, value in values.items()}


def value_of(variable):
    random = np.random.default_rng(list(variable.op.name.encode()))
    return random.normal(size=variable.shape)


def reference(values, found):
    user, items = found["user"], np.maximum(found["items"], 0)
    is_item = (found["items"] >= 0)[..., None]
    gmf = values["gmf/users"][user][:, None] * values["gmf/items"][items] * is_item
    of_items = values["mlp/items"][items] * is_item
    of_user = np.broadcast_to(values["mlp/users"][user][:, None], of_items.shape)
    x = np.concatenate([of_user, of_items], axis=-1)
    for i in range(2):
        x = np.maximum(x @ values[f"mlp/dense_{i}/kernel"] + values[f"mlp/dense_{i}/bias"], 0)
    x = np.concatenate([gmf, x], axis=-1)
    return (x @ values["logits/dense/kernel"] + values["logits/dense/bias"])[..., 0]


def test_logits_are_those_of_numpy(session):
    with session.graph.as_default():
        outputs = neumf.inference(as_tensors(features()), params(), False)
        variables = tf.compat.v1.global_variables()
        variable_values.assign_all(session, value_of)
        logits = session.run(outputs["logits"])
    values = {v.op.name: value_of(v) for v in variables}
    numerics.assert_close(logits, reference(values, features()), **NETWORK, magnitude=20.0)


@pytest.mark.parametrize("without", ["gmf", "mlp"])
def test_each_network_alone(graph, without):
    outputs = neumf.inference(as_tensors(features()), params(**{f"{without}_size": 0}), False)
    assert outputs["logits"].shape == [BATCH, CANDIDATES]
    names = [v.op.name for v in tf.compat.v1.global_variables()]
    assert not any(name.startswith(f"{without}/") for name in names)


def test_the_loss_leaves_out_missing_candidates(session):
    logits = np.random.default_rng(1).normal(size=[BATCH, CANDIDATES]).astype(np.float32)
    interaction = np.zeros_like(logits)
    interaction[:, 0] = 1
    with session.graph.as_default():
        outputs = {"logits": tf.constant(logits), "l2": tf.ones([BATCH])}
        terms = neumf.losses(
            as_tensors(features()),
            {"interaction": tf.constant(interaction)},
            outputs,
            params(embedding_l2=0.25),
        )
        values = session.run(terms["cross_entropy"].values)
    per_item = np.logaddexp(0, np.where(interaction == 1, -logits, logits))
    expected = [per_item[0].mean(), per_item[1, :3].mean(), per_item[2].mean()]
    np.testing.assert_allclose(values, expected, rtol=1e-6)
    assert terms["l2"].scale == 0.25


def test_gradients_of_embeddings_are_sparse_with_l2(graph):
    outputs = neumf.inference(as_tensors(features()), params(), True)
    loss = tf.reduce_sum(outputs["logits"]) + tf.reduce_sum(outputs["l2"])
    tables = [v for v in tf.compat.v1.trainable_variables() if v.shape[0] in (USERS, ITEMS)]
    assert len(tables) == 4
    assert all(isinstance(g, tf.IndexedSlices) for g in tf.gradients(loss, tables))


def test_unknown_ids_have_probability_0(session):
    found = {"user": np.array([-1, 3]), "items": np.array([[1, 2], [-1, 2]])}
    with session.graph.as_default():
        found = as_tensors(found)
        outputs = neumf.inference(found, params(), False)
        session.run(tf.compat.v1.global_variables_initializer())
        predicted = session.run(neumf.predictions(found, outputs, params()))
    np.testing.assert_array_equal(predicted["probabilities"] > 0, [[False, False], [False, True]])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gmf_size": 0, "mlp_size": 0}, "gmf_size=0 and mlp_size=0 leave no network"),
        ({"num_negatives": 0}, "num_negatives=0 must be at least 1"),
        ({"hidden_units": (4, 0)}, "hidden_units="),
        ({"embedding_dropout": 1.0}, r"embedding_dropout=1.0 must be in \[0, 1\)"),
        ({"embedding_l2": -1.0}, "embedding_l2=-1.0 must not be below 0"),
    ],
)
def test_invalid_params(changes, message):
    assert registry.find("neumf") is neumf.MODEL
    with pytest.raises(ModelError, match=message):
        neumf.check_params(params(**changes))
