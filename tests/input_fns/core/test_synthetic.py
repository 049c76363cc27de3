"""Random images in the place of real ones."""

import dataclasses
import types

import numpy as np
import pytest
import tensorflow as tf

from common.constants import TARGETS, WORDPIECE_TASKS
from input_fns import dataset_info, kinds
from input_fns.core import synthetic
from input_fns.core.synthetic import SyntheticPipeline
from input_fns.core.target import Target
from input_fns.image import augment
from input_fns.image.annotated_kind import BOX_LABELS
from input_fns.image.detection_pipeline import DetectionPipeline
from input_fns.image.image_pipeline import ImagePipeline
from input_fns.image.segmentation_pipeline import SegmentationPipeline
from input_fns.kinds import SyntheticShapes
from input_fns.text.text_pipeline import TextPipeline
from input_fns.text.token_pipeline import TokenPipeline
from models import registry
from tests import annotated_data, shapes_data


def fetch(input_fn, session, batch_size, count):
    batches = input_fn({"batch_size": batch_size})
    element = tf.compat.v1.data.make_one_shot_iterator(batches).get_next()
    return [session.run(element) for _ in range(count)]


def like(data_dir, augmentation=""):
    data = dataset_info.read(data_dir)
    return SyntheticPipeline(ImagePipeline(data, augmentation=augment.parse(augmentation)))


def test_batches_are_shaped_as_the_real_ones(data_dir):
    real = ImagePipeline(dataset_info.read(data_dir)).train_input_fn("train", 1)({"batch_size": 13})
    made = like(data_dir).train_input_fn("train", 1)({"batch_size": 13})
    assert made.element_spec == real.element_spec


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize("max_bytes", [2**27, 7 * 5 * 6])
def test_cores_get_the_rows_of_the_global_batch(data_dir, session, monkeypatch, max_bytes):
    monkeypatch.setattr(synthetic, "_MAX_BYTES", max_bytes)  # the second repeats a few rows
    input_fn = like(data_dir).train_input_fn("train", 1)
    ((expected, labels),) = fetch(input_fn, session, 24, 1)
    num_rows = len(np.unique(expected["image"].reshape(24, -1), axis=0))
    assert num_rows == (24 if max_bytes > 999 else 5)
    for host in range(2):
        deployment = (None, host, 2, 3)
        context = types.SimpleNamespace(current_input_fn_deployment=lambda found=deployment: found)
        dataset = input_fn({"batch_size": 4, "context": context})
        element = tf.compat.v1.data.make_one_shot_iterator(dataset).get_next()
        for _ in range(2):  # steps
            rows, classes = zip(*(session.run(element) for _ in range(3)))
            here = slice(12 * host, 12 * host + 12)
            for name, values in expected.items():
                found = np.concatenate([each[name] for each in rows])
                np.testing.assert_array_equal(found, values[here])
            np.testing.assert_array_equal(np.concatenate(classes), labels[here])


def test_a_split_of_large_examples_repeats_a_few(data_dir, session, monkeypatch):
    monkeypatch.setattr(synthetic, "_MAX_BYTES", 7 * 5 * 6)
    pipeline = like(data_dir)
    size = pipeline.data.split("train").num_examples
    dataset = pipeline.in_order("train").unbatch().batch(size)
    images = session.run(tf.compat.v1.data.make_one_shot_iterator(dataset).get_next())[0]["image"]
    assert len(images) == size
    assert len(np.unique(images.reshape(size, -1), axis=0)) == 5


@pytest.mark.parametrize("kind", TARGETS[1:])
def test_random_targets_are_like_those_of_a_data_set(data_dir, kind, session):
    data = dataset_info.read(data_dir)
    target = Target(kind, ("a", "b"))
    features = {**data.features, "target": target.feature}
    data = dataclasses.replace(
        data, features=features, class_names=(), labels=("target",), target=target, kind=None
    )
    pipeline = SyntheticPipeline(ImagePipeline(data, augmentation=augment.parse("mixup:1")))
    ((_, labels),) = fetch(pipeline.train_input_fn("train", 1), session, 13, 1)
    assert (labels.shape, labels.dtype) == ((13, 2), np.float32)
    assert [problem for problem in map(target.find_problem, labels) if problem] == []


def test_training_never_ends_and_labels_are_classes(data_dir, session):
    for features, labels in fetch(like(data_dir).train_input_fn("train", 1), session, 13, 20):
        assert features["image"].shape == (13, 7, 5, 1)
        assert features["image"].std() > 50
        assert set(labels) == {0, 1, 2}


