"""Latents of training, evaluation and prediction, and requests for images."""

import re

import numpy as np
import pytest
import tensorflow as tf

from input_fns import DataError, dataset_info
from input_fns.core import records
from input_fns.image.latent_pipeline import LatentPipeline
from input_fns.image.sources import request_file
from models.generation.samples import slerp
from tests import numerics

SIZE = 5


@pytest.fixture
def pipeline(digits_dir):
    return LatentPipeline(dataset_info.read(digits_dir), latent_size=SIZE, has_classes=True)


def batches(input_fn, batch_size, count=3):
    return list(records.iterate(lambda: input_fn({"batch_size": batch_size}).take(count)))


@pytest.mark.slow(cost=0.1)
def test_latents_of_a_split_do_not_depend_on_the_batch_size(pipeline):
    (small, _), (more, _), _ = batches(pipeline.eval_input_fn("test"), 4)
    large, labels = batches(pipeline.eval_input_fn("test"), 8)[0]
    for name in ("image", "latent", "class_id"):
        np.testing.assert_array_equal(np.concatenate([small[name], more[name]]), large[name])
    np.testing.assert_array_equal(large["class_id"], labels)


@pytest.mark.slow(cost=0.1)
def test_a_prediction_gets_the_latents_of_the_evaluation_without_images(pipeline):
    (evaluated, _), *_ = batches(pipeline.eval_input_fn("test"), 8)
    predicted, *_ = batches(pipeline.predict_input_fn("test"), 8)
    assert predicted.keys() == {"latent", "class_id"}
    np.testing.assert_array_equal(predicted["latent"], evaluated["latent"])


def test_latents_are_normal_numbers(pipeline):
    latents = np.concatenate([f["latent"] for f, _ in pipeline.host_examples("test", 100)])
    count = latents.size
    # Six standard errors of the mean, and of the variance of normal numbers.
    assert abs(latents.mean()) < 6 / count**0.5
    assert abs(latents.var() - 1) < 6 * (2 / count) ** 0.5
    assert len(np.unique(latents)) > 0.99 * count


def test_another_sampling_seed_gives_other_latents(pipeline, digits_dir):
    data = dataset_info.read(digits_dir)
    other = LatentPipeline(data, latent_size=SIZE, sampling_seed=1, has_classes=True)
    latents = [next(p.host_examples("test", 8))[0]["latent"] for p in (pipeline, other)]
    assert np.abs(latents[0] - latents[1]).min() > 0


def test_a_resumed_training_gets_the_latents_of_its_step(pipeline):
    whole = batches(pipeline.train_input_fn("train", seed=2), 6)
    resumed = batches(pipeline.train_input_fn("train", seed=2, start_step=1), 6, count=2)
    for (features, labels), (expected, expected_labels) in zip(resumed, whole[1:]):
        np.testing.assert_array_equal(features["latent"], expected["latent"])
        np.testing.assert_array_equal(features["image"], expected["image"])
        np.testing.assert_array_equal(labels, expected_labels)
        np.testing.assert_array_equal(features["class_id"], labels)
    first, second = (features["latent"] for features, _ in whole[:2])
    assert np.abs(first - second).min() > 0


def test_two_seeds_are_interpolated_on_a_great_circle(pipeline, tmp_path, session):
    path = tmp_path / "wanted.jsonl"
    path.write_text('{"seed": [3, 4], "steps": 3, "class": 1}\n')
    wanted = request_file.read(str(path), pipeline)
    (found,) = batches(wanted.input_fn, 8)
    first, last = session.run(pipeline.latents(tf.constant([3, 4])))
    fractions = np.array([[0], [0.5], [1]])
    expected = slerp(first.astype(float), last.astype(float), fractions)
    numerics.assert_close(found["latent"], expected, terms=SIZE, depth=8)
    np.testing.assert_array_equal(found["latent"][0], first)
    np.testing.assert_array_equal(found["class_id"], [1, 1, 1])


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"class": 3}', "must be an object with class, seed, steps"),
        ('{"seed": 1, "class": 3, "size": 2}', "must be an object with class, seed, steps"),
        ('{"seed": -1, "class": 3}', "needs one or two integers from 0"),
        ('{"seed": [1, 2, 3], "class": 3}', "needs one or two integers from 0"),
        ('{"seed": 1, "class": "ten"}', "needs a class, a name or a number from 0 to 9"),
        ('{"seed": [1, 2], "class": 3}', "needs two different seeds and steps of 2 or more"),
        ('{"seed": 1, "steps": 3, "class": 3}', "needs two different seeds and steps"),
        ("seed 1", "Expecting value"),
        ("", "Expecting value"),
    ],
)
def test_a_wrong_request_is_one_error_line(pipeline, tmp_path, line, problem):
    path = tmp_path / "wanted.jsonl"
    path.write_text(f'{{"seed": 1, "class": 1}}\n{line}\n')
    with pytest.raises(DataError, match=f"line 2: .*{re.escape(problem)}.*Write "):
        request_file.read(str(path), pipeline)


def test_an_empty_file_has_no_request(pipeline, tmp_path):
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(DataError, match="has no request"):
        request_file.read(str(tmp_path / "empty.jsonl"), pipeline)
