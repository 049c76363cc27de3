"""`python -m tpu check`."""

import json
import pathlib
import types
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

from tests.marks import slow
from tpu.connect import topology
from tpu.interruption import StopProgram
from tpu.programs import check, processes
from tpu.programs.calls import Call
from tpu.programs.placeholders import Placeholders
from tpu.tf1.hparams import HParams

numeric_column = tf.feature_column.numeric_column
V3_8, V2_8 = topology.find("v3-8"), topology.find("v2-8")


def run(program, tpu_topology=V2_8, steps=0, report=None):
    """Checks without the TPU compiler."""
    return check.run(program, tpu_topology, steps, "off", report)


def test_every_call_is_checked_and_none_is_executed(linear_program, tmp_path, capfd):
    report = tmp_path / "report.json"
    assert run(linear_program("--mode=all", "--steps=4"), report=report) == 0
    out, err = capfd.readouterr()
    assert out.count("error 0.0") == 2  # the program saw a metric for each evaluation
    assert err.count("tpu: checking") == 4  # repeated calls are checked once
    assert "linear_program.py:" in err
    fields = json.loads(report.read_text())
    assert list(fields["modes"]) == ["train", "eval", "predict", "export"]
    assert fields["modes"]["train"]["batch_size"] == 2
    assert fields["num_errors"] == 0
    assert not list((tmp_path / "model").iterdir())


def test_finds_a_missing_cross_shard_optimizer(linear_program, capfd):
    assert run(linear_program("--optimizer=local")) == 1
    out = capfd.readouterr().out
    assert "error no-cross-replica-sum (train)" in out
    assert "linear_program.py:" in out


def test_an_evaluation_until_the_input_ends_is_an_error(linear_program, capfd):
    assert run(linear_program("--mode=evaluate_all")) == 1
    out = capfd.readouterr().out
    assert "error graph (eval)" in out
    assert "evaluate has no steps, and TPUEstimator raises ValueError" in out


def test_zero_evaluation_steps_are_an_error(evaluations, capfd):
    program = evaluations("estimator.evaluate(Input('a'), steps=5 // 16)")
    assert run(program) == 1
    assert "evaluate has steps=0, and TPUEstimator raises ValueError" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("method", "arguments", "message"),
    [
        ("evaluate", {"steps": -2}, "evaluate has steps=-2, and TPUEstimator raises ValueError"),
        ("evaluate", {"steps": 2.5}, "evaluate has steps=2.5, and TPUEstimator raises TypeError"),
        ("train", {"max_steps": 0}, "train has max_steps=0, and TPUEstimator raises ValueError"),
        ("train", {"steps": 2, "max_steps": 3}, "train has steps=2 and max_steps=3, and TPU"),
    ],
)
def test_invalid_steps(method, arguments, message):
    assert check._invalid_steps(Call(method, None, arguments, "", None)).startswith(message)


@pytest.mark.parametrize("steps", [None, 3, np.int64(3)])
def test_valid_or_missing_steps(steps):
    assert not check._invalid_steps(Call("evaluate", None, {"steps": steps}, "", None))


def test_executed_call_with_invalid_steps_raises_the_error_of_tpu_estimator(evaluations, capfd):
    source = """
try:
    estimator.evaluate(Input("a"), steps=0)
except ValueError as error:
    print("raised", error)
"""
    assert run(evaluations(source), steps=2) == 1
    assert "raised Eval steps must be positive, got 0" in capfd.readouterr().out


@pytest.mark.slow(cost=0.1)
def test_steps_executes_on_emulated_cores(linear_program, tmp_path, capfd):
    assert run(linear_program("--mode=all", "--steps=5"), topology.find("1x2"), steps=2) == 0
    assert tf.train.load_variable(f"{tmp_path}/model", "global_step") == 4
    assert "predictions 11" in capfd.readouterr().out


@pytest.mark.parametrize("mode", ["train_and_evaluate", "continuous_eval"])
def test_evaluation_needs_no_checkpoint(linear_program, mode, capfd):
    assert run(linear_program(f"--mode={mode}")) == 0
    assert "tpu: checking evaluate at" in capfd.readouterr().err


def test_hooks_of_train_and_evaluate_are_checked(linear_program, tmp_path):
    report = tmp_path / "report.json"
    program = linear_program("--mode=train_and_evaluate", "--log=dense/BiasAdd")
    assert run(program, report=report) == 1
    found = [f for f in json.loads(report.read_text())["findings"] if f["code"] == "hook"]
    assert [finding["mode"] for finding in found] == ["train", "eval"]
    assert all("reads 'dense/BiasAdd:0'" in finding["message"] for finding in found)


def test_program_that_waits_for_a_checkpoint_is_stopped(linear_program, capfd):
    assert run(linear_program("--mode=wait")) == 2
    *_, line, verdict = capfd.readouterr().out.splitlines()
    assert line.startswith("later calls: not checked: ")
    assert "it waits for results at tests/tpu/programs/linear_program.py:" in line
    assert verdict == "no error in train; not checked: later calls"


