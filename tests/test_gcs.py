"""gs:// folders: TensorFlow's file system against a storage server on loopback."""

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("cryptography", reason="the loopback storage needs cryptography")
pytest.importorskip("gcp_storage_emulator", reason="gcp-storage-emulator needs Python 3.10")

from tools import gcs_server as loopback

BUCKET = "bucket"


# Runs programs one after another in one process: TensorFlow is imported once.
RUN_ALL = """
import json, runpy, sys
for arguments in json.loads(sys.argv[1]):
    sys.argv = arguments
    runpy.run_path(arguments[0], run_name="__main__")
"""


@pytest.fixture(scope="module")
def storage(tmp_path_factory):
    """An empty gs://bucket."""
    with loopback.serve(str(tmp_path_factory.mktemp("gcs")), BUCKET) as gcs:
        yield gcs


@pytest.fixture(scope="module")
def run(storage):
    """Runs a program with gs:// on the loopback: `run("run_cpu.py", "--mode=eval")`."""

    def run_program(*command):
        environment = {**os.environ, **storage.environment, "TF_CPP_MIN_LOG_LEVEL": "3"}
        command = [sys.executable, *command]
        return subprocess.run(command, env=environment, capture_output=True, text=True)

    return run_program


@pytest.fixture(scope="module")
def trained(storage, run, raw_dataset, tmp_path_factory):
    """Flags of a model trained to step 20, with all folders on gs://."""
    photos = tmp_path_factory.mktemp("photos")
    write_photos(photos, raw_dataset)
    prepare = [
        "prepare_data.py",
        "--dataset=image_folder",
        "--name=stripes",
        f"--source={photos}",
        "--data_dir=gs://bucket/data",
        "--channels=1",
        "--image_size=7x5",
        "--shards=2",
        "--workers=1",
    ]
    flags = [
        "--model=mlp",
        "--dataset=stripes",
        "--data_dir=gs://bucket/data",
        "--model_dir=gs://bucket/model",
        "--params=learning_rate=0.01,pixel_scale=0.01",
        "--train_batch_size=13",
        "--eval_batch_size=13",
        "--save_checkpoints_steps=10",
        "--best_metric=accuracy",
        "--noexport_check",
        "--seed=1",
    ]
    train = ["run_cpu.py", *flags, "--train_steps=20", "--export_dir=gs://bucket/export"]
    done = run("-c", RUN_ALL, json.dumps([prepare, train]))
    assert done.returncode == 0, done.stderr
    return flags


def write_photos(folder, raw):
    """Writes a raw data set as folders of PNGs."""
    from PIL import Image

    for split, arrays in raw.splits.items():
        for i, (image, label) in enumerate(zip(arrays.images, arrays.labels)):
            path = folder / split / f"stripe {label}" / f"{i:03d}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image[..., 0]).save(path)


def result(storage, step):
    return json.loads(storage.read(BUCKET, f"model/result_{step}.json"))


@pytest.mark.slow(cost=0.1)
def test_all_files_are_on_gs(trained, storage):
    names = storage.names(BUCKET)
    assert [name for name in names if name.startswith("data/train-00001-of-00002-")]
    for name in (
        "data/dataset.json",
        "model/checkpoint",
        "model/model.ckpt-20.index",
        "model/best/checkpoint",
        "model/flags.cfg",
    ):
        assert name in names
    assert [name for name in names if "/saved_model.pb" in name and name.startswith("export/")]
    assert not [name for name in names if "partial" in name or "temp-" in name]
    assert result(storage, 20)["eval"]["examples"] == 41


@pytest.mark.slow
def test_training_resumes(trained, storage, run):
    done = run("run_cpu.py", *trained, "--mode=train", "--train_steps=30")
    assert done.returncode == 0, done.stderr
    assert "trained steps 20 to 30" in done.stdout

    # From the newest valid checkpoint, if the latest is truncated.
    name = "model/model.ckpt-30.index"
    storage.write(BUCKET, name, storage.read(BUCKET, name)[:20])
    done = run("run_cpu.py", *trained, "--mode=train", "--train_steps=40")
    assert done.returncode == 0, done.stderr
    assert "resuming from gs://bucket/model/model.ckpt-20" in done.stdout
    assert {"model/broken/model.ckpt-30.index", "model/model.ckpt-40.index"} <= set(
        storage.names(BUCKET)
    )


