"""--strategy=mirrored: two replicas train like one device."""

import shutil

import pytest

from common.errors import UsageError
from tests import numerics

pytestmark = pytest.mark.usefixtures("smooth_activations")

STEPS = ["--mode=train", "--train_steps=21", "--train_batch_size=14"]
TWO = ["--strategy=mirrored", "--replicas=2"]
CNN = [
    "--model=convnet",
    "--params=optimizer=momentum,learning_rate=0.05",
    "--params=layers=[conv:8:3,batch_norm,relu,flatten,dense:16,relu]",
]
CROSS_REPLICA = "--params=batch_norm_cross_replica=true"


def excess(variables, one, other, steps):
    """The largest difference between the variables of two model_dirs, in tolerances."""
    # Each step sums the gradients of the examples of the global batch.
    arithmetic = {"terms": 14, "depth": steps, "magnitude": 1.0}
    return numerics.excess(variables(other), variables(one), **arithmetic)


def start_equal(run_in, tmp_path, *arguments):
    """Trains one step on one device and copies it: initial values depend on the whole graph."""
    run_in(tmp_path / "one", *arguments, "--train_steps=1")
    shutil.copytree(tmp_path / "one", tmp_path / "two")


@pytest.fixture(scope="module")
def one_device(run_in, smooth_activations, tmp_path_factory):
    """Folders of a CNN with batch norm after 1 and 21 steps on one device."""
    folder = tmp_path_factory.mktemp("one_device")
    run_in(folder / "start", *STEPS, *CNN, "--train_steps=1")
    shutil.copytree(folder / "start", folder / "end")
    run_in(folder / "end", *STEPS, *CNN)
    return folder / "start", folder / "end"


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        # Adam divides by the gradients: a large epsilon damps rounding noise in those near 0.
        ["--params=dropout=0,epsilon=0.01"],
        ["--params=dropout=0,optimizer=momentum,clip_norm=0.5,learning_rate=0.1"],
        ["--params=dropout=0,optimizer=adamw,epsilon=0.01,weight_decay=0.1,ema_decay=0.9"],
    ],
    ids=["adam", "clipped momentum", "adamw and EMA"],
)
def test_two_replicas_train_as_one_device(run_in, variables, tmp_path, arguments):
    start_equal(run_in, tmp_path, *STEPS, *arguments)
    run_in(tmp_path / "one", *STEPS, *arguments)
    run_in(tmp_path / "two", *STEPS, *arguments, *TWO)
    assert excess(variables, tmp_path / "one", tmp_path / "two", steps=21) < 1


@pytest.mark.slow
def test_cross_replica_batch_norm_trains_as_one_device(run_in, one_device, variables, tmp_path):
    start, one = one_device
    shutil.copytree(start, tmp_path / "two")
    run_in(tmp_path / "two", *STEPS, *CNN, CROSS_REPLICA, *TWO)
    assert excess(variables, one, tmp_path / "two", steps=21) < 1


@pytest.mark.slow
def test_batch_norm_per_replica_differs(run_in, one_device, variables, tmp_path):
    start, one = one_device
    shutil.copytree(start, tmp_path / "two")
    run_in(tmp_path / "two", *STEPS, *CNN, *TWO)
    assert excess(variables, one, tmp_path / "two", steps=21) > 20


@pytest.mark.slow
def test_sentences_of_unequal_lengths(run_text_in, variables, tmp_path):
    steps = ["--mode=train", "--train_steps=5", "--train_batch_size=6"]
    steps += ["--params=learning_rate=0.001,epsilon=0.01"]
    start_equal(run_text_in, tmp_path, *steps)
    run_text_in(tmp_path / "one", *steps)
    run_text_in(tmp_path / "two", *steps, *TWO)
    assert excess(variables, tmp_path / "one", tmp_path / "two", steps=5) < 1


@pytest.mark.slow  # tests/test_run_cpu.py trains with two replicas, then evaluates and predicts
def test_train_evaluate_export_and_resume(run_in, result, tmp_path):
    arguments = ["--train_batch_size=14", *TWO]
    model_dir = tmp_path / "model"
    run_in(model_dir, "--mode=train", *arguments, "--train_steps=10")
    export = ["--train_steps=20", f"--export_dir={tmp_path}/export"]
    run_in(model_dir, "--mode=train_and_eval", *arguments, *export)
    assert result(model_dir, 20)["eval"]["examples"] == 41
    assert result(model_dir, 20)["train"]["start_step"] == 10
    assert len(list((tmp_path / "export").iterdir())) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--train_batch_size=13"], "13 is not divisible by 2 replicas. Use 12 or 14"),
        (
            ["--accumulate_steps=7"],
            "--accumulate_steps=7 cannot be combined with --strategy=mirrored",
        ),
    ],
)
def test_invalid_flags(run_in, tmp_path, arguments, message):
    with pytest.raises(UsageError, match=message):
        run_in(tmp_path / "model", *STEPS, *TWO, *arguments)
    assert not (tmp_path / "model").exists()
