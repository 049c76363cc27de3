"""Windows for the model, and what only the host gets."""

import json
import pathlib

import numpy as np
import pytest
from tensorflow.python.eager import context

from input_fns import DataError, convert, dataset_info
from input_fns.convert import writer
from input_fns.convert.options import Options
from input_fns.text.squad_pipeline import HOST_FEATURES, SquadPipeline
from tests import squad_files

MODEL_FEATURES = {"input_ids", "input_mask", "segment_ids"}


@pytest.fixture
def data_dir(tmp_path):
    """Questions in the splits "train" and "test"; a test may change the files."""
    questions = squad_files.paris_questions()
    folder = squad_files.write(tmp_path / "raw", train=questions, test=questions)
    options = Options(
        "squad",
        source=str(folder),
        vocabulary=str(folder / "vocab.txt"),
        max_length=24,
        max_query_length=9,
        doc_stride=5,
    )
    writer.write(convert.read(options), str(tmp_path / "data"))
    return str(tmp_path / "data")


@pytest.fixture
def pipeline(data_dir):
    """The pipeline of `data_dir`."""
    return SquadPipeline(dataset_info.read(data_dir))


def test_the_model_gets_tokens_only(pipeline):
    params = {"batch_size": 4}
    assert set(pipeline.features) == MODEL_FEATURES
    assert set(pipeline.predict_input_fn("test")(params).element_spec) == MODEL_FEATURES
    features, labels = pipeline.eval_input_fn("test")(params).element_spec
    assert set(features) == {*MODEL_FEATURES, "weight"}
    assert set(labels) == {"start_positions", "end_positions"}
    features, _ = pipeline.train_input_fn("train", 1)(params).element_spec
    assert set(features) == {*MODEL_FEATURES, "dropout_seed"}
    assert set(pipeline.receivers()["serving_default"].inputs) == MODEL_FEATURES


def test_the_host_gets_the_windows_of_the_model_and_their_places(pipeline):
    host = list(pipeline.host_examples("test", 4))
    with context.eager_mode():
        model = list(pipeline.predict_input_fn("test")({"batch_size": 4}))
    assert len(host) == len(model) > 1
    for (features, _), seen in zip(host, model):
        assert set(features) == {*MODEL_FEATURES, *HOST_FEATURES}
        for name, values in features.items():
            assert values.dtype == np.int32
            if name in seen:
                np.testing.assert_array_equal(values, seen[name])


@pytest.mark.slow(cost=0.1)
def test_question_index_finds_the_question(pipeline):
    for split, first in (("train", 0), ("test", 4)):
        for features, labels in pipeline.host_examples(split, 100):
            for i, index in enumerate(features["question_index"].tolist()):
                start, questions = pipeline.questions_around(index)
                assert start == first
                assert questions == pipeline.questions(split)
                question = questions[index - first]
                place = labels["start_positions"][i]
                if place:
                    text = question.context[features["token_starts"][i, place] :]
                    answer = question.answers[0][0]
                    assert text.lower().startswith(answer.split()[0].lower())


def test_a_question_outside_of_dataset_json_is_refused(pipeline):
    with pytest.raises(DataError, match="question 8 in the shards is not among the 8"):
        pipeline.questions_around(8)


def side_file(pipeline):
    return pathlib.Path(pipeline.data.data_dir) / pipeline.data.kind.splits["test"].side_file


def test_a_side_file_with_other_questions_is_refused(pipeline):
    path = side_file(pipeline)
    content = json.loads(path.read_text())
    content["data"][0]["paragraphs"].pop()
    path.write_text(json.dumps(content))
    with pytest.raises(DataError, match=r"has 3 questions, and dataset\.json 4: prepare"):
        pipeline.questions("test")


def test_a_missing_side_file_is_named(pipeline):
    side_file(pipeline).unlink()
    with pytest.raises(DataError, match=r"questions-test-.*json cannot be read"):
        pipeline.questions("test")
