"""A custom format: a function of the user, prepared, inspected and read by the generic pipeline."""

import dataclasses
import io
import textwrap

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from input_fns import DataError, dataset_info, record_pipeline
from input_fns.convert import custom, writer
from input_fns.convert.options import Options
from input_fns.convert.source import Broken, RawDataset
from input_fns.core.target import Target
from input_fns.image.image_pipeline import ImagePipeline
from models.model import ModelError
from tests.marks import slow

SIZE = 23
MODULE = '''
    """Boxes in tiny images, sums of columns."""

    import numpy as np

    from input_fns.convert.source import RawDataset


    def example(i):
        return {
            "columns": np.arange(3, dtype=np.float32) + i,
            "image": i + np.arange(20, dtype=np.uint8).reshape(4, 5, 1),
            "sum": 3.0 * i + 3,
            "objects": {
                "boxes": np.full([2, 4], i, np.float32),
                "classes": np.array([i % 7, 0]),
            },
        }


    def read(source):
        count = int(source)
        return RawDataset(
            name="",
            class_names=(),
            splits={"train": map(example, range(count)), "test": [example(i) for i in range(7)]},
            labels=("sum", "objects"),
            properties={"num_columns": 3, "units": ["m", "kg"], "scale": 0.5},
        )


    def other(source):
        return {"train": []}


    def nothing():
        return None

    CONSTANT = 3
'''


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A user's module on the path, under a name of the test's own."""
    name = f"own_{abs(hash(tmp_path.name))}"
    (tmp_path / f"{name}.py").write_text(textwrap.dedent(MODULE))
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


@pytest.fixture
def prepared(module, prepare, tmp_path):
    """The same data set, prepared in three shards per split."""
    folder = str(tmp_path / "data")
    prepare(
        *(f"--dataset={module}:read", f"--source={SIZE}", "--name=sums", f"--data_dir={folder}"),
        "--shards=3",
    )
    return dataset_info.load(folder, "sums")


class Context:
    """TPUContext of one host with one core."""

    def __init__(self, host, num_hosts):
        self._deployment = (None, host, num_hosts, 1)

    def current_input_fn_deployment(self):
        return self._deployment


def test_features_labels_and_properties_are_stored(prepared):
    assert prepared.labels == ("sum", "objects/boxes", "objects/classes")
    assert prepared.properties == {"num_columns": 3, "units": ["m", "kg"], "scale": 0.5}
    assert prepared.features["sum"] == dataset_info.Feature("raw", "float32", ())
    assert prepared.features["objects/classes"].dtype == "int64"
    pipeline = record_pipeline.RecordPipeline(prepared)
    assert set(pipeline.features) == {"columns", "image"}
    expected = {**prepared.properties, "image_size": (4, 5)}
    assert pipeline.properties == expected


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize("batch_size", [4, 30])
def test_evaluation_pads_nested_labels(prepared, session, batch_size):
    pipeline = record_pipeline.RecordPipeline(prepared)
    dataset = pipeline.eval_input_fn("test")({"batch_size": batch_size})
    element = tf.compat.v1.data.make_one_shot_iterator(dataset).get_next()
    batches = [session.run(element) for _ in range(-(-7 // batch_size))]
    weights = np.concatenate([features["weight"] for features, _ in batches])
    boxes = np.concatenate([labels["objects"]["boxes"] for _, labels in batches])
    assert weights.tolist() == [1] * 7 + [0] * (len(weights) - 7)
    assert boxes.shape == (len(weights), 2, 4)
    np.testing.assert_array_equal(boxes[:7, 0, 0], np.arange(7))
    assert not boxes[7:].any()


def test_host_examples_come_in_the_order_of_prediction(prepared, session):
    pipeline = record_pipeline.RecordPipeline(prepared)
    dataset = pipeline.predict_input_fn("train")({"batch_size": 5})
    element = tf.compat.v1.data.make_one_shot_iterator(dataset).get_next()
    predicted = np.concatenate([session.run(element)["columns"] for _ in range(5)])
    batches = list(pipeline.host_examples("train", 8))
    assert [len(labels["sum"]) for _, labels in batches] == [8, 8, 7]
    columns = np.concatenate([features["columns"] for features, _ in batches])
    np.testing.assert_array_equal(columns, predicted)
    sums = np.concatenate([labels["sum"] for _, labels in batches])
    np.testing.assert_array_equal(sums, columns.sum(axis=1))
    assert sorted(columns[:, 0]) == list(range(SIZE))


@pytest.mark.slow  # like those of test_records.py
@pytest.mark.parametrize("cache", ["memory", "none"])
def test_four_hosts_read_disjoint_examples_whose_union_is_the_split(prepared, session, cache):
    pipeline = record_pipeline.RecordPipeline(prepared, cache)
    input_fn, seen = pipeline.train_input_fn("train", seed=1), []
    for host in range(4):
        params = {"batch_size": 1, "context": Context(host, 4)}
        element = tf.compat.v1.data.make_one_shot_iterator(input_fn(params)).get_next()
        count = SIZE * (host + 1) // 4 - SIZE * host // 4
        if cache == "memory":  # every fourth row of the epoch's permutation
            count = len(range(host, SIZE, 4))
        for _ in range(count):
            features, labels = session.run(element)
            assert labels["sum"][0] == features["columns"].sum()
            seen.append(int(features["columns"][0, 0]))
    assert sorted(seen) == list(range(SIZE))


@pytest.mark.slow(cost=0.1)
def test_training_resumes_with_the_next_batch(prepared, session):
    def batches(start_step, count):
        pipeline = record_pipeline.RecordPipeline(prepared, "none")
        dataset = pipeline.train_input_fn("train", 1, start_step)({"batch_size": 5})
        element = tf.compat.v1.data.make_one_shot_iterator(dataset).get_next()
        return [session.run(element) for _ in range(count)]

    for expected, found in zip(batches(0, 9)[6:], batches(6, 3)):
        tf.nest.map_structure(np.testing.assert_array_equal, found, expected)


def test_a_saved_model_takes_features_and_records(prepared, session):
    pipeline = record_pipeline.RecordPipeline(prepared)
    receivers = pipeline.receivers()
    raw = receivers["serving_default"].requests("test", 3)
    inputs = receivers["tf_example"].requests("test", 3)
    inputs = {name: tf.constant(value) for name, value in inputs.items()}
    parsed = session.run(receivers["tf_example"].features(inputs))
    tf.nest.map_structure(np.testing.assert_array_equal, parsed, raw)


def test_inspect_reads_it(prepared, prepare, capsys):
    prepare("--mode=inspect", f"--data_dir={prepared.data_dir}")
    lines = capsys.readouterr().out.splitlines()
    assert "scale = 0.5" in lines
    assert "objects/boxes: float32 2x4, raw, label" in lines
    assert lines[-1] == "no problem found"


def test_a_shard_that_is_broken_is_found(prepared, prepare, capsys):
    shard = prepared.files("test")[1]
    with open(shard, "r+b") as file:
        file.seek(40)
        file.write(b"??")
    with pytest.raises(SystemExit):
        prepare("--mode=inspect", f"--data_dir={prepared.data_dir}")
    assert "corrupted record" in capsys.readouterr().out


@pytest.mark.slow(cost=0.1)
def test_image_files_are_decoded_one_by_one(prepare, tmp_path, session):
    def example(i):
        encoded = io.BytesIO()
        Image.new("RGB", (6, 4), (40 * i, 7, 9)).save(encoded, "PNG")
        return {"photo": encoded.getvalue(), "label": i % 3}

    raw = RawDataset("colours", ("a", "b", "c"), {"train": [example(i) for i in range(5)]})
    read = custom.read(lambda source: raw, Options("m:f"))

    data = writer.write(read, str(tmp_path))
    assert data.split("train").label_histogram == (2, 2, 1)
    pipeline = record_pipeline.RecordPipeline(data)
    ((features, labels),) = pipeline.host_examples("train", 9)
    assert labels.tolist() == [0, 1, 2, 0, 1]
    np.testing.assert_array_equal(features["photo"][2, 1, 1], [80, 7, 9])
    for cache in ("memory", "none"):
        train = record_pipeline.RecordPipeline(data, cache).train_input_fn("train", 1)
        dataset = train({"batch_size": 2})
        assert dataset.element_spec[0]["photo"].shape.as_list() == [2, 4, 6, 3]
        session.run(tf.compat.v1.data.make_one_shot_iterator(dataset).get_next())


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        ("no_such", DataError, "is NoneType, and must be a function of --source"),
        ("CONSTANT", DataError, "is int, and must be a function of --source"),
        ("nothing", DataError, "must be a function that takes --source: too many"),
        ("other", DataError, "returned dict, and must return input_fns.convert.source.RawDataset"),
    ],
)
def test_a_wrong_function_is_one_line(module, prepare, tmp_path, function, error, message):
    with pytest.raises(error, match=message) as found:
        prepare(
            *(f"--dataset={module}:{function}", "--source=3", "--name=x"),
            f"--data_dir={tmp_path}/data",
        )
    assert "\n" not in str(found.value)
    assert not (tmp_path / "data").exists()


def test_a_missing_module_is_one_line(prepare, tmp_path):
    with pytest.raises(ModelError, match="--dataset=no_such_module:read: no module"):
        prepare("--dataset=no_such_module:read", "--name=x", f"--data_dir={tmp_path}/data")


def numbers(**features):
    return {"x": np.zeros(3, np.float32), **features}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"splits": {}}, "returned no splits"),
        ({"splits": {"train": 3}}, r"splits\['train'\] is int, and must be a sequence of dicts"),
        ({"splits": {"train": []}}, "split 'train' of x has no examples"),
        ({"splits": {"train": [3]}}, r"\['train'\]\[0\] is int, and must be a dict of features"),
        ({"splits": {"train": [{}]}}, r"\[0\]: it has no features"),
        ({"splits": {"train": [numbers(y="a")]}}, "feature 'y' is str, and must be a number, a"),
        ({"splits": {"train": [numbers(y=2**40)]}}, "is 1099511627776, not an int32"),
        ({"splits": {"train": [numbers(weight=1)]}}, "'weight' is a reserved name"),
        ({"splits": {"train": [numbers(**{"class": 1})]}}, "is a keyword of Python"),
        ({"splits": {"train": [numbers(y=np.zeros([0, 4]))]}}, "pad it to a static shape"),
        (
            {"splits": {"train": [numbers(y=np.ma.masked_less([1, 2, 3], 3))]}},
            "feature 'y' has 2 masked values",
        ),
        (
            {"splits": {"train": [numbers(), numbers(y=1)]}},
            r"\[1\] has the features x, y, others x",
        ),
        (
            {"splits": {"train": [numbers(), {"x": np.zeros(4, np.float32)}]}},
            r"\[1\], feature 'x', is float32 \[4\], in others float32 \[3\]: pad or crop",
        ),
        (
            {"splits": {"train": [numbers()], "test": [{"x": np.zeros(3)}]}},
            "the feature 'x' differs between examples",
        ),
        ({"labels": ("y",)}, "the label 'y' of x is not a feature; there are x"),
        ({"labels": ("x",)}, "all features of x are labels"),
        ({"labels": "x"}, "returned labels='x', and must be a tuple of strings"),
        ({"class_names": ("a", "b")}, r"\[0\]\['label'\] is None, and must be an int"),
        (
            {
                "class_names": ("a", "b"),
                "splits": {"train": [{"image": np.zeros([5, 4], np.uint8), "label": 0}]},
            },
            r"features\.image has the shape \[5, 4\], and must be \[height, width, channels\]",
        ),
        ({"properties": {"a": {}}}, "properties.a is dict '{}', and must be a number"),
        ({"properties": {"a": [1, float("nan")]}}, "properties.a is float 'nan'"),
        ({"properties": {"../a": 1}}, "'../a' is not a plain name"),
    ],
)
def test_a_wrong_result_is_named(tmp_path, changes, message):
    fields = {"name": "x", "class_names": (), "splits": {"train": [numbers()]}, **changes}

    def convert():
        raw = custom.read(lambda source: RawDataset(**fields), Options("m:f"))
        writer.write(raw, str(tmp_path / "data"))

    with pytest.raises(DataError, match=message) as found:
        convert()
    assert "\n" not in str(found.value)


def test_a_colon_in_the_name_is_refused(module, prepare, tmp_path):
    arguments = [f"--dataset={module}:read", f"--data_dir={tmp_path}/data"]
    with pytest.raises(Exception, match="has a colon, which --dataset of run_"):
        prepare(*arguments, "--name=a:b")
    with pytest.raises(Exception, match="needs --name"):
        prepare(*arguments)


MODEL = """
    import tensorflow as tf

    from models.model import Loss, Model


    def default_params():
        return {"units": 2, "num_columns": 0}


    def inference(features, params, training):
        columns = tf.ensure_shape(features["columns"], [None, params["num_columns"]])
        return {"sum": tf.compat.v1.layers.dense(columns, 1)[:, 0]}


    def losses(features, labels, outputs, params):
        return {"squared_error": Loss(tf.square(outputs["sum"] - labels["sum"]))}


    def metrics(labels, outputs, weights, params):
        error = tf.compat.v1.metrics.mean_absolute_error(labels["sum"], outputs["sum"], weights)
        return {"mae": error}


    MODEL = Model(
        "sums",
        default_params,
        inference,
        losses,
        lambda features, outputs, params: outputs,
        metrics,
        dataset_properties=("num_columns",),
    )
    """


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize("wrapper", ["cpu", slow("tpu")])
def test_a_converter_and_a_model_are_enough(
    prepared, run_with, run_tpu_with, tmp_path, monkeypatch, result, wrapper
):
    name = f"own_model_{abs(hash(tmp_path.name))}"
    (tmp_path / f"{name}.py").write_text(textwrap.dedent(MODEL))
    monkeypatch.syspath_prepend(str(tmp_path))
    arguments = [
        *(f"--model={name}:MODEL", "--dataset=sums", f"--data_dir={prepared.data_dir}"),
        *(f"--model_dir={tmp_path}/run", "--mode=train_and_eval", "--train_steps=4", "--seed=1"),
        *("--train_batch_size=4", "--eval_batch_size=4", "--predict_batch_size=4"),
    ]
    if wrapper == "cpu":
        run_with(*arguments)
    else:
        run_tpu_with(*arguments, "--tpu=emulator", "--tpu_topology=1x2")
    evaluated = result(tmp_path / "run", 4)["eval"]
    assert evaluated["examples"] == 7
    assert evaluated["mae"] > 0


class Lazy:
    """A sequence that reads its examples when they are indexed, and counts that."""

    def __init__(self, size, has_class):
        self.reads, self._has_class = [0] * size, has_class

    def __len__(self):
        return len(self.reads)

    def __getitem__(self, i):
        self.reads[i] += 1
        if i == 3:
            raise FileNotFoundError("no file 3")
        return {"x": np.float32(i), **({"label": i % 2} if self._has_class else {})}


@pytest.mark.parametrize("class_names", [(), ("even", "odd")])
def test_each_example_is_read_once(class_names, tmp_path):
    examples = Lazy(47, bool(class_names))
    raw = RawDataset(
        "numbers", class_names, {"train": examples, "test": Lazy(3, bool(class_names))}
    )
    read = custom.read(lambda source: raw, Options("m:f"))
    split = read.splits["train"]
    order = np.random.default_rng(0).permutation(47)
    split = split.take(order)
    assert split.num_bytes == pytest.approx(4 * 47)
    rows = list(split)
    assert examples.reads == [1] * 47
    assert isinstance(rows[order.tolist().index(3)], Broken)
    stored = [
        None if isinstance(r, Broken) else np.frombuffer(r.values["x"], "<f4")[0] for r in rows
    ]
    assert stored == [None if i == 3 else i for i in order]
    if class_names:
        assert all(label == i % 2 for i, label in zip(order, split.labels) if i != 3)


def test_examples_may_have_several_labels(tmp_path):
    examples = [
        {"image": np.full([4, 5, 1], i, np.uint8), "target": np.float32([i % 2, 1, 0])}
        for i in range(7)
    ]
    target = Target("multilabel", ("a", "b", "c"))
    raw = RawDataset("m", (), {"train": examples}, labels=("target",), target=target)
    writer.write(custom.read(lambda source: raw, Options("m:f")), str(tmp_path))
    pipeline = ImagePipeline(dataset_info.load(str(tmp_path), "m"))
    features, labels = next(pipeline.host_examples("train", 7))
    assert labels.tolist() == [[i % 2, 1, 0] for i in features["image"][:, 0, 0, 0]]
    wrong = dataclasses.replace(raw, target=Target("multilabel", ("a", "b")))
    with pytest.raises(DataError, match=r"target needs the label 'target', raw float32 \[2\]"):
        writer.write(custom.read(lambda source: wrong, Options("m:f")), str(tmp_path / "wrong"))
