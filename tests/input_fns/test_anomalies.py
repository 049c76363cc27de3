"""Data that can be stored but hardly learned from."""

import dataclasses

import numpy as np
import pytest

from input_fns import DataError, anomalies
from input_fns.anomalies import sample
from input_fns.convert import writer
from input_fns.convert.custom import RawExamples
from input_fns.convert.options import Options
from input_fns.convert.source import RawArrays, RawDataset
from input_fns.core.target import Target

NAMES = ("cat", "dog", "emu")


def write(folder, labels, images=None, split="train", before_commit=lambda complete: None):
    if images is None:
        images = np.random.default_rng(1).integers(0, 256, [len(labels), 5, 7, 3])
    splits = {split: RawArrays(images.astype(np.uint8), np.array(labels, np.int64))}
    raw = RawDataset("animals", NAMES, splits)
    return writer.write(raw, str(folder / "data"), before_commit=before_commit)


def found(data):
    return [str(anomaly) for anomaly in anomalies.find(data)]


def test_usual_data_has_none(tmp_path):
    assert found(write(tmp_path, [0, 1, 2, 0, 1])) == []


def test_the_sample_of_large_examples_has_few_of_them(tmp_path, monkeypatch):
    data = write(tmp_path, [0, 1, 2] * 7)
    assert len(sample.read(data, "train", {}).examples) == 21
    monkeypatch.setattr(sample, "_MAX_BYTES", data.splits["train"].num_bytes // 5)
    found = sample.read(data, "train", {})
    assert len(found.examples) == 4
    assert found.where == "'train' (a sample)"


def test_a_class_without_examples_is_a_warning(tmp_path):
    assert found(write(tmp_path, [0, 2, 2])) == [
        "warning: 1 class without any example in 'train': dog"
    ]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("Cat", "cat", "dog"), ["warning: the classes 'Cat' and 'cat' may be one class"]),
        (("a  b", "A b", "c"), ["warning: the classes 'a  b' and 'A b' may be one class"]),
        (("A", "a", "b"), []),
    ],
)
def test_two_spellings_of_a_class_are_a_warning(tmp_path, names, expected):
    data = write(tmp_path, [0, 1, 2, 0])
    assert found(dataclasses.replace(data, class_names=names)) == expected


@pytest.mark.parametrize(
    ("name", "is_found"),
    [
        ("postive", True),
        ("positivve", True),
        ("posotive", True),
        ("negative", False),
        ("positive 2", False),
    ],
)
def test_a_rare_class_with_nearly_the_name_of_another_is_a_warning(tmp_path, name, is_found):
    data = write(tmp_path, [0] * 60 + [1] + [2] * 50)
    named = dataclasses.replace(data, class_names=("positive", name, "neutral"))
    expected = f"warning: the class '{name}' occurs 1 time and 'positive' 60: they may be one class"
    assert found(named) == [expected] * is_found


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("abnormal", "normal"),
        ("female", "male"),
        ("infected", "uninfected"),
        ("atypical", "typical"),
        ("hyperthermia", "hypothermia"),
        ("boat", "coat"),
    ],
)
def test_a_rare_class_with_the_opposite_name_of_another_has_no_warning(tmp_path, name, other):
    data = write(tmp_path, [0] * 60 + [1] + [2] * 50)
    assert found(dataclasses.replace(data, class_names=(other, name, "unknown"))) == []


@pytest.mark.parametrize(("name", "is_found"), [("RCB", True), ("WBC", False), ("BC", False)])
def test_a_rare_class_with_two_letters_swapped_is_a_warning(tmp_path, name, is_found):
    data = write(tmp_path, [0] * 60 + [1] + [2] * 50)
    warnings = found(dataclasses.replace(data, class_names=("RBC", name, "Platelets")))
    assert warnings == [
        f"warning: the class '{name}' occurs 1 time and 'RBC' 60: they may be one class"
    ] * (is_found)


def test_many_skipped_examples_are_a_warning(tmp_path):
    data = write(tmp_path, [0, 1, 2, 0])
    split = dataclasses.replace(data.splits["train"], broken=(("a.jpg", "it is empty"),) * 2)
    assert found(dataclasses.replace(data, splits={"train": split})) == [
        "warning: 2 of 6 images of 'train' are skipped; the first is a.jpg: it is empty"
    ]


