"""Retention of the best checkpoint, also if copying it is interrupted."""

import json
import os

import numpy as np
import pytest
import tensorflow as tf

from common import files
from common.errors import UsageError
from engine.checkpoints import find, writer
from engine.checkpoints.best import BestCheckpoint


def save(folder, step, a):
    """Writes a checkpoint with the variable `a` into a folder; returns its path."""
    path = os.path.join(folder, f"model.ckpt-{step}")
    writer.write(path, {"a": np.float32(a), "global_step": np.int64(step)})
    return path


def best_names(tmp_path):
    return sorted(name for name in os.listdir(tmp_path / "best") if name.endswith(".index"))


@pytest.mark.parametrize(
    ("metric", "direction", "values", "best"),
    [
        ("accuracy", "max", [0.2, 0.5, 0.3], 2),
        ("average_loss", "min", [0.2, 0.1, 0.3], 2),
        ("perplexity", "min", [9.0, 8.0, 7.0], 3),
        ("accuracy", "max", [float("nan"), 0.1, float("nan")], 2),
        ("average_loss", "min", [0.5, float("nan")], 1),
        ("accuracy", "max", [0.5, 0.5], 1),
    ],
)
def test_the_best_is_kept(tmp_path, metric, direction, values, best):
    keeper = BestCheckpoint(str(tmp_path), metric, direction)
    for step, value in enumerate(values, start=1):
        keeper.update(save(tmp_path, step, a=value), step, {metric: value})
    assert best_names(tmp_path) == [f"model.ckpt-{best}.index"]
    assert find.read_step(find.find_checkpoint(str(tmp_path), "best")) == best


def test_the_best_is_found_after_a_move(tmp_path):
    keeper = BestCheckpoint(str(tmp_path / "here"), "accuracy", "max")
    keeper.update(save(tmp_path / "here", 1, a=1.0), 1, {"accuracy": 0.1})
    os.rename(tmp_path / "here", tmp_path / "there")
    best = find.find_checkpoint(str(tmp_path / "there"), "best")
    assert best == str(tmp_path / "there" / "best" / "model.ckpt-1")


def test_evaluations_without_gain_are_counted_across_restarts(tmp_path):
    for step, value in enumerate([0.5, 0.4, 0.3], start=1):
        keeper = BestCheckpoint(str(tmp_path), "accuracy", "max")
        keeper.update(save(tmp_path, step, a=value), step, {"accuracy": value})
    assert keeper.evals_without_gain == 2


def test_a_removed_checkpoint_does_not_replace_the_best(tmp_path):
    keeper = BestCheckpoint(str(tmp_path), "accuracy", "max")
    keeper.update(save(tmp_path, 1, a=1.0), 1, {"accuracy": 0.1})
    with pytest.raises(tf.errors.NotFoundError, match="was removed"):
        keeper.update(str(tmp_path / "model.ckpt-2"), 2, {"accuracy": 0.2})
    assert best_names(tmp_path) == ["model.ckpt-1.index"]


@pytest.mark.parametrize(("direction", "size"), [("max", "largest"), ("min", "smallest")])
def test_criterion_names_the_direction(tmp_path, direction, size):
    criterion = BestCheckpoint(str(tmp_path), "novelty", direction, split="dev").criterion
    assert criterion == f"the checkpoint with the {size} novelty on dev"


def test_a_repeated_evaluation_is_counted_once(tmp_path):
    for step, value in ((1, 0.5), (2, 0.4), (2, 0.4), (1, 0.5)):
        keeper = BestCheckpoint(str(tmp_path), "accuracy", "max")
        keeper.update(save(tmp_path, step, a=value), step, {"accuracy": value})
    assert keeper.evals_without_gain == 1


def test_a_failed_copy_leaves_the_previous_best(tmp_path, monkeypatch):
    keeper = BestCheckpoint(str(tmp_path), "accuracy", "max")
    keeper.update(save(tmp_path, 1, a=1.0), 1, {"accuracy": 0.1})
    better = save(tmp_path, 2, a=2.0)

    def full_disk(*args, **kwargs):
        raise OSError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(files, "copy", full_disk)
        with pytest.raises(OSError, match="No space"):
            keeper.update(better, 2, {"accuracy": 0.2})
    best = find.find_checkpoint(str(tmp_path), "best")
    assert tf.train.load_variable(best, "a") == 1.0
    with open(tmp_path / "best" / "best.json") as file:
        assert json.load(file)["step"] == 1


def test_another_metric_is_an_error(tmp_path):
    keeper = BestCheckpoint(str(tmp_path), "accuracy", "max")
    keeper.update(save(tmp_path, 1, a=1.0), 1, {"accuracy": 0.1})
    with pytest.raises(UsageError, match="by 'accuracy', not by --best_metric=average_loss"):
        BestCheckpoint(str(tmp_path), "average_loss", "min")


def test_the_other_direction_is_an_error(tmp_path):
    keeper = BestCheckpoint(str(tmp_path), "novelty", "max")
    keeper.update(save(tmp_path, 1, a=1.0), 1, {"novelty": 0.1})
    with pytest.raises(UsageError, match="by 'novelty:max', not by --best_metric=novelty:min"):
        BestCheckpoint(str(tmp_path), "novelty", "min")


