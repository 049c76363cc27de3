"""All modes of run_cpu.py, run through its main."""

import dataclasses
import json
import os
import pathlib
import re
import shlex
import shutil
import stat
import subprocess
import sys
import types

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import run_cpu
from common import progress_line
from common.errors import UsageError
from engine.checkpoints.best import BestCheckpoint
from engine.cli import resolve_flags
from engine.train import trainer
from input_fns import DataError
from input_fns.convert import writer
from tests import numerics
from tests.marks import slow

# 512 units in the hidden layer; two layers and a softmax.
MLP = {"terms": 512, "depth": 3}
CONVNET = ["--model=convnet", "--params=layers=[conv:4:3,batch_norm,relu,dropout:0.5,flatten]"]


def assert_same_variables(a, b):
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)


def predictions(path):
    with open(path) as file:
        return [json.loads(line) for line in file]


def tags(directory):
    """All tags in the event files of a folder."""
    paths = tf.io.gfile.glob(os.path.join(directory, "events.*"))
    events = (event for path in paths for event in tf.compat.v1.train.summary_iterator(path))
    return {value.tag for event in events for value in event.summary.value}


@pytest.fixture(scope="module")
def nine_steps_dir(run_in, tmp_path_factory):
    """A model_dir trained to step 9, with the last 2 of its checkpoints. Read-only."""
    path = str(tmp_path_factory.mktemp("nine_steps"))
    saving = ["--save_checkpoints_steps=2", "--keep_checkpoint_max=2"]
    run_in(path, "--mode=train", "--train_steps=9", *saving)
    return path


@pytest.mark.slow(cost=0.1)
def test_train_ends_at_train_steps(nine_steps_dir, variables):
    assert variables(nine_steps_dir)["global_step"] == 9


@pytest.mark.slow(cost=0.1)
def test_train_epochs_rounds_up_to_whole_batches(run, variables):
    model_dir = run("--mode=train", "--train_epochs=2")  # 2 x 97 examples in batches of 13
    assert variables(model_dir)["global_step"] == 15


@pytest.mark.slow
@pytest.mark.parametrize(("epochs", "steps"), [("1.1", 11), ("2.2", 22), ("2.21", 23)])
def test_steps_of_a_fraction_of_epochs_are_exact(monkeypatch, epochs, steps):
    """1.1 * 50,000 is 55000.00000000001 in binary."""
    split = types.SimpleNamespace(num_examples=50_000)
    dataset = types.SimpleNamespace(split=lambda name: split)
    values = {"train_epochs": float(epochs), "train_batch_size": 5_000, "mode": "train"}
    named = types.SimpleNamespace(**values, train_split="train", train_steps=None)
    monkeypatch.setattr(resolve_flags, "FLAGS", named)
    assert resolve_flags._train_steps(dataset) == steps


def test_the_last_of_train_steps_and_train_epochs_wins(run, variables):
    model_dir = run("--mode=train", "--train_epochs=2", "--train_steps=3")
    assert variables(model_dir)["global_step"] == 3


@pytest.mark.slow(cost=0.1)
def test_train_and_eval_evaluates_every_checkpoint(run, result):
    model_dir = run("--mode=train_and_eval", "--train_steps=50", "--save_checkpoints_steps=30")
    accuracies = [result(model_dir, step)["eval"]["accuracy"] for step in (30, 50)]
    assert accuracies[-1] > 0.95
    assert not os.path.exists(os.path.join(model_dir, "result_0.json"))


@pytest.mark.slow(cost=0.1)
def test_train_records_throughput_and_flags(nine_steps_dir, result):
    record = result(nine_steps_dir, 9)["train"]
    assert record["examples_per_second"] > 0
    assert record["seconds_to_first_step"] > 0
    with open(os.path.join(nine_steps_dir, "flags.cfg")) as file:
        flags = file.read()
    assert "--train_steps=9\n" in flags
    assert "# seed of the order" not in flags  # it has --seed


@pytest.mark.slow(cost=0.1)
def test_a_resumed_run_keeps_the_order_of_the_examples(run_with, tiny_flags, tmp_path):
    def seed(steps):
        given = [flag for flag in tiny_flags if not flag.startswith("--seed")]
        run_with(*given, f"--model_dir={tmp_path / 'model'}", "--mode=train", steps)
        *_, last = (tmp_path / "model" / "flags.cfg").read_text().splitlines()
        return last

    first = seed("--train_steps=2")
    assert re.fullmatch("# seed of the order of the examples: [0-9]+", first)
    assert seed("--train_steps=3") == first


