"""Feeds recordings: samples, tokens, augmentation as a function of the seed, exact evaluation."""

import dataclasses
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from input_fns import DataError, anomalies, dataset_info
from input_fns.audio import augment, characters
from input_fns.audio.audio_pipeline import AudioPipeline, to_wav
from input_fns.core import inspection, records, serving
from input_fns.core.dataset_parts import ShardInfo
from input_fns.image import images
from tests import audio_data

AUGMENT = "speed:0.8:1.25 shift:0.05 filter:0.9 noise:5:20 time_mask:2:0.2 mel_mask:1:0.3"
AUGMENT += " mel_shift:0.1"
SIZE = 2000
COUNTS = np.array([2000, 1500, 900, 400, 1], np.int32)


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    raw = audio_data.write_manifest(folder / "raw", {"train": 13, "test": 7})
    return audio_data.prepare("speech_manifest", raw, folder / "data")


def augmented(text, seed=1, waveform=None):
    """Returns augmented features, and those before."""
    if waveform is None:
        waveform = np.random.default_rng(0).normal(size=[5, SIZE], scale=0.1)
        waveform = np.cumsum(waveform, axis=1) / 30  # smooth
        waveform *= np.arange(SIZE) < COUNTS[:, np.newaxis]
    before = {"waveform": waveform.astype(np.float32), "num_samples": COUNTS}
    augmentation = augment.parse(text)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        numbers = augmentation.draw(5, tf.constant([seed, 7]))
        features = {name: tf.constant(value) for name, value in before.items()}
        return session.run(augmentation.apply(features, numbers, 8000)), before


def batches(input_fn, count, batch_size=5):
    return list(records.iterate(lambda: input_fn({"batch_size": batch_size}).take(count)))


def test_an_evaluation_has_every_example_once_with_static_shapes(texts):
    pipeline = AudioPipeline(texts, augment.parse(AUGMENT))
    found = batches(pipeline.eval_input_fn("test"), 9)
    weights = np.concatenate([features["weight"] for features, _ in found])
    assert weights.tolist() == [1] * 7 + [0] * 3
    features, labels = found[0]
    assert features["waveform"].shape == (5, 4800)
    assert features["waveform"].dtype == np.float32
    assert labels["tokens"].shape == (5, 3)
    assert "time_masks" not in features
    for row, count in zip(features["waveform"], features["num_samples"]):
        assert np.abs(row[:count]).max() > 0.1
        assert not row[count:].any()
    with tf.Graph().as_default():
        spec = pipeline.eval_input_fn("test")({"batch_size": 5}).element_spec
    assert all(part.shape.is_fully_defined() for part in tf.nest.flatten(spec))


@pytest.fixture(scope="module")
def padded(texts, tmp_path_factory):
    """The data set as earlier versions stored it: recordings padded with zeros."""
    folder, splits = tmp_path_factory.mktemp("padded"), {}
    for name, split in texts.splits.items():
        path = folder / f"{name}.tfrecord"
        with tf.io.TFRecordWriter(str(path)) as file:
            for record in tf.compat.v1.io.tf_record_iterator(*texts.files(name)):
                example = tf.train.Example.FromString(record)
                value = example.features.feature["waveform"].bytes_list.value
                value[0] = value[0].ljust(2 * 4800, b"\0")
                file.write(example.SerializeToString())
        shard = ShardInfo(path.name, path.stat().st_size, split.num_examples)
        splits[name] = dataclasses.replace(split, shards=(shard,))
    raw = dataclasses.replace(texts.features["waveform"], encoding="raw")
    data = dataclasses.replace(
        texts, data_dir=str(folder), features={**texts.features, "waveform": raw}, splits=splits
    )
    (folder / "dataset.json").write_text(dataset_info.to_json(data))
    (folder / texts.kind.vocabulary).write_bytes(
        pathlib.Path(texts.data_dir, texts.kind.vocabulary).read_bytes()
    )
    return dataset_info.load(str(folder), "speech_manifest")


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize("cache", ["memory", "none"])
def test_padded_recordings_of_earlier_versions_are_the_same_examples(texts, padded, cache):
    assert texts.splits["train"].num_bytes < 0.7 * padded.splits["train"].num_bytes
    assert (texts.features["waveform"].encoding, padded.features["waveform"].encoding) == (
        *("unpadded", "raw"),
    )
    found, expected = (
        [
            *batches(pipeline.train_input_fn("train", 3), 7),
            *batches(pipeline.eval_input_fn("test"), 9),
            *batches(pipeline.predict_input_fn("test"), 9),
            *pipeline.host_examples("test", 4),
        ]
        for pipeline in (
            AudioPipeline(data, augment.parse(AUGMENT), cache) for data in (texts, padded)
        )
    )
    tf.nest.map_structure(np.testing.assert_array_equal, found, expected)
    for data in (texts, padded):
        assert inspection.inspect(data, "test").problems == []
        assert anomalies.find(data) == anomalies.find(texts)


