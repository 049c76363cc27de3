"""Every case runs in every mode of both wrappers, from its own model and data file."""

import importlib.util
import json

import numpy as np
import pytest

from tests import numerics
from tests.marks import slow

HAS_COMPILER = importlib.util.find_spec("libtpu") is not None
# Two convolutions of 16 channels and 3x3 pixels, or two layers of attention, and a softmax.
NETWORK = {"terms": 9 * 16, "depth": 8}
OWN = ("gan", "two_stage")  # with a train_step or train_inputs
TRAIN_STEPS = 3


@pytest.mark.parametrize(
    "case",
    ["language_model", *map(slow, ("detection", "masked_lm", "segmentation", "embedding", *OWN))],
)
def test_the_export_is_complete_and_passes_its_check(trained, case):
    (version,) = (trained(case) / "export").iterdir()
    assert version.name.isdigit()  # failed-<version> if the check had failed
    check = json.loads((version / "MODEL_CARD.json").read_text())["export_check"]
    assert check["examples"] == 13
    assert check["problems"] == []


@pytest.mark.parametrize(
    "case",
    [
        "masked_lm",
        *map(slow, ("embedding", "segmentation", "detection", "language_model", *OWN)),
    ],
)
def test_a_tpu_predicts_what_a_cpu_predicts(predict, run_case_on_tpu, case):
    cpu, tpu = predict(case), predict(case, run=run_case_on_tpu)
    assert cpu.keys() == tpu.keys()
    for name, values in cpu.items():
        assert len(values) == 41
        if values.dtype.kind == "f":
            numerics.assert_close(tpu[name], values, **NETWORK, magnitude=1.0, name=name)
        else:
            np.testing.assert_array_equal(tpu[name], values, err_msg=name)


@pytest.mark.parametrize(
    "case",
    [
        "detection",
        *map(slow, ("segmentation", "masked_lm", "embedding", "language_model", *OWN)),
    ],
)
def test_a_tpu_evaluates_like_a_cpu(evaluate, run_case_on_tpu, case):
    cpu, tpu = evaluate(case), evaluate(case, run=run_case_on_tpu)
    assert tpu["examples"] == cpu["examples"] == 41
    assert cpu.keys() == tpu.keys()
    for name in cpu.keys() - {"split", "checkpoint", "data"}:
        numerics.assert_close(tpu[name], cpu[name], **NETWORK, magnitude=1.0, name=name)


@pytest.mark.parametrize(
    ("case", "name"),
    [
        slow("gan", "1x2"),
        *(slow(case, "v2-8") for case in ("gan", "two_stage", "language_model")),
    ],
)
def test_training_on_several_cores_equals_training_on_one(
    run_case, run_case_on_tpu, trained, variables, tmp_path, case, name
):
    train = ["--mode=train", f"--train_steps={TRAIN_STEPS}", "--train_batch_size=24"]
    train += ["--params=epsilon=0.01,learning_rate=0.01", f"--warm_start_from={trained(case)}"]
    run_case(case, tmp_path / "cpu", *train)
    run_case_on_tpu(case, tmp_path / "tpu", *train, f"--tpu_topology={name}")
    cpu, tpu = variables(tmp_path / "cpu"), variables(tmp_path / "tpu")
    assert cpu["global_step"] == tpu["global_step"] == TRAIN_STEPS
    # The longest sum is over the tokens or boxes of a batch; a step of gan has four updates.
    arithmetic = {"terms": 24 * 11 * 11, "depth": 4 * TRAIN_STEPS, "magnitude": 1.0}
    assert numerics.excess(tpu, cpu, **arithmetic) < 1
    start = variables(trained(case))
    assert numerics.excess({name: start[name] for name in cpu}, cpu, **arithmetic) > 10


@pytest.mark.parametrize(
    ("case", "compiler"),
    [
        ("segmentation", "off"),
        slow("segmentation", "quick"),
        slow("masked_lm", "quick"),
        slow("detection", "quick"),
        slow("embedding", "quick"),
        slow("language_model", "quick"),
        *(slow(case, "quick") for case in OWN),
    ],
)
def test_check_finds_no_error(run_case_on_tpu, tmp_path, case, compiler):
    report = tmp_path / "report.json"
    arguments = ["--mode=check", "--tpu_topology=v2-8", f"--check_report={report}"]
    arguments += [f"--{mode}_batch_size=24" for mode in ("train", "eval", "predict")]
    arguments.append(f"--check_compiler={compiler if HAS_COMPILER else 'off'}")
    with pytest.raises(SystemExit) as end:
        run_case_on_tpu(case, tmp_path / "model", *arguments)
    found = json.loads(report.read_text())
    assert end.value.code == 0, found["findings"]
    assert [*found["modes"]] == ["train", "eval", "predict"]
    if compiler == "off":
        assert all(mode["compiled"] is None for mode in found["modes"].values())
        assert found["modes"]["train"]["sizes"]["hbm_bytes"] > 0
    else:
        if not HAS_COMPILER:
            pytest.skip("checked without the TPU compiler, which is not installed")
        assert all(mode["compiled"]["fits"] for mode in found["modes"].values())
