"""Apache Beam writes the shards that this process writes. `make test-beam` has Beam."""

import os
import random
import signal

import numpy as np
import pytest
from PIL import Image

from input_fns import DataError
from input_fns.convert import beam_runner, finished_shards, source, writer
from tests import clicks_data, marks

runner = pytest.importorskip(
    "apache_beam.runners.runner", reason="needs Apache Beam: make test-beam"
)

# A job service in this process, which gets the pipeline as those of Flink and Spark do.
PORTABLE = "--runner=PortableRunner --job_endpoint=embed --environment_type=LOOPBACK"
PROCESSES = "--runner=DirectRunner --direct_num_workers=2 --direct_running_mode=multi_processing"
# Of the package beam-pyspark-runner: Spark in this process, which starts Python workers.
SPARK = "--runner=beam_pyspark_runner.pyspark_runner.PySparkRunner --environment_type=LOOPBACK"


def write_images(folder):
    for number in range(7):
        path = folder / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(np.full([7, 13, 3], number, np.uint8)).save(path)
    (folder / "b" / "broken.png").write_text("no image")
    return ["--dataset=image_folder"]


def write_texts(folder):
    choose = random.Random(0).choice
    words = [" ".join(choose(["good", "bad", "film", "dog"]) for _ in range(9)) for _ in range(11)]
    rows = [f"{text}\t{i % 3}" for i, text in enumerate(words)]
    (folder / "train.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")
    return [
        "--dataset=text_files",
        "--text_columns=text",
        "--label_columns=label",
        "--vocab_size=512",
    ]


def write_clicks(folder):
    (folder / "train.txt").write_text("\n".join(clicks_data.lines(31)) + "\n")
    return ["--dataset=criteo", "--hash_rows=5"]


