"""A training of run_tpu.py on the fake cloud, preempted twice, equals an undisturbed one."""

import pathlib
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import tensorflow as tf

from tests.tpu.vm.fake_cloud import QUOTA

ROOT = pathlib.Path(__file__).parents[3]
STEPS = 60


def command(model_dir, data_dir):
    flags = [
        *("--tpu=emulator", "--tpu_topology=1x2", "--flagfile=configs/digits.cfg", "--mode=train"),
        *(f"--data_dir={data_dir}", f"--model_dir={model_dir}", f"--train_steps={STEPS}"),
        *("--save_checkpoints_steps=10", "--train_batch_size=26", "--export_dir="),
    ]
    return [sys.executable, "run_tpu.py", *flags]


def variables(model_dir):
    reader = tf.train.load_checkpoint(str(model_dir / f"model.ckpt-{STEPS}"))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


@pytest.mark.slow
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="this is not a git repository")
def test_training_of_run_tpu_that_is_preempted_twice(processes, tpu_vm, cloud, tmp_path):
    data_dir = tmp_path / "data"
    prepare = ["prepare_data.py", "--dataset=digits", f"--data_dir={data_dir}"]
    subprocess.run([sys.executable, *prepare], cwd=ROOT, check=True, capture_output=True)
    undisturbed, model_dir = tmp_path / "undisturbed", tmp_path / "preempted"
    subprocess.run(command(undisturbed, data_dir), cwd=ROOT, check=True, capture_output=True)

    def preempt():
        for step in (10, 40):
            while not (model_dir / f"model.ckpt-{step}.index").exists():
                time.sleep(0.01)
            cloud.preempt("my-tpu")

    assert tpu_vm("up", "--name=my-tpu", "--spot")[0] == 0
    assert tpu_vm("push", f"--code={ROOT}", "--setup=")[0] == 0
    cloud.plan("create", QUOTA)
    thread = threading.Thread(target=preempt, daemon=True)
    thread.start()
    status, out, err = tpu_vm("run", "--", *command(model_dir, data_dir))
    thread.join()
    assert status == 0, out + err
    assert out.count("the VM is PREEMPTED. Resuming") == 2
    assert "Quota limit" in out
    assert tpu_vm("down", "--yes")[0] == 0
    expected, actual = variables(undisturbed), variables(model_dir)
    assert expected.keys() == actual.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(actual[name], value, err_msg=name)