@pytest.mark.slow
def test_flags_cfg_repeats_the_run(run_in, tmp_path, variables):
    run_in(tmp_path / "a", "--mode=train", "--train_steps=5", "--params=dropout=0.5")
    flagfile = f"--flagfile={tmp_path}/a/flags.cfg"
    run_in(tmp_path / "b", flagfile, f"--model_dir={tmp_path}/b")
    assert_same_variables(variables(tmp_path / "a"), variables(tmp_path / "b"))


@pytest.mark.slow  # like a resumed training and an undisturbed one
def test_runs_with_one_seed_are_bit_identical(run_in, tmp_path, variables):
    for name in "ab":
        run_in(
            tmp_path / name,
            "--mode=train",
            *CONVNET,
            "--train_steps=20",
        )
    assert_same_variables(variables(tmp_path / "a"), variables(tmp_path / "b"))


@pytest.mark.slow
def test_runs_with_two_seeds_differ(run_in, tmp_path, variables):
    run_in(tmp_path / "a", "--mode=train", "--train_steps=2")
    run_in(tmp_path / "b", "--mode=train", "--train_steps=2", "--seed=2")
    assert not np.array_equal(
        variables(tmp_path / "a")["dense_0/kernel"], variables(tmp_path / "b")["dense_0/kernel"]
    )


def test_a_resumed_training_ends_with_bit_identical_weights(run_in, tmp_path, variables, capsys):
    for arguments in (["--train_steps=11"], ["--train_steps=20"]):
        run_in(tmp_path / "twice", "--mode=train", *CONVNET, *arguments)
    assert "parameters from step 11 up to step 20" in capsys.readouterr().out
    run_in(tmp_path / "once", "--mode=train", *CONVNET, "--train_steps=20")
    assert_same_variables(variables(tmp_path / "once"), variables(tmp_path / "twice"))


@pytest.mark.slow
def test_a_resumed_training_may_delete_its_first_checkpoint(run, result):
    saving = ["--save_checkpoints_steps=2", "--keep_checkpoint_max=1"]
    run("--mode=train", "--train_steps=2", *saving)
    model_dir = run("--mode=train_and_eval", "--train_steps=4", *saving)
    assert result(model_dir, 4)["eval"]["examples"] == 41


def test_at_train_steps_nothing_is_trained(run_in, trained_dir, capsys):
    before = sorted(os.listdir(trained_dir))
    run_in(trained_dir, "--mode=train", "--train_steps=40")
    assert "is already at step 40" in capsys.readouterr().out
    assert sorted(os.listdir(trained_dir)) == before


@pytest.mark.parametrize("batch_size", [13, slow(100), slow(1), slow(41)])
def test_eval_counts_each_example_once_for_any_batch_size(run_in, trained_dir, result, batch_size):
    run_in(trained_dir, "--mode=eval", f"--eval_batch_size={batch_size}")
    metrics = result(trained_dir, 40)["eval"]
    assert metrics["examples"] == 41
    assert np.sum(metrics["confusion_matrix"]) == 41


def test_eval_metrics_do_not_depend_on_the_batch_size(run_in, uncertain_dir, result):
    losses = []
    for batch_size in (7, 100):
        run_in(uncertain_dir, "--mode=eval", f"--eval_batch_size={batch_size}")
        losses.append(result(uncertain_dir, 2)["eval"]["average_loss"])
    numerics.assert_close(*losses, **MLP)


def test_eval_metrics_match_the_predictions(run_in, uncertain_dir, raw_dataset, result, tmp_path):
    run_in(uncertain_dir, "--mode=eval")
    run_in(uncertain_dir, "--mode=predict", f"--predict_output={tmp_path}/p.npz")
    labels = raw_dataset.splits["test"].labels
    with np.load(tmp_path / "p.npz") as rows:
        probabilities = rows["probabilities"][np.arange(41), labels]
        accuracy = np.mean(rows["classes"] == labels)
    metrics = result(uncertain_dir, 2)["eval"]
    assert metrics["accuracy"] == pytest.approx(accuracy)
    numerics.assert_close(metrics["average_loss"], -np.log(probabilities).mean(), **MLP)
    with_padding = {"loss": -np.log([*probabilities, probabilities.min()]).mean()}
    assert numerics.excess(with_padding, {"loss": metrics["average_loss"]}, **MLP) > 10


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize("mode", ["eval", "predict"])
def test_long_passes_print_progress(run_in, trained_dir, monkeypatch, capsys, mode):
    monkeypatch.setattr(progress_line, "_SECONDS_IN_A_LOG", 0.0)
    run_in(trained_dir, f"--mode={mode}")
    lines = [line for line in capsys.readouterr().out.splitlines() if "/41 | " in line]
    assert [line.split()[:2] for line in lines] == [
        [mode, f"{done}/41"] for done in (13, 26, 39, 41)
    ]


