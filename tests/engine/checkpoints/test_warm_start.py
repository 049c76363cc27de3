"""Warm start from checkpoints of our models and of published ones."""

import os
import re

import numpy as np
import pytest
import tensorflow as tf

from common.errors import UsageError
from engine.checkpoints import ema, find, warm_start, writer
from engine.train import optimizers

PARAMS = optimizers.default_params()


def save(folder, **values):
    """Writes a checkpoint of float32 variables and a global step; returns its path."""
    path = str(folder / "model.ckpt-7")
    values = {name: np.float32(value) for name, value in values.items()}
    writer.write(path, {**values, "global_step": np.int64(7)})
    return path


def restored(session, checkpoint, variables, include=".*"):
    """The values of `variables` after a warm start."""
    warm_start.init_from_checkpoint(checkpoint, include, variables)
    session.run(tf.compat.v1.global_variables_initializer())
    return session.run(variables)


def test_matching_variables_are_restored_and_the_others_are_listed(tmp_path, session, capsys):
    checkpoint = save(tmp_path, a=5.0, b=6.0, shaped=np.ones([2]))
    a = tf.compat.v1.get_variable("a", initializer=0.0)
    b = tf.compat.v1.get_variable("b", initializer=0.0)
    shaped = tf.compat.v1.get_variable("shaped", shape=[3])
    new = tf.compat.v1.get_variable("new", shape=[])
    step = tf.compat.v1.train.get_or_create_global_step()
    values = restored(
        session, checkpoint, [a, b, shaped, new, step], include="a|shaped|new|global_step"
    )
    assert [values[0], values[1], values[4]] == [5.0, 0.0, 0]
    out = capsys.readouterr().out
    assert "restored 1 variables from" in out
    assert "shape differs: shaped ([2] in the checkpoint, [3] in this model)" in out
    assert "missing from it: new" in out


def test_partitions_are_restored_from_their_variable(tmp_path, session, capsys):
    table = np.arange(14, dtype=np.float32).reshape(7, 2)
    checkpoint = save(tmp_path, a=5.0, table=table)
    a = tf.compat.v1.get_variable("a", initializer=0.0)
    partitioner = tf.compat.v1.fixed_size_partitioner(3)
    parts = list(tf.compat.v1.get_variable("table", shape=[7, 2], partitioner=partitioner))
    _, *values = restored(session, checkpoint, [a, *parts])
    np.testing.assert_array_equal(np.concatenate(values), table)
    assert "restored 2 variables from" in capsys.readouterr().out
    assert {ema.saved_name(part) for part in parts} == {"table"}
    assert ema.saved_shape(parts[1]) == [7, 2]


def test_one_replica_prints_for_all(tmp_path, capsys):
    checkpoint = save(tmp_path, a=5.0)
    strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])

    def replica():
        tf.compat.v1.get_variable("a", initializer=0.0)
        variables = tf.compat.v1.global_variables()
        warm_start.init_from_checkpoint(checkpoint, ".*", variables)

    with strategy.scope():
        strategy.extended.call_for_each_replica(replica)
    assert capsys.readouterr().out.count("restored") == 1


def test_include_matches_whole_names(tmp_path):
    encoder = tf.compat.v1.get_variable("encoder", initializer=0.0)
    with pytest.raises(UsageError, match="matches no variable"):
        warm_start.init_from_checkpoint(save(tmp_path, encoder=5.0), "enc", [encoder])


def test_variables_of_the_data_set_keep_its_values(tmp_path, session, capsys):
    checkpoint = save(tmp_path, a=5.0, mean=6.0)
    a, mean = (tf.compat.v1.get_variable(name, initializer=3.0) for name in ("a", "mean"))
    warm_start.init_from_checkpoint(checkpoint, ".*", [a, mean], dataset_variables=["mean"])
    session.run(tf.compat.v1.global_variables_initializer())
    assert session.run([a, mean]) == [5.0, 3.0]
    assert "initialized 1, values of the data set: mean" in capsys.readouterr().out


def test_ema_starts_at_the_restored_value(tmp_path, session, minimize):
    a = tf.compat.v1.get_variable("a", initializer=0.0)
    minimize(a * a, {**PARAMS, "ema_decay": 0.5}, 0.1)
    assert restored(session, save(tmp_path, a=5.0), [a]) == [5.0]
    assert session.run(ema.find_average(a)) == 5.0


