"""Negatives of training and evaluation: never a positive, uniform, a function of seed and step."""

import dataclasses
import itertools

import numpy as np
import pytest
import tensorflow as tf

from input_fns import DataError
from input_fns.core import inspection, records
from input_fns.tables.ratings_pipeline import RatingsPipeline
from tests import ratings_data

BATCH = 13


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ratings")
    return ratings_data.prepare(folder / "raw", ratings_data.rows(), folder / "data")


@pytest.fixture(scope="module")
def positives(data):
    """`{split: {(user, item)}}`."""
    found = {}
    for split in data.splits:
        batches = records.iterate(lambda split=split: RatingsPipeline(data).stored(split))
        found[split] = {
            pair for features, _ in batches for pair in zip(features["user"], features["item"])
        }
    return found


def train(pipeline, num_batches, seed=1, start_step=0):
    """Returns users, items and interactions of the first batches of a training."""
    input_fn = pipeline.train_input_fn("train", seed, start_step)
    batches = records.iterate(lambda: input_fn({"batch_size": BATCH}))
    found = [
        (features["user"], features["items"], labels["interaction"])
        for features, labels in itertools.islice(batches, num_batches)
    ]
    return [np.stack(arrays) for arrays in zip(*found)]


@pytest.fixture(scope="module", params=["memory", "none"])
def pipeline(request, data):
    return RatingsPipeline(data, request.param, num_negatives=7)


@pytest.fixture(scope="module")
def trained(pipeline):
    """The first 40 batches of a training."""
    return train(pipeline, 40)


@pytest.mark.slow(cost=0.1)
def test_training_draws_negatives_that_are_no_positives(data, positives, trained):
    users, items, interaction = trained
    assert items.shape == (40, BATCH, 8)
    np.testing.assert_array_equal(interaction[0, 0], [1, 0, 0, 0, 0, 0, 0, 0])
    assert items.min() >= 0
    assert items.max() < data.kind.num_items
    pairs = {(u, i) for u, row in zip(users.ravel(), items[..., 1:].reshape(-1, 7)) for i in row}
    assert not pairs & positives["train"]
    assert pairs & positives["test"]  # unknown to the training
    first = set(zip(users.ravel(), items[..., 0].ravel()))
    assert first == positives["train"]


@pytest.mark.slow(cost=0.1)
def test_negatives_are_a_function_of_seed_and_step(pipeline, trained):
    resumed = train(pipeline, 4, start_step=5)
    for a, b in zip(trained, resumed):
        np.testing.assert_array_equal(a[5:9], b)
    negatives = trained[1][:9, :, 1:]
    _, items, _ = train(pipeline, 9, seed=2)
    assert (negatives != items[..., 1:]).any()
    assert len(np.unique(negatives, axis=0)) == 9


@pytest.mark.slow(cost=0.1)
def test_negatives_are_uniform(data, positives, eager):
    pipeline = RatingsPipeline(data, num_negatives=1000)
    element = next(iter(pipeline.positives("train")))
    user = tf.constant([0, 5])
    random = tf.random.stateless_uniform([2, 2000], [1, 2])
    found = pipeline.choose_negatives(user, element, random).numpy()
    for row, number in zip(found, user.numpy()):
        own = [i for u, i in positives["train"] if u == number]
        counts = np.bincount(row, minlength=data.kind.num_items)
        assert not counts[own].any()
        others = np.delete(counts, own)
        mean = 1000 / len(others)
        assert abs(others - mean).max() < 5 * mean**0.5


