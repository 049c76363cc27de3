"""The loop of actor, replay writer, learner and driver, with tiny sizes, and its crashes."""

import contextlib
import glob
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context

from common.errors import RunError, UsageError
from examples.rl import learner, policy, replay, train
from examples.rl.connect_four import mcts, rules
from examples.rl.connect_four import task as connect_four

ROOT = pathlib.Path(__file__).parents[3]
TINY = "iterations=2,steps=2,num_games=13,num_simulations=5,"
TINY += "eval_games=5,final_games=3,eval_simulations=3"
SMALL_MODEL = "--params=filters=3,blocks=1 --train_batch_size=14 --eval_batch_size=14"
TPU = "run_tpu.py --tpu=emulator --tpu_topology=1x2"


@pytest.fixture
def run_here(monkeypatch, run_with, run_tpu_with):
    """Runs the driver with the learner in this process: `run_here(run_dir, "--set=...")`."""
    wrappers = {"run_cpu.py": run_with, "run_tpu.py": run_tpu_with}

    def run_learner(command, log):
        del log
        wrappers[os.path.basename(command[1])](*command[2:])
        return 0

    def load(path):
        with context.eager_mode():
            predict = real_load(path)

        def predict_eagerly(features):
            with context.eager_mode():
                return predict(features)

        return predict_eagerly

    real_load = policy.load
    monkeypatch.setattr(learner, "run", run_learner)
    monkeypatch.setattr(policy, "load", load)

    def run(run_dir, *arguments):
        monkeypatch.setattr(sys, "argv", ["train", f"--run_dir={run_dir}", *arguments])
        train.main()
        return results(run_dir)

    return run


def results(run_dir):
    """Returns the results of the iterations that are complete."""
    paths = sorted(glob.glob(f"{run_dir}/iterations/*.json"))
    return [json.loads(pathlib.Path(path).read_text()) for path in paths]


@pytest.mark.slow
@pytest.mark.parametrize("wrapper", ["run_cpu.py", TPU])
def test_connect_four_under_both_wrappers(run_here, tmp_path, wrapper):
    tiny = TINY.replace("iterations=2", "iterations=1")
    arguments = ("--task=connect_four", f"--set={tiny}", f"--learner={wrapper} {SMALL_MODEL}")
    (result,) = run_here(tmp_path, *arguments)
    assert 0 <= result["wins_against_random"] <= 1
    trained = json.loads((tmp_path / "learner" / "result_2.json").read_text())
    assert trained["export"] == result["export"]
    assert trained["eval"].keys() >= {"policy_loss", "value_loss", "policy_accuracy"}
    with context.eager_mode():
        evaluate = connect_four.network(policy.load(result["export"]))
        logits, value = evaluate(*rules.start(3))
    assert logits.shape == (3, 7)
    assert value.shape == (3,)
    if wrapper == "run_cpu.py":  # one more iteration acts with the export
        more = f"--set={TINY}"
        first, second = run_here(tmp_path, "--task=connect_four", more, *arguments[2:])
        assert first == result
        assert second["export"] != first["export"]


def test_cartpole_trains_on_targets_of_the_export(run_here, tmp_path):
    pytest.importorskip("gymnasium", reason="gymnasium is not installed")
    settings = "--set=iterations=2,steps=3,num_episodes=5,eval_episodes=3"
    found = run_here(tmp_path, "--task=cartpole", settings)
    assert [result["iteration"] for result in found] == [0, 1]
    assert all(result["mean_return"] >= 8 for result in found)