def test_the_ema_of_a_checkpoint_is_restored(tmp_path, session, minimize, capsys):
    """As evaluation and export of that checkpoint use it."""
    values = {"a": 5.0, "a/ExponentialMovingAverage": 4.0, "moving_mean": 3.0}
    a, mean = (tf.compat.v1.get_variable(name, initializer=0.0) for name in ("a", "moving_mean"))
    minimize(a * a, {**PARAMS, "ema_decay": 0.5}, 0.1)
    assert restored(session, save(tmp_path, **values), [a, mean]) == [4.0, 3.0]
    assert session.run(ema.find_average(a)) == 4.0
    assert "restored 2 variables" in (out := capsys.readouterr().out)
    assert "1 of them from their moving average (EMA)" in out


@pytest.mark.parametrize("part", ["data-00000-of-00001", "index"])
@pytest.mark.parametrize("size", [0, 7])
def test_a_truncated_checkpoint_is_one_line(tmp_path, part, size):
    checkpoint = save(tmp_path, a=np.ones([7]))
    os.truncate(f"{checkpoint}.{part}", size)
    message = (
        r"--warm_start_from: the checkpoint .*model\.ckpt-7 cannot be used: .*\. Copy it again"
    )
    with pytest.raises(UsageError, match=message):
        warm_start.find_checkpoint(checkpoint)


def test_any_name_is_accepted_without_a_global_step(tmp_path):
    path = save_shapes(tmp_path, make_encoder())
    assert warm_start.find_checkpoint(str(tmp_path)) == path
    assert warm_start.find_checkpoint(path) == path
    with pytest.raises(UsageError, match="global_step is missing"):
        find.find_checkpoint("elsewhere", path)


def make_encoder(num_layers=2, hidden_size=3, vocab_size=7):
    """The shapes of a small encoder, `{name: shape}`."""
    layers = {
        f"bert/encoder/layer_{i}/output/{name}": shape
        for i in range(num_layers)
        for name, shape in (("kernel", [5, hidden_size]), ("bias", [hidden_size]))
    }
    return {"bert/embeddings/words": [vocab_size, hidden_size], **layers}


def save_shapes(folder, shapes):
    path = str(folder / "bert_model.ckpt")
    writer.write(path, {name: np.ones(shape, np.float32) for name, shape in shapes.items()})
    return path


def warm_start_encoder(checkpoint, include=".*", **sizes):
    """Warm-starts an encoder and a head; returns the names of the variables that are restored."""
    shapes = {**make_encoder(**sizes), "head/kernel": [3, 2]}
    variables = [
        tf.compat.v1.get_variable(name, shape, initializer=tf.zeros_initializer())
        for name, shape in shapes.items()
    ]
    warm_start.init_from_checkpoint(checkpoint, include, variables, scope="bert/.*")
    with tf.compat.v1.Session() as session:
        session.run(tf.compat.v1.global_variables_initializer())
        return {v.op.name for v in variables if session.run(v).all()}


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"num_layers": 12}, ": 2 bert/encoder/layer_* in the checkpoint, 12 in this model. Set"),
        ({"num_layers": 1}, ": 2 bert/encoder/layer_* in the checkpoint, 1 in this model. Set"),
        ({"vocab_size": 8}, "embeddings/words is [7, 3] in the checkpoint, [8, 3] in this model."),
        ({"hidden_size": 4}, "layer_0/output/bias is [3] in the checkpoint, [4] in this model"),
    ],
    ids=str,
)  # fmt: skip
def test_an_encoder_of_another_size_is_an_error_that_names_both(tmp_path, sizes, message):
    with pytest.raises(UsageError, match=re.escape(message)):
        warm_start_encoder(save_shapes(tmp_path, make_encoder()), **sizes)


@pytest.mark.parametrize("side", ["the checkpoint", "this model"])
def test_a_single_variable_that_one_side_lacks_is_an_error(tmp_path, side):
    shapes, name = make_encoder(), "bert/encoder/layer_1/output/bias"
    if side == "the checkpoint":
        del shapes[name]
    else:
        shapes[f"{name}_2"] = shapes[name]
    with pytest.raises(UsageError, match=rf"/bias(_2)? \[3\] is missing from {side}\."):
        warm_start_encoder(save_shapes(tmp_path, shapes))


def test_slots_and_other_heads_in_the_checkpoint_are_ignored(tmp_path):
    encoder = make_encoder()
    slots = {
        f"{name}/{slot}": shape
        for name, shape in encoder.items()
        for slot in ("adam_m", "adam_v", "Momentum", "ExponentialMovingAverage")
    }
    more = {"cls/predictions/output_bias": [7], "global_step": []}
    path = save_shapes(tmp_path, {**encoder, **slots, **more})
    assert warm_start_encoder(path) == {*encoder}


def test_include_narrows_what_must_match(tmp_path):
    path = save_shapes(tmp_path, make_encoder(num_layers=3))
    include = "bert/(embeddings|encoder/layer_[01])/.*"
    assert warm_start_encoder(path, include) == {*make_encoder()}
