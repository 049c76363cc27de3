"""Rows of token ids, from shards to batches."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from input_fns import dataset_info
from input_fns.core import inspection
from input_fns.core.input_context import HostShard
from input_fns.text.text_pipeline import TextPipeline
from tests.marks import slow

LENGTH = 32


@pytest.fixture
def pipeline(pairs_dir):
    return TextPipeline(dataset_info.load(pairs_dir, "pairs"))


def fetch(input_fn, session, batch_size, count):
    batches = input_fn({"batch_size": batch_size})
    element = tf.compat.v1.data.make_one_shot_iterator(batches).get_next()
    return [session.run(element) for _ in range(count)]


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize("cache", ["memory", "none"])
def test_training_rows(pairs_dir, session, cache):
    pipeline = TextPipeline(dataset_info.load(pairs_dir, "pairs"), cache)
    size = pipeline.data.split("train").num_examples
    ((features, labels),) = fetch(pipeline.train_input_fn("train", seed=1), session, size, 1)
    assert {name: (rows.shape, rows.dtype) for name, rows in features.items()} == {
        "source": ((size, LENGTH), np.int32),
        "target": ((size, LENGTH), np.int32),
        "dropout_seed": ((size, 2), np.int32),
    }
    assert len(np.unique(features.pop("dropout_seed"))) == 2 * size
    np.testing.assert_array_equal(labels, features["target"])
    stored = pipeline.stored_rows("train")
    for name, rows in features.items():
        assert sorted(rows.tolist()) == sorted(stored[name].tolist())
    assert (features["source"] != stored["source"]).any()


@pytest.mark.slow(cost=0.1)
def test_a_resumed_training_goes_on_with_the_next_batch(pipeline, session):
    whole = fetch(pipeline.train_input_fn("train", seed=1), session, 4, 5)
    rest = fetch(pipeline.train_input_fn("train", seed=1, start_step=3), session, 4, 2)
    for (features, _), (expected, _) in zip(rest, whole[3:]):
        np.testing.assert_array_equal(features["source"], expected["source"])


def test_evaluation_pads_the_last_batch_with_rows_of_weight_0(pipeline, session):
    batches = fetch(pipeline.eval_input_fn("test"), session, 4, 3)
    weights = np.concatenate([features["weight"] for features, _ in batches])
    assert weights.tolist() == [1.0] * 11 + [0.0]
    rows = np.concatenate([labels for _, labels in batches])
    assert rows.shape == (12, LENGTH)
    np.testing.assert_array_equal(rows[:11], pipeline.stored_rows("test")["target"])


def test_prediction_sees_sources_alone(pipeline, session):
    batches = fetch(pipeline.predict_input_fn("test"), session, 4, 3)
    assert [set(batch) for batch in batches] == [{"source"}] * 3
    assert [len(batch["source"]) for batch in batches] == [4, 4, 3]


def test_host_examples_are_read_once_and_in_the_order_of_the_model(pipeline, session, monkeypatch):
    reads, stored_rows = [], TextPipeline.stored_rows

    def counted(self, split, count=None):
        reads.append(split)
        return stored_rows(self, split, count)

    monkeypatch.setattr(TextPipeline, "stored_rows", counted)
    fed = [batch["source"] for batch in fetch(pipeline.host_input_fn("test"), session, 4, 3)]
    labeled = [features["source"] for features, _ in pipeline.host_examples("test", 4)]
    np.testing.assert_array_equal(np.concatenate(fed), np.concatenate(labeled))
    lengths = np.count_nonzero(np.concatenate(fed), axis=1)
    assert (np.diff(lengths) <= 0).all()
    assert reads == ["test"]


@pytest.mark.slow(cost=0.1)
def test_host_examples_of_several_numbers_of_rows(pipeline):
    for count in (3, 5, 0):
        assert len(list(pipeline.host_examples("test", 1, count))) == (count or 11)


def test_a_pipeline_with_other_data_reads_again(pipeline):
    assert len(list(pipeline.host_examples("test", 1))) == 11
    validation = {"test": pipeline.data.splits["validation"]}
    other = pipeline.with_data(dataclasses.replace(pipeline.data, splits=validation))
    assert len(list(other.host_examples("test", 1))) == 13


def test_lines_become_the_rows_that_the_converter_made(pipeline, pair_files, session):
    lines = (pair_files / "test.en").read_text().splitlines()
    rows = pipeline.rows(pipeline.vocabulary.encode(lines))
    np.testing.assert_array_equal(rows, pipeline.stored_rows("test")["source"])
    batches = fetch(pipeline.rows_input_fn(rows), session, 8, 2)
    np.testing.assert_array_equal(np.concatenate([batch["source"] for batch in batches]), rows)


@pytest.mark.slow(cost=0.1)
def test_hosts_deliver_rows_of_the_same_batch(pipeline, session, monkeypatch):
    host_shards = [HostShard(2, batches_per_step=2, host=host, num_hosts=2) for host in range(2)]
    whole = fetch(pipeline.train_input_fn("train", seed=1), session, 8, 1)[0][1]
    parts = []
    for host_shard in host_shards:
        monkeypatch.setattr(
            "input_fns.core.input_context.from_params",
            lambda params, host_shard=host_shard: host_shard,
        )
        parts += [labels for _, labels in fetch(pipeline.train_input_fn("train", 1), session, 2, 2)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


@pytest.mark.slow  # like those of test_records.py
def test_streaming_hosts_read_disjoint_rows(pairs_dir, session, monkeypatch):
    pipeline = TextPipeline(dataset_info.load(pairs_dir, "pairs"), cache="none")
    size, seen = pipeline.data.split("train").num_examples, []
    for host in range(4):
        host_shard = HostShard(1, 1, host, 4)
        monkeypatch.setattr(
            "input_fns.core.input_context.from_params",
            lambda params, host_shard=host_shard: host_shard,
        )
        input_fn = pipeline.train_input_fn("train", seed=1)
        count = size * (host + 1) // 4 - size * host // 4  # ranges of the records
        seen += fetch(input_fn, session, 1, count)
    rows = pipeline.stored_rows("train")["target"]
    assert sorted(labels[0].tolist() for _, labels in seen) == sorted(rows.tolist())


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize("cache", ["none", slow("memory")])
def test_a_token_id_outside_the_vocabulary_is_an_error(pairs_dir, session, cache):
    data = dataset_info.load(pairs_dir, "pairs")
    small = dataclasses.replace(data, kind=dataclasses.replace(data.kind, vocab_size=5))
    with pytest.raises(tf.errors.InvalidArgumentError, match="outside the vocabulary"):
        fetch(TextPipeline(small, cache).train_input_fn("train", seed=1), session, 4, 1)
    with pytest.raises(tf.errors.InvalidArgumentError, match="outside the vocabulary"):
        TextPipeline(small).stored_rows("test")
    (problem, *_) = inspection.problems(small, ["test"])
    assert "'source' has values outside of 0 to 4" in problem
