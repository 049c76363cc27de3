"""What a model is fed with: from shards to batches, for every way to store and to keep images."""

import dataclasses
import io

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from input_fns import DataError, dataset_info
from input_fns.convert import source, writer
from input_fns.convert.options import Options
from input_fns.convert.source import RawArrays
from input_fns.core import caching
from input_fns.image import augment
from input_fns.image.image_pipeline import ImagePipeline
from input_fns.image.sources import image_files
from tests.marks import slow

SIZES = {
    "fixed": [(40, 48)] * 14,
    "varying": [(40, 48), (30, 61), (52, 33), (47, 47), (40, 48)] * 3,
}


def picture(height, width, seed):
    random = np.random.default_rng(seed)
    small = Image.fromarray(random.integers(0, 256, [5, 5, 3], dtype=np.uint8))
    return small.resize((width, height), Image.Resampling.BICUBIC)


@pytest.fixture(scope="module", params=["mixed", slow("fixed"), slow("varying")])
def photos(request, tmp_path_factory):
    """Photos in two classes: JPEGs of one size, of many, or some of them PNGs."""
    folder = tmp_path_factory.mktemp(request.param)
    for i, size in enumerate(SIZES.get(request.param, SIZES["varying"])):
        name = "png" if request.param == "mixed" and i % 3 == 0 else "jpeg"
        path = folder / "raw" / "ab"[i % 2] / f"{i:02d}.{name}"
        path.parent.mkdir(parents=True, exist_ok=True)
        picture(*size, seed=i).save(path, name, quality=95)
    raw = image_files.read(Options(request.param, source=str(folder / "raw")))
    writer.write(raw, str(folder / "data"), num_shards=3)
    return dataset_info.load(str(folder / "data"), request.param)


def fetch(input_fn, session, batch_size, count=1):
    """The first `count` batches."""
    batches = input_fn({"batch_size": batch_size})
    element = tf.compat.v1.data.make_one_shot_iterator(batches).get_next()
    return [session.run(element) for _ in range(count)]


def pillow_center(data, size, share=0.875):
    """What evaluation should see of an image file, by Pillow."""
    image = Image.open(io.BytesIO(data)).convert("RGB")
    scale = min(image.height / size[0], image.width / size[1]) * share
    high, wide = round(scale * size[0]), round(scale * size[1])
    y, x = (image.height - high + 1) // 2, (image.width - wide + 1) // 2
    return np.asarray(image.crop((x, y, x + wide, y + high)))


@pytest.mark.filterwarnings("ignore:To make it possible to preserve tf.data options")
@pytest.mark.parametrize("use", ["train", "eval", "predict"])
def test_no_tuner_holds_up_the_end_of_a_session(data_dir, use):
    stripes = ImagePipeline(dataset_info.load(data_dir, "stripes"))
    more = {"seed": 1} if use == "train" else {}
    batches = getattr(stripes, f"{use}_input_fn")("test", **more)({"batch_size": 13})
    assert batches.options().autotune.enabled is False


def test_raw_images_come_as_they_are_stored(data_dir, raw_dataset, session):
    stripes = ImagePipeline(dataset_info.load(data_dir, "stripes"))
    ((features, labels),) = fetch(stripes.eval_input_fn("test"), session, 41)
    np.testing.assert_array_equal(features["image"], raw_dataset.splits["test"].images)
    np.testing.assert_array_equal(labels, raw_dataset.splits["test"].labels)
    (features,) = fetch(stripes.predict_input_fn("test"), session, 13)
    assert features.keys() == {"image"}
    np.testing.assert_array_equal(features["image"], raw_dataset.splits["test"].images[:13])


def records_of(data, split):
    """Stored files and labels, read without the pipeline."""
    for path in data.files(split):
        for record in tf.compat.v1.io.tf_record_iterator(path):
            stored = tf.train.Example.FromString(record).features.feature
            yield stored["image"].bytes_list.value[0], stored["label"].int64_list.value[0]


@pytest.mark.parametrize("size", [(20, 31), slow((28, 28))])
def test_evaluation_sees_the_middle_of_each_image_in_order(photos, session, size):
    pipeline = ImagePipeline(photos, image_size=size)
    stored = list(records_of(photos, "train"))
    ((features, labels),) = fetch(pipeline.eval_input_fn("train"), session, len(stored) + 2)
    np.testing.assert_array_equal(labels[:-2], [label for _, label in stored])
    np.testing.assert_array_equal(features["weight"], [1] * len(stored) + [0, 0])
    assert features["image"].dtype == np.uint8
    for (data, _), pixels in zip(stored, features["image"]):
        wanted = session.run(tf.image.resize(pillow_center(data, size), size))
        np.testing.assert_allclose(pixels, wanted, atol=4)  # two JPEG decoders


