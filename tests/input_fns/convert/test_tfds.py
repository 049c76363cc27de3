"""Data sets of tensorflow-datasets, where that package is installed."""

import importlib.util
import pickle

import numpy as np
import pytest

from input_fns import DataError
from input_fns.convert import files, runners
from input_fns.convert import tfds as source
from input_fns.convert.fingerprint import Fingerprints
from input_fns.convert.options import Options

NO_HOLDOUT = {"validation_fraction": 0.0}
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


def test_any_process_reads_a_part_and_names_the_files_that_it_has_read(read, shapes, tmp_path):
    train = read("tfds:shapes", source=tmp_path, validation_fraction=0.3).splits["train"]
    expected = [row.values["image"] for row in train]
    part = pickle.loads(pickle.dumps(train.part(2, 6)))
    with files.recording() as opened:
        assert [row.values["image"] for row in part] == expected[2:6]
    assert all(str(tmp_path) in path for path in opened)
    assert opened
    assert train.read(3).values["image"] == expected[3]
    fingerprints = [Fingerprints(str(tmp_path)).of_split(each) for each in (part, train.part(2, 6))]
    assert fingerprints[0] == fingerprints[1]


@pytest.fixture
def prepare(tmp_path, eager):
    """Writes a data set: `prepare("name", lambda f: {feature: ...}, {split: [example]})`.

    Returns a function that reads it, without the encoder of texts.
    """
    tfds = pytest.importorskip("tensorflow_datasets", reason="tensorflow-datasets is not installed")

    def write(name, features, splits):
        described = features(tfds.features)
        if isinstance(described, dict):
            described = tfds.features.FeaturesDict(described)

        def info(self):
            return tfds.core.DatasetInfo(builder=self, features=described)

        def generate(self, dl_manager):
            return {split: enumerate(examples) for split, examples in splits.items()}

        body = {"VERSION": tfds.core.Version("1.0.0"), "_info": info, "__module__": __name__}
        body |= {"_split_generators": generate, "_generate_examples": None, "__doc__": "Small."}
        builder = type(name.title(), (tfds.core.GeneratorBasedBuilder,), body)
        builder(data_dir=str(tmp_path)).download_and_prepare()

        def read(**options):
            options = Options(f"tfds:{name}", source=str(tmp_path), **options)
            return source.read(options, runners.InProcess())

        return read

    return write


def values(row, name):
    return np.frombuffer(row.values[name], row.features[name].dtype)


def objects(f, **more):
    inside = {"bbox": f.BBoxFeature(), "label": f.ClassLabel(names=["cat", "dog"]), **more}
    image = f.Image(shape=(None, None, 3), encoding_format="png")
    return {"image": image, "image/id": np.int64, "objects": f.Sequence(inside)}


def test_boxes(prepare, photo, rows):
    box = {"bbox": np.array([0.0, 0.25, 0.5, 1.0]), "label": 1, "is_crowd": True, "area": 7}
    examples = [
        {"image": np.asarray(photo(6, 8, seed=i)), "image/id": 30 + i, "objects": [box] * i}
        for i in range(3)
    ]
    features = lambda f: objects(f, is_crowd=np.bool_, area=np.int64)  # noqa: E731
    raw = prepare("boxed", features, {"train": examples, "test": examples[:1]})()
    assert (raw.kind.class_names, raw.kind.max_boxes) == (("cat", "dog"), 2)
    good, broken = rows(raw.splits["train"])
    assert not broken
    found = {int(values(row, "image_id")[0]): row for row in good}
    assert sorted(found) == [30, 31, 32]
    row = found[31]
    assert values(row, "boxes").tolist() == [0, 2, 3, 8, 0, 0, 0, 0]
    assert values(row, "classes").tolist() == [1, -1]
    assert (values(row, "is_crowd")[0], values(row, "areas")[0]) == (1, 7)
    assert row.features["image"].shape == (6, 8, 3)
    assert len(rows(raw.splits["train"].take([2, 0]))[0]) == 2


def test_columns_are_read_in_parts(prepare, monkeypatch):
    monkeypatch.setattr(source, "_PART", 2)
    features = lambda f: {"sentence": f.Text(), "label": np.float32}  # noqa: E731
    examples = [{"sentence": "abcde"[i], "label": i} for i in range(5)]
    split = prepare("parted", features, {"train": examples})().splits["train"]
    assert sorted(zip(split.texts[0], split.scores)) == [("abcde"[i], i) for i in range(5)]


