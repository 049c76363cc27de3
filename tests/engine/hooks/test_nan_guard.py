"""Training stops at NaN and infinity, and keeps the earlier checkpoints."""

import os
import shutil

import pytest
import tensorflow as tf

from common.errors import RunError
from engine.checkpoints import verify
from engine.hooks import nan_guard
from tests.marks import slow


@pytest.mark.parametrize("save_every", [1, slow(3)])
def test_only_finite_values_are_saved(run_in, tmp_path, save_every):
    arguments = ["--mode=train", "--train_steps=30", f"--save_checkpoints_steps={save_every}"]
    with pytest.raises(RunError, match=r"at step \d+ .*infinity: (dense_0|none)"):
        run_in(tmp_path, *arguments, "--params=optimizer=momentum,learning_rate=1e30")
    for name in os.listdir(tmp_path):
        if name.endswith(".index"):
            assert verify.find_problem(str(tmp_path / name)[: -len(".index")]) is None


def test_the_error_names_the_step_and_the_variables(session):
    tf.compat.v1.train.get_or_create_global_step()
    tf.compat.v1.get_variable("good", initializer=[1.0, 2.0])
    bad = tf.compat.v1.get_variable("bad", initializer=[1.0, 2.0])
    tf.compat.v1.losses.add_loss(tf.constant(0.0))
    hook = nan_guard.NanGuardHook("nowhere")
    hook.begin()
    session.run(tf.compat.v1.global_variables_initializer())
    hook.check_variables(session, 4)
    session.run(bad.assign([1.0, float("inf")]))
    with pytest.raises(RunError, match=r"at step 5 .*infinity: bad\. The"):
        hook.check_variables(session, 5)


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_a_loss_that_is_not_finite_stops_training(value):
    count = tf.compat.v1.train.get_or_create_global_step().assign_add(1)
    tf.compat.v1.get_variable("good", initializer=[1.0, 2.0])
    tf.compat.v1.losses.add_loss(tf.where(count < 3, 0.5, float(value)))
    hook = nan_guard.NanGuardHook("nowhere")
    with tf.compat.v1.train.MonitoredSession(hooks=[hook]) as session:
        session.run(count)
        session.run(count)
        with pytest.raises(RunError, match=f"at step 3 the loss is {value}; .*: none"):
            session.run(count)


@pytest.mark.slow(cost=0.1)
def test_a_diverged_training_resumes_with_a_lower_learning_rate(
    run_in, trained_dir, tmp_path, variables
):
    model_dir = shutil.copytree(trained_dir, tmp_path / "model")
    arguments = ["--mode=train", "--save_checkpoints_steps=2"]
    with pytest.raises(RunError, match=r"newest checkpoint is from before: .*model\.ckpt-40"):
        run_in(model_dir, *arguments, "--train_steps=70", "--params=learning_rate=1e38")
    run_in(model_dir, *arguments, "--train_steps=44")
    assert variables(model_dir)["global_step"] == 44
