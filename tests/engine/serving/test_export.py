"""Exports: versions, extra files, and the check of the predictions."""

import dataclasses
import json
import os
import shutil
import sys
import types

import numpy as np
import pytest
import tensorflow as tf

from engine.serving import export, export_check
from engine.serving.export_check import ExportError
from input_fns.image import orientation
from models.vision import mlp

LOGITS_ONLY = dataclasses.replace(mlp.MODEL, predictions=lambda _, outputs, __: outputs)


@pytest.fixture
def run_export(run_in, trained_dir, tmp_path):
    """Exports the trained model to `tmp_path`; returns the file names there."""

    def run(*arguments):
        run_in(trained_dir, "--mode=export", f"--export_dir={tmp_path}", *arguments)
        return sorted(os.listdir(tmp_path))

    return run


def read_card(tmp_path):
    (version,) = os.listdir(tmp_path)
    with open(tmp_path / version / "MODEL_CARD.json") as file:
        return json.load(file)


@pytest.fixture(scope="module")
def checked_export(run_in, trained_dir, tmp_path_factory):
    """The folder of an export with its check, from a working folder with modules of other names."""
    folder, exports = tmp_path_factory.mktemp("working"), tmp_path_factory.mktemp("exports")
    (folder / "engine").mkdir()
    for name in ("engine/__init__", "numpy", "json", "pickle", "sitecustomize", "tensorflow"):
        (folder / f"{name}.py").write_text("raise SystemExit('imported from the working folder')\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "path", [*sys.path])  # the run adds the working folder
        patch.setenv("PYTHONPATH", f".{os.pathsep}")
        run_in(trained_dir, "--mode=export", f"--export_dir={exports}", "--export_check")
    return exports


@pytest.fixture(scope="module")
def evaluated_export(run_in, trained_dir, tmp_path_factory):
    """The folder of an export without its check, of an evaluated model, with the top 2 classes."""
    exports = tmp_path_factory.mktemp("evaluated")
    run_in(trained_dir, "--mode=eval")
    run_in(trained_dir, "--mode=export", f"--export_dir={exports}", "--export_top_k=2")
    return exports


@pytest.mark.slow  # like the next
def test_a_second_export_is_a_newer_version(run_export, evaluated_export, tmp_path):
    shutil.copytree(evaluated_export, tmp_path, dirs_exist_ok=True)
    (first,) = os.listdir(tmp_path)
    versions = run_export()
    assert versions[0] == first
    assert int(versions[1]) > int(first)


@pytest.mark.slow(cost=0.1)
def test_a_version_is_above_all_existing_versions(run_export, tmp_path):
    (tmp_path / "99999999999").mkdir()
    (tmp_path / "failed-999999999999").mkdir()
    assert "100000000000" in run_export()


@pytest.mark.slow(cost=0.1)
def test_the_check_compares_all_signatures(checked_export):
    found = read_card(checked_export)["export_check"]
    assert found["examples"] == 13
    assert set(found["differences"]) == {
        "serving_default", "tf_example", "image_bytes", "classify"
    }  # fmt: skip
    assert max(found["differences"].values()) <= 1e-5
    assert found["problems"] == []


@pytest.mark.parametrize(
    ("predicted", "given", "is_right"),
    [
        ([1e6, 1.0], [1e6 + 1, 1.0], True),  # relative difference below 1e-5
        ([1e6, 1.0], [1e6, 1.1], False),
        ([0.62, 300.0], [0.6201, 300.0], True),  # corners of a box
        ([0.62, 300.0], [0.63, 300.0], False),
        ([-1e9, 1.0], [-1e9, 900.0], False),
        ([np.inf, 1.0], [np.inf, 1.0], True),
        ([np.inf, 1.0], [5.0, 1.0], False),
        ([5.0, 1.0], [np.inf, 1.0], False),
        ([np.nan, 1.0], [np.nan, 1.0], False),
    ],
)
def test_the_tolerance_is_relative_to_the_numbers_of_the_last_axis(predicted, given, is_right):
    predictions, answer = ({"x": np.array([x], np.float32)} for x in (predicted, given))
    _, problems = export_check._compare(predictions, answer, exactly=True)
    assert bool(problems) != is_right


@pytest.mark.parametrize(
    ("examples", "is_written"),
    [
        (np.array([b"RIFF\0\0\1", b"RIFF"], object), True),
        (np.array([b"RIFF", b"RIFF\1\0"], object), False),  # a WAV file that ends in silence
        (np.array([[b"de", b""]], object), True),
        (np.array([0.5, np.nan], np.float32), True),
    ],
)
def test_a_sample_file_holds_the_examples_bit_by_bit(tmp_path, examples, is_written):
    settings = types.SimpleNamespace(dataset=types.SimpleNamespace(all_class_names=()))
    paths = export._write_extras(str(tmp_path), settings, {"signature": {"input": examples}})
    assert list(paths) == ["sample_input.npy"] * is_written
    for path in paths.values():
        np.testing.assert_array_equal(np.load(path), examples)


@pytest.mark.slow(cost=0.1)
def test_model_card(evaluated_export):
    card = read_card(evaluated_export)
    assert card["model"] == "mlp"
    assert card["params"]["pixel_scale"] == 0.01
    assert card["data_set"]["classes"] == ["stripe 0", "stripe 1", "stripe 2"]
    assert card["data_set"]["examples"] == {"train": 97, "test": 41}
    assert card["metrics"]["examples"] == 41
    assert card["checkpoint"]["step"] > 0
    assert card["versions"]["tensorflow"].startswith("2.15.")
    assert card["export_check"]["examples"] == 0
    signature = card["graphs"]["serve"]["signatures"]["serving_default"]
    assert signature["inputs"] == {"image": {"dtype": "uint8", "shape": [None, 7, 5, 1]}}
    assert signature["outputs"]["top_class_names"] == {"dtype": "string", "shape": [None, 2]}


@pytest.mark.slow(cost=0.1)
def test_the_graph_has_no_optimizer_slots(evaluated_export):
    card = read_card(evaluated_export)
    weights = 35 * 512 + 512 + 512 * 3 + 3
    assert card["variables"] == weights + 1  # the global step


def test_top_k_above_the_number_of_classes_is_rejected(run_export):
    with pytest.raises(ValueError, match="--export_top_k=4, but stripes has 3 classes"):
        run_export("--export_top_k=4")


def test_an_export_with_other_predictions_is_not_published(
    run_export, serve_in_this_process, monkeypatch, tmp_path
):
    predict_batch = export_check.predict_batch

    def wrong(*arguments):
        predictions = predict_batch(*arguments)
        return {**predictions, "probabilities": predictions["probabilities"] + np.float32(0.01)}

    monkeypatch.setattr(export_check, "predict_batch", wrong)
    with (
        serve_in_this_process(),
        pytest.raises(ExportError, match=r"serving_default: probabilities differs by up to 0\.00"),
    ):
        run_export("--export_check")
    (name,) = os.listdir(tmp_path)
    assert name.startswith("failed-")
    assert read_card(tmp_path)["export_check"]["problems"]


@pytest.mark.slow
def test_an_export_that_ignores_orientations_is_not_published(
    run_in, uncertain_dir, monkeypatch, tmp_path
):
    monkeypatch.setattr(orientation, "read", lambda encoded: tf.constant(orientation.UPRIGHT))
    with pytest.raises(ExportError, match="image_bytes: for images with an EXIF orientation, prob"):
        run_in(uncertain_dir, "--mode=export", f"--export_dir={tmp_path}", "--export_check")


@pytest.mark.slow(cost=0.1)
def test_modules_in_the_working_folder_are_not_imported(checked_export):
    (name,) = os.listdir(checked_export)
    assert name.isdigit()


@pytest.mark.slow
def test_an_export_that_cannot_be_loaded_is_not_published(run_export, monkeypatch, tmp_path):
    write = export._write

    def broken(*arguments):
        path = write(*arguments)
        os.truncate(os.path.join(path, "variables", "variables.data-00000-of-00001"), 100)
        return path

    monkeypatch.setattr(export, "_write", broken)
    with pytest.raises(ExportError, match="a new process cannot load and run it"):
        run_export("--export_check")
    (name,) = os.listdir(tmp_path)
    assert name.startswith("failed-")


def test_a_failed_export_leaves_no_files(run_export, monkeypatch, tmp_path):
    def fail(*arguments):
        raise OSError("no space")

    monkeypatch.setattr(export.warm_up, "write", fail)
    with pytest.raises(OSError, match="no space"):
        run_export("--export_check")
    assert os.listdir(tmp_path) == []


@pytest.mark.slow
def test_a_custom_model_without_classes(run_export, tmp_path):
    (version,) = run_export("--export_check", f"--model={__name__}:LOGITS_ONLY")
    (graph,) = read_card(tmp_path)["graphs"].values()
    assert set(graph["signatures"]) == {"serving_default", "tf_example", "image_bytes"}
    assert list(graph["signatures"]["serving_default"]["outputs"]) == ["logits"]
    requests = tmp_path / version / export.EXTRA / "tf_serving_warmup_requests"
    assert len(list(tf.compat.v1.io.tf_record_iterator(str(requests)))) == 3