def several(f):
    labels = f.Sequence(f.ClassLabel(names=["rust", "scab"]))
    return {"image": f.Image(shape=(None, None, 3), encoding_format="png"), "labels": labels}


def test_several_labels(prepare, photo, rows):
    lists = [], ["scab"], ["scab", "rust", "scab"]
    examples = [
        {"image": np.asarray(photo(6, 8, seed=i)), "labels": labels}
        for i, labels in enumerate(lists)
    ]
    read = prepare("listed", several, {"train": examples, "contest": examples[:1]})
    raw = read()
    assert (raw.target.kind, raw.target.names) == ("multilabel", ("rust", "scab"))
    train = raw.splits["train"]
    assert sorted(train.targets.tolist()) == [[0, 0], [0, 1], [1, 1]]
    assert train.take([0, 2]).targets.tolist() == train.targets[[0, 2]].tolist()
    assert len(rows(train)[0]) == 3
    assert not raw.splits["contest"].has_labels
    assert read(task="multilabel").target == raw.target


def test_masks_and_classes(prepare, photo, rows):
    def features(f):
        return {
            "image": f.Image(shape=(None, None, 3), encoding_format="png"),
            "label": f.ClassLabel(num_classes=2),
            "segmentation_mask": f.Image(shape=(None, None, 1), encoding_format="png"),
        }

    mask = np.arange(48).reshape(6, 8, 1) % 3
    example = {"image": np.asarray(photo(6, 8)), "label": 1}
    examples = [{**example, "segmentation_mask": mask.astype(np.uint8)}] * 2
    read = prepare("masked", features, {"train": examples})
    assert read().class_names == ("0", "1")
    raw = read(task="segmentation", class_names=("a", "b", "c"))
    assert raw.kind.class_names == ("a", "b", "c")
    good, broken = rows(raw.splits["train"])
    assert (len(good), broken) == (2, [])
    assert good[0].counts.tolist() == [16, 16, 16]
    with pytest.raises(DataError, match="does not name the classes of segmentation_mask"):
        read(task="segmentation")


def test_texts_with_classes_and_without(prepare, read, tmp_path):
    def features(f):
        return {
            "premise": f.Text(),
            "hypothesis": f.Text(),
            "label": f.ClassLabel(names=["no", "yes"]),
        }

    pairs = [{"premise": f"p{i}", "hypothesis": f"h{i}", "label": i % 2} for i in range(5)]
    contest = [{**pair, "label": -1} for pair in pairs]
    raw = prepare("pairs", features, {"train": pairs, "test": contest})()
    assert raw.class_names == ("no", "yes")
    assert raw.encoder == "text.sources.token_rows"
    first, second = raw.splits["train"].texts
    assert [(p[1:], h[1:]) for p, h in zip(first, second)] == [(h[1:], h[1:]) for h in second]
    assert raw.splits["train"].labels.tolist() == [int(p[1:]) % 2 for p in first]
    assert not raw.splits["test"].has_labels
    encoded = read("tfds:pairs", source=tmp_path, vocab_size=512, max_length=9, **NO_HOLDOUT)
    assert next(iter(encoded.splits["train"])).features["input_ids"].shape == (9,)


def test_texts_with_scores(prepare):
    features = lambda f: {"sentence": f.Text(), "label": np.float32}  # noqa: E731
    raw = prepare("scored", features, {"train": [{"sentence": "a", "label": 2.5}] * 2})()
    assert raw.splits["train"].scores.tolist() == [2.5, 2.5]
    assert raw.kind.task == "regression"


def test_a_translation_and_its_direction(prepare):
    pairs = [{"de": "Hunde", "en": "dogs"}]
    read = prepare("languages", lambda f: f.Translation(["de", "en"]), {"train": pairs})
    raw = read(languages=("en", "de"))
    assert (raw.splits["train"].source, raw.splits["train"].target) == ([b"dogs"], [b"Hunde"])
    assert raw.encoder == "text.sources.subwords"
    with pytest.raises(
        DataError, match=r"languages de, en. Name source and target: --languages=de"
    ):
        read()


def test_words_with_tags(prepare):
    def features(f):
        names = {"ner": ["O", "B-PER"], "pos": ["NOUN"]}
        tags = {name: f.Sequence(f.ClassLabel(names=of)) for name, of in names.items()}
        return {"tokens": f.Sequence(f.Text()), **tags}

    sentence = {"tokens": ["Ann", "ran"], "ner": ["B-PER", "O"], "pos": ["NOUN", "NOUN"]}
    raw = prepare("tagged", features, {"train": [sentence]})()
    assert raw.splits["train"].words == [["Ann", "ran"]]
    assert raw.splits["train"].tags == [["B-PER", "O"]]
    assert raw.properties["tag_names"] == ["B-PER", "O"]
    assert raw.encoder == "text.sources.token_files"


