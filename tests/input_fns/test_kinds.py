"""Kinds of data: one class and one line of the registry are all that a new one needs."""

import dataclasses
import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from input_fns import DataError, anomalies, dataset_info, kinds
from input_fns.convert import writer
from input_fns.convert.source import RawDataset, Row, content_name
from input_fns.core import inspection
from input_fns.core.synthetic import SyntheticPipeline
from input_fns.dataset_info import Feature
from input_fns.image.kind import Images
from tests.input_fns.series_kind import Series

FEATURES = {"window": Feature("raw", "float32", (3, 2)), "target": Feature("raw", "float32", ())}
CALIBRATION = content_name("calibration.txt", b"1.5\n2.5\n")


@dataclasses.dataclass(frozen=True)
class Windows:
    """A split of a source: windows of a rising and of a constant sensor."""

    size: int
    labels = groups = None
    num_bytes = 100

    def __len__(self):
        return self.size

    def __iter__(self):
        for i in range(self.size):
            window = np.stack([np.arange(i, i + 3), np.ones(3)], axis=1).astype("<f4")
            values = {"window": window.tobytes(), "target": np.float32(i + 3).tobytes()}
            yield Row(values, FEATURES)


@pytest.fixture
def series_dir(tmp_path, monkeypatch):
    """A data set of a kind that a test registers."""
    monkeypatch.setitem(kinds.KINDS, "sensor_windows", "tests.input_fns.series_kind:Series")
    write(tmp_path / "data", b"1.5\n2.5\n")
    return str(tmp_path / "data")


def write(folder, calibration):
    name = content_name("calibration.txt", calibration)
    raw = RawDataset(
        "turbine",
        (),
        {"train": Windows(13), "test": Windows(5)},
        files={name: calibration},
        labels=("target",),
        kind=Series(50, ("speed", "broken"), name),
    )
    writer.write(raw, str(folder))


def change(data_dir, **fields):
    path = pathlib.Path(data_dir, "dataset.json")
    content = json.loads(path.read_text())
    content["sensor_windows"].update(fields)
    path.write_text(json.dumps(content))


def test_a_new_kind_is_written_and_read(series_dir):
    data = dataset_info.load(series_dir, "turbine")
    assert data.kind == Series(50, ("speed", "broken"), CALIBRATION)
    assert data.kind.describe(data) == "2 sensors at 50 Hz"
    text = pathlib.Path(series_dir, "dataset.json").read_text()
    assert dataset_info.to_json(data) == text
    assert json.loads(text)["sensor_windows"]["hertz"] == 50


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"hertz": 0}, r"sensor_windows\.hertz is 0, and must be an integer from 1 to 1000"),
        ({"sensors": ["a", 1]}, r"sensor_windows\.sensors\[1\] is 1, and must be a line of text"),
        ({"calibration": "../x"}, r"sensor_windows\.calibration is .* a plain file name"),
        ({"sensors": ["a"]}, r"features\.window has another width"),
    ],
)
def test_its_fields_are_checked(series_dir, fields, problem):
    change(series_dir, **fields)
    with pytest.raises(DataError, match=problem):
        dataset_info.read(series_dir)


def test_its_old_files_are_removed_when_it_is_written_again(series_dir):
    write(series_dir, b"7\n8\n")
    names = sorted(path.name for path in pathlib.Path(series_dir).glob("calibration*"))
    assert names == [content_name("calibration.txt", b"7\n8\n")]


def test_it_feeds_a_model(series_dir):
    data = dataset_info.read(series_dir)
    pipeline = data.kind.pipeline(data, kinds.PipelineOptions())
    ((features, labels),) = pipeline.host_examples("test", 5)
    np.testing.assert_array_equal(features["window"][4, :, 0], [4, 5, 6])
    np.testing.assert_array_equal(labels["target"], [3, 4, 5, 6, 7])
    assert pipeline.properties == {"hertz": 50}


def test_it_is_inspected(series_dir):
    data = dataset_info.read(series_dir)
    assert list(inspection.file_problems(data, ["train"])) == []
    assert inspection.inspect(data, "train").problems == []
    found = [anomaly.text for anomaly in anomalies.find(data)]
    assert found == [f"the sensor broken of '{name}' never changes" for name in data.splits]
    longer = dataclasses.replace(data, kind=Series(50, ("a", "b", "c"), CALIBRATION))
    (problem,) = inspection.file_problems(longer, ["train"])
    assert problem == f"{series_dir}/{CALIBRATION} has 2 lines for 3 sensors"


def test_its_synthetic_examples_are_shaped_as_the_real_ones(series_dir):
    data = dataset_info.read(series_dir)
    real = data.kind.pipeline(data, kinds.PipelineOptions())
    for pipeline in (SyntheticPipeline(real), SyntheticPipeline(made())):
        params = {"batch_size": 4}
        expected = real.train_input_fn("train", 1)(params).element_spec
        assert pipeline.train_input_fn("train", 1)(params).element_spec == expected


def made():
    data = Series.synthetic(kinds.SyntheticShapes())
    return data.kind.pipeline(data, kinds.PipelineOptions())


def test_data_without_fields_of_a_kind_are_images_or_records():
    def kind(features, class_names, labels=()):
        named = dict.fromkeys(features, Feature("raw", "uint8", (3, 3, 1)))
        return dataset_info.DatasetInfo("x", "", named, class_names, {}, labels=labels).kind

    assert kind(["image"], ("a", "b")) == Images()
    assert kind(["image"], ()) == kinds.Kind()
    assert kind(["image", "age"], ("a", "b")) == kinds.Kind()
    assert kind(["image"], ("a", "b"), ("image",)) == kinds.Kind()


def test_no_kind_imports_tensorflow():
    """A start that only reads dataset.json stays fast, and one kind needs no other's packages."""
    names = [*kinds.KINDS]
    code = f"from input_fns import kinds; [kinds.find(n) for n in {names}]; import sys; "
    code += "import input_fns.image.kind; print({'tensorflow', 'sentencepiece'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