@pytest.mark.slow(cost=0.1)
def test_predictions_see_what_evaluation_sees(photos, session):
    pipeline = ImagePipeline(photos, image_size=(28, 28))
    ((evaluated, _),) = fetch(pipeline.eval_input_fn("train"), session, 11)
    (predicted,) = fetch(pipeline.predict_input_fn("train"), session, 11)
    np.testing.assert_array_equal(predicted["image"], evaluated["image"])


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize("cache", ["none", slow("memory")])
def test_training_without_augmentation_sees_what_evaluation_sees(photos, session, cache):
    pipeline = ImagePipeline(photos, image_size=(28, 28), cache=cache)
    size = photos.split("train").num_examples
    ((evaluated, _),) = fetch(pipeline.eval_input_fn("train"), session, size)
    ((trained, _),) = fetch(pipeline.train_input_fn("train", seed=1), session, size)
    assert not np.array_equal(evaluated["image"], trained["image"])
    for image in trained["image"]:
        assert (evaluated["image"] == image).all(axis=(1, 2, 3)).any()


WORDS = "resize_crop:0.3 flip mixup:1"


@pytest.mark.parametrize("cache", [slow("memory"), slow("none")])
def test_training_is_a_function_of_its_seed(photos, session, cache):
    pipeline = ImagePipeline(photos, (16, 16), augment.parse(WORDS), cache=cache)
    once, again, other = (
        fetch(pipeline.train_input_fn("train", seed), session, 4, count=5) for seed in (1, 1, 2)
    )
    for (features, labels), (features_again, labels_again) in zip(once, again):
        assert features["image"].shape == (4, 16, 16, 3)
        assert labels.dtype == np.float32
        np.testing.assert_array_equal(features["image"], features_again["image"])
        np.testing.assert_array_equal(labels, labels_again)
    assert not np.array_equal(once[0][0]["image"], other[0][0]["image"])


def test_an_image_looks_different_in_each_epoch(photos, session):
    pipeline = ImagePipeline(photos, (16, 16), augment.parse("resize_crop:0.3"))
    size = photos.split("train").num_examples
    epochs = fetch(pipeline.train_input_fn("train", seed=1), session, size, count=2)
    first, second = ({image.tobytes() for image in features["image"]} for features, _ in epochs)
    assert len(first & second) == 0


class Context:
    """What a TPUEstimator tells an input_fn."""

    def __init__(self, cores, host, num_hosts):
        self._deployment = (None, host, num_hosts, cores)

    def current_input_fn_deployment(self):
        return self._deployment


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize("words", ["random_crop flip cutmix:1", slow("crop:2 shift:0.1"), slow("")])
def test_augmented_global_batches_are_the_same_on_any_hosts_and_cores(photos, session, words):
    pipeline = ImagePipeline(photos, (24, 24), augment.parse(words), cache="memory")
    input_fn = pipeline.train_input_fn("train", seed=1)

    def images_of(params, count):
        element = tf.compat.v1.data.make_one_shot_iterator(input_fn(params)).get_next()
        return np.concatenate([session.run(element)[0]["image"] for _ in range(count)])

    whole = images_of({"batch_size": 16}, 2).reshape(2, 16, 24, 24, 3)
    hosts = [
        images_of({"batch_size": 2, "context": Context(4, host, 2)}, 8).reshape(2, 8, 24, 24, 3)
        for host in range(2)
    ]
    np.testing.assert_array_equal(np.concatenate(hosts, axis=1), whole)


@pytest.mark.slow  # like those of test_records.py
@pytest.mark.parametrize("cache", ["none", "memory"])
def test_four_hosts_read_disjoint_examples_whose_union_is_the_split(
    data_dir, raw_dataset, session, cache
):
    stripes = ImagePipeline(dataset_info.load(data_dir, "stripes"), cache=cache)
    input_fn = stripes.train_input_fn("train", seed=1)
    seen = []
    # 97 examples: every fourth of the order of the epoch, or ranges of the records.
    counts = [25, 24, 24, 24] if cache == "memory" else [24, 24, 24, 25]
    for host, count in enumerate(counts):
        params = {"batch_size": 1, "context": Context(1, host, 4)}
        element = tf.compat.v1.data.make_one_shot_iterator(input_fn(params)).get_next()
        seen += [session.run(element)[0]["image"].tobytes() for _ in range(count)]
    if cache == "memory":  # the last step of the epoch takes one of it and three of the next
        seen = seen[:24] + seen[25:49] + seen[49:73] + seen[73:] + seen[24:25]
    images = {image.tobytes() for image in raw_dataset.splits["train"].images}
    assert len(seen) == len(set(seen)) == 97
    assert set(seen) == images


