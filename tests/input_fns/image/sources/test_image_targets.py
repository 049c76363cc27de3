"""Tables of images with several labels, probabilities of classes, or numbers."""

import csv
import dataclasses
import shutil

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from input_fns import DataError, anomalies, convert, dataset_info
from input_fns.convert import writer
from input_fns.convert.options import Options
from input_fns.core import inspection
from input_fns.image import augment
from input_fns.image.image_pipeline import ImagePipeline

NONE = {"validation_fraction": 0.0}
LABELS = ("f", "rust", "scab"), ("0", "1", "1"), ("1", "0", "0"), ("2", "1.0", "False")
NUMBERS = ("f", "age", "height"), ("0", "31", "1.5"), ("1", "7", "-2e1"), ("2", "40", "0")
FRACTIONS = ("f", "a", "b", "c"), ("0", ".33", ".33", ".33"), ("1", "0", "1", "0")


@pytest.fixture
def table(tmp_path):
    """Writes grey images 0.png, 1.png ... and a table; returns the options that read it."""

    def write(*rows, **options):
        for i in range(len(rows) - 1):
            Image.fromarray(np.full([5, 7], 40 * i, np.uint8)).save(tmp_path / f"{i}.png")
        with open(tmp_path / "labels.csv", "w", newline="") as file:
            csv.writer(file).writerows(rows)
        paths = {"source": str(tmp_path), "csv": str(tmp_path / "labels.csv")}
        return Options("image_csv", **{**paths, **NONE, **options})

    return write


def in_order(split):
    """The targets in the order of the files."""
    return split.targets[np.argsort(split.paths)].tolist()


def test_a_column_per_class_of_which_several_or_none_are_1(table):
    raw = convert.read(table(*LABELS, task="multilabel"))
    assert raw.target.kind == "multilabel"
    assert raw.target.names == ("rust", "scab")
    assert in_order(raw.splits["train"]) == [[1, 1], [0, 0], [1, 0]]
    assert raw.class_names == ()


@pytest.mark.parametrize("name", ["id", "Index", "image_id", "uuid"])
@pytest.mark.parametrize("task", ["multilabel", "regression"])
def test_an_id_is_no_label_by_default(table, name, task):
    rows = [(*LABELS[0], name), *((*row, str(7 * i)) for i, row in enumerate(LABELS[1:]))]
    with pytest.raises(DataError, match=rf"column '{name}' .* --label_columns=rust,scab$"):
        convert.read(table(*rows, task=task))


def test_a_column_of_lists(table):
    rows = ("f", "ills"), ("0", "scab rust"), ("1", ""), ("2", " rust ")
    lines = []
    options = table(*rows, task="multilabel", label_separator=" ")
    raw = convert.read(options, lines.append)
    assert raw.target.names == ("rust", "scab")
    assert in_order(raw.splits["train"]) == [[1, 1], [0, 0], [1, 0]]
    assert lines == ["1 rows have no label: they are examples of none of the classes"]


@pytest.mark.parametrize(("separator", "flag"), [(" ", "space"), ("; ", "';'")])
def test_lists_that_are_read_as_classes_are_told(separator, flag, table):
    labels = ["rust", f"scab{separator}rust", "scab", "healthy leaf"]
    rows = [("f", "ills"), *((str(i), label) for i, label in enumerate(labels))]
    lines = []
    assert len(convert.read(table(*rows), lines.append).class_names) == 4
    (line,) = lines
    assert f"1 of 4 classes are lists of others, such as 'scab{separator}rust'" in line
    assert line.endswith(f"--task=multilabel --label_separator={flag}")


def test_numbers_that_are_read_as_classes_are_told(table):
    rows = ("f", "size"), ("0", "2"), ("1", "0.25"), ("2", "10")
    lines = []
    assert convert.read(table(*rows), lines.append).class_names == ("0.25", "2", "10")
    (line,) = lines
    assert "column 'size': 3 classes, all of them numbers, such as '0.25'. To predict" in line
    assert line.endswith("--task=regression")


