"""DLRM: forward pass and gradients against Keras and NumPy, sparse gradients, parameters."""

import numpy as np
import pytest
import tensorflow as tf

from models.layers import device
from models.model import ModelError
from models.recommendation import dlrm

PARAMS = {
    **dlrm.default_params(),
    "table_rows": (5, 11, 3),
    "embedding_size": 4,
    "bottom_units": (7,),
    "top_units": (9, 6),
}
NUMBERS = np.random.default_rng(0).uniform(0, 3, [13, 5]).astype(np.float32)
CATEGORIES = (np.random.default_rng(1).integers(0, 99, [13, 3]) % [5, 11, 3]).astype(np.int32)
LABELS = (np.arange(13) % 3 == 0).astype(np.int32)


@pytest.fixture(scope="module")
def built():
    """Variables, logits and gradients of the mean loss."""
    with tf.Graph().as_default():
        tf.compat.v1.set_random_seed(1)
        features = {"numbers": tf.constant(NUMBERS), "categories": tf.constant(CATEGORIES)}
        outputs = dlrm.inference(features, PARAMS, True)
        loss = dlrm.losses(features, tf.constant(LABELS), outputs, PARAMS)["cross_entropy"]
        variables = tf.compat.v1.trainable_variables()
        gradients = tf.gradients(tf.reduce_mean(loss.values), variables)
        is_sparse = {
            v.op.name: isinstance(g, tf.IndexedSlices) for v, g in zip(variables, gradients)
        }
        dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
        with tf.compat.v1.Session() as session:
            session.run(tf.compat.v1.global_variables_initializer())
            values, logits, found = session.run([variables, outputs["logits"], dense])
    names = [variable.op.name for variable in variables]
    return dict(zip(names, values)), logits, dict(zip(names, found)), is_sparse


def reference(values, numbers=NUMBERS):
    """Returns logits, float64, computed example by example."""
    values = {name: np.asarray(value, np.float64) for name, value in values.items()}

    def mlp(x, name, count):
        for i in range(count):
            x = np.maximum(x @ values[f"{name}_{i}/kernel"] + values[f"{name}_{i}/bias"], 0)
        return x

    logits = []
    for row, ids in zip(numbers.astype(np.float64), CATEGORIES):
        x = mlp(row, "bottom/dense", 2)
        vectors = [x, *(values[f"embeddings/table_{i}"][id_] for i, id_ in enumerate(ids))]
        dots = [vectors[i] @ vectors[j] for i in range(4) for j in range(i)]
        x = mlp(np.concatenate([x, dots]), "top/dense", 2)
        logits.append((x @ values["logits/kernel"] + values["logits/bias"])[0])
    return np.array(logits)


def test_the_logits_equal_numpy(built):
    values, logits, _, _ = built
    # Float32: under 100 roundings of 6e-8 of values of about 1.
    np.testing.assert_allclose(logits, reference(values), atol=1e-5)
    assert np.abs(logits - reference(values, NUMBERS[::-1])).max() > 1e-3


def test_the_gradients_equal_finite_differences(built):
    values, _, gradients, _ = built

    def loss(changed):
        logits = reference(changed)
        return np.mean(np.logaddexp(0, np.where(LABELS == 1, -logits, logits)))

    random = np.random.default_rng(2)
    for name, gradient in gradients.items():
        wide = {key: np.asarray(value, np.float64) for key, value in values.items()}
        direction = random.normal(size=gradient.shape)
        step = 1e-6
        both = [loss({**wide, name: wide[name] + sign * step * direction}) for sign in (1, -1)]
        expected = (both[0] - both[1]) / (2 * step)
        np.testing.assert_allclose(
            (gradient * direction).sum(), expected, rtol=1e-3, atol=1e-5, err_msg=name
        )


@pytest.mark.parametrize("use_tpu", [False, True])
def test_products_of_pairs_equal_numpy(use_tpu):
    vectors = np.random.default_rng(3).normal(size=[7, 5, 3])
    weights = np.random.default_rng(4).normal(size=[7, 10])
    rows, columns = np.tril_indices(5, k=-1)
    expected = np.zeros_like(vectors)
    for pair, (i, j) in enumerate(zip(rows, columns)):
        expected[:, i] += weights[:, pair, None] * vectors[:, j]
        expected[:, j] += weights[:, pair, None] * vectors[:, i]
    with tf.Graph().as_default(), device.scope({"use_tpu": use_tpu}):
        x = tf.constant(vectors)
        products = dlrm.interact(x)
        (gradient,) = tf.gradients(products, x, weights)
        with tf.compat.v1.Session() as session:
            products, gradient = session.run([products, gradient])
    dots = (vectors[:, rows] * vectors[:, columns]).sum(-1)
    np.testing.assert_allclose(products, dots, rtol=1e-12, atol=1e-12)  # float64
    np.testing.assert_allclose(gradient, expected, rtol=1e-12, atol=1e-12)


def test_the_gradients_of_the_tables_are_sparse(built):
    is_sparse = built[3]
    assert {name for name, sparse in is_sparse.items() if sparse} == {
        f"embeddings/table_{i}" for i in range(3)
    }


@pytest.mark.parametrize(
    "wrong",
    [{"table_rows": ()}, {"table_rows": (3, 0)}, {"embedding_size": 0}, {"top_units": (0,)}],
)
def test_invalid_parameters(wrong):
    with pytest.raises(ModelError, match=next(iter(wrong))):
        dlrm.check_params({**PARAMS, **wrong})