@pytest.mark.slow  # like those of test_records.py
def test_hosts_that_stream_photos_share_none(photos, session):
    pipeline = ImagePipeline(photos, (24, 24), cache="none")
    size, seen = photos.split("train").num_examples, []
    ((evaluated, _),) = fetch(pipeline.eval_input_fn("train"), session, size)
    input_fn = pipeline.train_input_fn("train", seed=1)
    for host in range(4):
        params = {"batch_size": 1, "context": Context(1, host, 4)}
        element = tf.compat.v1.data.make_one_shot_iterator(input_fn(params)).get_next()
        count = size * (host + 1) // 4 - size * host // 4  # ranges of the records
        seen += [session.run(element)[0]["image"].tobytes() for _ in range(count)]
    assert sorted(seen) == sorted(image.tobytes() for image in evaluated["image"])


@pytest.mark.slow(cost=0.1)
def test_resuming_goes_on_with_the_same_augmented_batches(photos, session):
    pipeline = ImagePipeline(photos, (16, 16), augment.parse(WORDS))
    whole = fetch(pipeline.train_input_fn("train", seed=1), session, 4, count=5)
    rest = fetch(pipeline.train_input_fn("train", seed=1, start_step=3), session, 4, count=2)
    for (features, labels), (features_after, labels_after) in zip(whole[3:], rest):
        np.testing.assert_array_equal(features["image"], features_after["image"])
        np.testing.assert_array_equal(labels, labels_after)


def test_the_model_sees_its_own_size(photos):
    pipeline = ImagePipeline(photos, image_size=(20, 31))
    assert pipeline.features == {"image": dataset_info.Feature("raw", "uint8", (20, 31, 3))}
    spec = pipeline.receivers()["serving_default"].inputs["image"]
    assert (spec.shape.as_list(), spec.dtype) == ([None, 20, 31, 3], tf.uint8)


def test_an_image_of_the_size_asked_for_is_taken_whole(photos, session):
    pipeline = ImagePipeline(photos, image_size=(40, 48))
    ((features, _),) = fetch(pipeline.eval_input_fn("train"), session, 13)
    for (data, _), pixels in zip(records_of(photos, "train"), features["image"]):
        image = Image.open(io.BytesIO(data))
        if image.size == (48, 40):
            np.testing.assert_allclose(pixels, np.asarray(image.convert("RGB")), atol=4)


def test_images_of_many_sizes_need_one(photos):
    if photos.features["image"].is_static:
        assert ImagePipeline(photos).features["image"].shape == (40, 48, 3)
        return
    with pytest.raises(DataError, match="differ in size: set --image_size=HEIGHTxWIDTH"):
        ImagePipeline(photos)


def test_pixels_that_are_no_bytes_are_not_augmented(tmp_path):
    arrays = source.RawArrays(np.zeros([4, 3, 3, 1], np.float32), np.arange(4) % 2)
    raw = source.RawDataset("floats", ("a", "b"), {"train": arrays})
    floats = writer.write(raw, str(tmp_path))
    assert ImagePipeline(floats).features["image"].dtype == "float32"
    with pytest.raises(DataError, match="need uint8, not float32"):
        ImagePipeline(floats, augmentation=augment.parse("flip"))


def images_of(channels, folder):
    arrays = source.RawArrays(np.zeros([4, 3, 5, channels], np.uint8), np.arange(4) % 2)
    return writer.write(source.RawDataset("pixels", ("a", "b"), {"train": arrays}), str(folder))


@pytest.mark.parametrize("words", ["flip jitter:0.2", "randaugment:2:9"])
@pytest.mark.parametrize("channels", [2, 4])
def test_operations_on_colors_need_grey_or_rgb_images(words, channels, tmp_path):
    message = f"needs grey or RGB images, but those of pixels have {channels} channels. Remove it"
    with pytest.raises(DataError, match=message):
        ImagePipeline(images_of(channels, tmp_path), augmentation=augment.parse(words))


def test_text_is_no_image(tmp_path):
    feature = dataset_info.Feature("text", "string", ())
    text = dataset_info.DatasetInfo("pairs", "d", {"source": feature, "target": feature}, (), {})
    with pytest.raises(DataError, match="pairs in d has no feature 'image', only source"):
        ImagePipeline(text)