def test_eval_of_a_checkpoint_path(run_in, trained_dir, result):
    run_in(trained_dir, "--mode=eval", f"--checkpoint={trained_dir}/model.ckpt-20")
    assert result(trained_dir, 20)["eval"]["examples"] == 41


@pytest.mark.slow
def test_eval_of_the_training_split_is_separate(run_in, trained_dir, result):
    run_in(trained_dir, "--mode=eval")
    own = result(trained_dir, 40)["eval"]
    events = sorted(os.listdir(os.path.join(trained_dir, "eval")))
    run_in(trained_dir, "--mode=eval", "--eval_split=train")
    found = result(trained_dir, 40)
    assert found["eval"] == own
    assert (found["eval_train"]["split"], found["eval_train"]["examples"]) == ("train", 97)
    assert sorted(os.listdir(os.path.join(trained_dir, "eval"))) == events
    assert {"accuracy", "average_loss"} <= tags(os.path.join(trained_dir, "eval_train"))


def steps_with(section, model_dir):
    """The steps of the result files that have a section."""
    paths = pathlib.Path(model_dir).glob("result_*.json")
    found = [json.loads(path.read_text()) for path in paths]
    return sorted(one["step"] for one in found if section in one)


@pytest.mark.slow(cost=0.1)
def test_evaluations_apart_from_checkpoints(run, variables):
    arguments = ["--save_checkpoints_steps=3", "--keep_checkpoint_max=0", "--eval_every_steps=4"]
    run("--train_steps=6", "--mode=train", *arguments)
    model_dir = run("--train_steps=10", *arguments)  # the schedule continues
    saved = sorted(int(path.stem[11:]) for path in pathlib.Path(model_dir).glob("model*.index"))
    assert saved == [3, 6, 8, 9, 10]
    assert steps_with("eval", model_dir) == [8, 10]


@pytest.mark.slow
def test_evaluations_by_epochs(run):
    model_dir = run("--train_steps=25", "--eval_every_epochs=1", "--save_checkpoints_steps=100")
    assert steps_with("eval", model_dir) == [8, 15, 23, 25]  # 97 examples in batches of 13


@pytest.mark.slow
def test_the_last_checkpoint_is_evaluated_whatever_minutes_have_passed(run):
    model_dir = run("--train_steps=6", "--eval_every_minutes=9999", "--save_checkpoints_steps=2")
    assert steps_with("eval", model_dir) == [6]
    assert os.path.exists(os.path.join(model_dir, "eval_schedule.json"))


@pytest.mark.slow(cost=0.1)
def test_each_split_of_eval_splits_is_evaluated(run, result, capsys):
    steps = ("--train_steps=6", "--save_checkpoints_steps=3", "--best_metric=average_loss")
    model_dir = run("--eval_splits=test,train", *steps)
    for step in (3, 6):
        found = result(model_dir, step)
        assert (found["eval"]["split"], found["eval"]["examples"]) == ("test", 41)
        assert (found["eval_train"]["split"], found["eval_train"]["examples"]) == ("train", 97)
    with open(os.path.join(model_dir, "best", "best.json")) as file:
        best = json.load(file)
    assert best["value"] == result(model_dir, best["step"])["eval"]["average_loss"]
    capsys.readouterr()
    run("--eval_splits=test,train", *steps)  # nothing is left to do
    assert "eval of step" not in capsys.readouterr().out


@pytest.mark.slow(cost=0.1)
def test_a_quick_look_is_marked_and_kept_apart(run_in, trained_dir, result, capsys):
    run_in(trained_dir, "--mode=eval")
    own = result(trained_dir, 40)["eval"]
    capsys.readouterr()
    run_in(trained_dir, "--mode=eval", "--max_eval_examples=17")  # a batch of 13, and a part
    assert "eval of step 40 on the first 17 of 41 examples of test: acc" in capsys.readouterr().out
    found = result(trained_dir, 40)
    assert found["eval"] == own
    assert found["eval_first_17"]["of_examples"] == 41
    assert found["eval_first_17"]["examples"] == 17
    assert "accuracy" in tags(os.path.join(trained_dir, "eval_first_17"))
    run_in(trained_dir, "--mode=eval", "--max_eval_examples=100")  # more than there are
    assert "eval_first_100" not in result(trained_dir, 40)