def contents(folder):
    """`{name: content}` of the files of a folder."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize(
    ("write", "options"),
    [
        (write_images, "--runner=DirectRunner"),
        marks.slow(write_images, PORTABLE),
        marks.slow(write_images, PROCESSES),
        marks.slow(write_texts, PROCESSES),
        marks.slow(write_clicks, PROCESSES),
        marks.slow(write_clicks, SPARK),
    ],
)
def test_beam_writes_what_one_process_writes(prepare, tmp_path, monkeypatch, write, options):
    if options == SPARK:
        pytest.importorskip("beam_pyspark_runner", reason="needs beam-pyspark-runner")
    monkeypatch.chdir(tmp_path)  # the workers import this package from elsewhere
    (tmp_path / "raw").mkdir()
    arguments = [
        "--source=raw",
        "--shards=3",
        "--validation_fraction=0.3",
        *write(tmp_path / "raw"),
    ]
    prepare(*arguments, "--data_dir=process")
    prepare(*arguments, "--data_dir=beam", "--runner=beam", f"--beam_options={options}")
    assert contents(tmp_path / "process") == contents(tmp_path / "beam")


class Failing(source.RawArrays):
    """A split whose reader fails."""

    error = OSError(28, "No space left on device")

    def read(self, i):
        """Raises an error in the second half."""
        if i:
            raise self.error
        return super().read(i)


class Killer(source.RawArrays):
    """A split whose reader is killed."""

    def read(self, i):
        """Ends the process, as the kernel does without memory."""
        if i:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().read(i)


class Invalid(Failing):
    """A split whose data is invalid."""

    error = DataError("row 5 is invalid")


@pytest.mark.parametrize(
    ("split", "options", "message"),
    [
        (
            Failing,
            "",
            r"the Beam pipeline failed on \w+DirectRunner: .*No space left on device.*again",
        ),
        (Invalid, "", "^row 5 is invalid"),
        marks.slow(Failing, PROCESSES, "the Beam pipeline failed on .*No space left on device"),
        marks.slow(Killer, PROCESSES, "exited with return code 137, perhaps out of memory"),
    ],
)
def test_a_failed_worker_is_one_error_and_leaves_nothing(tmp_path, split, options, message):
    split = split(np.zeros([6, 3, 2, 1], np.uint8), np.zeros(6, np.int64))
    raw = source.RawDataset("numbers", ("a", "b"), {"train": split})
    beam = beam_runner.Beam(options, str(tmp_path))
    with beam, pytest.raises(DataError, match=message) as error:
        writer.write(raw, str(tmp_path), 3, runner=beam)
    assert "\n" not in str(error.value)
    assert os.listdir(tmp_path) == []


def test_shards_that_were_finished_before_a_failure_are_used(tmp_path, monkeypatch):
    images, labels = np.arange(36, dtype=np.uint8).reshape([6, 3, 2, 1]), np.zeros(6, np.int64)
    raw = source.RawDataset("numbers", ("a",), {"train": source.RawArrays(images, labels)})
    lines, save = [], finished_shards.save

    def save_and_fail_at_0(task, *arguments):
        save(task, *arguments)
        return 1 / task.begin

    monkeypatch.setattr(finished_shards, "save", save_and_fail_at_0)
    beam = beam_runner.Beam("", str(tmp_path))
    with beam, pytest.raises(DataError, match="Run the same command"):
        writer.write(raw, str(tmp_path), 3, lines.append, runner=beam)
    monkeypatch.undo()
    finished = len(os.listdir(tmp_path)) // 2  # with their manifests
    assert lines == [f"{finished} finished shards are kept for the same command"]
    assert 1 <= finished <= 3
    with beam_runner.Beam("", str(tmp_path)) as runner:
        writer.write(raw, str(tmp_path), 3, lines.append, runner=runner)
    assert "of an earlier run" in lines[1]
    assert lines[1].startswith("train: shard 3/3, 6/6 examples")
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json", *[".tfrecord"] * 3]


def has_extras(monkeypatch):
    """Makes Beam accept DataflowRunner without its extra gcp."""
    create = runner.create_runner
    dataflow = type("DataflowRunner", (), {})
    monkeypatch.setattr(
        runner, "create_runner", lambda name: dataflow() if "Data" in name else create(name)
    )


@pytest.mark.parametrize(
    ("options", "is_local"),
    [
        ("", True),
        ("--runner=direct", True),
        ("--runner=FlinkRunner", True),
        ("--runner=FlinkRunner --environment_type=DOCKER", False),
        ("--runner=FlinkRunner --flink_master=localhost:8081", False),
        ("--runner=FlinkRunner --flink_master=host:8081 --environment_type=LOOPBACK", True),
        ("--runner=SparkRunner", True),
        ("--runner=SparkRunner --spark_master_url=spark://host:7077", False),
        ("--runner=PortableRunner --job_endpoint=host:8099", False),
        ("--runner=DataflowRunner --project=p", False),
    ],
)
def test_workers_elsewhere_need_paths_that_they_see(tmp_path, monkeypatch, options, is_local):
    has_extras(monkeypatch)
    beam = beam_runner.Beam(options, "data")
    beam.require_visible(data_dir="gs://bucket/data", source="")
    if is_local:
        beam.require_visible(data_dir=str(tmp_path), source="raw")
        return
    with pytest.raises(DataError, match=r"^--source=raw is on this machine, where the w"):
        beam.require_visible(data_dir="gs://bucket/data", source="raw")


def test_a_network_file_system_is_seen_except_on_dataflow(tmp_path, monkeypatch):
    has_extras(monkeypatch)
    with open("/proc/self/mounts") as file:
        kinds = {line.split()[2] for line in file}
    monkeypatch.setattr(beam_runner, "_NETWORK_FILE_SYSTEMS", kinds)
    flink = beam_runner.Beam("--runner=FlinkRunner --flink_master=host:8081", "data")
    flink.require_visible(data_dir=str(tmp_path / "new"))
    with pytest.raises(DataError, match="the workers of DataflowRunner do not run"):
        beam_runner.Beam("--runner=DataflowRunner", "").require_visible(data_dir=str(tmp_path))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--direct_num_workers=x", r"^--beam_options: .*direct_num_workers.*'x'$"),
        (
            "--runner=NoRunner",
            "^--beam_options: --runner=NoRunner: .*Valid values are.*DirectRunner",
        ),
    ],
)
def test_an_invalid_option_of_beam_is_one_line(capfd, options, message):
    with pytest.raises(DataError, match=message):
        beam_runner.Beam(options, "data")
    assert "usage" not in capfd.readouterr().err