def test_class_names_order_the_labels_of_lists(table):
    rows = ("f", "ills"), ("0", "scab;rust"), ("1", "rust")
    options = {"task": "multilabel", "label_separator": ";", "class_names": ("scab", "rust")}
    assert in_order(convert.read(table(*rows, **options)).splits["train"]) == [[1, 1], [0, 1]]


@pytest.fixture
def classes(tmp_path):
    """Writes files, `{"class/name.png": shade}`; returns the options that read them."""

    def write(shades):
        for name, shade in shades.items():
            path = tmp_path / "classes" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.full([5, 7], shade, np.uint8)).save(path)
        return Options("image_folder", source=str(tmp_path / "classes"), task="multilabel", **NONE)

    return write


REPEATED = {"rust/a.png": 1, "rust/b.png": 2, "scab/a.png": 3, "scab/copy of b.png": 2}


def labels_by_shade(raw, split="train"):
    """Returns `{shade: labels}`."""
    rows = zip(raw.splits[split], raw.splits[split].targets.tolist())
    return {int(row.values["image"][0]): labels for row, labels in rows}


@pytest.mark.parametrize("packed", [False, True], ids=["folders", "archive"])
def test_an_image_in_several_folders_has_several_labels(packed, classes):
    options, lines = classes(REPEATED), []
    if packed:
        source = shutil.make_archive(f"{options.source}_all", "zip", options.source)
        options = dataclasses.replace(options, source=source)
    options = dataclasses.replace(options, image_size=(5, 7), channels=1)
    raw = convert.read(options, lines.append)
    assert raw.target.names == ("rust", "scab")
    assert labels_by_shade(raw) == {1: [1, 0], 2: [1, 1], 3: [0, 1]}
    assert lines[-1].startswith("1 of 4 files have the same bytes as another one")


def test_links_are_copies_and_a_split_without_folders_is_predicted(classes, tmp_path):
    names = {f"train/{name}": shade for name, shade in REPEATED.items()}
    options = classes({**names, "test/c.png": 9})
    (tmp_path / "classes/train/scab/link.png").symlink_to("../rust/a.png")
    raw = convert.read(dataclasses.replace(options, image_size=(5, 7), channels=1))
    assert labels_by_shade(raw) == {1: [1, 1], 2: [1, 1], 3: [0, 1]}
    assert not raw.splits["test"].has_labels


def test_numbers_with_the_mean_and_the_scale_of_train(table):
    raw = convert.read(table(*NUMBERS, task="regression"))
    assert raw.target.names == ("age", "height")
    assert in_order(raw.splits["train"]) == [[31, 1.5], [7, -20], [40, 0]]
    np.testing.assert_allclose(raw.target.mean, [26, -18.5 / 3])
    np.testing.assert_allclose(raw.target.scale, np.std([[31, 1.5], [7, -20], [40, 0]], axis=0))


def test_probabilities_sum_to_1(table):
    raw = convert.read(table(*FRACTIONS, task="soft_labels"))
    np.testing.assert_allclose(in_order(raw.splits["train"]), [[1 / 3] * 3, [0, 1, 0]])


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ([("f", "a", "b"), ("0", "1", "2")], {}, r"line 2: b is '2', and must be 0 or 1"),
        ([("f", "a", "b"), ("0", "1", "")], {}, r"line 2: no 0 or 1 in column 'b'"),
        ([("f", "a", "b"), ("0", "1", "0")], {}, "no row has the label b"),
        ([("f", "a"), ("0", "x y")], {}, "one 0/1 column per class, or one column and --label_sep"),
        (
            [("f", "a"), ("0", "['x', 'y']")],
            {"label_separator": ","},
            "line 2: .* as a list of",
        ),
        (
            [("f", "a"), ("0", " "), ("1", "")],
            {"label_separator": ","},
            "line 2: no row has",
        ),
        ([("f", "a"), ("0", "x x")], {"label_separator": " "}, "line 2: the label 'x' is repeated"),
        (
            [("f", "a"), ("0", "x y")],
            {"label_separator": " ", "class_names": ("x",)},
            "line 2: unknown label 'y'; the classes are x",
        ),
        ([("f", "a"), ("0", "x"), ("1", "nan")], {"label_separator": " "}, "line 3: .*'nan'"),
        ([("f", "a"), ("0", "nan")], {"task": "regression"}, "line 2: a is 'nan', .* a number"),
        ([("f", "a"), ("0", "1e39")], {"task": "regression"}, "line 2: a is '1e39', .* float32"),
        ([("f", "a", "b"), ("0", ".5", ".4")], {"task": "soft_labels"}, "line 2: .* the sum 1"),
        ([("f", "a", "b"), ("0", "2", "-1")], {"task": "soft_labels"}, "line 2: .* at least 0"),
        ([("f", "a"), ("0", "1")], {"task": "soft_labels"}, "a column of probabilities per class"),
    ],
)
def test_invalid_labels_are_refused(table, rows, options, message):
    with pytest.raises(DataError, match=message):
        convert.read(table(*rows, **{"task": "multilabel", **options}))