def test_continuous_eval_ends_at_train_steps(run_in, trained_dir, capsys):
    run_in(trained_dir, "--mode=continuous_eval", "--train_steps=40")
    assert "eval of step 40 on test" in capsys.readouterr().out


def test_continuous_eval_ends_after_its_timeout(run, capsys):
    run("--mode=continuous_eval", "--train_steps=99", "--eval_timeout_secs=1")
    assert "no new checkpoint" in capsys.readouterr().out


@pytest.mark.parametrize("batch_size", [13, slow(1), slow(100)])
def test_predict_writes_each_example_once_in_order(run_in, trained_dir, tmp_path, batch_size):
    output = f"--predict_output={tmp_path}/p.jsonl"
    run_in(trained_dir, "--mode=predict", f"--predict_batch_size={batch_size}", output)
    rows = predictions(tmp_path / "p.jsonl")
    assert [row["index"] for row in rows] == list(range(41))
    assert "name" not in rows[0]  # of pixels alone
    # The data set's labels are 0, 1, 2, 0, 1, 2, ...
    assert np.mean([row["classes"] == row["index"] % 3 for row in rows]) > 0.9
    assert {row["class_names"] for row in rows} == {"stripe 0", "stripe 1", "stripe 2"}
    numerics.assert_close([sum(row["probabilities"]) for row in rows], [1.0] * 41, depth=3)