def test_a_user_with_every_item_has_no_negatives(tmp_path, eager):
    found = [("a", f"i{n}", 1, n) for n in range(5)] + [("b", f"i{n}", 1, n) for n in range(3)]
    data = ratings_data.prepare(tmp_path / "raw", found, tmp_path / "data")
    batch = next(iter(RatingsPipeline(data).eval_input_fn("test")({"batch_size": 2})))
    items = batch[0]["items"].numpy()
    np.testing.assert_array_equal((items >= 0).sum(axis=1), [1, 3])
    small = dataclasses.replace(data, kind=dataclasses.replace(data.kind, num_items=2))
    pipeline = RatingsPipeline(small, num_negatives=2)
    index = {"keys": tf.constant([0, 0, 5], tf.int64), "starts": tf.constant([0, 2, 3], tf.int64)}
    chosen = pipeline.choose_negatives(tf.constant([0]), index, tf.zeros([1, 4])).numpy()
    np.testing.assert_array_equal(chosen, [[-1, -1]])


@pytest.mark.slow(cost=0.1)
def test_evaluation_has_the_fixed_negatives(data, positives):
    pipeline = RatingsPipeline(data)
    batches = list(records.iterate(lambda: pipeline.eval_input_fn("test")({"batch_size": 4})))
    items = np.concatenate([features["items"] for features, _ in batches])
    weights = np.concatenate([features["weight"] for features, _ in batches])
    size = data.split("test").num_examples
    assert weights.tolist() == [1] * size + [0] * (len(weights) - size)
    with open(pipeline.path(data.kind.negatives["test"]), "rb") as file:
        stored = np.frombuffer(file.read(), "<i4").reshape(-1, 99)
    np.testing.assert_array_equal(items[:size, 1:], stored)
    users = np.concatenate([features["user"] for features, _ in batches])[:size]
    assert set(zip(users, items[:size, 0])) == positives["test"]
    (features, _), *_ = pipeline.host_examples("test", 64)
    np.testing.assert_array_equal(features["items"], items[:size])


@pytest.mark.slow(cost=0.1)
def test_a_split_without_negatives_cannot_be_evaluated(data):
    with pytest.raises(
        DataError, match=r"'train' of ratings has no negatives.*Evaluate test or validation"
    ):
        RatingsPipeline(data).in_order("train")


@pytest.mark.slow(cost=0.1)
def test_all_items_without_interaction_are_negatives(data, positives):
    pipeline = RatingsPipeline(data, rank_all_items=True)
    (features, labels), *_ = pipeline.host_examples("test", 64)
    every, num_items = set().union(*positives.values()), data.kind.num_items
    assert features["items"].shape == (len(features["user"]), 1 + num_items)
    assert labels["interaction"].sum(axis=1).tolist() == [1] * len(features["user"])
    for user, (positive, *others) in zip(features["user"], features["items"]):
        assert (user, positive) in positives["test"]
        expected = [-1 if (user, item) in every else item for item in range(num_items)]
        assert others == expected


@pytest.mark.slow(cost=0.1)
def test_the_sampling_probability_is_the_share_of_an_item(data):
    pipeline = RatingsPipeline(data, num_negatives=0, has_sampling_probability=True)
    input_fn = pipeline.train_input_fn("train", 1)
    features, _ = next(iter(records.iterate(lambda: input_fn({"batch_size": BATCH}))))
    stored = [f["item"] for f, _ in records.iterate(lambda: pipeline.stored("train"))]
    shares = np.bincount(np.ravel(stored)) / np.size(stored)
    assert features["items"].shape == (BATCH, 1)
    np.testing.assert_allclose(
        features["sampling_probability"], shares[features["items"][:, 0]], rtol=1e-6
    )


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize("field", ["num_users", "num_items", "num_negatives"])
def test_files_of_another_size_are_a_problem(data, field):
    assert not list(inspection.file_problems(data, data.splits))
    changed = {field: getattr(data.kind, field) + 1}
    other = dataclasses.replace(data, kind=dataclasses.replace(data.kind, **changed))
    for problem in (found := list(inspection.file_problems(other, data.splits))):
        assert f"{field}={changed[field]}" in problem
    assert len(found) == (2 if field == "num_negatives" else 1)  # of validation and test
