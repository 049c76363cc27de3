"""Models of the package on eight PJRT devices, on emulated cores and with run_cpu.py."""

import functools
import json
from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf

import run_cpu
import run_tpu
from input_fns import convert
from input_fns.convert import writer
from input_fns.convert.options import Options
from models.vision import resnet
from tests import audio_data, bert_data, numerics, shapes_data
from tests.conftest import _runner
from tpu.pjrt.loop import Loop

pytest.importorskip("jax", reason="the extra 'pjrt' is not installed")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("smooth_activations", "shared_workers"),
]

BATCH, STEPS = 16, 20
WRAPPERS = {
    "cpu": (run_cpu,),
    "emulator": (run_tpu, "--tpu=emulator", "--tpu_topology=1x8"),
    "pjrt": (run_tpu, "--tpu=pjrt", "--devices=cpu:8"),
}
MOMENTUM = "--params=optimizer=momentum,momentum=0.7,learning_rate=0.05,schedule=cosine"
ADAM = "--params=epsilon=0.01,learning_rate=0.01"


# The longest sum of a layer, and the layers of the deepest network.
NETWORK = {"terms": 9 * 64, "depth": 30}
FAR = 20  # tolerances of a fault


class Case(NamedTuple):
    """A model and its data.

    Attributes:
      data: key of `_write_data`.
      flags: of the model.
      terms: number of terms of the longest sum of a step.
      output: ending of the file of predictions; "" for a folder.
    """

    data: str
    flags: tuple[str, ...]
    terms: int
    output: str = ".npz"


IMAGES = "--params=pixel_scale=0.01,batch_norm_cross_replica=true"
CASES = {
    "mlp": Case(
        "stripes",
        ("--model=mlp", "--params=hidden_units=[16,16],dropout=0,pixel_scale=0.01", MOMENTUM),
        35,
    ),
    "cnn": Case(
        "stripes",
        (
            "--model=convnet",
            IMAGES,
            MOMENTUM,
            "--params=layers=[conv:4:3,batch_norm,relu,conv:4:3:valid,flatten,dense:8,relu]",
        ),
        BATCH * 35,
    ),
    "resnet10": Case(
        "stripes",
        ("--model=resnet", IMAGES, MOMENTUM, "--params=depth=10,width=4,stem=cifar"),
        BATCH * 35,
    ),
    "transformer": Case(
        "pairs",
        (
            "--model=transformer_tiny",
            "--params=num_layers=1,hidden_size=32,ffn_size=32,num_heads=2,dropout=0,beam_size=2",
            ADAM,
            "--train_split=validation",  # not packed: cores have unequal numbers of tokens
        ),
        BATCH * 32,
        output=".txt",
    ),
    "bert": Case(
        "pretraining_text",
        ("--model=bert_tiny_pretraining", *bert_data.TINY, ADAM, "--eval_split=validation"),
        BATCH * 24,
    ),
    "retinanet": Case(
        "shapes",
        (
            "--model=retinanet",
            "--image_size=62x46",
            "--eval_split=validation",
            "--params=backbone=resnet18,backbone_width=0.1,fpn_channels=8,head_convs=1,max_level=5",
            "--params=nms_candidates=60,max_detections=20,anchor_size=2,score_threshold=0.001",
            "--params=batch_norm_cross_replica=true",
            MOMENTUM,
        ),
        BATCH * 8 * 6,
        output="",
    ),
    "ctc": Case(
        "speech_manifest",
        (
            "--model=conformer_ctc_tiny",
            "--eval_split=test",
            "--params=num_mels=12,window_ms=20",
            "--params=num_blocks=1,hidden_size=16,num_heads=2,kernel_size=3",
            "--params=dropout=0,attention_dropout=0",
            MOMENTUM,
        ),
        BATCH * 60,
    ),
    "two losses": Case(
        "tests.contract.two_stage.data:make_pipeline",
        ("--model=tests.contract.two_stage.model:MODEL", ADAM),
        BATCH * 11 * 11,
    ),
}


def _write_data(name, folder, request):
    """Writes a data set; returns its data_dir."""
    if name == "stripes":
        return request.getfixturevalue("data_dir")
    if name == "pairs":
        return request.getfixturevalue("pairs_dir")
    if name == "pretraining_text":
        return bert_data.prepare_pretraining(folder)
    if name == "speech_manifest":
        raw = audio_data.write_manifest(folder / "raw")
        return audio_data.prepare(name, raw, folder / "data").data_dir
    if name == "shapes":
        pytest.importorskip("pycocotools")
        shapes_data.write_coco(folder / "raw", {"train": 16, "val": 11})
        options = Options("coco", name=name, source=str(folder / "raw"), task="detection")
        writer.write(convert.read(options), str(folder / "data"))
        return folder / "data"
    return folder  # the pipeline of a case makes its examples