def test_labels_are_mixed_where_the_real_ones_would_be(data_dir, session):
    pipeline = like(data_dir, "mixup:1")
    ((_, labels),) = fetch(pipeline.train_input_fn("train", 1), session, 13, 1)
    assert labels.dtype == np.float32
    np.testing.assert_array_equal(labels.sum(axis=1), np.ones(13))


def test_evaluation_has_as_many_examples_as_the_split(session):
    data = kinds.synthetic(SyntheticShapes(classes=3, image_size=(2, 2)))
    pipeline = SyntheticPipeline(ImagePipeline(data))
    batches = fetch(pipeline.eval_input_fn("test"), session, 3000, 4)
    assert sum(features["weight"].sum() for features, _ in batches) == 10_000


def test_predictions_too(session):
    data = kinds.synthetic(SyntheticShapes(classes=3, image_size=(2, 2)))
    pipeline = SyntheticPipeline(ImagePipeline(data))
    batches = fetch(pipeline.predict_input_fn("test"), session, 3000, 4)
    assert sum(len(features["image"]) for features in batches) == 10_000


@pytest.mark.slow(cost=0.1)
def test_rows_of_text_are_shaped_as_the_real_ones(pairs_dir, session):
    data = dataset_info.read(pairs_dir)
    real = TextPipeline(data)
    made = SyntheticPipeline(real)
    for pipeline in (real, made):
        train = pipeline.train_input_fn("train", 1)({"batch_size": 13})
        assert (
            train.element_spec == made.train_input_fn("train", 1)({"batch_size": 13}).element_spec
        )
        predict = pipeline.predict_input_fn("test")({"batch_size": 13})
        assert set(predict.element_spec) == {"source"}
    ((features, labels),) = fetch(made.train_input_fn("train", 1), session, 13, 1)
    np.testing.assert_array_equal(features["target"], labels)
    assert (labels[:, -1] == 1).all()
    assert labels.min() == 1
    assert labels.max() < 384


def test_its_numbers_are_no_constants_of_the_graph(data_dir, graph):
    like(data_dir).train_input_fn("train", 1)({"batch_size": 4096})
    assert len(graph.as_graph_def().SerializeToString()) < 50_000


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize("task", WORDPIECE_TASKS)
def test_tokens_and_labels_are_those_of_the_task(session, task):
    data = kinds.synthetic(SyntheticShapes(task, text=(7, 37)))
    pipeline = SyntheticPipeline(TokenPipeline(data))
    model = registry.find(
        {
            "classification": "bert_tiny_classifier",
            "regression": "bert_tiny_regressor",
            "token_classification": "bert_tiny_token_classifier",
            "squad": "bert_tiny_squad",
            "pretraining": "bert_tiny_pretraining",
        }[task]
    )
    params = {**model.default_params(), **pipeline.properties, "hidden_size": 8}
    batches = pipeline.train_input_fn("train", seed=1)({"batch_size": 3})
    features, labels = tf.compat.v1.data.make_one_shot_iterator(batches).get_next()
    terms = model.losses(features, labels, model.inference(features, params, True), params)
    session.run(tf.compat.v1.global_variables_initializer())
    for term in session.run([term.values for term in terms.values()]):
        assert term.shape == (3,)
        assert np.isfinite(term).all()


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize("task", ["detection", "segmentation"])
def test_boxes_and_masks_are_shaped_as_the_real_ones(tmp_path, task):
    data = annotated_data.write(tmp_path, task, [shapes_data.draw(0)] * 4)
    make = DetectionPipeline if task == "detection" else SegmentationPipeline
    words = "mosaic:1" if task == "detection" else ""
    real = make(data, (16, 24), augment.parse(words))
    made = SyntheticPipeline(real)
    params = {"batch_size": 4}
    for name, arguments in (("train", [1]), ("eval", []), ("predict", [])):
        expected, found = (
            getattr(each, f"{name}_input_fn")("train", *arguments)(params).element_spec
            for each in (real, made)
        )
        assert found == expected


def test_random_boxes_have_an_area_within_the_image():
    data = kinds.synthetic(SyntheticShapes("detection", 3, (16, 24)))
    made = SyntheticPipeline(DetectionPipeline(data))
    features, labels = next(made.host_examples("test", 5))
    assert features["image_id"].tolist() == [0, 1, 2, 3, 4]
    assert set(labels) == set(BOX_LABELS)
    y0, x0, y1, x1 = np.moveaxis(labels["boxes"], -1, 0)
    assert (y1 > y0).all()
    assert (x1 > x0).all()
    assert y1.max() <= 16
    assert x1.max() <= 24
    assert set(labels["classes"].ravel()) == {0, 1, 2}