def test_calls_without_a_tpu_are_not_checked(linear_program, capfd):
    assert run(linear_program("--use_tpu=0")) == 2
    out = capfd.readouterr().out
    assert "not checked: train at " in out
    assert "it runs without a TPU: use_tpu=False. Set use_tpu=True by" in out
    assert out.endswith("\nno call runs on a TPU\n")


def test_an_evaluation_on_the_cpu_is_not_checked(linear_program, script, capfd):
    program = linear_program("--mode=evaluate_all")
    source = pathlib.Path(program.target).read_text()
    source = source.replace("export_to_tpu=False", "export_to_tpu=False, eval_on_tpu=False")
    assert run(script(source, *program.arguments)) == 2
    assert "it runs without a TPU: eval_on_tpu=False. Remove this" in capfd.readouterr().out


def test_plain_estimators_are_not_checked(script, tmp_path, capfd):
    source = """
import sys
import tensorflow as tf
tf1 = tf.compat.v1

def model_fn(features, labels, mode):
    return tf.estimator.EstimatorSpec(mode, predictions=features)

estimator = tf.estimator.Estimator(model_fn, sys.argv[1])
estimator.train(None, steps=3)
print(estimator.evaluate(None)["global_step"], len(list(estimator.predict(None))))
"""
    assert run(script(source, str(tmp_path))) == 2
    out = capfd.readouterr().out
    assert out.startswith("3 1\n")
    assert "it runs without a TPU: a tf.estimator.Estimator never uses a TPU. Make it" in out


@pytest.mark.parametrize("steps", [0, slow(1)])
def test_predictions_are_an_iterator_that_can_be_closed(linear_program, script, capfd, steps):
    program = linear_program("--mode=all", "--steps=4")
    source = pathlib.Path(program.target).read_text()
    every = "len(list(estimator.predict(predict_input_fn)))"
    assert every in source
    one = "[(next(p), p.close()) for p in [estimator.predict(predict_input_fn)]]"
    source = source.replace(every, one)
    assert run(script(source, *program.arguments), steps=steps) == 0
    assert "is not an iterator" not in capfd.readouterr().out


def test_an_error_of_the_program(script, capfd):
    assert run(script("raise ValueError('no data')")) == 2
    out, err = capfd.readouterr()
    assert "ValueError: no data (at " in out
    assert err.startswith("Traceback (most recent call last; the program's own lines")
    assert "runpy" not in err


def test_error_of_a_call_that_cannot_be_built_is_one_error(evaluations, capfd):
    assert run(evaluations("evaluate('missing')"), steps=1) == 1
    *_, line, verdict = capfd.readouterr().out.splitlines()
    assert line.startswith("later calls: not checked: the program stopped: FileNotFoundError ")
    assert verdict == "1 error"


def test_interrupted_check_reports_what_it_checked(script, linear_program, tmp_path, capfd):
    program = script(
        "import runpy, sys\n"
        "runpy.run_path(sys.argv.pop(1), run_name='__main__')\n"
        "raise KeyboardInterrupt",
        linear_program().target,
        f"--model_dir={tmp_path}/model",
    )
    assert run(program) == 130
    out = capfd.readouterr().out
    assert "batch per core" in out
    assert "Ctrl-C" in out


EVALUATIONS = """
import os, signal, sys
import tensorflow as tf
tf1 = tf.compat.v1

class Input:
    def __init__(self, split):
        self.split = split

    def __call__(self, params):
        if self.split == "missing":
            raise FileNotFoundError
        if self.split == "exit":
            os._exit(0)
        examples = tf.data.Dataset.from_tensors(tf.ones([3])).repeat()
        return examples.batch(params["batch_size"], drop_remainder=True)

def model_fn(features, labels, mode, params):
    return tf1.estimator.tpu.TPUEstimatorSpec(mode, loss=tf.reduce_mean(features))

def evaluate(split):
    estimator.evaluate(Input(split), steps=1)

estimator = tf1.estimator.tpu.TPUEstimator(
    model_fn,
    config=tf1.estimator.tpu.RunConfig(
        cluster=tf.distribute.cluster_resolver.TPUClusterResolver("any"), model_dir=sys.argv[1]
    ),
    use_tpu=True,
    train_batch_size=16,
    eval_batch_size=16,
)
"""


@pytest.fixture
def evaluations(script, tmp_path):
    """`evaluations(source)` is a program that evaluates, by `evaluate(split)`."""
    return lambda source: script(f"{EVALUATIONS}\n{source}", str(tmp_path / "model"))


def test_calls_with_other_input_objects_are_checked(evaluations, tmp_path, capfd):
    program = evaluations("for split in ('a', 'a', 'b', 'missing', 'a'): evaluate(split)")
    assert run(program, report=tmp_path / "report.json") == 1
    assert capfd.readouterr().err.count("tpu: checking") == 3
    fields = json.loads((tmp_path / "report.json").read_text())
    assert list(fields["modes"]) == ["eval", "eval 2", "eval 3"]
    (error,) = [finding for finding in fields["findings"] if finding["level"] == "error"]
    assert error["message"].startswith("FileNotFoundError without a message, raised by `raise F")
    assert error["where"].endswith("script.py:12")
    assert error["mode"] == "eval 3"


