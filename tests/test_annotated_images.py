"""The modes of both wrappers with images that have boxes or masks."""

import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from engine.serving import new_process
from input_fns import dataset_info
from tests import annotated_data, shapes_data
from tests.marks import slow

DRAWINGS = [shapes_data.draw(number) for number in range(5)]
MODELS = {"detection": "DETECTOR", "segmentation": "SEGMENTER"}
TASKS = pytest.mark.parametrize("task", MODELS)


@pytest.fixture(scope="module")
def trained(tmp_path_factory, run_with):
    """Trains a tiny model once: `trained(task) -> (model_dir, flags)`."""
    models = {}

    def train(task):
        if task not in models:
            folder = tmp_path_factory.mktemp(task)
            data = annotated_data.write(folder, task, DRAWINGS)
            (folder / "dataset.json").write_text(dataset_info.to_json(data))
            flags = [
                f"--model=tests.annotated_models:{MODELS[task]}",
                "--dataset=shapes",
                f"--data_dir={folder}",
                "--eval_split=train",
                "--image_size=48x40",
                *(f"--{mode}_batch_size=2" for mode in ("train", "eval", "predict")),
                f"--model_dir={folder}/model",
                "--seed=1",
            ]
            run_with(*flags, "--mode=train_and_eval", "--train_steps=2", "--augment=flip")
            models[task] = folder / "model", flags
        return models[task]

    return train


def read_lines(path):
    return [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]


@pytest.mark.slow(cost=0.1)
def test_predictions_of_boxes_are_named_and_end_with_the_last_one(trained, run_with, tmp_path):
    _, flags = trained("detection")
    run_with(*flags, "--mode=predict", f"--predict_output={tmp_path}/found.jsonl")
    lines = read_lines(tmp_path / "found.jsonl")
    assert len(lines) == 5
    for line, drawn in zip(lines, DRAWINGS):
        height, width = drawn.image.shape[:2]
        assert line["boxes"] == [[height / 4, width / 4, height * 3 / 4, width * 3 / 4]]
        assert line["class_names"] == ["square"]
        assert len(line["scores"]) == line["num_detections"] == 1


def write_pictures(folder):
    """Writes pictures of several formats, one broken; returns the sizes of the others, by name."""
    folder.mkdir()
    sizes = {"a.jpg": (33, 60), "b.png": (71, 20)}
    for name, size in sizes.items():
        pixels = np.random.default_rng(1).integers(0, 256, [*size, 3], np.uint8)
        Image.fromarray(pixels).save(folder / name)
    (folder / "broken.png").write_bytes(b"\x89PNG")
    return sizes


@pytest.mark.slow(cost=0.1)
def test_boxes_of_input_files_are_in_their_pixels(trained, run_with, tmp_path, capsys):
    sizes = write_pictures(tmp_path / "pictures")
    _, flags = trained("detection")
    output = f"--predict_output={tmp_path}/found.jsonl"
    run_with(*flags, "--mode=predict", f"--input={tmp_path}/pictures", output)
    found = {line["name"]: line["boxes"][0] for line in read_lines(tmp_path / "found.jsonl")}
    for name, (height, width) in sizes.items():
        assert found[name] == [height / 4, width / 4, height * 3 / 4, width * 3 / 4]
    assert "broken.png is skipped" in capsys.readouterr().out


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize("task", ["detection", "segmentation"])
def test_input_files_are_drawn_with_their_predictions(trained, run_with, tmp_path, task):
    write_pictures(tmp_path / "pictures")
    _, flags = trained(task)
    drawn = f"--overlay_dir={tmp_path}/drawn"
    run_with(*flags, "--mode=predict", f"--input={tmp_path}/pictures", drawn)
    names = sorted(path.name for path in (tmp_path / "drawn").iterdir())
    assert names == ["000000_a.jpg", "000001_b.jpg"]
    with Image.open(tmp_path / "drawn" / "000000_a.jpg") as image:
        legend = 14 if task == "segmentation" else 0
        assert image.size == (480, 264 + legend)  # 33 x 60, scaled to a side of 480


