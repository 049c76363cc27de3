"""The check of programs with TPU embeddings: the step, memory of the tables, ids per step."""

import dataclasses

import pytest
import tensorflow as tf
from tensorflow.python.tpu import tpu_embedding

from tests.tpu.check import regression
from tpu.check import check_program, embeddings, format_text
from tpu.connect import topology
from tpu.findings import ERROR

tf1 = tf.compat.v1
GIB = 2**30


def make_spec(rows=11, width=4, optimizer=None):
    parameters = optimizer or tf1.tpu.experimental.AdagradParameters(0.1)
    return tf1.estimator.tpu.experimental.EmbeddingConfigSpec(
        table_to_config_dict={"words": tpu_embedding.TableConfig(rows, width, combiner="sum")},
        feature_to_config_dict={"word": tpu_embedding.FeatureConfig("words")},
        optimization_parameters=parameters,
    )


def input_fn(params):
    """Three ids per example, two of them equal, and a missing one."""
    words = tf.constant([[1, 2, 2, 0]] * params["batch_size"])
    return regression.rows(params).map(lambda x, y: ({"x": x, "word": words}, y))


def squares(features, labels):
    inputs = tf.concat([features["x"], features["word"]], 1)
    return regression.squares(inputs, labels)


def check(tpu_slice="v3-8", mode="train", **spec):
    estimator = regression.make_estimator(
        regression.make_model_fn(squares), embeddings=make_spec(**spec)
    )
    return check_program(estimator, {mode: input_fn}, tpu_slice, compile_with_libtpu=False)


def errors(report):
    return [finding for finding in report.findings if finding.level == ERROR]


def test_pjrt_devices_have_none():
    report = check("v5e-8")
    (error,) = errors(report)
    assert error.code == "pjrt"
    assert error.message.startswith("PJRT devices do not support TPU embeddings. Use tf.nn.emb")
    assert report.modes["train"].embeddings == ()


@pytest.mark.parametrize(("mode", "slots"), [("train", 1), ("eval", 0)])
def test_the_step_is_lowered_and_ids_are_counted(mode, slots):
    report = check(mode=mode)
    assert errors(report) == []
    assert report.not_checked == (
        "TPU compiler: skipped",
        f"{mode}, TPU embeddings: the time of lookups and updates",
    )
    (table,) = report.modes[mode].embeddings
    assert (table.rows, table.width, table.slots) == (11, 4, slots)
    assert table.num_bytes == 11 * 4 * 4 * (1 + slots)
    # 16 examples of the ids 1, 2, 2.
    assert table.ids_per_step == 48
    assert table.duplicates == pytest.approx(46 / 48)
    assert "11 rows x 4" in format_text(report)
    assert "48 ids per step, 96% duplicates" in format_text(report)


def test_slots_are_those_of_the_optimizer():
    for parameters, slots in (
        (tf1.tpu.experimental.StochasticGradientDescentParameters(0.1), 0),
        (tf1.tpu.experimental.AdamParameters(0.1), 2),
        (tf1.tpu.experimental.FtrlParameters(0.1), 2),
    ):
        (table,) = check(optimizer=parameters).modes["train"].embeddings
        assert table.slots == slots


def test_tables_beyond_the_memory_are_refused_with_the_arithmetic():
    report = check("v3-8", rows=400_000_000, width=64)
    (finding,) = errors(report)
    assert finding.code == "hbm"
    assert "400,000,000 rows x 64 x 4 bytes x (1 + 1 slot) = 190.73 GiB" in finding.message
    assert "23.84 GiB on each of 8 cores, which have 16 GiB" in finding.message
    assert "Use v3-32 or larger" in finding.message


def test_the_named_slice_fits_and_the_one_before_does_not():
    tables = [embeddings.TableUse(f"t{i}", 40_000_000, 128, 1) for i in range(26)]
    for step_bytes in (0, 4 * GIB):
        message = embeddings.explain_memory(tables, topology.find("v3-8"), step_bytes)
        name = message.split("Use ")[1].split(" ")[0]
        assert embeddings.explain_memory(tables, topology.find(name), step_bytes) == ""
        names = topology.names()
        smaller = topology.find(names[names.index(name) - 1])
        assert embeddings.explain_memory(tables, smaller, step_bytes)
    assert "26 tables of 1,040,000,000 rows need 991.82 GiB" in message
    huge = [dataclasses.replace(tables[0], rows=10**12)]
    assert "No v3 slice" in embeddings.explain_memory(huge, topology.find("v3-8"))


def test_optimizers_that_are_not_emulated_are_checked():
    report = check(optimizer=tpu_embedding.RMSPropParameters(0.1, 0.9, 0.9, 1e-7))
    assert errors(report) == []
    assert report.modes["train"].embeddings[0].slots == 2


def test_columns_that_the_model_does_not_use_are_an_error():
    column = tf.feature_column.categorical_column_with_identity("word", 11)
    spec = tf1.estimator.tpu.experimental.EmbeddingConfigSpec(
        [tf1.tpu.experimental.embedding_column(column, 4)],
        tf1.tpu.experimental.AdagradParameters(0.1),
    )
    estimator = regression.make_estimator(regression.make_model_fn(squares), embeddings=spec)
    report = check_program(estimator, {"train": input_fn}, "v3-8", compile_with_libtpu=False)
    (finding,) = errors(report)
    assert finding.code == "graph"
    assert "did not capture any thing" in finding.message