@pytest.mark.slow
def test_run_tpu_reads_and_writes_gs(trained, storage, run):
    on_tpu = [*trained, "--tpu=emulator", "--tpu_topology=1x2", "--model_dir=gs://bucket/tpu"]
    batches = ["--train_batch_size=14", "--eval_batch_size=14", "--train_steps=10"]
    done = run("run_tpu.py", *on_tpu, *batches)
    assert done.returncode == 0, done.stderr
    assert "tpu/model.ckpt-10.index" in storage.names(BUCKET)


@pytest.mark.slow
def test_images_are_read_from_gs(storage, run, raw_dataset, tmp_path):
    write_photos(tmp_path, raw_dataset)
    upload = "import sys, tensorflow as tf\nfor a, b in zip(sys.argv[1::2], sys.argv[2::2]):\n"
    upload += "    tf.io.gfile.makedirs(b.rsplit('/', 1)[0])\n    tf.io.gfile.copy(a, b)\n"
    pairs = []
    for path in sorted(tmp_path.glob("test/*/00*.png")):
        pairs += [str(path), f"gs://bucket/photos/{path.parent.name}/{path.name}"]
    environment = {**os.environ, **storage.environment}
    subprocess.run([sys.executable, "-c", upload, *pairs], env=environment, check=True)
    done = run(
        "prepare_data.py",
        "--dataset=image_folder",
        "--source=gs://bucket/photos",
        "--data_dir=gs://bucket/from_gs",
        "--validation_fraction=0",
    )
    assert done.returncode == 0, done.stderr
    assert "train 10 examples" in done.stdout
    assert "left out" not in done.stdout
    done = run("prepare_data.py", "--mode=inspect", "--data_dir=gs://bucket/from_gs")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no problem found" in done.stdout
    assert "from_gs/contact_sheet.png" in storage.names(BUCKET)


@pytest.mark.slow
def test_inspect_finds_a_flipped_byte(trained, storage, run):
    (name,) = [n for n in storage.names(BUCKET) if n.startswith("data/test-00001-of-00002-")]
    whole = storage.read(BUCKET, name)
    broken = bytearray(whole)
    broken[200] ^= 1
    storage.write(BUCKET, name, bytes(broken))
    try:
        done = run("prepare_data.py", "--mode=inspect", "--data_dir=gs://bucket/data")
    finally:
        storage.write(BUCKET, name, whole)
    assert done.returncode == 1
    assert f"problem: {os.path.basename(name)}, record 1 at byte 119" in done.stdout


@pytest.mark.slow
def test_transient_errors_are_retried(trained, storage, run):
    for status in (429, 500, 503):
        storage.fail(1, status, "test-00000")
        storage.fail(1, status, "POST /upload")
    done = run("run_cpu.py", *trained, "--mode=eval")
    assert done.returncode == 0, done.stderr
    assert storage.num_faults_left == 0


@pytest.mark.slow
def test_a_forbidden_folder_is_a_one_line_error(trained, storage, run):
    storage.fail(10**6, 403, "forbidden")
    done = run("run_cpu.py", *trained, "--data_dir=gs://bucket/forbidden", "--mode=eval")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "gs://bucket/forbidden" in line
    assert "403" in line


@pytest.mark.slow
def test_a_forbidden_shard_is_a_one_line_error(trained, storage, run):
    storage.fail(10**6, 403, "test-00000")
    done = run("run_cpu.py", *trained, "--mode=eval")
    storage.heal()
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "test-00000-of-00002-" in line


@pytest.mark.slow
@pytest.mark.parametrize("flag", ["data_dir", "model_dir"])
def test_a_missing_bucket_is_a_one_line_error(trained, run, flag):
    done = run("run_cpu.py", *trained, f"--{flag}=gs://no-such-bucket/x", "--train_steps=30")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert f"--{flag}=gs://no-such-bucket/x" in line


@pytest.mark.slow  # like test_a_data_dir_that_cannot_be_written of test_prepare_data.py
def test_a_missing_bucket_is_an_error_before_conversion(run):
    done = run("prepare_data.py", "--dataset=digits", "--data_dir=gs://no-such-bucket/x")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "--data_dir=gs://no-such-bucket/x cannot be written" in line
