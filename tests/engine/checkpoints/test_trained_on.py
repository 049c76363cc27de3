"""A data set must match the one that the model was trained on."""

import dataclasses
import json
import types

import pytest

import run_cpu
from common.errors import UsageError
from engine.checkpoints import trained_on
from input_fns import kinds
from input_fns.core.target import Target


@pytest.fixture
def evaluate(exit_status, tiny_flags, trained_dir, capsys):
    """The exit status and the errors of an evaluation of a model of "stripes"."""

    def run(*flags):
        directory = f"--model_dir={trained_dir}"
        status = exit_status(run_cpu, *tiny_flags, directory, "--mode=eval", *flags)
        return status, capsys.readouterr().err

    return run


@pytest.fixture
def changed(own_data_dir):
    """Changes dataset.json of a copy of the data set; returns the flag with its folder."""

    def change(**fields):
        path = f"{own_data_dir}/dataset.json"
        with open(path) as file:
            described = json.load(file)
        with open(path, "w") as file:
            json.dump({**described, **fields}, file)
        return f"--data_dir={own_data_dir}"

    return change


def classes_of(data_dir):
    with open(f"{data_dir}/dataset.json") as file:
        return json.load(file)["class_names"]


def test_the_record_names_classes_and_features(trained_dir, data_dir):
    with open(f"{trained_dir}/{trained_on.FILE_NAME}") as file:
        record = json.load(file)
    assert record == {
        "data_set": "stripes",
        "classes": classes_of(data_dir),
        "features": {"image": ["uint8", 7, 5, 1]},
        "assets": [],
    }


def test_the_same_data_is_accepted(evaluate, changed):
    assert evaluate(changed(prepared_with={})) == (0, "")


def test_another_order_of_the_classes_is_an_error(evaluate, changed, data_dir):
    classes = classes_of(data_dir)
    status, output = evaluate(changed(class_names=classes[::-1]))
    assert status == 2
    assert f"label 0 was '{classes[0]}' and is now '{classes[-1]}'" in output


def test_other_classes_are_named(evaluate, changed, data_dir):
    classes = classes_of(data_dir)
    status, output = evaluate(changed(class_names=[*classes[:-1], "new"]))
    assert status == 2
    assert f"missing: {classes[-1]}; new: new" in output


def test_another_image_size_is_an_error(evaluate):
    status, output = evaluate("--image_size=9x9")
    assert status == 2
    assert "was trained on images of 7x5, and this run has images of 9x9" in output
    assert "Use --image_size=7x5, or another --model_dir" in output


@pytest.mark.parametrize("resumes", [True, False])
def test_only_a_training_that_resumes_keeps_the_record(tmp_path, resumes):
    data = kinds.synthetic(kinds.SyntheticShapes(classes=2, image_size=(3, 3)))
    pipeline = types.SimpleNamespace(data=data, features={}, assets=[])
    path = tmp_path / trained_on.FILE_NAME
    path.write_text('{"data_set": "of a training without a checkpoint"}')
    trained_on.TrainedOnHook(str(tmp_path), pipeline, resumes).begin()
    assert ("without a checkpoint" in path.read_text()) == resumes


def test_texts_that_are_truncated_elsewhere_are_an_error(tmp_path):
    data = kinds.synthetic(kinds.SyntheticShapes("classification", text=(16, 99)))
    pipeline = types.SimpleNamespace(data=data, features={}, assets=[])
    record = {"data_set": "reviews", **trained_on.properties(pipeline)}
    (tmp_path / trained_on.FILE_NAME).write_text(json.dumps(record))
    trained_on.check(f"{tmp_path}/model.ckpt-1", str(tmp_path), pipeline)
    middle = dataclasses.replace(data.kind, truncate="middle")
    pipeline.data = dataclasses.replace(data, kind=middle)
    with pytest.raises(UsageError, match="--truncate=end in training, middle now"):
        trained_on.check(f"{tmp_path}/model.ckpt-1", str(tmp_path), pipeline)


def test_numbers_in_another_order_are_an_error(tmp_path):
    data = kinds.synthetic(kinds.SyntheticShapes(classes=2, image_size=(3, 3)))
    target = Target("regression", ("width", "height"))
    data = dataclasses.replace(data, class_names=(), target=target)
    pipeline = types.SimpleNamespace(data=data, features={}, assets=[])
    record = {"data_set": "sizes", **trained_on.properties(pipeline)}
    (tmp_path / trained_on.FILE_NAME).write_text(json.dumps(record))
    trained_on.check(f"{tmp_path}/model.ckpt-1", str(tmp_path), pipeline)
    other = dataclasses.replace(target, names=("height", "width"))
    pipeline.data = dataclasses.replace(data, target=other)
    with pytest.raises(UsageError, match="regression, width, height in training; "):
        trained_on.check(f"{tmp_path}/model.ckpt-1", str(tmp_path), pipeline)


@pytest.mark.parametrize("checkpoint", ["average:2", "path"])
def test_every_kind_of_checkpoint_flag_is_checked(evaluate, changed, trained_dir, checkpoint):
    path = f"{trained_dir}/model.ckpt-40"
    flag = f"--checkpoint={path if checkpoint == 'path' else checkpoint}"
    status, output = evaluate(changed(class_names=["a", "b", "c"]), flag)
    assert status == 2
    assert "has other classes than" in output


@pytest.mark.slow(cost=0.1)
def test_a_training_on_other_classes_is_not_resumed(exit_status, tiny_flags, run, changed, capsys):
    folder = run("--mode=train", "--train_steps=5")
    flags = [f"--model_dir={folder}", "--mode=train", "--train_steps=10"]
    assert exit_status(run_cpu, *tiny_flags, *flags, changed(class_names=["c", "b", "a"])) == 2
    assert "has other classes than" in capsys.readouterr().err


@pytest.mark.parametrize("content", ["", "[]", '{"classes": 1}', "{" * 10**5, "\x00"])
def test_a_broken_record_is_an_error(tmp_path, content, evaluate):
    (tmp_path / trained_on.FILE_NAME).write_text(content)
    with pytest.raises(ValueError, match=r"trained_on.json cannot be read"):
        trained_on.check(str(tmp_path / "model.ckpt-1"), str(tmp_path), None)


def test_a_missing_record_is_accepted(tmp_path):
    trained_on.check(str(tmp_path / "model.ckpt-1"), str(tmp_path), None)