def test_program_that_counts_its_calls_is_one_call(evaluations, capfd):
    source = """
Input.__call__ = lambda self, params: self.split.append(1) or Input(0).make(params)
Input.make = lambda self, params: tf.data.Dataset.from_tensors(tf.ones([16, 3])).repeat()
splits = []
for _ in range(3):
    evaluate(splits)
"""
    assert run(evaluations(source)) == 0
    assert capfd.readouterr().err.count("tpu: checking") == 1


def test_signal_ends_the_program_with_its_report(evaluations, capfd):
    assert run(evaluations("evaluate('a'); os.kill(os.getpid(), signal.SIGTERM)")) == 143
    *_, line, verdict = capfd.readouterr().out.splitlines()
    assert line == "later calls: not checked: SIGTERM"
    assert verdict.endswith("in eval; not checked: later calls")


class Ended(StopProgram):
    """The process would have ended with this status."""


@pytest.fixture
def status_of_process(monkeypatch):
    """`status_of_process(program)` is the exit status of a program that ends its process."""

    def end(status):
        raise Ended(status)

    def run_to_end(program):
        with pytest.raises(Ended) as error:
            run(program)
        return error.value.args[0]

    monkeypatch.setattr(processes, "_real_exit", end)
    return run_to_end


def test_process_that_ends_after_its_calls(evaluations, status_of_process, capfd):
    assert status_of_process(evaluations("evaluate('a'); os._exit(0)")) == 0
    assert "\nnever checked: " in capfd.readouterr().out


def test_process_that_ends_within_a_call(evaluations, status_of_process, capfd):
    program = evaluations("evaluate('exit')")
    assert status_of_process(program) == 1
    line = f"the program ended within evaluate at {program.target}:"
    assert f"error program: {line}" in capfd.readouterr().out


def test_second_signal_ends_a_program_that_catches_the_first(evaluations, status_of_process, capfd):
    source = """
evaluate('a')
for _ in range(2):
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except KeyboardInterrupt:
        print("caught")
"""
    assert status_of_process(evaluations(source)) == 130
    out = capfd.readouterr().out
    assert out.startswith("caught\n")
    assert "later calls: not checked: Ctrl-C" in out


def test_call_of_a_forked_process_is_not_checked(evaluations, capfd):
    program = evaluations("if os.fork():\n    os.wait()\nelse:\n    evaluate('a')")
    assert run(program) == 2
    line = f"evaluate at {program.target}:22: not checked: it runs in a forked process"
    assert line in capfd.readouterr().out.splitlines()


def test_placeholder_metrics_are_numpy_scalars():
    call = Call("evaluate", None, {"input_fn": None}, "", None)
    metrics = Placeholders(lambda call: ("accuracy",)).result(call)
    assert {name: value.item() for name, value in metrics.items()} == {
        "accuracy": 0.0,
        "loss": 0.0,
        "global_step": 0,
    }


def test_nothing_is_written_to_a_bucket():
    estimator = types.SimpleNamespace(model_dir="gs://no-such-bucket/model")
    call = Call("train", estimator, {"max_steps": 3}, "", None)
    with mock.patch.object(tf.io.gfile, "makedirs") as makedirs:
        assert Placeholders(lambda call: None).result(call) is estimator
    makedirs.assert_not_called()


@pytest.mark.parametrize(("single", "shapes"), [(True, [(2,)] * 3), (False, [(3, 2)])])
def test_placeholder_predictions_are_examples_or_batches(single, shapes):
    estimator = types.SimpleNamespace(_ctx=types.SimpleNamespace(_predict_batch_size=3))
    call = Call("predict", estimator, {"yield_single_examples": single}, "", None)
    results = Placeholders(lambda call: {"output": ("float32", [2])}).result(call)
    assert [zeros["output"].shape for zeros in results] == shapes


def test_calls_that_differ_by_the_tensors_of_their_hooks():
    def identity_of(*names):
        hooks = [tf.compat.v1.train.LoggingTensorHook([name], 1) for name in names]
        return check._identity(Call("train", estimator, {"hooks": hooks}, "", None))

    estimator = tf.estimator.Estimator(lambda features, mode: None)
    assert identity_of("loss") == identity_of("loss")
    assert len({identity_of(), identity_of("loss"), identity_of("rate")}) == 3


@pytest.mark.parametrize("params", [HParams(rate=0.1), {"columns": [numeric_column("x")]}])
def test_params_may_be_hparams_and_feature_columns(params):
    estimator = tf.compat.v1.estimator.tpu.TPUEstimator(
        model_fn=lambda features, labels, mode, params: None,
        config=tf.compat.v1.estimator.tpu.RunConfig(),
        params=params,
        use_tpu=False,
        train_batch_size=8,
    )
    made = [Call("train", estimator, {"input_fn": None}, "", None) for _ in range(2)]
    assert check._identity(made[0]) == check._identity(made[1])