def test_a_single_class_is_an_error(tmp_path):
    assert found(write(tmp_path, [1, 1, 1])) == [
        "error: all examples of 'train' have the class 'dog', and none cat, emu"
    ]


def test_the_only_class_is_an_error(tmp_path):
    raw = RawDataset("x", ("cat",), {"train": RawArrays(np.eye(3)[None] * 255, np.array([0]))})
    assert found(writer.write(raw, str(tmp_path / "data"))) == [
        "error: all examples of 'train' have the class 'cat', the only one"
    ]


def test_as_many_classes_as_examples_are_a_warning(tmp_path):
    images = np.random.default_rng(1).integers(0, 256, [12, 5, 7, 3]).astype(np.uint8)
    names = tuple(f"item {i:02d}" for i in range(12))
    raw = RawDataset("x", names, {"train": RawArrays(images, np.arange(12))})
    (line,) = found(writer.write(raw, str(tmp_path / "data")))
    assert line.startswith("warning: the 12 examples of 'train' have 12 classes")


def test_a_data_set_without_train_is_a_warning(tmp_path):
    (line,) = found(write(tmp_path, [0, 1, 2], split="test"))
    assert line == "warning: there is no split 'train', only test: not for training"


@pytest.mark.parametrize(("num_flat", "is_found"), [(0, False), (1, True), (13, True)])
def test_images_of_one_color_are_a_warning(tmp_path, num_flat, is_found):
    images = np.random.default_rng(1).integers(0, 256, [13, 5, 7, 3])
    images[:num_flat] = 4
    images[:num_flat, 0, 0] = 6  # nearly one color
    lines = found(write(tmp_path, np.arange(13) % 3, images))
    assert bool(lines) == is_found
    if is_found:
        assert lines[0].startswith(f"warning: {num_flat} of 13 images of 'train' have nearly one")
        assert "one of 4 to 6" in lines[0]


def of_examples(folder, images, **raw):
    """Returns what is odd about examples of images and other features."""
    examples = [{"image": image, "target": np.float32([i])} for i, image in enumerate(images)]
    split = RawExamples("x", examples, np.arange(len(examples)), Options("x"))
    raw = RawDataset("x", (), {"train": split}, **raw)
    return found(writer.write(raw, str(folder / "data")))


@pytest.mark.parametrize("is_regression", [True, False])
def test_images_of_one_color_without_classes_are_a_warning(tmp_path, is_regression):
    of_numbers = {"labels": ("target",), "target": Target("regression", ("age",))}
    images = np.zeros([3, 5, 7, 3], np.uint8)
    (line,) = of_examples(tmp_path, images, **(of_numbers if is_regression else {}))
    assert line.startswith("warning: 3 of 3 images of 'train' have nearly one color")


@pytest.mark.parametrize("dtype", ["float32", "uint16", "bool"])
def test_images_of_one_color_of_other_dtypes_are_a_warning(tmp_path, dtype):
    images = np.ones([3, 5, 7, 1], dtype)
    images[0, 0] = 0
    (line,) = of_examples(tmp_path, images)
    assert line.startswith("warning: 2 of 3 images of 'train' have nearly one color")


def test_a_number_that_is_named_image_is_no_image(tmp_path):
    assert of_examples(tmp_path, np.ones([3, 4], np.uint8)) == []


def test_an_error_leaves_no_data_set(tmp_path):
    def check(complete):
        anomalies.require_none(complete, {})

    with pytest.raises(DataError, match="all examples of 'train' have the class 'cat'"):
        write(tmp_path, [0, 0], before_commit=check)
    assert list((tmp_path / "data").iterdir()) == []


def test_large_splits_are_sampled_from_start_to_end(tmp_path):
    images = np.random.default_rng(1).integers(0, 256, [2000, 2, 2, 1])
    images[1000:] = 0
    (line,) = found(write(tmp_path, np.arange(2000) % 3, images))
    assert "(a sample)" in line