@pytest.mark.slow
def test_predictions_contain_image_file_names(run, prepare, tmp_path):
    classes = {"dull/ä.png": "dull", "dull/b.png": "dull", "bright/b.png": "bright"}
    for name, class_name in classes.items():
        (tmp_path / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
        image = Image.new("L", (5, 7), 200 * (class_name == "bright"))
        image.save(tmp_path / "photos" / name)
    photos = ["--dataset=image_folder", "--name=photos", f"--source={tmp_path}/photos"]
    prepare(*photos, "--channels=1", "--validation_fraction=0", f"--data_dir={tmp_path}/data")
    data = ["--dataset=photos", f"--data_dir={tmp_path}/data", "--eval_split=train"]
    run("--mode=train", "--train_steps=50", *data)
    for ending in ("jsonl", "npz"):
        output = f"--predict_output={tmp_path}/p.{ending}"
        run("--mode=predict", "--predict_batch_size=2", *data, output)
    rows = predictions(tmp_path / "p.jsonl")
    assert {row["name"]: row["class_names"] for row in rows} == classes
    with np.load(tmp_path / "p.npz") as columns:
        assert columns["name"].tolist() == [row["name"] for row in rows]


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize("stored", [(), slow(("--image_size=6x9",))])
def test_predict_reads_image_files_from_input(run, prepare, tmp_path, capsys, stored):
    folder = tmp_path / "photos"
    for i in range(6):
        path = folder / ("bright" if i % 2 else "dull") / f"{i}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(i).integers(0, 128 * (1 + i % 2), [9 + i, 13, 3])
        Image.fromarray(pixels.astype(np.uint8)).save(path)
    prepare("--dataset=image_folder", "--name=photos", f"--source={folder}", *stored,
            "--validation_fraction=0", f"--data_dir={tmp_path}/data")  # fmt: skip
    data = ["--dataset=photos", f"--data_dir={tmp_path}/data", "--image_size=8x8"]
    model_dir = run("--mode=train", "--train_steps=20", *data)
    run("--mode=predict", "--eval_split=train", *data)
    (folder / "dull" / "1b.jpg").write_bytes(b"not an image")
    run("--mode=predict", f"--input={folder}", "--predict_batch_size=4", *data)
    assert "dull/1b.jpg is skipped: it is not an image" in capsys.readouterr().out
    of_split, of_folder = (
        predictions(os.path.join(model_dir, f"predictions_{what}_20.jsonl"))
        for what in ("train", "input")
    )
    assert [row["name"] for row in of_folder] == sorted(row["name"] for row in of_split)
    expected = {row["name"]: row["probabilities"] for row in of_split}
    for row in of_folder:
        numerics.assert_close(row["probabilities"], expected[row["name"]], **MLP)
    with pytest.raises(DataError, match="none of the 1 examples of input can be read"):
        run("--mode=predict", f"--input={folder}/dull/1b.jpg", *data)
    run("--mode=predict", f"--input={folder}/dull/2.jpg", *data)
    (row,) = predictions(os.path.join(model_dir, "predictions_input_20.jsonl"))
    assert row["name"] == "2.jpg"


@pytest.mark.slow
def test_synthetic_data_is_predicted_too(run_with, tmp_path):
    synthetic = ["--model=mlp", "--dataset=synthetic", "--image_size=7x5", "--synthetic_classes=3"]
    for mode in ("--mode=train", "--mode=predict"):
        run_with(*synthetic, f"--model_dir={tmp_path}", mode, "--train_steps=1")
    assert "name" not in predictions(tmp_path / "predictions_test_1.jsonl")[0]


def test_predict_writes_into_model_dir_by_default(run_in, trained_dir):
    run_in(trained_dir, "--mode=predict")
    assert len(predictions(os.path.join(trained_dir, "predictions_test_40.jsonl"))) == 41


@pytest.mark.slow(cost=0.1)
def test_the_best_checkpoint_is_kept_and_can_be_used(run, result):
    model_dir = run(
        "--mode=train_and_eval",
        "--train_steps=30",
        "--save_checkpoints_steps=10",
        "--keep_checkpoint_max=1",
        "--best_metric=average_loss",
    )
    losses = {s: result(model_dir, s)["eval"]["average_loss"] for s in (10, 20, 30)}
    best = min(losses, key=losses.get)
    run("--mode=eval", "--checkpoint=best", "--eval_batch_size=5")
    again = result(model_dir, best)["eval"]["average_loss"]
    numerics.assert_close(
        again, losses[best], **MLP, magnitude=1.0
    )  # logits are larger than losses


def test_a_metric_that_is_always_nan_leaves_no_checkpoint_to_export(run, tmp_path, monkeypatch):
    monkeypatch.setattr(BestCheckpoint, "update", _with_nan(BestCheckpoint.update))
    training = ["--mode=train_and_eval", "--train_steps=2", "--best_metric=accuracy"]
    with pytest.raises(UsageError, match=r"was NaN in every evaluation.*--checkpoint=latest"):
        run(*training, f"--export_dir={tmp_path}/export")


def _with_nan(update):
    return lambda self, *args: update(self, *args[:2], {**args[2], "accuracy": float("nan")})


def test_early_stopping(run, capsys, variables):
    model_dir = run(
        "--mode=train_and_eval",
        "--train_steps=100",
        "--save_checkpoints_steps=5",
        "--best_metric=accuracy",
        "--early_stop_evals=2",
        "--params=learning_rate=1e-9",
    )
    assert variables(model_dir)["global_step"] == 15  # the first evaluation and two without gain
    assert "early stop" in capsys.readouterr().out


@pytest.mark.slow
def test_after_early_stopping_a_resumed_run_does_not_train(run, variables):
    arguments = ["--train_steps=100", "--save_checkpoints_steps=5", "--early_stop_evals=2"]
    arguments += ["--best_metric=accuracy", "--params=learning_rate=1e-9"]
    for _ in range(2):
        model_dir = run(*arguments)
    assert variables(model_dir)["global_step"] == 15


@pytest.mark.slow
def test_a_missed_evaluation_and_export_are_done_by_the_next_run(run, tmp_path, result, capsys):
    model_dir = run("--mode=train", "--train_steps=20", "--save_checkpoints_steps=20")
    run("--mode=eval")  # does not count for --best_metric
    arguments = ["--train_steps=20", "--best_metric=accuracy", f"--export_dir={tmp_path}/export"]
    run(*arguments)
    assert result(model_dir, 20)["eval"]["examples"] == 41
    assert os.path.exists(os.path.join(model_dir, "best", "model.ckpt-20.index"))
    (version,) = os.listdir(tmp_path / "export")
    capsys.readouterr()
    run(*arguments)  # nothing is left to do
    assert os.listdir(tmp_path / "export") == [version]
    output = capsys.readouterr().out
    assert f"was exported before: {tmp_path}/export/{version}" in output
    assert "eval of step" not in output


@pytest.mark.slow
def test_a_checkpoint_saved_by_a_signal_is_not_evaluated(run, result):
    model_dir = run("--mode=train", "--train_steps=7")
    run("--train_steps=20", "--save_checkpoints_steps=10")
    assert "eval" not in result(model_dir, 7)
    assert "eval" in result(model_dir, 10)


@pytest.mark.slow
def test_results_of_an_average_are_separate(run, result, tmp_path):
    model_dir = run("--train_steps=30", "--save_checkpoints_steps=10")
    latest = result(model_dir, 30)["eval"]
    run("--mode=eval", "--checkpoint=average:3")
    assert result(model_dir, 30)["eval"] == latest
    average = result(model_dir, 30)["eval_average_3"]
    assert average["average_loss"] != latest["average_loss"]
    assert os.path.exists(os.path.join(model_dir, "eval_average_3", "confusion_matrix_30.png"))
    run("--mode=predict", "--checkpoint=average:3")
    assert os.path.exists(os.path.join(model_dir, "predictions_test_30_average_3.jsonl"))
    for checkpoint, figures in (("latest", latest), ("average:3", average)):
        folder = tmp_path / checkpoint
        run("--mode=export", f"--checkpoint={checkpoint}", f"--export_dir={folder}")
        (version,) = folder.iterdir()
        card = json.loads((version / "MODEL_CARD.json").read_text())
        assert card["metrics"]["average_loss"] == figures["average_loss"]


@pytest.mark.slow
def test_flags_cfg_of_a_training_works_in_other_modes(run, own_data_dir, result):
    path = os.path.join(own_data_dir, "train-00000-of-00003-cf74b940.tfrecord")
    os.truncate(path, os.path.getsize(path) - 5)
    data = f"--data_dir={own_data_dir}"
    training = ["--profile=3", "--strategy=mirrored", "--replicas=2", "--train_batch_size=14"]
    model_dir = run("--mode=train", "--train_epochs=1", data, "--skip_bad_records=1", *training)
    flagfile = f"--flagfile={model_dir}/flags.cfg"
    for mode in ("eval", "predict"):
        run(flagfile, data, f"--mode={mode}")
    assert result(model_dir, 7)["eval"]["examples"] == 41


@pytest.mark.slow(cost=0.1)
def test_keep_checkpoint_max(nine_steps_dir):
    kept = [name for name in os.listdir(nine_steps_dir) if name.endswith(".index")]
    assert sorted(kept) == ["model.ckpt-8.index", "model.ckpt-9.index"]


@pytest.mark.slow
def test_eval_uses_ema(run, result):
    arguments = ["--params=ema_decay=0.99,learning_rate=0.001"]
    model_dir = run("--mode=train", "--train_steps=15", *arguments)
    losses = []
    for more in (arguments, []):
        run("--mode=eval", *more)
        losses.append(result(model_dir, 15)["eval"]["average_loss"])
    assert losses[0] > losses[1]  # the EMA lags behind the weights


def test_warm_start_restores_matching_variables(run_in, trained_dir, tmp_path, capsys, variables):
    run_in(
        tmp_path / "new",
        "--mode=train",
        "--train_steps=1",
        "--params=hidden_units=[512,5],learning_rate=1e-9",
        f"--warm_start_from={trained_dir}",
        "--warm_start_include=(dense_0|logits)/.*",
    )
    out = capsys.readouterr().out
    assert "warm start: restored 3 variables from" in out  # and none of Adam's
    assert "logits/kernel ([512, 3] in the checkpoint, [5, 3] in this model)" in out
    old, new = variables(trained_dir), variables(tmp_path / "new")
    # One step of Adam at a rate of 1e-9 moves no weight by more.
    np.testing.assert_allclose(new["dense_0/kernel"], old["dense_0/kernel"], atol=2e-9, rtol=2e-7)
    assert new["global_step"] == 1


@pytest.mark.slow
def test_a_resumed_training_ignores_warm_start(run_in, trained_dir, tmp_path, capsys):
    for steps in (1, 2):
        run_in(
            tmp_path / "new",
            "--mode=train",
            f"--train_steps={steps}",
            f"--warm_start_from={trained_dir}",
        )
    assert "--warm_start_from is ignored: training resumes from" in capsys.readouterr().out


@pytest.mark.slow  # like the models of tests/contract
def test_a_model_given_by_module_and_attribute(run, tmp_path, monkeypatch, result):
    (tmp_path / "own_model.py").write_text(
        "import dataclasses\n"
        "import tensorflow as tf\n"
        "from models.vision import mlp\n"
        "def inference(features, params, training):\n"
        "    x = tf.cast(features['image'], tf.float32) * params['pixel_scale']\n"
        "    x = tf.compat.v1.layers.flatten(x)\n"
        "    return {'logits': tf.compat.v1.layers.dense(x, params['num_classes'])}\n"
        "MINE = dataclasses.replace(mlp.MODEL, name='linear', inference=inference)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    model_dir = run("--model=own_model:MINE", "--train_steps=30")
    assert result(model_dir, 30)["eval"]["accuracy"] > 0.9


@pytest.mark.slow(cost=0.1)
def test_a_model_without_a_precision_param_uses_float32(run, tmp_path, monkeypatch, result):
    (tmp_path / "plain_model.py").write_text(
        "import dataclasses\n"
        "import tensorflow as tf\n"
        "from models.vision import mlp\n"
        "def default_params():\n"
        "    return {'num_classes': 2, 'label_smoothing': 0.0, 'pixel_scale': 1.0}\n"
        "def inference(features, params, training):\n"
        "    x = tf.compat.v1.layers.flatten(tf.cast(features['image'], tf.float32))\n"
        "    return {'logits': tf.compat.v1.layers.dense(x, params['num_classes'])}\n"
        "def check_params(params):\n"
        "    pass\n"
        "own = {f.__name__: f for f in (default_params, inference, check_params)}\n"
        "MINE = dataclasses.replace(mlp.MODEL, **own)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    model_dir = run("--model=plain_model:MINE", "--train_steps=3")
    assert result(model_dir, 3)["eval"]["examples"] == 41


@pytest.mark.slow(cost=0.1)
def test_another_optimizer_cannot_resume(run_in, nine_steps_dir, tmp_path):
    model_dir = shutil.copytree(nine_steps_dir, tmp_path / "model")
    with pytest.raises(ValueError, match=r"dense_0/bias/Momentum \[512\] is missing from"):
        run_in(model_dir, "--mode=train", "--train_steps=11", "--params=optimizer=momentum")


@pytest.fixture(scope="module")
def export_path(run_in, uncertain_dir, tmp_path_factory):
    """The folder of an export of `uncertain_dir`. Read-only."""
    folder = tmp_path_factory.mktemp("export")
    run_in(uncertain_dir, "--mode=export", f"--export_dir={folder}")
    (path,) = folder.iterdir()
    return path


def test_exported_outputs_match_predict(
    run_in, uncertain_dir, export_path, raw_dataset, tmp_path, eager
):
    run_in(uncertain_dir, "--mode=predict", f"--predict_output={tmp_path}/p.npz")
    serve = tf.saved_model.load(str(export_path)).signatures["serving_default"]
    answer = serve(image=tf.constant(raw_dataset.splits["test"].images))
    with np.load(tmp_path / "p.npz") as rows:
        # One batch of 41 against batches of 13.
        numerics.assert_close(answer["probabilities"].numpy(), rows["probabilities"], **MLP)
        np.testing.assert_array_equal(answer["classes"].numpy(), rows["classes"])
        names = [b"stripe %d" % label for label in rows["classes"]]
    assert answer["class_names"].numpy().tolist() == names


@pytest.mark.slow  # tests/engine/checkpoints/test_ema.py restores the EMA
def test_export_uses_ema(run, tmp_path, eager):
    average = "--params=ema_decay=0.99"
    run("--mode=train", "--train_steps=15", average)
    run("--mode=export", f"--export_dir={tmp_path}/export", average)
    run("--mode=predict", f"--predict_output={tmp_path}/p.npz", average)
    (version,) = (tmp_path / "export").iterdir()
    serve = tf.saved_model.load(str(version)).signatures["serving_default"]
    sample = np.load(version / "assets.extra" / "sample_image.npy")
    with np.load(tmp_path / "p.npz") as rows:
        served = serve(image=tf.constant(sample))["probabilities"].numpy()
        numerics.assert_close(served, rows["probabilities"][:3], **MLP)


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/usr/bin", f"{os.path.dirname(sys.executable)}:/usr/bin"])
def test_the_printed_command_runs(run_in, trained_dir, tmp_path, capsys, monkeypatch, path):
    monkeypatch.setenv("PATH", path)
    run_in(trained_dir, "--mode=export", f"--export_dir={tmp_path}/export")
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "try it: " in line]
    command = shlex.split(line.split("try it: ")[1])
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "[b'stripe 0' b'stripe 1' b'stripe 2']" in done.stdout


def test_export_contains_class_names_and_a_sample(export_path, raw_dataset):
    names = (export_path / "assets.extra" / "class_names.txt").read_text()
    assert names == "stripe 0\nstripe 1\nstripe 2\n"
    sample = np.load(export_path / "assets.extra" / "sample_image.npy")
    np.testing.assert_array_equal(sample, raw_dataset.splits["test"].images[:3])


@pytest.mark.slow(cost=0.1)
def test_a_failed_export_leaves_no_files(run_in, trained_dir, tmp_path):
    os.makedirs(tmp_path / "export")
    with pytest.raises(ValueError, match="does not match this model"):
        run_in(
            trained_dir,
            "--mode=export",
            f"--export_dir={tmp_path}/export",
            "--params=hidden_units=3",
        )
    assert not os.listdir(tmp_path / "export")


@pytest.mark.slow
def test_train_and_eval_exports_the_best_checkpoint(run, tmp_path, capsys):
    run("--train_steps=20", "--best_metric=accuracy", f"--export_dir={tmp_path}/export")
    assert len(os.listdir(tmp_path / "export")) == 1
    assert "exported" in capsys.readouterr().out


def test_eval_prints_metrics_per_class(run_in, trained_dir, capsys):
    run_in(trained_dir, "--mode=eval", "--eval_split=test")
    written = pathlib.Path(trained_dir, "eval", "classes_40.txt").read_text()
    assert written.startswith("class     precision  recall      f1  examples\nstripe 0  ")
    assert capsys.readouterr().out.endswith(written)
    assert pathlib.Path(trained_dir, "eval", "confusion_matrix_40.png").exists()


@pytest.mark.slow(cost=0.1)
def test_summaries_for_tensorboard(run):
    model_dir = run("--train_steps=20", "--summary_steps=10")
    assert tags(model_dir) >= {
        "loss",
        "learning_rate",
        "accuracy",
        "examples/sec",
        "input/image/image/0",
    }
    assert tags(os.path.join(model_dir, "eval")) >= {
        "accuracy",
        "average_loss",
        "confusion_matrix/rows_are_labels",
        "confusion_matrix/table",
    }


def test_eval_does_not_need_the_training_split(run_in, trained_dir, own_data_dir, result):
    path = os.path.join(own_data_dir, "dataset.json")
    with open(path) as file:
        fields = json.load(file)
    del fields["splits"]["train"]
    with open(path, "w") as file:
        json.dump(fields, file)
    arguments = ["--mode=eval", "--train_epochs=3", f"--data_dir={own_data_dir}"]
    run_in(trained_dir, *arguments)
    assert result(trained_dir, 40)["eval"]["examples"] == 41


@pytest.mark.slow
def test_train_does_not_need_the_eval_split(run, own_data_dir, variables):
    path = os.path.join(own_data_dir, "dataset.json")
    with open(path) as file:
        fields = json.load(file)
    del fields["splits"]["test"]
    with open(path, "w") as file:
        json.dump(fields, file)
    model_dir = run("--mode=train", "--train_steps=3", f"--data_dir={own_data_dir}")
    assert variables(model_dir)["global_step"] == 3


@pytest.mark.slow
def test_files_follow_the_umask(run, tmp_path):
    before = os.umask(0o027)
    try:
        model_dir = run(
            "--mode=train_and_eval", "--train_steps=5", f"--export_dir={tmp_path}/export"
        )
    finally:
        os.umask(before)
    tops = pathlib.Path(model_dir), tmp_path / "export"
    paths = [path for top in tops for path in top.rglob("*")]
    modes = {stat.S_IMODE(path.stat().st_mode) for path in paths}
    assert modes == {0o640, 0o750}


def test_profile(run, capsys):
    model_dir = run("--mode=train", "--train_steps=15", "--profile=3")
    (trace,) = pathlib.Path(model_dir).glob("plugins/profile/*/*.xplane.pb")
    assert b"dense_0/MatMul" in trace.read_bytes()
    assert "profiled from step 10:" in capsys.readouterr().out


@pytest.mark.slow
def test_profile_warns_if_training_is_too_short(run, capsys):
    run("--mode=train", "--train_steps=5", "--profile=3")
    assert "--profile: training ended before step 10" in capsys.readouterr().out


@pytest.mark.slow(cost=0.1)
def test_a_data_set_replaced_during_training_is_an_error(
    monkeypatch, raw_dataset, own_data_dir, tiny_flags, tmp_path, exit_status, capsys
):
    splits = {name: split.take(np.arange(20)) for name, split in raw_dataset.splits.items()}
    train = trainer.Trainer.train

    def train_after_overwrite(self, *args):
        writer.write(dataclasses.replace(raw_dataset, splits=splits), own_data_dir)
        train(self, *args)

    monkeypatch.setattr(trainer.Trainer, "train", train_after_overwrite)
    more = [f"--data_dir={own_data_dir}", f"--model_dir={tmp_path}/model", "--cache=none"]
    assert exit_status(run_cpu, *tiny_flags, *more, "--mode=train", "--train_steps=99") == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert f"the data set in {own_data_dir} was replaced" in line
