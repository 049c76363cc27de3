"""Data sets of tensorflow-datasets, where that package is installed."""

import importlib.util

import numpy as np
import pytest

from input_fns import DataError

INSTALLED = importlib.util.find_spec("tensorflow_datasets") is not None


@pytest.mark.skipif(INSTALLED, reason="tensorflow-datasets is installed")
def test_without_the_package_one_line_says_so(read):
    with pytest.raises(DataError, match=r"needs the extra tfds: pip install '\.\[tfds\]'"):
        read("tfds:mnist")


@pytest.fixture(scope="module")
def builder(photo):
    """A data set of two classes that is defined here; tensorflow-datasets knows it by its name."""
    tfds = pytest.importorskip("tensorflow_datasets", reason="tensorflow-datasets is not installed")

    class Shapes(tfds.core.GeneratorBasedBuilder):
        """Eleven small PNGs to train on, five to test, and two of a contest, without labels."""

        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            features = {
                "image": tfds.features.Image(shape=(None, None, 3), encoding_format="png"),
                "label": tfds.features.ClassLabel(names=["round", "square"]),
            }
            return tfds.core.DatasetInfo(
                builder=self, features=tfds.features.FeaturesDict(features)
            )

        def _split_generators(self, dl_manager):
            return {
                "train": self._generate_examples(11),
                "test": self._generate_examples(5),
                "contest": self._generate_examples(2, is_labelled=False),
            }

        def _generate_examples(self, count, is_labelled=True):
            for i in range(count):
                label = i % 2 if is_labelled else -1
                yield i, {"image": np.asarray(photo(6, 5, seed=i)), "label": label}

    return Shapes


@pytest.fixture
def shapes(builder, tmp_path, photo, eager):
    """The same, prepared in `tmp_path`; its training images."""
    builder(data_dir=str(tmp_path)).download_and_prepare()
    return [np.asarray(photo(6, 5, seed=i)) for i in range(11)]


def test_images_labels_and_names(read, rows, shapes, tmp_path):
    raw = read("tfds:shapes", source=tmp_path, image_size=(6, 5))
    assert raw.class_names == ("round", "square")
    assert list(raw.splits) == ["train", "test", "contest"]
    assert not raw.left_out
    good, broken = rows(raw.splits["train"])
    assert not broken
    stored = {row.values["image"]: label for row, label in zip(good, raw.splits["train"].labels)}
    assert stored == {image.tobytes(): i % 2 for i, image in enumerate(shapes)}


def test_a_split_without_labels_can_be_predicted(read, rows, shapes, tmp_path):
    splits = read("tfds:shapes", source=tmp_path).splits
    assert [split.has_labels for split in splits.values()] == [True, True, False]
    good, broken = rows(splits["contest"])
    assert (len(good), broken) == (2, [])


def test_a_part_is_held_out(read, rows, shapes, tmp_path):
    raw = read("tfds:shapes", source=tmp_path, validation_fraction=0.3)
    assert [len(split) for split in raw.splits.values()] == [7, 4, 5, 2]
    assert [len(rows(split)[0]) for split in raw.splits.values()] == [7, 4, 5, 2]
    assert rows(raw.splits["train"])[0][0].features["image"].encoding == "png"