def test_questions_about_contexts(prepare):
    def features(f):
        answers = f.Sequence({"text": f.Text(), "answer_start": np.int32})
        texts = {name: f.Text() for name in ("id", "title", "context", "question")}
        return {**texts, "answers": answers}

    context = {"title": "t", "context": "Ann ran."}
    who = {"text": ["Ann"], "answer_start": [0]}
    rows = [
        {**context, "id": "a", "question": "Who?", "answers": who},
        {**context, "id": "b", "question": "Where?", "answers": {"text": [], "answer_start": []}},
    ]
    split = prepare("asked", features, {"train": rows})().splits["train"]
    found = {question.id: question for question in split.questions}
    assert found["a"].answers == (("Ann", 0),)
    assert found["b"].is_impossible
    assert set(split.groups) == {0}


def test_ratings(prepare):
    def features(f):
        return {"user_id": f.Text(), "movie_id": f.Text(), "timestamp": np.int64}

    rows = [{"user_id": "u", "movie_id": f"m{i}", "timestamp": i} for i in range(5)]
    raw = prepare("rated", features, {"train": rows})()
    assert {name: len(split) for name, split in raw.splits.items()} == {
        "train": 3,
        "test": 1,
        "validation": 1,
    }
    items = raw.files[raw.kind.items].decode().split()[::2]
    assert items[raw.splits["test"].items[0]] == "m4"


SAMPLES = np.arange(-700, 900)


def test_recordings_with_classes(prepare, rows):
    def features(f):
        return {"audio": f.Audio(sample_rate=8000), "label": f.ClassLabel(names=["no", "yes"])}

    examples = [{"audio": SAMPLES, "label": 0}, {"audio": SAMPLES * 1000, "label": 1}]
    raw = prepare("words", features, {"train": examples})(sample_rate=8000, max_seconds=0.5)
    (row,), (broken,) = rows(raw.splits["train"])
    assert values(row, "waveform").tolist() == SAMPLES.tolist()
    assert broken.reason == "its samples are not integers of 16 bits"


def test_transcripts_and_splits_that_are_joined(prepare, rows):
    def features(f):
        return {"speech": f.Audio(sample_rate=8000), "text": f.Text(), "speaker_id": np.int64}

    example = {"speech": SAMPLES, "speaker_id": 3}
    texts = {"train_b": "AB", "train_c": "B", "dev": "a"}
    parts = {name: [{**example, "text": text}] for name, text in texts.items()}
    raw = prepare("speech", features, parts)(sample_rate=16000, max_seconds=1.0)
    assert {name: len(split) for name, split in raw.splits.items()} == {"train": 2, "validation": 1}
    good, broken = rows(raw.splits["train"])
    assert not broken
    second = next(iter(raw.splits["train"].part(1, 2)))
    assert second.values == good[1].values
    assert raw.splits["train"].groups.tolist() == [3, 3]
    assert values(good[0], "num_samples") == 2 * len(SAMPLES)
    assert values(good[0], "tokens").tolist() != values(good[1], "tokens").tolist()


def test_features_that_fit_nothing(prepare):
    read = prepare("numbers", lambda f: {"x": np.float32}, {"train": [{"x": 1.0}]})
    with pytest.raises(DataError, match=r"has the features x \(\w+\), .*an image and a label"):
        read()
    read = prepare("plain", lambda f: {"text": f.Text(), "label": f.ClassLabel(num_classes=2)}, {})
    with pytest.raises(
        DataError, match=r"--task=detection reads. They need images with boxes: an image and"
    ):
        read(task="detection")


def test_an_option_of_another_kind(prepare):
    read = prepare(
        "plainer", lambda f: {"text": f.Text(), "label": f.ClassLabel(num_classes=2)}, {}
    )
    with pytest.raises(DataError, match=r"--max_boxes has no effect on .* texts with classes"):
        read(max_boxes=3)


def test_an_unknown_data_set(tmp_path):
    pytest.importorskip("tensorflow_datasets", reason="tensorflow-datasets is not installed")
    with pytest.raises(
        DataError, match=r"tfds:nothing: tensorflow-datasets .* no data set nothing"
    ):
        source.read(Options("tfds:nothing", source=str(tmp_path)), runners.InProcess())
