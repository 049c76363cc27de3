"""`python -m tpu emulate`, and `run` on the devices of TensorFlow."""

import pathlib

import numpy as np
import pytest
import tensorflow as tf

from tests import numerics
from tpu.connect import topology
from tpu.connect.request import Hosts
from tpu.programs import run
from tpu.programs.program import TENSORFLOW

SLICE = topology.find("1x2")


@pytest.mark.slow(cost=0.1)
def test_every_call_runs_on_emulated_cores(linear_program, tmp_path, capfd):
    assert run.emulate(linear_program("--mode=all", "--steps=4"), SLICE) == 0
    out, err = capfd.readouterr()
    assert "tpu: emulating a TPU 1x2 (1 x 2 cores)" in err
    ran = "2 train, 2 evaluate, 1 predict, 1 export"
    assert f"tpu: on emulated cores: {ran}" in err
    assert "predictions 11" in out
    assert tf.train.load_variable(f"{tmp_path}/model", "global_step") == 4
    assert len(list((tmp_path / "model" / "export").iterdir())) == 1


def test_trains_as_on_a_cpu(linear_program, tmp_path):
    weights = []
    for use_tpu in (1, 0):
        flags = f"--model_dir={tmp_path}/{use_tpu}", f"--use_tpu={use_tpu}"
        run.emulate(linear_program(*flags), SLICE)
        weights.append(tf.train.load_variable(f"{tmp_path}/{use_tpu}", "dense/kernel"))
    assert np.abs(weights[1] - 1).max() > 0.01
    numerics.assert_close(*weights, terms=16, depth=6, magnitude=1.0)


def test_train_and_evaluate(linear_program, capfd):
    run.emulate(linear_program("--mode=train_and_evaluate"), SLICE)
    assert "1 train, 1 evaluate" in capfd.readouterr().err


def test_reports_that_nothing_was_emulated(linear_program, script, capfd):
    run.emulate(linear_program("--use_tpu=0", "--steps=1"), SLICE)
    assert "use_tpu=False. Set use_tpu=True by the program's own flag" in capfd.readouterr().err
    run.emulate(script("print('hello')"), SLICE)
    assert "the program called no TPUEstimator" in capfd.readouterr().err


def test_the_reason_is_that_of_the_class_of_the_estimator(script, tmp_path, capfd):
    source = """
import sys
import tensorflow as tf

def model_fn(features, labels, mode):
    step = tf.compat.v1.train.get_global_step()
    loss = tf.reduce_mean(features)
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=step.assign_add(1))

estimator = tf.estimator.Estimator(model_fn, sys.argv[1])
estimator.train(lambda: tf.data.Dataset.from_tensors(tf.zeros([3])), steps=1)
"""
    run.emulate(script(source, str(tmp_path / "model")), SLICE)
    *_, last = capfd.readouterr().err.splitlines()
    assert last.startswith(
        "tpu: nothing ran on emulated cores: a tf.estimator.Estimator never uses a TPU. Make it"
    )


def test_evaluations_on_the_cpu_are_not_counted(linear_program, script, capfd):
    program = linear_program("--mode=train_and_evaluate")
    source = pathlib.Path(program.target).read_text()
    source = source.replace("export_to_tpu=False", "export_to_tpu=False, eval_on_tpu=False")
    run.emulate(script(source, *program.arguments), SLICE)
    *_, last = capfd.readouterr().err.splitlines()
    assert last == "tpu: on emulated cores: 1 train"


def test_computations_without_an_estimator_are_counted(script, capfd):
    source = """
import tensorflow.compat.v1 as tf
with tf.Graph().as_default(), tf.Session("grpc://tpu:8470") as session:
    session.run(tf.tpu.initialize_system())
    doubled = tf.tpu.batch_parallel(lambda x: 2 * x, [tf.range(6.0)], num_shards=2)
    print(*session.run(doubled)[0])
"""
    assert run.emulate(script(source), SLICE) == 0
    out, err = capfd.readouterr()
    assert out == "0.0 2.0 4.0 6.0 8.0 10.0\n"
    assert err.endswith("tpu: on emulated cores: 1 computation of tf.tpu\n")


@pytest.mark.slow(cost=0.1)
def test_an_input_that_ends_early_is_told_once(linear_program, capfd):
    with pytest.raises(tf.errors.OutOfRangeError, match="End of sequence"):
        run.emulate(linear_program("--input=once"), SLICE)
    assert "Closing session due to error" not in capfd.readouterr().err


def test_errors_of_the_program_are_its_own(script):
    with pytest.raises(KeyError, match="mine"):
        run.emulate(script("raise KeyError('mine')"), SLICE)


def test_reports_a_call_that_failed(linear_program, capfd):
    with pytest.raises(ValueError, match="divisible by number of replicas 3"):
        run.emulate(linear_program(), topology.find("1x3"))
    assert capfd.readouterr().err.endswith("tpu: on emulated cores: train failed\n")


def test_unsupported_programs_get_one_line(script, capfd):
    source = """
import tensorflow as tf
tf.distribute.TPUStrategy(tf.distribute.cluster_resolver.TPUClusterResolver("any"))
"""
    assert run.emulate(script(source), SLICE) == 1
    *_, last = capfd.readouterr().err.splitlines()
    assert last.startswith("tpu: error: TPUStrategy is not emulated")
    assert last.endswith("script.py:3)")


def test_devices_of_tensorflow(script, tmp_path, capfd):
    source = f"""
import tensorflow as tf

def model_fn(features, labels, mode, params):
    weight = tf.compat.v1.get_variable("weight", [])
    step = tf.compat.v1.train.get_global_step()
    train_op = tf.compat.v1.train.GradientDescentOptimizer(0.1).minimize(weight**2, step)
    return tf.compat.v1.estimator.tpu.TPUEstimatorSpec(mode, loss=weight**2, train_op=train_op)

def input_fn(params):
    return tf.data.Dataset.from_tensors(tf.zeros([params["batch_size"], 3])).repeat()

config = tf.compat.v1.estimator.tpu.RunConfig(model_dir="{tmp_path}/model")
estimator = tf.compat.v1.estimator.tpu.TPUEstimator(
    model_fn, use_tpu=False, config=config, train_batch_size=7)
estimator.train(input_fn, steps=4)
"""
    assert run.run(script(source), TENSORFLOW, "", Hosts()) == 0
    last = capfd.readouterr().err.splitlines()[-1]
    assert last == (
        "tpu: nothing ran on a TPU: use_tpu=False. Set use_tpu=True by the program's own flag"
    )
    assert tf.train.load_variable(f"{tmp_path}/model", "global_step") == 4
