"""The Python calls: results as objects, no state left, the same results as the programs."""

import dataclasses
import io
import json
import pathlib
import pickle
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from absl import flags

import estimator_models as em
from common.errors import RunError, UsageError
from input_fns import DataError
from input_fns.convert import writer

ROOT = pathlib.Path(__file__).parents[1]
TINY = {
    "dataset": "stripes",
    "model": "mlp",
    "params": {"hidden_units": [3], "learning_rate": 0.01},
    "train_batch_size": 7,
    "eval_batch_size": 7,
    "predict_batch_size": 7,
    "seed": 1,
}


@pytest.fixture(scope="module")
def trained(data_dir, tmp_path_factory):
    folder = tmp_path_factory.mktemp("called") / "model"
    return em.train(
        None, data_dir=data_dir, model_dir=str(folder), train_steps=4, eval_split="test", **TINY
    )


@pytest.mark.slow(cost=0.1)
def test_train_returns_the_metrics_of_its_last_evaluation(trained):
    assert trained.step == 4
    assert trained.checkpoint.endswith("model.ckpt-4")
    assert 0 <= trained.metrics["test"]["accuracy"] <= 1
    assert trained.export == ""


@pytest.mark.slow(cost=0.1)
def test_evaluate_uses_the_flags_of_the_training(trained):
    found = em.evaluate(model_dir=trained.model_dir)
    assert found["test"]["average_loss"] == trained.metrics["test"]["average_loss"]


@pytest.mark.slow(cost=0.1)
def test_predictions_are_those_of_the_file_and_can_be_read_twice(trained):
    found = em.predict(model_dir=trained.model_dir)
    lines = [json.loads(line) for line in pathlib.Path(found.path).read_text().splitlines()]
    assert len(found) == len(lines)
    assert [int(each["classes"]) for each in found] == [line["classes"] for line in lines]
    first, again = iter(found), iter(found)
    assert next(first).keys() == {"index", "classes", "probabilities", "class_names"}
    for each, line in zip(again, lines):  # the other iterator has read a batch
        assert (each["index"], each["class_names"]) == (line["index"], line["class_names"])
        np.testing.assert_allclose(each["probabilities"], line["probabilities"], rtol=1e-5)


def test_a_row_names_its_labels_and_its_detections():
    rows = {
        "labels": np.array([[1, 0, 1]]),
        "classes": np.array([[2, 0]]),
        "num_detections": np.array([1]),
    }
    names = ["cat", "dog", "emu"]
    for chosen, expected in (({"labels"}, ["cat", "emu"]), (rows.keys() - {"labels"}, ["emu"])):
        file = io.BytesIO(pickle.dumps({name: rows[name] for name in chosen}))
        (row,) = em.Predictions("", file, [1], names)
        assert row["class_names"] == expected


def test_data_errors_have_one_line_in_a_notebook():
    assert em.DataError("no such column")._render_traceback_() == ["DataError: no such column"]


@pytest.mark.slow(cost=0.1)
def test_flags_that_differ_from_those_of_the_resumed_training_are_named(trained, tmp_path, capsys):
    model_dir = shutil.copytree(trained.model_dir, tmp_path / "model")
    flags = {"params": {"learning_rate": 0.5}, "train_steps": trained.step + 1}
    em.train(flagfile=f"{model_dir}/flags.cfg", model_dir=str(model_dir), mode="train", **flags)
    out = capsys.readouterr().out
    assert f"{model_dir} was trained with other flags: now learning_rate=0.5 (before: " in out


@pytest.mark.slow(cost=0.1)
def test_a_finished_training_with_other_hyperparameters_is_an_error(trained):
    """Its results would be taken for those of the others."""
    with pytest.raises(
        UsageError, match=r"with other hyperparameters or data: now learning_rate=0\.5 \(before: "
    ):
        em.train(flagfile=f"{trained.model_dir}/flags.cfg", params={"learning_rate": 0.5})


@pytest.mark.slow(cost=0.1)
def test_a_training_that_has_stopped_early_with_another_batch_size_is_an_error(data_dir, tmp_path):
    flags = {"train_steps": 9, "save_checkpoints_steps": 1, "early_stop_evals": 1, **TINY}
    folders = {"data_dir": data_dir, "model_dir": str(tmp_path / "model")}
    found = em.train(None, best_metric="average_loss:max", **folders, **flags)
    assert found.step == 2
    flags["train_batch_size"] = 5
    with pytest.raises(UsageError, match=r"at step 2 of .* now train_batch_size=5 \(before: 7\)"):
        em.train(None, best_metric="average_loss:max", **folders, **flags)


@pytest.mark.slow(cost=0.1)
def test_a_finished_training_on_other_data_is_an_error(trained, own_data_dir, raw_dataset):
    flagfile = f"{trained.model_dir}/flags.cfg"
    em.train(flagfile=flagfile, data_dir=own_data_dir)  # a copy
    splits = {"train": raw_dataset.splits["test"], "test": raw_dataset.splits["test"]}
    writer.write(dataclasses.replace(raw_dataset, splits=splits), own_data_dir)
    with pytest.raises(UsageError, match=r"now training_data=41 examples .* \(before: 97 exam"):
        em.train(flagfile=flagfile, data_dir=own_data_dir)