@pytest.mark.slow
def test_cartpole_is_solved(tmp_path):
    pytest.importorskip("gymnasium", reason="gymnasium is not installed")
    command = [sys.executable, "-m", "examples.rl.train", "--task=cartpole", "--seed=2"]
    done = subprocess.run(
        [*command, f"--run_dir={tmp_path}"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    final = done.stdout.splitlines()[-1]
    assert final.startswith("final ")
    assert float(re.search(r"mean_return ([\d.]+)", final)[1]) >= 475


def fake_learner(run_dir, command, flags, steps):
    """A learner that only counts its steps; its exports are uniform."""
    del command, flags
    path = os.path.join(run_dir, "fake.json")
    done = json.loads(pathlib.Path(path).read_text()) if os.path.exists(path) else []
    data = pathlib.Path(run_dir, "replay", "dataset.json").read_text()
    if steps not in [step for step, _ in done]:
        pathlib.Path(path).write_text(json.dumps([*done, (steps, data)]))
    return f"{run_dir}/exports/{steps}"


@pytest.fixture
def run_fake(monkeypatch):
    """Runs the driver with `fake_learner`; returns its log."""
    monkeypatch.setattr(learner, "train", fake_learner)
    monkeypatch.setattr(connect_four, "network", lambda predict: mcts.uniform)
    monkeypatch.setattr(policy, "load", lambda path: path)

    def run(run_dir, *arguments):
        command = ["train", "--task=connect_four", f"--run_dir={run_dir}", f"--set={TINY}"]
        monkeypatch.setattr(sys, "argv", [*command, *arguments])
        train.main()
        return json.loads((run_dir / "fake.json").read_text())

    return run


class CrashError(Exception):
    """Ends the driver."""


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(
    ("where", "name"),
    [
        (replay, "save"),
        (replay, "write"),
        (learner, "train"),
        (connect_four.Task, "act"),
        (connect_four.Task, "evaluate"),
    ],
)
def test_a_crash_of_any_part_changes_nothing(run_fake, tmp_path, monkeypatch, where, name, after):
    expected = run_fake(tmp_path / "whole")
    assert [step for step, _ in expected] == [2, 4]
    original, calls = getattr(where, name), []

    def crash_in_the_second_call(*args, **kwargs):
        calls.append(name)
        if len(calls) != 2:
            return original(*args, **kwargs)
        if after:
            original(*args, **kwargs)
        raise CrashError

    monkeypatch.setattr(where, name, crash_in_the_second_call)
    with pytest.raises(CrashError):
        run_fake(tmp_path / "crashed")
    assert run_fake(tmp_path / "crashed") == expected
    for whole, crashed in zip(results(tmp_path / "whole"), results(tmp_path / "crashed")):
        for metric in ("wins_against_random", "wins_against_minimax"):
            assert crashed[metric] == whole[metric]


def test_other_hyperparameters_are_an_error_but_more_iterations_are_not(run_fake, tmp_path):
    run_fake(tmp_path)
    with pytest.raises(UsageError, match="num_games=13, not 14"):
        run_fake(tmp_path, f"--set={TINY.replace('13', '14')}")
    with pytest.raises(UsageError, match="seed=1, not 2"):
        run_fake(tmp_path, "--seed=2")
    more = run_fake(tmp_path, f"--set={TINY.replace('iterations=2', 'iterations=3')}")
    assert [step for step, _ in more] == [2, 4, 6]


@pytest.mark.parametrize("setting", ["games=3", "num_games=x", "num_games"])
def test_invalid_hyperparameters_name_the_valid_ones(capsys, setting):
    with pytest.raises(SystemExit, match="2"):
        train.parse(["--task=connect_four", "--run_dir=x", f"--set={setting}"])
    assert f"--set={setting} is invalid. Hyperparameters: iterations (int)" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--set=iterations=0", "--set=iterations=0: iterations must be at least 1"),
        ("--seed=-1", "--seed=-1 must be from 0 to 2147483647"),
        (
            "--learner=run_cpu.py --best_metric=value_loss",
            "--learner has --best_metric, but each iteration exports the last checkpoint",
        ),
    ],
)
def test_invalid_arguments_are_errors_before_anything_is_written(capsys, argument, message):
    with pytest.raises(SystemExit, match="2"):
        train.parse(["--task=connect_four", "--run_dir=x", argument])
    assert message in capsys.readouterr().err


@pytest.mark.slow
def test_a_failed_learner_is_an_error(tmp_path):
    with pytest.raises(RunError, match=r"run_cpu.py ended with status 2; .*learner.log"):
        learner.train(str(tmp_path), ["run_cpu.py", "--no_such_flag"], [], 3)
    assert "no_such_flag" in (tmp_path / "learner.log").read_text()


def test_a_learner_that_outlives_its_driver_holds_the_lock(tmp_path):
    with train.locked(str(tmp_path)):
        child = subprocess.Popen(["sleep", "100"], close_fds=False)
    assert not is_free(tmp_path)
    child.kill()
    child.wait()
    assert is_free(tmp_path)


def is_free(run_dir):
    """Returns whether no process holds the lock of a run."""
    command = ["flock", "--nonblock", str(run_dir / "lock"), "true"]
    return subprocess.run(command).returncode == 0


# With SIGKILL: file that appears, whether its learner is killed too, seconds after that.
KILLS = [
    ("experience/0000.npz", False, 0.0),
    ("replay/dataset.json", True, 3.0),
    ("learner/checkpoint", False, 0.0),
    ("iterations/0000.json", True, 0.5),
    ("learner/result_4.json", True, 0.0),
]


@pytest.mark.slow
def test_killed_processes_end_with_bit_identical_weights(tmp_path):
    def start(run_dir):
        arguments = [f"--run_dir={run_dir}", "--task=connect_four", f"--set={TINY}"]
        arguments += [f"--learner=run_cpu.py {SMALL_MODEL}"]
        command = [sys.executable, "-m", "examples.rl.train", *arguments]
        return subprocess.Popen(command, cwd=ROOT, start_new_session=True)

    assert start(tmp_path / "whole").wait() == 0
    for file, kills_learner, seconds in KILLS:
        process = start(tmp_path / "killed")
        while not (tmp_path / "killed" / file).exists():
            assert process.poll() is None, f"the driver ended before {file}"
            time.sleep(0.01)
        time.sleep(seconds)
        with contextlib.suppress(ProcessLookupError):
            (os.killpg if kills_learner else os.kill)(process.pid, signal.SIGKILL)
        process.wait()
    assert start(tmp_path / "killed").wait() == 0
    whole, killed = (
        tf.train.load_checkpoint(str(tmp_path / name / "learner")) for name in ("whole", "killed")
    )
    shapes = whole.get_variable_to_shape_map()
    assert shapes == killed.get_variable_to_shape_map()
    for name in shapes:
        np.testing.assert_array_equal(killed.get_tensor(name), whole.get_tensor(name))
    for a, b in zip(results(tmp_path / "whole"), results(tmp_path / "killed")):
        assert a["wins_against_random"] == b["wins_against_random"]