@pytest.fixture(scope="module", autouse=True)
def shallow_resnet18():
    """A ResNet-18 of one block per stage: building graphs takes most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(resnet.DEPTHS, 18, ((1, 1, 1, 1), False))
        yield


@pytest.fixture(scope="module")
def run(tmp_path_factory, request):
    """Runs a case: `run("mlp", "pjrt", model_dir, "--mode=train", ...)`."""

    @functools.cache
    def data_dir(name):
        return _write_data(name, tmp_path_factory.mktemp("data"), request)

    def run_case(case, way, model_dir, *arguments):
        wrapper, *cores = WRAPPERS[way]
        _runner(
            wrapper,
            *CASES[case].flags,
            f"--dataset={CASES[case].data}",
            f"--data_dir={data_dir(CASES[case].data)}",
            f"--train_batch_size={BATCH}",
            *("--eval_batch_size=8", "--predict_batch_size=8", "--seed=1"),
            *cores,
        )(model_dir, *arguments)

    return run_case


@pytest.fixture(scope="module")
def train(run, tmp_path_factory):
    """Returns the model_dir of 20 steps from a common start: `train("mlp", "pjrt")`."""

    @functools.cache
    def start(case):
        folder = tmp_path_factory.mktemp("start")
        run(case, "cpu", folder, "--mode=train", "--train_steps=1")
        return folder

    def train_case(case, way):
        folder = tmp_path_factory.mktemp(way)
        steps = [f"--train_steps={STEPS}", "--save_checkpoints_steps=10"]
        begin = f"--warm_start_from={start(case)}"
        run(case, way, folder, "--mode=train", *steps, begin)
        return folder

    return train_case


@pytest.fixture(scope="module")
def trained(train):
    """`train`, once for a case and a way."""
    return functools.cache(train)


@pytest.fixture(scope="module")
def excess(variables):
    """Returns the difference between two trainings of a case, in tolerances."""

    def compare(case, model_dir, expected_dir):
        found, expected = variables(model_dir), variables(expected_dir)
        assert found["global_step"] == expected["global_step"] == STEPS
        # Each step adds the rounding error of the gradients to variables of magnitude 1.
        arithmetic = {"terms": CASES[case].terms, "depth": STEPS, "magnitude": 1.0}
        return numerics.excess(found, expected, **arithmetic)

    return compare


@pytest.mark.parametrize("case", CASES)
def test_devices_train_as_one_core(trained, excess, case):
    assert excess(case, trained(case, "pjrt"), trained(case, "cpu")) < 1


@pytest.mark.parametrize("case", CASES)
def test_devices_train_as_emulated_cores(trained, excess, case):
    assert excess(case, trained(case, "pjrt"), trained(case, "emulator")) < 1


def test_gradients_without_an_all_reduce_differ(train, trained, excess, monkeypatch):
    # TPUEstimator requires a cross-replica sum, and accepts that of batch norm.
    monkeypatch.setattr(tf.compat.v1.tpu, "CrossShardOptimizer", lambda optimizer: optimizer)
    assert excess("cnn", train("cnn", "pjrt"), trained("cnn", "cpu")) > FAR


def test_zeros_as_the_batch_of_one_device_differ(train, trained, excess, monkeypatch):
    submit = Loop.submit

    def without_core_3(self, number, *inputs):
        size = len(self._step.infeed)
        core_3 = range(3 * size, 4 * size)
        values = [np.zeros_like(x) if i in core_3 else x for i, x in enumerate(inputs)]
        return submit(self, number, *values)

    monkeypatch.setattr(Loop, "submit", without_core_3)
    assert excess("mlp", train("mlp", "pjrt"), trained("mlp", "cpu")) > FAR


@pytest.mark.parametrize("case", CASES)
def test_evaluations_match(run, trained, result, case):
    metrics = []
    for way in ("cpu", "pjrt"):
        run(case, way, trained(case, "cpu"), "--mode=eval")
        metrics.append(result(trained(case, "cpu"), STEPS)["eval"])
    expected, found = metrics
    numbers = {name: x for name, x in expected.items() if isinstance(x, (int, float))}
    assert "examples" in numbers
    for name, value in numbers.items():
        numerics.assert_close(found[name], value, **NETWORK, magnitude=max(1, value), name=name)


@pytest.mark.parametrize("case", CASES)
def test_predictions_match(run, trained, tmp_path, case):
    paths = [tmp_path / f"{way}{CASES[case].output}" for way in ("cpu", "pjrt")]
    for path in paths:
        run(case, path.stem, trained(case, "cpu"), "--mode=predict", f"--predict_output={path}")
    expected, found = map(read_predictions, paths)
    assert expected.keys() == found.keys()
    for name, values in expected.items():
        assert len(values) > 0
        if values.dtype.kind == "f":
            magnitude = max(1, np.abs(values).max())
            numerics.assert_close(found[name], values, **NETWORK, magnitude=magnitude, name=name)
        else:
            np.testing.assert_array_equal(found[name], values, err_msg=name)


def read_predictions(path):
    """Returns `{name: array}`."""
    if path.suffix == ".txt":
        return {"lines": np.array(path.read_text().splitlines())}
    if path.suffix == ".npz":
        with np.load(path) as arrays:
            return dict(arrays)
    rows = json.loads((path / "detections.json").read_text())
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}
