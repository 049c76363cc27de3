"""All modes of run_tpu.py on emulated cores, compared with run_cpu.py."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import types

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import run_tpu as wrapper
from common.errors import UsageError
from engine.serving import model_card
from input_fns.core import records
from tests import numerics
from tests.marks import runs_bfloat16, slow
from tpu.connect import connection
from tpu.connect import flags as tpu_flags
from tpu.connect.request import TPUError

ROOT = pathlib.Path(__file__).parents[1]
EXACT = "--params=dropout=0"  # each core draws different random numbers
# 512 units in the hidden layer; two layers and a softmax.
MLP = {"terms": 512, "depth": 3}
# Each step sums the gradients of 14 examples; variables of magnitude 1.
TRAINING = {"terms": 14, "magnitude": 1.0}


@pytest.fixture
def run_tpu(run_tpu_in, tmp_path):
    """Runs run_tpu.py in a new model_dir and returns it."""

    def run_with(*arguments):
        run_tpu_in(tmp_path / "model", *arguments)
        return str(tmp_path / "model")

    return run_with


def scalars(directory):
    """`{tag: {step: value}}` of TF1 and TF2 summaries in the event files of a folder."""
    found = {}
    for path in tf.io.gfile.glob(os.path.join(directory, "events.*")):
        for event in tf.compat.v1.train.summary_iterator(path):
            for value in event.summary.value:
                number = value.simple_value
                if value.HasField("tensor"):
                    number = tf.make_ndarray(value.tensor)
                found.setdefault(value.tag, {})[event.step] = number
    return found


@pytest.mark.parametrize(("name", "batch_size"), [("1x2", 14), slow("v3-8", 16), slow("v3-8", 104)])
def test_eval_matches_run_cpu(run_in, run_tpu_in, uncertain_dir, result, name, batch_size):
    run_in(uncertain_dir, "--mode=eval")
    cpu = result(uncertain_dir, 2)["eval"]
    slice_flag = f"--tpu_topology={name}"
    run_tpu_in(uncertain_dir, "--mode=eval", slice_flag, f"--eval_batch_size={batch_size}")
    tpu = result(uncertain_dir, 2)["eval"]
    assert tpu["examples"] == cpu["examples"] == 41
    assert tpu["confusion_matrix"] == cpu["confusion_matrix"]
    numerics.assert_close(tpu["accuracy"], cpu["accuracy"])
    numerics.assert_close(tpu["average_loss"], cpu["average_loss"], **MLP)


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize("wrapper", ["run_in", "run_tpu_in"])
def test_an_evaluation_tells_that_all_predictions_are_one_class(request, wrapper, tmp_path, capsys):
    run = request.getfixturevalue(wrapper)
    # Features that are almost 0: only the bias of the classes is learned.
    run(tmp_path, "--mode=train_and_eval", "--train_steps=2", "--params=pixel_scale=1e-9")
    line, after = capsys.readouterr().out.partition("eval of step 2 on test: ")[2].split("\n")[:2]
    assert line.endswith("examples 41")
    assert after.startswith("all 41 predictions are '")
    assert "': the model has not learned the classes. Train longer" in after


@pytest.mark.parametrize(("name", "batch_size"), [("1x2", 14), slow("v3-8", 8), slow("v3-8", 104)])
def test_predict_matches_run_cpu(run_in, run_tpu_in, uncertain_dir, tmp_path, name, batch_size):
    run_in(uncertain_dir, "--mode=predict", f"--predict_output={tmp_path}/cpu.npz")
    run_tpu_in(
        uncertain_dir,
        "--mode=predict",
        f"--tpu_topology={name}",
        f"--predict_batch_size={batch_size}",
        f"--predict_output={tmp_path}/tpu.npz",
    )
    with np.load(tmp_path / "cpu.npz") as cpu, np.load(tmp_path / "tpu.npz") as tpu:
        assert cpu.files == tpu.files
        assert len(tpu["classes"]) == 41
        np.testing.assert_array_equal(tpu["class_names"], cpu["class_names"])
        numerics.assert_close(tpu["probabilities"], cpu["probabilities"], **MLP)


@pytest.mark.slow
def test_saved_models_match_run_cpu(
    run_in, run_tpu_in, uncertain_dir, raw_dataset, tmp_path, eager
):
    run_in(uncertain_dir, "--mode=export", f"--export_dir={tmp_path}/cpu")
    run_tpu_in(uncertain_dir, "--mode=export", f"--export_dir={tmp_path}/tpu")
    images = tf.constant(raw_dataset.splits["test"].images)
    answers, signatures = [], []
    for folder in ("cpu", "tpu"):
        (version,) = (tmp_path / folder).iterdir()
        serve = tf.saved_model.load(str(version)).signatures["serving_default"]
        outputs = serve.structured_outputs.items()
        shapes = {name: (tensor.dtype, tensor.shape.as_list()) for name, tensor in outputs}
        signatures.append((serve.structured_input_signature, shapes))
        answers.append(serve(image=images))
    assert signatures[0] == signatures[1]
    for name, values in answers[0].items():
        if values.dtype == tf.string:
            np.testing.assert_array_equal(answers[1][name].numpy(), values.numpy())
        else:
            numerics.assert_close(answers[1][name].numpy(), values.numpy(), **MLP)


def test_export_to_tpu_adds_a_tpu_graph(run_tpu_in, trained_dir, tmp_path):
    run_tpu_in(trained_dir, "--mode=export", "--export_to_tpu", f"--export_dir={tmp_path}")
    (version,) = tmp_path.iterdir()
    cpu, tpu = model_card.read(str(version)).meta_graphs
    assert [*cpu.meta_info_def.tags] == ["serve"]
    assert sorted(tpu.meta_info_def.tags) == ["serve", "tpu"]
    assert "TPUPartitionedCall" in {node.op for node in tpu.graph_def.node}
    (signature,) = tpu.signature_def.values()
    assert set(signature.inputs) == {"image"}
    assert set(signature.outputs) == {"classes", "probabilities"}


@pytest.mark.slow(cost=0.1)
def test_train_and_eval_evaluates_every_checkpoint(run_tpu, run_in, result):
    model_dir = run_tpu(
        "--mode=train_and_eval",
        "--train_steps=40",
        "--save_checkpoints_steps=30",
        "--best_metric=accuracy",
    )
    by_tpu = {step: result(model_dir, step)["eval"] for step in (30, 40)}
    assert by_tpu[40]["accuracy"] > 0.95
    run_in(model_dir, "--mode=eval", f"--checkpoint={model_dir}/model.ckpt-30")
    by_cpu = result(model_dir, 30)["eval"]
    numerics.assert_close(by_tpu[30]["average_loss"], by_cpu["average_loss"], **MLP, magnitude=1.0)
    assert os.path.exists(os.path.join(model_dir, "best", "best.json"))
    assert result(model_dir, 40)["train"]["start_step"] == 0
    assert result(model_dir, 40)["train"]["examples_per_second"] > 0


@pytest.mark.slow
def test_train_and_eval_trains_like_train(run_tpu_in, variables, tmp_path):
    arguments = [EXACT, "--train_steps=12", "--save_checkpoints_steps=6"]
    run_tpu_in(tmp_path / "train", "--mode=train", *arguments)
    run_tpu_in(tmp_path / "turns", "--mode=train_and_eval", *arguments)
    once, turns = variables(tmp_path / "train"), variables(tmp_path / "turns")
    assert numerics.excess(turns, once, **TRAINING, depth=12) < 1


@pytest.mark.slow
def test_first_examples_of_each_split_on_a_schedule(run_tpu, result):
    model_dir = run_tpu(
        "--mode=train_and_eval",
        "--train_steps=10",
        "--save_checkpoints_steps=3",
        "--keep_checkpoint_max=0",
        "--eval_every_steps=4",
        "--eval_splits=test,train",
        "--max_eval_examples=17",
    )
    for step in (4, 8, 10):
        found = result(model_dir, step)
        assert found["eval_first_17"]["examples"] == found["eval_train_first_17"]["examples"] == 17
        assert (found["eval_first_17"]["of_examples"], found["eval_first_17"]["split"]) == (
            41,
            "test",
        )
    assert not os.path.exists(os.path.join(model_dir, "result_6.json"))


@pytest.mark.slow
def test_early_stopping(run_tpu, variables, capsys):
    model_dir = run_tpu(
        "--mode=train_and_eval",
        "--train_steps=100",
        "--save_checkpoints_steps=5",
        "--best_metric=accuracy",
        "--early_stop_evals=2",
        "--params=learning_rate=1e-9",
    )
    assert variables(model_dir)["global_step"] == 15
    assert "early stop" in capsys.readouterr().out


def test_continuous_eval_ends_at_train_steps(run_tpu_in, trained_dir, capsys):
    run_tpu_in(trained_dir, "--mode=continuous_eval", "--train_steps=40")
    assert "eval of step 40 on test" in capsys.readouterr().out


@pytest.mark.slow
def test_a_resumed_training_ends_with_the_same_weights(run_tpu_in, variables, tmp_path):
    for steps in (7, 20):
        run_tpu_in(tmp_path / "twice", "--mode=train", EXACT, f"--train_steps={steps}")
    run_tpu_in(tmp_path / "once", "--mode=train", EXACT, "--train_steps=20")
    twice, once = variables(tmp_path / "twice"), variables(tmp_path / "once")
    assert numerics.excess(twice, once, **TRAINING, depth=20) < 1


@pytest.mark.slow
def test_a_resumed_training_may_delete_its_first_checkpoint(run_tpu, result):
    saving = ["--save_checkpoints_steps=2", "--keep_checkpoint_max=1"]
    run_tpu("--mode=train", "--train_steps=2", *saving)
    model_dir = run_tpu("--mode=train_and_eval", "--train_steps=6", *saving)
    assert result(model_dir, 6)["eval"]["examples"] == 41


@pytest.mark.slow
def test_an_error_within_a_loop(run_tpu_in, variables, tmp_path, monkeypatch):
    steps = ["--mode=train", "--train_steps=12", "--save_checkpoints_steps=4"]
    steps += ["--iterations_per_loop=4"]
    run_tpu_in(tmp_path / "calm", *steps)
    prefetched = records.prefetched

    def fail_in_step_7(dataset):
        def fail(number, batch):
            whole = tf.debugging.assert_less(number, tf.constant(13, tf.int64))
            with tf.control_dependencies([whole]):
                return tf.nest.map_structure(tf.identity, batch)

        return prefetched(dataset.enumerate().map(fail))

    monkeypatch.setattr(records, "prefetched", fail_in_step_7)
    with pytest.raises(tf.errors.OpError):
        run_tpu_in(tmp_path / "wild", *steps)
    assert variables(tmp_path / "wild")["global_step"] == 4
    monkeypatch.undo()
    run_tpu_in(tmp_path / "wild", *steps)
    calm, wild = variables(tmp_path / "calm"), variables(tmp_path / "wild")
    assert numerics.excess(wild, calm, **TRAINING, depth=12) < 1


@pytest.mark.slow
def test_a_killed_training_resumes_to_the_same_weights(command, run_tpu_in, variables, tmp_path):
    steps = ["--mode=train", EXACT, "--train_steps=1000", "--save_checkpoints_steps=20"]
    tpu = ["--tpu=emulator", "--tpu_topology=1x2", "--train_batch_size=14"]
    process = subprocess.Popen(
        command("run_tpu.py", *tpu, *steps), cwd=ROOT, stdout=subprocess.DEVNULL
    )
    while not (tmp_path / "model" / "checkpoint").exists():  # written after the checkpoint
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    killed_at = int(variables(tmp_path / "model")["global_step"])
    run_tpu_in(tmp_path / "model", *steps)
    run_tpu_in(tmp_path / "once", *steps)
    assert 0 < killed_at < 1000
    killed, once = variables(tmp_path / "model"), variables(tmp_path / "once")
    assert numerics.excess(killed, once, **TRAINING, depth=1000) < 1


@pytest.mark.parametrize("mode", ["train", "train_and_eval"])
def test_at_train_steps_nothing_is_trained(run_tpu_in, trained_dir, capsys, mode):
    batch = ["--tpu_topology=1x1", "--train_batch_size=13", "--eval_batch_size=13"]
    run_tpu_in(trained_dir, f"--mode={mode}", "--train_steps=40", *batch)
    assert "already at step 40" in capsys.readouterr().out


@pytest.mark.slow(cost=0.1)
def test_summaries_at_multiples_of_summary_steps(run_tpu):
    model_dir = run_tpu(
        "--mode=train", "--train_steps=20", "--save_checkpoints_steps=10", "--summary_steps=5"
    )
    curves = scalars(model_dir)
    assert set(curves["loss"]) == set(curves["learning_rate"]) == {5, 10, 15, 20}
    assert curves["learning_rate"][5] == pytest.approx(0.01)
    assert curves["loss"][20] < curves["loss"][5]
    assert set(curves["examples/sec"]) == {10, 20}  # between loops


@pytest.mark.slow
def test_eval_uses_ema(run_tpu_in, run_in, result, tmp_path):
    average = "--params=ema_decay=0.99,learning_rate=0.001"
    run_tpu_in(tmp_path, "--mode=train", "--train_steps=15", average)
    run_in(tmp_path, "--mode=eval", average)
    cpu = result(tmp_path, 15)["eval"]["average_loss"]
    run_tpu_in(tmp_path, "--mode=eval", average)
    numerics.assert_close(result(tmp_path, 15)["eval"]["average_loss"], cpu, **MLP, magnitude=1.0)
    run_tpu_in(tmp_path, "--mode=eval")
    assert result(tmp_path, 15)["eval"]["average_loss"] < cpu - 0.01


@runs_bfloat16
@pytest.mark.slow  # tests/engine/train/test_forward.py compares bfloat16 with float32
def test_bfloat16_reaches_the_accuracy_of_float32(run_tpu, result):
    model_dir = run_tpu("--train_steps=50", "--precision=bfloat16")
    assert result(model_dir, 50)["eval"]["accuracy"] > 0.95


def test_without_a_tpu_it_runs_on_the_cpu(run_tpu, result, capsys, monkeypatch):
    monkeypatch.delenv("TPU_NAME", raising=False)
    model_dir = run_tpu("--train_steps=50", "--tpu=", "--tpu_topology=", "--train_batch_size=13")
    assert "running on GPU or CPU" in capsys.readouterr().out
    assert result(model_dir, 50)["eval"]["accuracy"] > 0.95


def test_an_unknown_best_metric_is_an_error_before_training(run_tpu):
    with pytest.raises(UsageError, match=r"precision is unknown\. Valid: accuracy"):
        run_tpu("--train_steps=50", "--best_metric=precision:max")


def test_a_checkpoint_of_another_model_is_an_error(run_tpu_in, trained_dir):
    with pytest.raises(UsageError, match="does not match this model"):
        run_tpu_in(trained_dir, "--mode=train", "--train_steps=50", "--params=hidden_units=3")


@pytest.mark.slow
def test_flags_cfg_of_run_tpu_works_with_run_cpu(run_tpu, result):
    model_dir = run_tpu("--mode=train", "--train_steps=5", "--iterations_per_loop=5")
    # In a new process: in this one run_tpu.py has defined its flags.
    recipe = [sys.executable, "run_cpu.py", f"--flagfile={model_dir}/flags.cfg", "--mode=eval"]
    done = subprocess.run(recipe, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert result(model_dir, 5)["eval"]["examples"] == 41


def test_connection_errors_are_printed_before_files_are_written(
    tiny_flags, exit_status, capsys, tmp_path
):
    tpu = ["--tpu=10.0.0.999", "--tpu_topology=v3-32", f"--model_dir={tmp_path}/model"]
    assert exit_status(wrapper, *tiny_flags, *tpu, "--mode=train", "--train_steps=5") == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "run_tpu.py: error: cannot use the TPU, 4 problems:"
    for line, fact in zip(lines[1:], ["10.0.0.999:8470", "data_dir", "model_dir", "13 / 32"]):
        assert fact in line
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tpu_topology=v5p-8"], "PJRT"),
        (["--tpu_topology=v3-9"], "unknown TPU slice"),
        (["--use_tpu=maybe"], "use_tpu"),
        (["--iterations_per_loop=3"], "does not divide --save_checkpoints_steps=1000"),
        (["--tpu=emulator"], "13 / 8 = 1.62"),
        (["--tpus=local"], "tpus"),
    ],
)
def test_invalid_flags_are_one_line(tiny_flags, exit_status, capsys, tmp_path, arguments, message):
    training = ["--mode=train", "--train_steps=5", f"--model_dir={tmp_path}/model"]
    assert exit_status(wrapper, *tiny_flags, *training, *arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("run_tpu.py: error: ")
    assert message in line


@pytest.mark.slow
def test_predict_reads_image_files_from_input(run_tpu, prepare, tmp_path):
    for i in range(7):
        path = tmp_path / "photos" / "ab"[i % 2] / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (9 + i, 13), (30 * i,) * 3).save(path)
    prepare("--dataset=image_folder", "--name=photos", f"--source={tmp_path}/photos",
            "--validation_fraction=0", f"--data_dir={tmp_path}/data")  # fmt: skip
    data = ["--dataset=photos", f"--data_dir={tmp_path}/data", "--image_size=8x8"]
    model_dir = run_tpu("--mode=train", "--train_steps=2", *data)
    run_tpu("--mode=predict", f"--input={tmp_path}/photos", "--predict_batch_size=4", *data)
    lines = pathlib.Path(model_dir, "predictions_input_2.jsonl").read_text().splitlines()
    names = [json.loads(line)["name"] for line in lines]
    assert names == ["a/0.png", "a/2.png", "a/4.png", "a/6.png", "b/1.png", "b/3.png", "b/5.png"]


def test_image_files_cannot_be_read_for_a_remote_tpu(
    trained_dir, run_tpu_in, monkeypatch, tmp_path
):
    Image.new("RGB", (9, 13)).save(tmp_path / "a.png")
    remote = connection.Connection(is_remote=True)
    monkeypatch.setattr(connection, "connect", lambda request: contextlib.nullcontext(remote))
    with pytest.raises(UsageError, match=r"which a remote TPU cannot call\. Use run_cpu"):
        run_tpu_in(trained_dir, "--mode=predict", f"--input={tmp_path}/a.png")


@pytest.mark.slow(cost=0.1)
def test_a_pod_exports_only_without_the_export_check(run_tpu_in, trained_dir, tmp_path):
    export = ["--mode=export", f"--export_dir={tmp_path}/export", "--predict_batch_size=16"]
    export.append("--tpu_topology=2x2")
    with pytest.raises(
        TPUError, match=r"one host only.*run_cpu\.py --mode=export.*--noexport_check"
    ):
        run_tpu_in(trained_dir, *export, "--export_check")
    assert not (tmp_path / "export").exists()
    run_tpu_in(trained_dir, *export, "--noexport_check")
    assert len(list((tmp_path / "export").iterdir())) == 1


def test_iterations_per_loop_is_ignored_without_training_on_a_tpu(trained_dir, run_tpu_in):
    run_tpu_in(trained_dir, "--mode=eval", "--iterations_per_loop=7")
    run_tpu_in(trained_dir, "--mode=train", "--use_tpu=false", "--iterations_per_loop=7",
               "--train_steps=40", "--train_batch_size=13")  # fmt: skip


def test_tf_config_is_an_error(run_tpu, monkeypatch):
    cluster = {"chief": ["localhost:1"], "ps": ["localhost:2"], "worker": ["localhost:3"]}
    task = {"type": "chief", "index": 0}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": task}))
    with pytest.raises(UsageError, match="TF_CONFIG describes a cluster, which only run_cpu"):
        run_tpu("--mode=train", "--train_steps=5")


@pytest.mark.parametrize(
    ("save_checkpoints_steps", "iterations", "hint"),
    [(1000, 100, ""), (673, 1, "--save_checkpoints_steps=700 allows 100"), (20, 20, "")],
)
def test_few_iterations_per_loop_print_a_hint(
    monkeypatch, capsys, save_checkpoints_steps, iterations, hint
):
    monkeypatch.setattr(tpu_flags, "FLAGS", types.SimpleNamespace(iterations_per_loop=None))
    assert tpu_flags.iterations_per_loop(save_checkpoints_steps) == iterations
    output = capsys.readouterr().out
    assert hint in output
    assert bool(output) == bool(hint)


@pytest.mark.slow
def test_digits_accuracy_matches_run_cpu(run_with, run_tpu_with, digits_dir, tmp_path, result):
    recipe = [f"--flagfile={ROOT}/configs/digits.cfg", f"--data_dir={digits_dir}"]
    recipe.append("--mode=train_and_eval")
    run_with(*recipe, f"--model_dir={tmp_path}/cpu")
    run_tpu_with(*recipe, f"--model_dir={tmp_path}/tpu", "--tpu=emulator", "--tpu_topology=1x2")
    cpu, tpu = (result(tmp_path / name, 338)["eval"]["accuracy"] for name in ("cpu", "tpu"))
    assert tpu > cpu - 0.01 > 0.97