@pytest.mark.slow(cost=0.1)
def test_a_finished_training_is_evaluated_again_on_other_data(trained, own_data_dir, raw_dataset):
    flags = {"flagfile": f"{trained.model_dir}/flags.cfg", "train_steps": trained.step}
    splits = {"train": raw_dataset.splits["train"], "test": raw_dataset.splits["train"]}
    writer.write(dataclasses.replace(raw_dataset, splits=splits), own_data_dir, num_shards=3)
    assert em.train(data_dir=own_data_dir, **flags).metrics["test"]["examples"] == 97
    assert em.train(**flags).metrics == trained.metrics


@pytest.mark.slow(cost=0.1)
def test_the_best_checkpoint_is_returned(tmp_path):
    em.prepare_data(dataset="digits", data_dir=str(tmp_path / "data"))
    flags = {"train_steps": 4, "eval_every_steps": 2, "best_metric": "accuracy", "seed": 1}
    folders = {"data_dir": str(tmp_path / "data"), "model_dir": str(tmp_path / "model")}
    best = em.train("digits", **folders, **flags).best
    metrics = em.evaluate(model_dir=folders["model_dir"], checkpoint="best")["test"]
    assert best["metric"] == "accuracy"
    assert best["value"] == metrics["accuracy"]
    assert best["step"] in (2, 4)


@pytest.mark.slow(cost=0.1)
def test_the_export_of_the_best_checkpoint_is_returned(data_dir, tmp_path):
    flags = {"train_steps": 4, "eval_every_steps": 2, "best_metric": "average_loss:max", **TINY}
    folders = {"model_dir": str(tmp_path / "model"), "export_dir": str(tmp_path / "export")}
    for _ in ("trained", "trained before"):
        found = em.train(None, data_dir=data_dir, export_check=False, **folders, **flags)
        assert found.best["step"] == 2
        (path,) = (tmp_path / "export").iterdir()
        assert found.export == str(path)


@pytest.mark.slow(cost=0.1)
def test_a_folder_is_no_flagfile(trained):
    with pytest.raises(UsageError, match="is a folder, not a flagfile: write model_dir="):
        em.evaluate(trained.model_dir)


@pytest.mark.parametrize("model_dir", ["nowhere", pathlib.Path("nowhere")])
def test_a_folder_that_is_missing_is_named(model_dir):
    with pytest.raises(UsageError, match="model_dir='nowhere' does not exist"):
        em.evaluate(model_dir=model_dir)


def test_a_remote_folder_without_flags_cfg_is_named():
    with pytest.raises(UsageError, match=r"model_dir='ram://nowhere' has no flags\.cfg"):
        em.evaluate(model_dir="ram://nowhere")


def test_flags_cfg_of_a_remote_folder_is_read():
    """TensorFlow's file system in memory stands for gs://."""
    path = "ram://run/flags.cfg"
    with tf.io.gfile.GFile(path, "w") as file:
        file.write("--model=mlp\n")
    assert em._flags_cfg("ram://run", is_needed=True) == path
    with em._flagfile_arguments(path) as (argument,):
        copy = pathlib.Path(argument.partition("=")[2])
        assert copy.read_text() == "--model=mlp\n"
    assert not copy.exists()


def test_a_recipe_comes_before_a_folder_of_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits").mkdir()
    assert em._path_of("digits") == str(ROOT / "configs" / "digits.cfg")


def test_flags_take_lists_and_the_characters_that_words_name():
    flags = {"augment": ["flip", "crop"], "label_separator": " ", "delimiter": "\t", "csv": None}
    assert em._arguments(flags) == [
        "--augment=flip,crop",
        "--label_separator=space",
        "--delimiter=tab",
    ]


def test_elements_of_a_list_may_have_commas_and_quotes():
    names = ["long, thin", 'a "round" one', "x"]
    (argument,) = em._arguments({"label_columns": names})
    assert flags.ListParser().parse(argument.partition("=")[2]) == names


@pytest.mark.slow(cost=0.1)
def test_export_returns_its_path(trained, tmp_path):
    path = em.export(model_dir=trained.model_dir, export_dir=str(tmp_path), export_check=False)
    assert pathlib.Path(path).parent == tmp_path
    assert pathlib.Path(path, "saved_model.pb").exists()