@pytest.mark.parametrize(
    ("available", "cache", "plan"),
    [
        (2**40, "auto", caching.Plan(in_memory=True, decoded=True)),
        (2**40, "memory", caching.Plan(in_memory=True, decoded=True)),
        (2**40, "none", caching.Plan(in_memory=False)),
        (2 * 97 * 35, "auto", caching.Plan(in_memory=True, decoded=True)),
        (2 * 97 * 35 - 1, "auto", caching.Plan(in_memory=False)),
    ],
)
def test_a_split_is_held_in_memory_if_it_fits(data_dir, monkeypatch, available, cache, plan):
    monkeypatch.setattr(caching.memory, "available_bytes", lambda: available)
    assert caching.plan(dataset_info.load(data_dir, "stripes"), "train", cache) == plan


def test_files_are_held_where_their_pixels_would_not_fit(photos, monkeypatch):
    needed = photos.split("train").num_bytes
    monkeypatch.setattr(caching.memory, "available_bytes", lambda: 2 * needed + 1)
    plan = caching.plan(photos, "train", "memory")
    assert plan == caching.Plan(in_memory=True, decoded=False)


def test_a_split_that_does_not_fit_is_refused_with_the_arithmetic(data_dir, monkeypatch):
    monkeypatch.setattr(caching.memory, "available_bytes", lambda: 100)
    message = "--cache=memory: split 'train' needs 0.0 GiB, more than half of the available memory"
    with pytest.raises(DataError, match=message):
        caching.plan(dataset_info.load(data_dir, "stripes"), "train", "memory")


def test_a_disk_that_is_full_is_seen_before_it_is(data_dir, tmp_path, monkeypatch):
    usage = type("Usage", (), {"free": 100})
    monkeypatch.setattr(caching.shutil, "disk_usage", lambda folder: usage)
    with pytest.raises(DataError, match=r"and the disk has 0\.0 GiB free"):
        caching.plan(dataset_info.load(data_dir, "stripes"), "train", str(tmp_path))


def test_a_local_copy_is_named_by_what_it_copies(data_dir, own_data_dir, tmp_path):
    paths = {
        caching.plan(dataset_info.load(folder, "stripes"), split, str(tmp_path)).path
        for folder in (data_dir, own_data_dir)
        for split in ("train", "test")
    }
    assert len(paths) == 4


def test_a_copy_of_what_was_prepared_anew_is_another(raw_dataset, tmp_path):
    paths = set()
    for order in (1, -1):
        splits = {
            name: RawArrays(split.images[::order], split.labels[::order])
            for name, split in raw_dataset.splits.items()
        }
        writer.write(dataclasses.replace(raw_dataset, splits=splits), str(tmp_path / "data"))
        data = dataset_info.load(str(tmp_path / "data"), "stripes")
        paths.add(caching.plan(data, "train", str(tmp_path / "copies")).path)
    assert len(paths) == 2


def test_training_from_a_local_copy(data_dir, tmp_path, session):
    stripes = ImagePipeline(dataset_info.load(data_dir, "stripes"), cache=str(tmp_path / "copies"))
    batches = fetch(stripes.train_input_fn("train", seed=1), session, 97, count=3)
    for _, labels in batches:
        assert np.bincount(labels).tolist() == [33, 32, 32]
    assert list((tmp_path / "copies").iterdir())


def test_memory_is_what_a_limit_of_the_process_leaves(monkeypatch):
    monkeypatch.setattr(caching.memory.resource, "getrlimit", lambda kind: (2**40, 2**41))
    used = 2**40 - next(caching.memory._process_bytes())
    assert 2**20 < used < 2**40
    monkeypatch.setattr(caching.memory.resource, "getrlimit", lambda kind: (2**20, -1))
    assert caching.memory.available_bytes() == 0


def test_memory_is_what_the_machine_and_the_container_leave(tmp_path, monkeypatch):
    real = caching.memory.available_bytes()
    assert 2**20 < real < 2**50
    (tmp_path / "memory.max").write_text("5000000\n")
    (tmp_path / "memory.current").write_text("3000000\n")
    (tmp_path / "memory.stat").write_text("anon 900000\ninactive_file 2000000\nfile 2100000\n")
    monkeypatch.setattr(caching.memory, "_CGROUP", tmp_path)
    assert caching.memory.available_bytes() == 4_000_000
    (tmp_path / "memory.max").write_text("max\n")
    assert caching.memory.available_bytes() > 4_000_000
