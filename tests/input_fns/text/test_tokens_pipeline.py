"""Rows of tokens, from shards to batches, and prompts of files."""

import json

import numpy as np
import pytest
import tensorflow as tf

from input_fns import DataError, convert, dataset_info, kinds
from input_fns.convert import writer
from input_fns.convert.options import Options
from input_fns.core import predictions
from input_fns.core.synthetic import SyntheticPipeline
from input_fns.kinds import PipelineOptions, SyntheticShapes

LENGTH = 8
TEXT = "To be, or not to be, that is the question.\n" * 5


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokens")
    (folder / "input.txt").write_text(TEXT)
    options = Options(
        "lm_text", source=str(folder / "input.txt"), max_length=LENGTH, tokenizer="characters"
    )
    writer.write(convert.read(options), str(folder / "data"))
    data = dataset_info.load(str(folder / "data"), "lm_text")
    return data.kind.pipeline(data, PipelineOptions())


def fetch(input_fn, session, count=1, batch_size=4):
    element = tf.compat.v1.data.make_one_shot_iterator(
        input_fn({"batch_size": batch_size})
    ).get_next()
    return [session.run(element) for _ in range(count)]


def test_training_rows(pipeline, session):
    ((features, labels),) = fetch(pipeline.train_input_fn("train", seed=1), session)
    shapes = {name: values.shape for name, values in features.items()}
    assert shapes == {
        "tokens": (4, LENGTH + 1),
        "num_tokens": (4,),
        "num_bytes": (4,),
        "dropout_seed": (4, 2),
    }
    assert labels == ()
    assert {values.dtype.name for values in features.values()} == {"int32"}
    text = pipeline.tokenizer.decode(features["tokens"][0])
    assert text in TEXT or text in f"{TEXT}{TEXT}"


def test_an_evaluation_has_all_bytes_of_the_split(pipeline, session):
    size = pipeline.data.split("validation").num_examples
    batches = fetch(pipeline.eval_input_fn("validation"), session, -(-size // 2), 2)
    counted = sum((f["num_bytes"] * f["weight"]).sum() for f, _ in batches)
    assert counted == pipeline.data.kind.splits["validation"].num_bytes == len(TEXT) // 10 + 1
    tokens = sum((f["num_tokens"] * f["weight"]).sum() for f, _ in batches)
    assert tokens == counted + 1  # the end of the text


def test_rows_of_a_split_are_prompts_of_half_their_tokens(pipeline, session):
    element = tf.compat.v1.data.make_one_shot_iterator(
        pipeline.predict_input_fn("train")({"batch_size": 3})
    ).get_next()
    features = session.run(element)
    assert features.keys() == pipeline.features.keys()
    assert features["prompt_length"].tolist() == [LENGTH // 2] * 3
    end = pipeline.data.kind.end_of_text
    assert (features["prompt"][:, LENGTH // 2 :] == end).all()
    lengths = pipeline.split_examples("train").lengths
    assert len(lengths) == pipeline.data.split("train").num_examples


def read(pipeline, tmp_path, content):
    (tmp_path / "prompts.txt").write_bytes(content)
    return predictions.examples_of(pipeline, "", str(tmp_path / "prompts.txt"))


def test_prompts_of_a_file(pipeline, session, tmp_path):
    found = read(pipeline, tmp_path, b"To\n<|endoftext|>\nquest\n")
    (features,) = fetch(found.input_fn, session)
    assert features["prompt_length"].tolist() == [2, 1, 5]
    assert features["seed"].tolist() == [0, 1, 2]
    assert features["max_tokens"].tolist() == [LENGTH] * 3
    assert pipeline.tokenizer.decode(features["prompt"][2][:5]) == "quest"
    assert features["prompt"][1, 0] == pipeline.data.kind.end_of_text


def test_continuations_are_written_as_text(pipeline, tmp_path):
    examples = read(pipeline, tmp_path, b"To\nno\n")
    (ids,) = pipeline.tokenizer.encode(["To be"])
    tokens = np.full([2, LENGTH], pipeline.data.kind.end_of_text, np.int32)
    tokens[0, :5], tokens[1, :2] = ids, pipeline.tokenizer.encode(["no"])[0]
    batch = {
        "tokens": tokens,
        "length": np.array([5, 3], np.int32),
        "log_probs": -np.arange(LENGTH, dtype=np.float32) * np.ones([2, 1], np.float32),
    }
    path = str(tmp_path / "out.jsonl")
    pipeline.prediction_writer(examples).write(path, iter([batch]))
    with open(path) as file:
        lines = list(map(json.loads, file))
    first = {"index": 0, "prompt": "To", "text": " be", "num_tokens": 3, "log_prob": -9.0}
    second = {"index": 1, "prompt": "no", "text": "", "num_tokens": 1, "log_prob": -2.0}
    assert lines == [first, second]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "has no prompt"),
        (b"To\n\nbe\n", "line 2 is empty"),
        (b"To be, or\n", "line 1, To be, or, has 9 tokens, but the rows of lm_text have 8"),
        (b"To\n\xff\xfe be\n", "prompts.txt"),
        (b"To\nZ\xc3\xa9\n", "line 2: 2 characters not in the vocabulary"),
    ],
)
def test_bad_prompts_are_one_line(pipeline, tmp_path, content, message):
    with pytest.raises(DataError) as error:
        read(pipeline, tmp_path, content)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_the_first_row_is_shown(pipeline):
    lines = pipeline.data.kind.first_example(pipeline.data, "validation")
    assert lines[0].startswith("  first: ")


def test_synthetic_rows(session):
    data = kinds.synthetic(SyntheticShapes("language_model", text=(6, 50)))
    pipeline = SyntheticPipeline(data.kind.pipeline(data, PipelineOptions()))
    ((features, _),) = fetch(pipeline.train_input_fn("train", seed=1), session)
    assert features["tokens"].shape == (4, 7)
    batch = next(iter(pipeline.host_examples("test", 5)))[0]
    assert pipeline.features.keys() <= batch.keys()