def test_a_batch_that_is_parsed_at_once_is_bounded_by_its_padded_size(texts, monkeypatch):
    monkeypatch.setattr(records, "_PARSE_BYTES", 3 * (2 * 4800 + 4 + 12))
    first = next(records.iterate(lambda: AudioPipeline(texts).stored("train")))
    assert first[0]["waveform"].shape == (3, 4800)


def test_a_served_record_is_padded_or_not(texts, padded, session):
    found = []
    for data in (texts, padded):
        receiver = AudioPipeline(texts).receivers()[serving.TF_EXAMPLE]
        records = AudioPipeline(data).receivers()[serving.TF_EXAMPLE].requests("test", 3)
        found.append(session.run(receiver.features(tf.nest.map_structure(tf.constant, records))))
    tf.nest.map_structure(np.testing.assert_array_equal, *found)


@pytest.mark.parametrize("num_bytes", [2 * 4800 + 2, 3])
def test_a_waveform_of_another_length_is_an_error(texts, num_bytes, session):
    feature = texts.features["waveform"]
    stored = tf.constant([b"\1\2", b"\1" * num_bytes])
    with pytest.raises(tf.errors.InvalidArgumentError, match="other lengths than up to 9600"):
        session.run(images.decode_raw(stored, feature))


def test_samples_are_fractions_of_32768(texts, session):
    samples = np.arange(-(2**15), 2**15, dtype=np.int16).reshape(1, -1)
    features, _ = AudioPipeline(texts).batch_transform({"waveform": tf.constant(samples)}, (), None)
    np.testing.assert_array_equal(session.run(features["waveform"]), samples / 2**15)


@pytest.mark.slow(cost=0.1)
def test_training_is_a_function_of_the_seed_and_the_step(texts):
    pipeline = AudioPipeline(texts, augment.parse(AUGMENT))
    whole = batches(pipeline.train_input_fn("train", seed=3), 6)
    resumed = batches(pipeline.train_input_fn("train", seed=3, start_step=4), 2)
    other = batches(pipeline.train_input_fn("train", seed=4), 1)
    for (features, labels), (again, same) in zip(whole[4:], resumed):
        assert features.keys() == again.keys()
        for name, value in features.items():
            np.testing.assert_array_equal(value, again[name], err_msg=name)
        np.testing.assert_array_equal(labels["tokens"], same["tokens"])
    assert np.abs(whole[0][0]["waveform"] - other[0][0]["waveform"]).max() > 0.01


@pytest.mark.parametrize("word", [*AUGMENT.split(), AUGMENT])
def test_an_augmentation_keeps_the_form_of_the_features(word):
    found, before = augmented(word)
    assert found["waveform"].shape == (5, SIZE)
    assert np.isfinite(found["waveform"]).all()
    assert found["num_samples"].dtype == np.int32
    assert ((found["num_samples"] >= 1) & (found["num_samples"] <= SIZE)).all()
    for row, count in zip(found["waveform"], found["num_samples"]):
        assert not row[count:].any()
    names = {"time_mask": {"time_masks"}, "mel_mask": {"mel_masks"}, "mel_shift": {"mel_shift"}}
    added = set().union(*(names.get(one.partition(":")[0], set()) for one in word.split()))
    assert found.keys() - before.keys() == added


def test_speed_equals_a_resampled_tone():
    time = np.arange(SIZE) / 8000
    waveform = np.sin(2 * np.pi * 200 * time) * (np.arange(SIZE) < COUNTS[:, np.newaxis])
    found, _ = augmented("speed:1.25:1.25", waveform=waveform)
    assert found["num_samples"].tolist() == [1600, 1200, 720, 320, 1]
    expected = np.sin(2 * np.pi * 250 * time[:1500])
    np.testing.assert_allclose(found["waveform"][0, :1500], expected, atol=1e-3)


