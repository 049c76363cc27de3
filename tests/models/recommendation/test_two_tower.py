"""The two-tower model against NumPy: in-batch softmax, logQ correction, accidental hits, scores."""

import numpy as np
import pytest
import tensorflow as tf

from models import registry
from models.model import ModelError
from models.recommendation import two_tower
from tests import numerics, variable_values

USERS, ITEMS, BATCH = 7, 11, 13
NETWORK = {"terms": 12, "depth": 8}
_RANDOM = np.random.default_rng(0)
# 13 of 11 items: accidental hits.
TRAINING = {
    "user": _RANDOM.integers(0, USERS, BATCH),
    "items": _RANDOM.integers(0, ITEMS, [BATCH, 1]),
    "sampling_probability": _RANDOM.uniform(0.01, 0.3, ITEMS),
}
TRAINING["sampling_probability"] = TRAINING["sampling_probability"][TRAINING["items"][:, 0]]
CANDIDATES = {"user": np.array([2, -1, 6]), "items": np.array([[1, 2, 3], [4, 5, 6], [7, -1, 0]])}


def params(**changes):
    sizes = {"num_users": USERS, "num_items": ITEMS, "embedding_size": 4, "tower_units": (6, 3)}
    return {**two_tower.default_params(), **sizes, "temperature": 0.2, **changes}


def as_tensors(features):
    dtypes = {"sampling_probability": tf.float32}
    return {k: tf.constant(v, dtypes.get(k, tf.int32)) for k, v in features.items()}


def value_of(variable):
    random = np.random.default_rng(list(variable.op.name.encode()))
    return random.normal(size=variable.shape)


def unit_vectors(values, ids, table, tower):
    x = values[table][np.maximum(ids, 0)] * (ids >= 0)[..., None]
    hidden = np.maximum(x @ values[f"{tower}/dense_0/kernel"] + values[f"{tower}/dense_0/bias"], 0)
    x = hidden @ values[f"{tower}/dense_1/kernel"] + values[f"{tower}/dense_1/bias"]
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def reference_loss(values, has_correction=True, masks_hits=True):
    """Returns the loss of each training row, float64, in loops."""
    user = unit_vectors(values, TRAINING["user"], "users", "user")
    ids = TRAINING["items"][:, 0]
    item = unit_vectors(values, ids, "items", "item")
    found = []
    for i in range(BATCH):
        logits, positive = [], None
        for j in range(BATCH):
            if j != i and ids[j] == ids[i] and masks_hits:
                continue
            logit = user[i] @ item[j] / 0.2
            logit -= np.log(TRAINING["sampling_probability"][j]) if has_correction else 0
            logits.append(logit)
            positive = logit if j == i else positive
        found.append(np.log(np.sum(np.exp(logits))) - positive)
    return np.array(found)


@pytest.fixture(scope="module")
def built():
    """Values of the variables, losses of the rows and gradients of their mean, by correction."""

    def build(has_correction):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            chosen, features = params(logq_correction=has_correction), as_tensors(TRAINING)
            outputs = two_tower.inference(features, chosen, True)
            losses = two_tower.losses(features, {}, outputs, chosen)["cross_entropy"].values
            variables = tf.compat.v1.trainable_variables()
            gradients = tf.gradients(tf.reduce_mean(losses), variables)
            is_sparse = [isinstance(gradient, tf.IndexedSlices) for gradient in gradients]
            assert is_sparse == [v.op.name in ("users", "items") for v in variables]
            gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
            values = variable_values.assign_all(session, value_of)
            found, gradients = session.run([losses, gradients])
            return values, found, dict(zip((v.op.name for v in variables), gradients))

    return {flag: build(flag) for flag in (False, True)}


@pytest.mark.parametrize("has_correction", [False, True])
def test_the_loss_is_that_of_numpy(built, has_correction):
    values, found, _ = built[has_correction]
    expected = reference_loss(values, has_correction)
    numerics.assert_close(found, expected, **NETWORK, magnitude=20.0)
    for fault in ({"has_correction": not has_correction}, {"masks_hits": False}):
        wrong = reference_loss(values, **{"has_correction": has_correction, **fault})
        numerics.assert_far(found, wrong, **NETWORK, magnitude=20.0)


def test_the_gradients_equal_finite_differences(built):
    values, _, gradients = built[True]
    wide = {name: np.asarray(value, np.float64) for name, value in values.items()}
    random, step = np.random.default_rng(2), 1e-6
    for name, gradient in gradients.items():
        direction = random.normal(size=gradient.shape)
        both = [
            reference_loss({**wide, name: wide[name] + sign * step * direction}).mean()
            for sign in (1, -1)
        ]
        expected = (both[0] - both[1]) / (2 * step)
        found = (gradient * direction).sum()
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("is_shared", [False, True])
def test_scores_of_candidates_and_of_unknown_ids(session, is_shared):
    features = dict(CANDIDATES)
    if is_shared:  # the same items for all users
        features["items"] = features["items"][:1]
    with session.graph.as_default():
        tensors = as_tensors(features)
        outputs = two_tower.inference(tensors, params(), False)
        loss = two_tower.losses(tensors, {}, outputs, params())["cross_entropy"].values
        predicted = two_tower.predictions(tensors, outputs, params())
        values = variable_values.assign_all(session, value_of)
        logits, scores, loss = session.run([outputs["logits"], predicted["scores"], loss])
    user = unit_vectors(values, features["user"], "users", "user")
    items = unit_vectors(values, features["items"], "items", "item")
    cosines = np.einsum("bd,bkd->bk", user, np.broadcast_to(items, [3, 3, 3]))
    numerics.assert_close(logits, cosines / 0.2, **NETWORK, magnitude=20.0)
    is_known = (features["user"] >= 0)[:, None] & (features["items"] >= 0)
    numerics.assert_close(scores, np.where(is_known, (1 + cosines) / 2, 0), **NETWORK)
    exponentials = np.exp(cosines / 0.2) * (features["items"] >= 0)
    expected = np.log(exponentials.sum(axis=1)) - cosines[:, 0] / 0.2
    numerics.assert_close(loss, expected, **NETWORK, magnitude=20.0)


def test_an_input_pipeline_without_sampling_probability_is_an_error(graph):
    features = as_tensors(TRAINING)
    del features["sampling_probability"]
    with pytest.raises(ModelError, match="needs the feature 'sampling_probability'"):
        two_tower.inference(features, params(), True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"temperature": 0.0}, "temperature=0.0 must be above 0"),
        ({"num_negatives": 4}, "num_negatives=4: the negatives of two_tower"),
        ({"tower_units": (4, 0)}, "tower_units="),
        ({"dropout": 1.0}, r"dropout=1.0 must be in \[0, 1\)"),
        ({"embedding_l2": -1.0}, "embedding_l2=-1.0 must not be below 0"),
    ],
)
def test_invalid_params(changes, message):
    assert registry.find("two_tower") is two_tower.MODEL
    with pytest.raises(ModelError, match=message):
        two_tower.check_params(params(**changes))