def test_one_label_of_several_columns_is_the_default_and_its_error_names_the_others(table):
    with pytest.raises(DataError, match=r"exactly one .* --task=multilabel; .*--task=soft_labels"):
        convert.read(table(*LABELS))


def test_a_held_out_split_gets_its_share_of_rare_labels(table):
    rows = [(str(i), "1", str(int(i % 4 == 0))) for i in range(40)]
    raw = convert.read(table(LABELS[0], *rows, task="multilabel", validation_fraction=0.2))
    assert raw.splits["validation"].targets.sum(axis=0).tolist() == [8, 2]


@pytest.mark.slow(cost=0.1)
def test_shards_have_the_targets_and_a_split_to_predict_has_none(table, tmp_path, session):
    rows = [("f", "part", *LABELS[0][1:]), *((f, "train", *values) for f, *values in LABELS[1:])]
    options = table(*rows, ("3", "test", "", ""), task="multilabel", split_column="part")
    raw = convert.read(options)
    writer.write(raw, str(tmp_path / "data"))
    data = dataset_info.load(str(tmp_path / "data"), "image_csv")
    assert data.target == raw.target
    assert not data.splits["test"].has_labels
    pipeline = ImagePipeline(data)
    assert pipeline.properties["target"] == "multilabel"
    assert pipeline.properties["num_classes"] == 2
    features, labels = next(pipeline.host_examples("train", 3))
    shades = features["image"][:, 0, 0, 0] // 40
    assert labels[np.argsort(shades)].tolist() == [[1, 1], [0, 0], [1, 0]]
    assert "1.00 labels per example, 1 examples" in inspection.inspect(data, "train").lines[-1]
    assert next(iter(pipeline.predict_input_fn("test")({"batch_size": 1}).element_spec)) == "image"


def test_mixed_images_have_mixed_labels(table, tmp_path, session):
    writer.write(convert.read(table(*NUMBERS, task="regression")), str(tmp_path / "data"))
    data = dataset_info.load(str(tmp_path / "data"), "image_csv")
    pipeline = ImagePipeline(data, augmentation=augment.parse("mixup:0.2"))
    batch = pipeline.train_input_fn("train", 1)({"batch_size": 2})
    _, labels = session.run(tf.compat.v1.data.make_one_shot_iterator(batch).get_next())
    assert labels.shape == (2, 2)
    assert labels.min() >= -20
    assert labels.max() <= 40


def test_a_label_that_only_another_split_has_is_told(table, tmp_path):
    rows = ("f", "ills", "part"), ("0", "rust", "train"), ("1", "", "train"), ("2", "scab", "test")
    options = {"task": "multilabel", "label_separator": " ", "split_column": "part"}
    writer.write(convert.read(table(*rows, **options)), str(tmp_path / "data"))
    found = map(str, anomalies.find(dataset_info.read(str(tmp_path / "data"))))
    assert "warning: labels that no example of 'train' has: scab" in found


def test_a_constant_number_is_told(table, tmp_path):
    rows = ("f", "age", "year"), ("0", "31", "7"), ("1", "8", "7")
    writer.write(convert.read(table(*rows, task="regression")), str(tmp_path / "data"))
    found = map(str, anomalies.find(dataset_info.read(str(tmp_path / "data"))))
    assert "warning: equal in all examples of 'train': year (7)" in found