def test_another_split_is_an_error(tmp_path):
    keeper = BestCheckpoint(str(tmp_path), "accuracy", "max", split="validation")
    keeper.update(save(tmp_path, 1, a=1.0), 1, {"accuracy": 0.5})
    with pytest.raises(UsageError, match="by 'accuracy' of the split 'validation', not of 'test'"):
        BestCheckpoint(str(tmp_path), "accuracy", "max", split="test")


def test_an_unknown_metric_is_an_error(tmp_path):
    keeper = BestCheckpoint(str(tmp_path), "bleu", "max")
    with pytest.raises(UsageError, match="--best_metric=bleu is unknown; valid: accuracy"):
        keeper.update("unused", 1, {"accuracy": 0.1, "confusion_matrix": [[1]]})


def test_a_metric_that_is_not_a_scalar_is_an_error(tmp_path):
    keeper = BestCheckpoint(str(tmp_path), "recalls", "max")
    with pytest.raises(UsageError, match="recalls is not a scalar; valid: accuracy"):
        keeper.update("unused", 1, {"accuracy": 0.1, "recalls": np.ones(3)})


def best_step(folder):
    return find.read_step(find.find_checkpoint(str(folder), "best"))


@pytest.mark.parametrize("call", range(4))  # data, index, checkpoint, best.json
def test_an_interrupted_copy_is_repeated(tmp_path, monkeypatch, call):
    BestCheckpoint(str(tmp_path), "accuracy", "max").update(
        save(tmp_path, 1, 1.0), 1, {"accuracy": 0.1}
    )
    better, renames, rename = save(tmp_path, 2, 2.0), [], os.replace

    def interrupted(*args):
        renames.append(args)
        if len(renames) > call:
            raise KeyboardInterrupt
        rename(*args)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", interrupted)
        patch.setattr(os, "unlink", lambda path: None)  # a killed process removes nothing
        with pytest.raises(KeyboardInterrupt):
            BestCheckpoint(str(tmp_path), "accuracy", "max").update(better, 2, {"accuracy": 0.2})
    assert best_step(tmp_path) == 1
    BestCheckpoint(str(tmp_path), "accuracy", "max").update(better, 2, {"accuracy": 0.2})
    assert best_step(tmp_path) == 2
    assert sorted(os.listdir(tmp_path / "best")) == [
        "best.json",
        "checkpoint",
        "model.ckpt-2.data-00000-of-00001",
        "model.ckpt-2.index",
    ]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"\xff",
        b"{" * 10**5,
        b'{"step": "1"}',
        b'{"value": null}',
        b'{"other": 1}',
        b'{"value": 1' + b"0" * 400 + b"}",
    ],
    ids=["empty", "list", "no text", "deep", "step", "value", "key", "huge"],
)
def test_a_broken_best_json_is_rebuilt_from_the_evaluation(tmp_path, content, capsys):
    BestCheckpoint(str(tmp_path), "accuracy", "max").update(
        save(tmp_path, 1, 1.0), 1, {"accuracy": 0.5}
    )
    (tmp_path / "best" / "best.json").write_bytes(content)
    keeper = BestCheckpoint(str(tmp_path), "accuracy", "max", {1: {"accuracy": 0.5}}.get)
    assert "the kept checkpoint has accuracy 0.5000" in capsys.readouterr().out
    assert not keeper.update(save(tmp_path, 2, 2.0), 2, {"accuracy": 0.4})
    assert keeper.update(save(tmp_path, 3, 3.0), 3, {"accuracy": 0.6})
    assert best_step(tmp_path) == 3


@pytest.mark.parametrize(
    ("value", "is_used"), [(7, True), (0.5, True), (True, False), ("7", False), (None, False)]
)
def test_any_number_of_the_evaluation_rebuilds_a_broken_best_json(tmp_path, value, is_used, capsys):
    BestCheckpoint(str(tmp_path), "examples", "max").update(
        save(tmp_path, 1, 1.0), 1, {"examples": 7}
    )
    (tmp_path / "best" / "best.json").write_bytes(b"")
    BestCheckpoint(str(tmp_path), "examples", "max", lambda step: {"examples": value})
    assert ("the kept checkpoint has examples" in capsys.readouterr().out) == is_used


def test_a_broken_best_checkpoint_is_replaced_by_the_next(tmp_path, capsys):
    BestCheckpoint(str(tmp_path), "accuracy", "max").update(
        save(tmp_path, 1, 1.0), 1, {"accuracy": 0.5}
    )
    os.truncate(tmp_path / "best" / "model.ckpt-1.index", 3)
    with pytest.raises(UsageError, match=r"the best checkpoint .*model.ckpt-1 cannot be used"):
        find.find_checkpoint(str(tmp_path), "best")
    keeper = BestCheckpoint(str(tmp_path), "accuracy", "max")
    assert "of step 1, cannot be used" in capsys.readouterr().out
    assert keeper.update(save(tmp_path, 2, 2.0), 2, {"accuracy": 0.4})
    assert best_step(tmp_path) == 2