def test_a_slower_recording_still_fits_into_its_row():
    found, _ = augmented("speed:0.5:0.5")
    assert found["num_samples"].tolist() == [2000, 2000, 1800, 800, 2]


def test_shift_moves_the_recording():
    found, before = augmented("shift:0.05")
    for i, count in enumerate(COUNTS):
        shift = found["num_samples"][i] - count
        assert 0 <= shift <= 400
        moved = found["waveform"][i, shift : shift + count]
        np.testing.assert_array_equal(moved, before["waveform"][i, :count])
        assert not found["waveform"][i, :shift].any()
    assert found["num_samples"][0] == 2000  # no room
    assert (found["num_samples"] > COUNTS).sum() > 2


def test_filter_keeps_the_power_and_changes_the_spectrum():
    found, before = augmented("filter:0.9")
    for i in range(4):
        powers = [np.sum(x["waveform"][i].astype(np.float64) ** 2) for x in (found, before)]
        np.testing.assert_allclose(*powers, rtol=1e-4)
        spectra = [np.abs(np.fft.rfft(x["waveform"][i])) for x in (found, before)]
        assert np.abs(spectra[0] - spectra[1]).max() > 0.01 * spectra[1].max()


def test_noise_has_its_power():
    found, before = augmented("noise:10:10")
    for i, count in enumerate(COUNTS[:3]):
        noise = (found["waveform"][i] - before["waveform"][i])[:count]
        ratio = np.mean(before["waveform"][i, :count] ** 2) / np.mean(noise**2)
        # Of at least 900 samples with a correlation of up to 1/2.
        np.testing.assert_allclose(10 * np.log10(ratio), 10, atol=1)


def test_masks_are_fractions():
    found, _ = augmented("time_mask:2:0.2 mel_mask:1:0.3")
    for name, count, most in (("time_masks", 2, 0.2), ("mel_masks", 1, 0.3)):
        assert found[name].shape == (5, count, 2)
        assert (found[name] >= 0).all()
        assert (found[name] <= 1).all()
        widths = np.diff(found[name], axis=-1)
        assert ((widths >= 0) & (widths <= most)).all()
    assert augment.parse(AUGMENT).masks == {"time_masks": 2, "mel_masks": 1}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("flip", "'flip' is unknown"),
        ("speed:1", "must be speed:LOW:HIGH"),
        ("speed:1.2:0.8", "LOW must not be above HIGH"),
        ("noise:a:3", "LOW must be a number"),
        ("time_mask:2.5:0.1", "N must be an integer"),
        ("shift:1 shift:2", "'shift' is repeated"),
    ],
)
def test_an_invalid_augmentation(text, reason):
    with pytest.raises(DataError, match=reason):
        augment.parse(text)


def test_requests_are_the_stored_recordings(texts):
    pipeline = AudioPipeline(texts)
    receivers = pipeline.receivers()
    raw = receivers[serving.RAW].requests("test", 3)
    files = receivers[serving.AUDIO_BYTES].requests("test", 3)["audio_bytes"]
    for content, row, count in zip(files, raw["waveform"], raw["num_samples"]):
        assert content == to_wav(row[:count], 8000) == audio_data.wav(row[:count].astype("f8"))


def test_stored_values_out_of_range_are_errors(texts):
    small = dataclasses.replace(texts.kind, max_samples=4800, vocab_size=2)
    pipeline = AudioPipeline(dataclasses.replace(texts, kind=small))
    with pytest.raises(tf.errors.InvalidArgumentError, match="tokens: a value in the shards"):
        batches(pipeline.eval_input_fn("test"), 1)


def test_a_vocabulary_file_is_checked(tmp_path):
    path = tmp_path / "characters.txt"
    for content, reason in (
        ("ab\n", "line 1: 'ab' is not one character"),
        ("a\na\n", "'a' more than once"),
        ("", "line 1: '' is not one"),
    ):
        path.write_text(content)
        with pytest.raises(DataError, match=reason):
            characters.load(str(path))
    with pytest.raises(DataError, match="is not a vocabulary"):
        characters.load(str(tmp_path))


def test_a_vocabulary_of_a_windows_editor_is_read(tmp_path):
    path = tmp_path / "characters.txt"
    path.write_bytes("\ufeff \r\na\r\n\u00e9\r\n".encode())
    assert characters.load(str(path)).characters == (" ", "a", "\u00e9")