def test_prepare_data_returns_the_data_set(tmp_path):
    data = em.prepare_data(dataset="digits", data_dir=str(tmp_path / "data"), shards=2)
    assert data.splits["test"].num_examples == 359
    assert data.num_classes == 10


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize("is_parsed", [True, False])
def test_no_flag_is_left(trained, is_parsed):
    flags.FLAGS.unparse_flags()
    if is_parsed:
        flags.FLAGS.mark_as_parsed()
        flags.FLAGS["train_steps"].value = 77
        flags.FLAGS["model"].value = "m"
    em.evaluate(model_dir=trained.model_dir)
    assert flags.FLAGS.is_parsed() == is_parsed
    assert flags.FLAGS["train_steps"].value == (77 if is_parsed else None)
    assert flags.FLAGS["model"].value == ("m" if is_parsed else None)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        ({"train_stepps": 3}, UsageError, "Unknown command line flag 'train_stepps'. Did you mean"),
        ({"train_steps": 0}, UsageError, "train_steps=0: 0 is not a positive integer"),
        ({"params": {"depth": 3}}, UsageError, "'depth' is unknown"),
        ({"tpu_topology": "1x2"}, UsageError, "tpu_topology is a flag of run_tpu.py"),
        ({"max_restarts": 1}, UsageError, "max_restarts needs the command line"),
        ({"mode": "eval"}, UsageError, "mode='eval': train takes"),
        ({"train_split": "no"}, DataError, "'no'"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_invalid_input_is_an_exception(call, error, message, data_dir, tmp_path):
    given = {**TINY, "train_steps": 2, **call}
    with pytest.raises(error, match=message):
        em.train(None, data_dir=data_dir, model_dir=str(tmp_path / "model"), **given)
    assert not (tmp_path / "model").exists()


def test_a_notebook_shows_an_error_in_one_line():
    with pytest.raises(UsageError) as raised:
        em.train("digit", model_dir="runs/digits")
    assert raised.value._render_traceback_() == [f"UsageError: {raised.value}"]


def test_an_unknown_recipe_is_named():
    with pytest.raises(UsageError, match=r"'digit' is not a recipe\. Did you mean 'digits'"):
        em.train("digit", model_dir="runs/digits")


@pytest.mark.parametrize(
    ("raised", "error", "message"),
    [
        (SystemExit(130), KeyboardInterrupt, "the same call resumes"),
        (KeyboardInterrupt(), KeyboardInterrupt, "before its end"),
        (SystemExit(143), SystemExit, "143"),
        (SystemExit(3), RunError, "ended with status 3"),
        (OSError(28, "No space left on device", "runs/x"), RunError, "No space left on device"),
        (KeyError("a fault"), KeyError, "a fault"),
    ],
    ids=["Ctrl-C", "second Ctrl-C", "SIGTERM", "other status", "disk", "fault"],
)
def test_the_end_of_a_run_is_an_exception(raised, error, message):
    with pytest.raises(error, match=message), em._errors():
        raise raised


@pytest.mark.slow
def test_calls_equal_processes(data_dir, tmp_path):
    # Each call follows others, with another batch size and wrapper.
    calls = [
        {"train_batch_size": 7},
        {"train_batch_size": 14, "tpu": "emulator", "tpu_topology": "1x2"},
        {"train_batch_size": 21},
        {"train_batch_size": 7},
    ]
    given = {**TINY, "data_dir": data_dir, "train_steps": 3, "eval_split": "test"}
    given.update(eval_batch_size=14, predict_batch_size=14)
    for number, call in enumerate(calls):
        found = em.train(None, model_dir=str(tmp_path / f"call{number}"), **{**given, **call})
        program = "run_tpu.py" if "tpu" in call else "run_cpu.py"
        folder = tmp_path / f"process{number}"
        arguments = em._arguments({**given, **call, "model_dir": str(folder)})
        subprocess.run([sys.executable, program, *arguments], cwd=ROOT, check=True)
        section = json.loads((folder / "result_3.json").read_text())["eval"]
        assert found.metrics["test"]["average_loss"] == section["average_loss"]


@pytest.mark.slow  # a process: TensorFlow must not have been used before
def test_a_program_that_has_used_tensorflow_for_a_call_only_is_eager():
    code = """
import tensorflow as tf
from engine.cli import runtime
with runtime.tensorflow_1(), tf.compat.v1.Session() as session:
    session.run(tf.constant(1))
is_eager = []
@tf.function
def function():
    with tf.init_scope():  # as the load of a SavedModel, which makes its variables
        is_eager.append(tf.executing_eagerly())
    return tf.constant(1)
function()
assert is_eager == [True]
"""
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


@pytest.mark.slow
def test_the_page_runs_in_an_eager_program(tmp_path):
    page = (ROOT / "docs" / "python.md").read_text()
    code = page.partition("```python\n")[2].partition("```")[0]
    program = tmp_path / "program.py"  # prepares data in processes, without a guard
    program.write_text(
        "import tensorflow as tf\n"
        "x = tf.Variable(1.0)\n"
        f"{code}\n"
        "assert tf.executing_eagerly()\n"
        "x.assign_add(2.0)\n"
        "assert float(tf.function(lambda: x + 1)()) == 4\n"
        "network = tf.keras.Sequential([tf.keras.layers.Dense(1)])\n"
        "network.compile('sgd', 'mse')\n"
        "network.fit(tf.ones([3, 2]), tf.ones([3, 1]), verbose=0)\n"
        "print('path', path)\n"
    )
    done = subprocess.run(
        [sys.executable, str(program)],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "path runs/digits/export/" in done.stdout
