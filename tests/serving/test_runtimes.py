"""The outputs of an export match `Estimator.predict` in every runtime."""

import pathlib
import types

import numpy as np
import pytest
import tensorflow as tf

from common.errors import UsageError
from input_fns.core import serving
from tests import numerics
from tests.keras_applications import APPLICATIONS
from tests.marks import slow
from tools import c_runtime, runtimes, serve_one, serving_equality


def load(name, exported, c_api):
    if runtimes.missing(name):
        pytest.skip(f"needs {runtimes.missing(name)}")
    return c_api(exported) if name == "C API" else runtimes.RUNTIMES[name](exported.path)


# TensorFlow Lite runs the CNN in test_recipes.py. ONNX Runtime converts in another process. Others
# of TensorFlow start it again and match the C API, whose answers test_signatures.py compares.
QUICK = {("Triton", "cnn"), ("OpenVINO", "cnn")}
MODELS = ("cnn", "translator", "mobilenet", "keras_swish", "several_labels", "numbers")
MODELS += ("sngan", "dcgan", *APPLICATIONS)
NAMES = (*runtimes.TENSORFLOW_RUNTIMES, "TensorFlow Lite", "ONNX Runtime", "OpenVINO")
UNSUPPORTED = {("ONNX Runtime", "ConvNeXtTiny")}  # tf2onnx has no grouped convolutions of Keras
CASES = [(n, model) for n in NAMES for model in MODELS if (n, model) not in UNSUPPORTED]


@pytest.mark.parametrize(
    ("name", "exported"),
    [case if case in QUICK else slow(*case) for case in CASES],
    indirect=["exported"],
)
def test_outputs_match_predict(name, exported, raw, c_api, assert_predicted):
    answer = load(name, exported, c_api)(raw(exported))
    assert answer.keys() >= exported.predictions.keys()
    assert_predicted(exported, answer)


@pytest.fixture(scope="module")
def answer(cnn, raw, in_process):
    """The outputs of `cnn`."""
    return in_process(cnn)(serving.RAW, raw(cnn))


def test_class_names_match_the_classes(cnn, answer):
    assert answer["class_names"].tolist() == [b"%d" % i for i in cnn.predictions["classes"]]


def test_top_classes_are_sorted(cnn, answer, arithmetic):
    probabilities = cnn.predictions["probabilities"]
    np.testing.assert_array_equal(answer["top_classes"][:, 0], cnn.predictions["classes"])
    expected = -np.sort(-probabilities, axis=1)[:, :2]
    numerics.assert_close(answer["top_probabilities"], expected, **arithmetic(cnn))
    assert answer["top_class_names"][0, 0] == b"%d" % cnn.predictions["classes"][0]


FLAGS = ["--model=mlp", "--dataset=x", "--data_dir=d", "--model_dir=m", "--train_steps=1"]


def test_the_command_line_overrides_the_flagfile(monkeypatch, tmp_path):
    def resolve():
        raise InterruptedError

    monkeypatch.setattr(serving_equality.resolve_flags, "resolve", resolve)
    flagfile = tmp_path / "flags.cfg"
    flagfile.write_text("\n".join([*FLAGS, "--predict_batch_size=3"]))
    with pytest.raises(InterruptedError):
        serving_equality.export_run("e", "--predict_batch_size=5", f"--flagfile={flagfile}")
    assert serving_equality.FLAGS.predict_batch_size == 5


def test_an_unknown_flag_is_one_error():
    with pytest.raises(UsageError, match="Unknown command line flag 'predict_batch'"):
        serving_equality.export_run("e", *FLAGS, "--predict_batch=5")


NESTED = {"x/y": np.float32([[0.5, 1.5, 2.5]])}


def test_the_command_line_tool_takes_nested_features(monkeypatch):
    loaded = {}

    def run(command, **_):
        for given in command[command.index("--inputs") + 1].split(";"):
            name, path = given.split("=")
            loaded[name] = np.load(path)

    signature = types.SimpleNamespace(outputs={})
    monkeypatch.setattr(runtimes, "signatures", lambda path: {serving.RAW: signature})
    monkeypatch.setattr(runtimes.subprocess, "run", run)
    runtimes.CommandLine("export")(NESTED)
    np.testing.assert_equal(loaded, NESTED)


def test_the_c_program_takes_nested_features(monkeypatch):
    def run(command, **_):
        program, _, _, _, tensor, from_file, _, output, to_file = command
        assert (program, tensor, output) == ("program", "x:0", "z:0")
        pathlib.Path(to_file).write_bytes(pathlib.Path(from_file).read_bytes())
        return types.SimpleNamespace(returncode=0, stdout="2000000")

    info = tf.compat.v1.saved_model.build_tensor_info
    with tf.Graph().as_default():
        x, z = (info(tf.compat.v1.placeholder(tf.float32, [None, 3], name)) for name in "xz")
    signature = types.SimpleNamespace(inputs={"x/y": x}, outputs={"z/y": z})
    monkeypatch.setattr(c_runtime, "build", lambda: "program")
    monkeypatch.setattr(c_runtime.subprocess, "run", run)
    outputs, seconds = c_runtime.run("export", signature, NESTED)
    np.testing.assert_equal(outputs, {"z/y": NESTED["x/y"]})
    assert seconds == 2


def test_onnx_takes_nested_features_by_the_names_of_its_inputs():
    runtime = object.__new__(runtimes.Onnx)
    output = types.SimpleNamespace(name="z")
    runtime._session = types.SimpleNamespace(
        get_outputs=lambda: [output], run=lambda names, fed: [fed["x_y"]]
    )
    np.testing.assert_equal(runtime(NESTED), {"z": NESTED["x/y"]})


@pytest.mark.parametrize("folder", ["empty", "missing"])
def test_a_folder_without_a_version_is_one_error(tmp_path, folder):
    (tmp_path / "empty").mkdir()
    with pytest.raises(SystemExit, match="has no exported version"):
        serve_one.main(str(tmp_path / folder))
