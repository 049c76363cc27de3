"""The recipes of docs/serving.md run and match the model."""

import pathlib
import re
import shlex
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from tools import runtimes

pytestmark = pytest.mark.numeric  # compares with the fixture `assert_predicted`

ROOT = pathlib.Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "serving.md").read_text()


def recipes(heading, language):
    """Returns the code blocks under a heading."""
    section = re.split(r"^## ", PAGE, flags=re.M)
    (text,) = [part for part in section if part.startswith(f"{heading}\n")]
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.M | re.S)


def run_recipe(code, exported, tmp_path, digits_dir):
    """Runs a recipe; returns its variables."""
    names = {"EXPORT": exported.path, "OUT": str(tmp_path)}
    Image.new("L", (8, 8)).save(tmp_path / "picture.png")
    names.update(DATA_DIR=digits_dir, DATASET="digits", PICTURE=str(tmp_path / "picture.png"))
    exec(code, names)
    return names


def run_lite(path, inputs):
    return tf.lite.Interpreter(model_path=str(path)).get_signature_runner()(**inputs)


@pytest.mark.usefixtures("eager")
def test_python(cnn, tmp_path, digits_dir, capsys):
    (code,) = recipes("Python, C and the command line", "python")
    run_recipe(code, cnn, tmp_path, digits_dir)
    expected = [b"%d" % i for i in cnn.predictions["classes"][:3]]
    from_pixels, from_file = capsys.readouterr().out.splitlines()
    assert from_pixels == str(np.array(expected, object))
    assert re.fullmatch(r"\[b'\d'\] \[\d\.\d+\]", from_file)


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
def test_lite_float32_and_int8(cnn, raw, tmp_path, digits_dir, assert_predicted):
    for code in recipes("TensorFlow Lite", "python"):
        run_recipe(code, cnn, tmp_path, digits_dir)
    assert_predicted(cnn, run_lite(tmp_path / "model.tflite", raw(cnn)))
    answer = run_lite(tmp_path / "model_int8.tflite", raw(cnn))
    np.testing.assert_allclose(answer["probabilities"], cnn.predictions["probabilities"], atol=0.1)
    assert np.mean(answer["classes"] == cnn.predictions["classes"]) > 0.95
    sizes = [(tmp_path / f"model{kind}.tflite").stat().st_size for kind in ("", "_int8")]
    assert sizes[1] < sizes[0]


@pytest.mark.slow
def test_onnx(cnn, raw, tmp_path, digits_dir, assert_predicted):
    if runtimes.missing("ONNX Runtime"):
        pytest.skip(f"needs {runtimes.missing('ONNX Runtime')}")
    (command,), (code,) = recipes("ONNX", ""), recipes("ONNX", "python")
    words = shlex.split(command.replace("EXPORT", cnn.path).replace("OUT", str(tmp_path)))
    subprocess.run([sys.executable, *words[1:]], check=True, capture_output=True)
    code = code.replace("OUT", str(tmp_path))
    session = run_recipe(code, cnn, tmp_path, digits_dir)["session"]
    (probabilities,) = session.run(["probabilities"], raw(cnn))
    assert_predicted(cnn, {"probabilities": probabilities})


def test_openvino(cnn, raw, tmp_path, digits_dir, assert_predicted):
    pytest.importorskip("openvino", reason="needs tools/setup.sh tensorflow serving")
    (code,) = recipes("OpenVINO", "python")
    answer = run_recipe(code, cnn, tmp_path, digits_dir)["model"](raw(cnn))
    assert_predicted(cnn, {"probabilities": answer["probabilities"]})