@pytest.mark.parametrize("source", [slow("input"), slow("split")])
def test_class_maps_are_as_large_as_the_pictures(trained, run_with, tmp_path, source):
    sizes = write_pictures(tmp_path / "pictures")
    more = [f"--input={tmp_path}/pictures"]
    if source == "split":
        sizes = {i: drawn.image.shape[:2] for i, drawn in enumerate(DRAWINGS)}
        more = []
    _, flags = trained("segmentation")
    run_with(*flags, "--mode=predict", f"--predict_output={tmp_path}/maps", *more)
    lines = read_lines(tmp_path / "maps" / "predictions.jsonl")
    for line, (name, size) in zip(lines, sizes.items()):
        assert line["name"] == (name if more else None)
        pixels = np.asarray(Image.open(tmp_path / "maps" / line["file"]))
        assert pixels.shape == (line["height"], line["width"]) == size
        assert set(np.unique(pixels)) <= {0, 1, 2}
    assert len(lines) == len(sizes)


@pytest.mark.slow  # an export starts a process
@TASKS
def test_an_export_serves_what_is_predicted(trained, run_with, tmp_path, task):
    _, flags = trained(task)
    run_with(*flags, "--mode=export", f"--export_dir={tmp_path}/export")
    (path,) = (tmp_path / "export").iterdir()
    names = (path / "assets.extra" / "class_names.txt").read_text().split()
    assert names[-2:] == list(shapes_data.CLASS_NAMES)
    file = annotated_data.png(DRAWINGS[1].image)
    answers = new_process.run(
        str(path), {"image_bytes": {"image_bytes": np.array([file], object)}}
    )["image_bytes"]
    if task == "detection":
        assert answers["class_names"].tolist() == [[b"square", b""]]
        return
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "1.png").write_bytes(file)
    run_with(
        *flags, "--mode=predict", f"--input={tmp_path}/one", f"--predict_output={tmp_path}/maps"
    )
    predicted = Image.open(tmp_path / "maps" / "000000.png")
    served = tf.io.decode_png(answers["class_map"][0])
    with tf.compat.v1.Session() as session:
        np.testing.assert_array_equal(session.run(served)[..., 0], predicted)


@pytest.mark.slow
@TASKS
def test_a_tpu_predicts_what_a_cpu_predicts(trained, run_with, run_tpu_with, tmp_path, task):
    _, flags = trained(task)
    found = []
    for run, more in ((run_with, []), (run_tpu_with, ["--tpu=emulator", "--tpu_topology=1x2"])):
        output = tmp_path / str(len(found))
        name = f"{output}.npz" if task == "detection" else str(output)
        run(*flags, *more, "--mode=predict", f"--predict_output={name}")
        if task == "detection":
            with np.load(name) as arrays:
                found.append({key: arrays[key] for key in arrays.files})
        else:
            found.append({path.name: path.read_bytes() for path in output.iterdir()})
    assert found[0].keys() == found[1].keys()
    for key, value in found[0].items():
        if task == "detection" and value.dtype.kind == "f":
            np.testing.assert_allclose(found[1][key], value, rtol=1e-5)
        else:
            assert np.array_equal(found[1][key], value)


@pytest.mark.slow
@TASKS
def test_random_examples_have_the_shapes_of_the_task(run_with, tmp_path, task):
    flags = [f"--model=tests.annotated_models:{MODELS[task]}", f"--model_dir={tmp_path}"]
    run_with(
        *flags,
        "--dataset=synthetic",
        f"--synthetic_task={task}",
        "--image_size=48x40",
        "--synthetic_classes=3",
        "--mode=train",
        "--train_steps=2",
        "--train_batch_size=4",
    )
    assert list(tmp_path.glob("model.ckpt-2.index"))
