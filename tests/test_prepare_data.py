"""prepare_data.py through its real main."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
from absl import flags
from PIL import Image

import prepare_data
from common import locks
from common.errors import UsageError
from engine.cli import startup
from input_fns import DataError
from input_fns.convert import flags as convert_flags


def mtimes(folder):
    return {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}


def test_digits_need_no_source(prepare, tmp_path, capsys):
    prepare("--dataset=digits", f"--data_dir={tmp_path}")
    with open(tmp_path / "dataset.json") as file:
        fields = json.load(file)
    assert fields["splits"]["train"]["num_examples"] == 1438
    assert "digits, 10 classes; train 1438 examples in 1 shard" in capsys.readouterr().out


def test_a_data_set_that_is_ready_is_left_alone(prepare, tmp_path, capsys):
    prepare("--dataset=digits", f"--data_dir={tmp_path}")
    before = mtimes(tmp_path)
    prepare("--dataset=digits", f"--data_dir={tmp_path}")
    assert "is ready: digits" in capsys.readouterr().out
    assert mtimes(tmp_path) == before


def test_a_data_set_that_was_prepared_otherwise_is_named_and_left_alone(prepare, tmp_path):
    digits = ["--dataset=digits", f"--data_dir={tmp_path}"]
    prepare(*digits, "--validation_fraction=0.1")
    before = mtimes(tmp_path)
    message = r"validation_fraction was 0.1, is not given; seed was not given, is 7\. Replace it"
    with pytest.raises(DataError, match=message):
        prepare(*digits, "--seed=7")
    assert mtimes(tmp_path) == before
    prepare(*digits, "--seed=7", "--overwrite")
    prepare(*digits, "--seed=7")


def test_other_rows_in_a_csv_file_are_noticed(prepare, tmp_path):
    for name in ("a", "b", "c"):
        Image.new("RGB", (3, 3)).save(tmp_path / f"{name}.png")
    table = tmp_path / "labels.csv"
    table.write_text("file,label\na,one\nb,two\n")
    arguments = [f"--source={tmp_path}", f"--csv={table}", f"--data_dir={tmp_path}/data"]
    arguments += ["--dataset=image_csv", "--validation_fraction=0"]
    prepare(*arguments)
    prepare(*arguments, "--workers=1")
    table.write_text("file,label\na,one\nb,two\nc,two\n")
    with pytest.raises(DataError, match="prepared with other options: content of csv was"):
        prepare(*arguments)
    table.unlink()
    prepare(*arguments)


def test_a_data_set_that_does_not_say_how_it_was_prepared_is_ready(prepare, tmp_path, capsys):
    prepare("--dataset=digits", f"--data_dir={tmp_path}")
    fields = json.loads((tmp_path / "dataset.json").read_text())
    del fields["prepared_with"]
    (tmp_path / "dataset.json").write_text(json.dumps(fields))
    prepare("--dataset=digits", f"--data_dir={tmp_path}", "--seed=7")
    assert "is ready: digits" in capsys.readouterr().out


def test_overwrite_writes_it_anew(prepare, tmp_path):
    prepare("--dataset=digits", f"--data_dir={tmp_path}")
    prepare("--dataset=digits", f"--data_dir={tmp_path}", "--overwrite", "--shards=2")
    shards = sorted(name for name in os.listdir(tmp_path) if name.startswith("train"))
    assert [name[:20] for name in shards] == ["train-00000-of-00002", "train-00001-of-00002"]


@pytest.mark.parametrize("overwrite", ["--overwrite", "--nooverwrite"])
def test_the_folder_of_another_data_set_is_not_touched(prepare, own_data_dir, overwrite):
    before = sorted(os.listdir(own_data_dir))
    with pytest.raises(DataError, match=r"holds .*'stripes'"):
        prepare("--dataset=digits", f"--data_dir={own_data_dir}", overwrite)
    assert sorted(os.listdir(own_data_dir)) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--dataset=digts", "--data_dir=d"], "'digts' is unknown. Did you mean 'digits'?"),
        (["--dataset=digits"], "--data_dir must have a value"),
        (["--data_dir=d"], "--dataset is missing: name what"),
        (["--mode=inspct", "--data_dir=d"], "'inspct' is unknown. Did you mean 'inspect'?"),
        (["--dataset=mnist", "--data_dir=d"], "--dataset=mnist needs --source"),
        (["--dataset=image_csv", "--data_dir=d", "--source=s"], "--dataset=image_csv needs --csv"),
        (["--dataset=tfds", "--data_dir=d"], "'tfds' is unknown. Did you mean"),
        (
            ["--dataset=digits", "--data_dir=d", "--csv=labels.csv"],
            "--csv is not valid for --dataset=digits, only for image_csv",
        ),
        (
            ["--dataset=image_folder", "--source=s", "--data_dir=d", "--class_names=a,b,a"],
            "the class name 'a' occurs more than once",
        ),
        (
            ["--dataset=parallel_text", "--source=s", "--data_dir=d", "--languages=en,en"],
            "a value of the list is empty or repeated",
        ),
        (
            ["--dataset=text_files", "--source=s", "--data_dir=d", "--label_columns=l"],
            "--dataset=text_files needs --text_columns",
        ),
        (
            ["--dataset=sst2", "--source=s", "--data_dir=d", "--task=regression"],
            "--task is not valid for --dataset=sst2, only for image_folder, image_csv, coco, voc, ",
        ),
        (
            ["--dataset=pretraining_text", "--source=s", "--data_dir=d", "--masked_lm_prob=2"],
            "2.0 is not a",
        ),
        (["--dataset=digits", "--data_dir=d", "--channels=2"], "it must be 1 or 3"),
        (["--dataset=digits", "--data_dir=d", "--pixel_range=9,1"], "it must be LOW,HIGH"),
        (["--dataset=digits", "--data_dir=d", "--encoding=latin-99"], "'latin-99' is not an encod"),
        (["--dataset=digits", "--data_dir=d", "--delimiter=::"], "it must be one character, or"),
        (["--dataset=digits", "--data_dir=d", "--image_size=3x"], "must be SIZE or HEIGHTx"),
        (["--dataset=digits", "--data_dir=d", "--shards=-1"], "-1 is not a non-negative integer"),
    ],
)
def test_a_wrong_flag_is_one_line_and_status_2(arguments, message, capsys):
    convert_flags.FLAGS.unparse_flags()
    with pytest.raises(SystemExit) as end:
        startup.start(["prepare_data.py", *arguments], "", "input_fns.convert.flags")
    assert end.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize("function", ["inspection.inspect", "anomalies.find"])
def test_a_data_set_that_is_replaced_while_it_is_inspected(
    prepare, own_data_dir, monkeypatch, function
):
    module, name = function.split(".")
    module = getattr(prepare_data, module)
    run = getattr(module, name)

    def replace(*arguments):
        for path in pathlib.Path(own_data_dir).glob("*.tfrecord"):
            path.unlink()
        text = pathlib.Path(own_data_dir, "dataset.json").read_text()
        pathlib.Path(own_data_dir, "dataset.json").write_text(text.replace("stripe 0", "other"))
        return run(*arguments)

    monkeypatch.setattr(module, name, replace)
    with pytest.raises(DataError, match="was replaced while it was inspected"):
        prepare("--mode=inspect", f"--data_dir={own_data_dir}")


COCO = ["--dataset=coco", "--source=s"]
TEXTS = ["--dataset=text_files", "--source=s", "--text_columns=t"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--mode=inspect", "--dataset=digits"], "--dataset has no effect with --mode=inspect"),
        (["--mode=inspect", "--overwrite"], "--overwrite has no effect with --mode=inspect"),
        (["--mode=inspect", "--seed=0"], "--seed has no effect with --mode=inspect"),
        (["--dataset=digits", "--contact_sheet=a.png"], "--contact_sheet has no effect with"),
        (["--mode=inspect", "--runner=beam"], "--runner has no effect with --mode=inspect"),
        (["--dataset=digits", "--beam_options=--x"], "--beam_options has no effect without --run"),
        (["--dataset=digits", "--runner=beam", "--workers=2"], "--workers has no effect with --ru"),
        ([*TEXTS, "--vocabulary=v", "--vocab_size=512"], "--vocab_size has no effect with --voc"),
        ([*TEXTS, "--split_column=s", "--split_files=train=a.csv"], "--split_files has no effect"),
        ([*TEXTS, "--task=regression", "--class_names=a,b"], "--class_names has no effect"),
        (
            [*COCO, "--task=segmentation", "--max_boxes=9"],
            "--max_boxes has no effect with --task=s",
        ),
        (["--dataset=voc", "--source=s", "--ignored=9"], "only with --task=segmentation"),
        (
            ["--dataset=voc", "--source=s", "--task=segmentation", "--box_origin=0"],
            "--box_origin has no effect with --task=segmentation, only with --task=detection",
        ),
    ],
)
def test_a_flag_without_effect_is_refused(arguments, message):
    convert_flags.FLAGS.unparse_flags()
    with pytest.raises(flags.IllegalFlagValueError, match=message) as error:
        convert_flags.FLAGS(["prepare_data.py", "--data_dir=d", *arguments])
    assert "Remove it" in str(error.value) or "writes it" in str(error.value)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (b"film\tugly", r"dev\.tsv, line 2: unknown label 'ugly'; the 2 classes are bad, good"),
        (b"film", r"dev\.tsv, line 2: 1 values instead of 2: text, label"),
        (b"\tgood", r"dev\.tsv, line 2: no text in column 'text'"),
        (b"f\xfflm\tgood", r"dev\.tsv, line 2, byte 12: no UTF-8"),
    ],
)
def test_nothing_is_written_of_text_with_a_bad_row(prepare, tmp_path, row, message):
    (tmp_path / "train.tsv").write_text("text\tlabel\ndog\tgood\nfilm\tbad\n")
    (tmp_path / "dev.tsv").write_bytes(b"text\tlabel\n" + row + b"\n")
    source = [f"--source={tmp_path}", "--text_columns=text", "--label_columns=label"]
    with pytest.raises(DataError, match=message) as found:
        prepare("--dataset=text_files", *source, f"--data_dir={tmp_path}/data")
    assert "\n" not in str(found.value)
    assert not (tmp_path / "data").exists()


def test_a_text_of_100000_characters_is_truncated(prepare, tmp_path, capsys):
    lines = ["text\tlabel", "dog " * 25_000 + "\tgood", "d" * 100_000 + "\tbad", "film\tbad"]
    (tmp_path / "train.tsv").write_text("\n".join(lines))
    source = [f"--source={tmp_path}", "--text_columns=text", "--label_columns=label"]
    options = ["--validation_fraction=0", "--vocab_size=512", f"--data_dir={tmp_path}/data"]
    prepare("--dataset=text_files", *source, *options)
    assert "train: 3 texts, 134 tokens, in 3 rows of 128, 35% full, 1 truncated" in (
        capsys.readouterr().out
    )


def test_a_data_dir_that_cannot_be_written(prepare):
    with pytest.raises(UsageError, match="--data_dir=/dev/null/d cannot be written"):
        prepare("--dataset=digits", "--data_dir=/dev/null/d")


@pytest.mark.slow(cost=0.1)
def test_inspect_reads_every_record_and_draws_a_contact_sheet(prepare, own_data_dir, capsys):
    prepare("--mode=inspect", f"--data_dir={own_data_dir}")
    out = capsys.readouterr().out.splitlines()
    assert out[0].endswith(
        "stripes, 3 classes; train 97 examples in 3 shards, test 41 examples in 3 shards"
    )
    assert out[1] == "image: uint8 7x5x1, raw"
    assert out[-2:] == [
        f"images of each class: {own_data_dir}/contact_sheet.png",
        "no problem found",
    ]
    assert os.path.getsize(f"{own_data_dir}/contact_sheet.png") > 1000


@pytest.mark.slow(cost=0.1)
def test_inspect_of_a_broken_data_set_ends_with_status_1(prepare, own_data_dir, capsys):
    name = "test-00001-of-00003-d9160a07.tfrecord"
    with open(os.path.join(own_data_dir, name), "r+b") as file:
        file.seek(60)
        file.write(b"?")
    with pytest.raises(SystemExit) as end:
        prepare("--mode=inspect", f"--data_dir={own_data_dir}")
    assert end.value.code == 1
    problem = f"problem: {name}, record 0 at byte 0: corrupted record"
    assert capsys.readouterr().out.splitlines()[-1] == problem


def test_images_that_are_left_out_are_told(prepare, tmp_path, capsys):
    for name, color in (("a", "red"), ("b", "blue")):
        (tmp_path / "raw" / name).mkdir(parents=True)
        for i in range(3):
            Image.new("RGB", (4, 5), color).save(tmp_path / "raw" / name / f"{i}.png")
    (tmp_path / "raw" / "a" / "bad.jpg").write_bytes(b"<html>")
    flags = ["--dataset=image_folder", "--name=colours", "--validation_fraction=0"]
    prepare(*flags, f"--source={tmp_path}/raw", f"--data_dir={tmp_path}/data")
    out = capsys.readouterr().out.splitlines()
    assert out[-3:] == [
        f"train: skipped {tmp_path}/raw/a/bad.jpg: it is not an image",
        "train: 1 skipped, listed in dataset.json",
        f"{tmp_path}/data: colours, 2 classes; train 6 examples in 1 shard",
    ]


def test_files_that_are_left_out_are_counted_and_kept_in_dataset_json(prepare, tmp_path, capsys):
    for name in ("cat/1.png", "dog/2.png"):
        (tmp_path / "photos" / name).parent.mkdir(parents=True)
        Image.linear_gradient("L").resize((9, 7)).save(tmp_path / "photos" / name)
    for name in ("cat/IMG_1.HEIC", "cat/notes", "dog/.DS_Store", "old/1.png"):
        (tmp_path / "photos" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "photos" / name).write_text("")
    data_dir = f"--data_dir={tmp_path / 'data'}"
    flags = ("--dataset=image_folder", "--validation_fraction=0", "--skip=old")
    prepare(*flags, f"--source={tmp_path / 'photos'}", data_dir)
    printed = capsys.readouterr().out
    prepare("--mode=inspect", data_dir)
    for output in (printed, capsys.readouterr().out):
        lines = [line for line in output.splitlines() if line.startswith("left out")]
        assert [line.rpartition(" ")[2] for line in lines] == [
            "cat/IMG_1.HEIC",
            "cat/notes",
            "dog/.DS_Store",
            "old/1.png",
        ]


def test_data_that_teaches_nothing_leaves_the_old_data_set(prepare, tmp_path):
    table = tmp_path / "labels.csv"
    for name in ("a", "b", "c"):
        Image.linear_gradient("L").resize((9, 7)).save(tmp_path / f"{name}.png")
    flags = [f"--source={tmp_path}", f"--csv={table}", f"--data_dir={tmp_path / 'data'}"]
    flags += ["--dataset=image_csv", "--validation_fraction=0", "--split_column=split"]
    table.write_text("file,label,split\na,one,train\nb,two,train\nc,two,test\n")
    prepare(*flags)
    before = mtimes(tmp_path / "data")
    table.write_text("file,label,split\na,one,test\nb,two,train\nc,two,train\n")
    with pytest.raises(DataError, match="all examples of 'train' have the class 'two'"):
        prepare(*flags, "--overwrite")
    assert mtimes(tmp_path / "data") == before


def test_two_processes_do_not_write_at_once(prepare, tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "_WAIT_SECONDS", 0)
    lock = locks.acquire(str(tmp_path), "data_dir", "prepare_data.py")
    with pytest.raises(UsageError, match=f"--data_dir={tmp_path} is in use by process"):
        prepare("--dataset=digits", f"--data_dir={tmp_path}")
    lock.release()
    assert os.listdir(tmp_path) == []
    prepare("--dataset=digits", f"--data_dir={tmp_path}")
    assert not (tmp_path / ".lock").exists()


def test_the_slower_of_two_processes_finds_the_data_set_ready(
    prepare, tmp_path, capsys, monkeypatch
):
    acquire = locks.acquire

    def acquire_later(*args):
        monkeypatch.setattr(locks, "acquire", acquire)
        prepare("--dataset=digits", f"--data_dir={tmp_path}")
        return acquire(*args)

    monkeypatch.setattr(locks, "acquire", acquire_later)
    prepare("--dataset=digits", f"--data_dir={tmp_path}")
    out = capsys.readouterr().out.splitlines()
    assert "train: shard 1/1" in out[0]
    assert "is ready: digits" in out[-1]


@pytest.mark.slow
def test_a_locale_of_ascii(tmp_path):
    for name in ("é", "日本"):
        (tmp_path / "raw" / name).mkdir(parents=True)
        for i in range(3):
            Image.new("RGB", (4, 5), "red").save(tmp_path / "raw" / name / f"ü{i}.png")
    ascii_locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    data_dir = tmp_path / "dätä"
    done = subprocess.run(
        [
            *(sys.executable, "prepare_data.py", "--dataset=image_folder"),
            *("--validation_fraction=0", f"--source={tmp_path}/raw", f"--data_dir={data_dir}"),
        ],
        env={**os.environ, **ascii_locale},
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr
    fields = json.loads((data_dir / "dataset.json").read_text(encoding="utf-8"))
    assert fields["class_names"] == ["é", "日本"]


def test_a_contact_sheet_that_cannot_be_written(prepare, own_data_dir):
    with pytest.raises(UsageError, match="--contact_sheet=/dev/null/x cannot be written"):
        prepare("--mode=inspect", f"--data_dir={own_data_dir}", "--contact_sheet=/dev/null/x/y.png")


def test_a_folder_that_another_process_removed_is_created_again(prepare, tmp_path, monkeypatch):
    """That process created it, wrote nothing and removed it before this one had its lock."""
    acquire, data_dir = locks.acquire, tmp_path / "new"

    def acquire_after_removal(*arguments):
        monkeypatch.setattr(locks, "acquire", acquire)
        data_dir.rmdir()
        return acquire(*arguments)

    monkeypatch.setattr(locks, "acquire", acquire_after_removal)
    prepare("--dataset=digits", f"--data_dir={data_dir}")
    assert (data_dir / "dataset.json").exists()
