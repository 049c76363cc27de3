"""Windows and answers in a graph are those of prepare_data.py and of the host."""

import numpy as np
import pytest
import tensorflow as tf

from input_fns import convert, dataset_info
from input_fns.convert import writer
from input_fns.convert.options import Options
from input_fns.text.squad_pipeline import SquadPipeline
from models.text import bert_squad, squad_answers
from tests import squad_files
from tests.marks import slow

squad_text_ops = pytest.importorskip("input_fns.text.squad_text_ops")
PARAMS = {**squad_answers.default_params(), "n_best_size": 3, "max_answer_length": 5}
QUESTIONS = [
    (squad_files.PARIS, "What is the capital of France?"),
    (squad_files.PARIS, "Who?"),
    (squad_files.CAFE, "In what year was the king, Louis XIV, born in France?"),
    ("Yes.", "Is it?"),
    (squad_files.CAFE + " " + squad_files.PARIS * 3, ""),
    # Steps of tokenization.py that FastBertTokenizer does otherwise, and that move places.
    (
        "\0a\x85b I\u0307\u0130 \u200bÉ e\u0301s, ½ ß \ufffdki\xadng " + "k" * 201 + " Paris",
        "ß½ É\0?",
    ),
]


@pytest.fixture(scope="module", params=[(21, 9, 5), slow((30, 7, 30)), slow((17, 13, 1))])
def pipeline(request, tmp_path_factory):
    """A pipeline of windows of several sizes: `(max_length, max_query_length, doc_stride)`."""
    max_length, max_query_length, doc_stride = request.param
    paragraphs = [
        (context, [squad_files.question(str(i), text)])
        for i, (context, text) in enumerate(QUESTIONS)
    ]
    folder = tmp_path_factory.mktemp("squad")
    squad_files.write(folder / "raw", dev=squad_files.content(*paragraphs))
    options = Options(
        "squad",
        source=str(folder / "raw"),
        vocabulary=str(folder / "raw" / "vocab.txt"),
        max_length=max_length,
        max_query_length=max_query_length,
        doc_stride=doc_stride,
    )
    writer.write(convert.read(options), str(folder / "data"))
    return SquadPipeline(dataset_info.read(str(folder / "data")), serves_text=True)


@pytest.fixture(scope="module")
def windows(pipeline):
    """Runs the graph: `windows([(context, question)])`. Building a tokenizer takes seconds."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        texts = [tf.compat.v1.placeholder(tf.string, [None]) for _ in range(2)]
        features = squad_text_ops.windows(*texts, pipeline)

        def run(pairs):
            columns = [np.array([pair[i] for pair in pairs], object) for i in (1, 0)]
            return session.run(features, dict(zip(texts, columns)))

        yield run


def stored(pipeline):
    """The windows of the split, by prepare_data.py."""
    ((features, _),) = pipeline.host_examples("validation", 1000)
    return features


def test_windows_are_those_of_prepare_data(pipeline, windows):
    found = windows(QUESTIONS)
    expected = stored(pipeline)
    contexts = np.array([context.encode() for context, _ in QUESTIONS], object)
    assert found["context"].tolist() == contexts[expected["question_index"]].tolist()
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)


def test_every_question_gets_a_window(windows):
    found = windows([("", ""), ("", "Who?"), ("\u200b", "?" * 99)])
    assert found["question_index"].tolist() == [0, 1, 2]
    assert not found["token_ends"].any()
    assert found["input_mask"].sum(axis=1).tolist()[0] == 3  # [CLS] [SEP] [SEP]


def test_bytes_that_are_not_utf8_are_replaced(windows):
    found = windows([(b"is \xff\xfe of", b"\xc3")])
    assert found["context"].tolist() == ["is \ufffd\ufffd of".encode()]
    assert found["token_ends"][found["token_ends"] > 0].tolist() == [2, 8]


def test_no_question_gets_no_window(pipeline, windows, session):
    found = windows([])
    assert found["input_ids"].shape == (0, pipeline.data.kind.max_length)
    given = {name: tf.constant(values) for name, values in found.items()}
    answers = session.run(squad_text_ops.answers(best_spans(given, *logits(0, 1)), given, False))
    assert [len(values) for values in answers.values()] == [0] * 4


def logits(count, length, seed=0):
    """Start and end logits with many equal values, float32 `[count, length]`."""
    return np.random.default_rng(seed).integers(-4, 9, [2, count, length]).astype(np.float32)


def best_spans(features, start_logits, end_logits, **params):
    predictions = {"start_logits": start_logits, "end_logits": end_logits}
    tensors = {name: tf.convert_to_tensor(values) for name, values in predictions.items()}
    return bert_squad.best_spans(features, tensors, {**PARAMS, **params})


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize("has_impossible", [False, True])
def test_answers_are_those_of_the_host(pipeline, windows, session, has_impossible):
    params = {**PARAMS, "null_threshold": -2.0}
    expected = stored(pipeline)
    shape = expected["input_ids"].shape
    given = {name: tf.constant(v) for name, v in windows(QUESTIONS).items()}
    feeds = {name: tf.compat.v1.placeholder(tf.float32, shape) for name in ("start", "end")}
    best = best_spans(given, *feeds.values(), null_threshold=-2.0)
    answers_in_graph = squad_text_ops.answers(best, given, has_impossible)
    for seed in range(5):
        start_logits, end_logits = logits(*shape, seed)
        fed = dict(zip(feeds.values(), (start_logits, end_logits)))
        answers = session.run(answers_in_graph, fed)
        predictions = {"start_logits": start_logits, "end_logits": end_logits}
        spans = squad_answers.find_spans(expected, predictions, params)
        for i, (context, _) in enumerate(QUESTIONS):
            of_question = [span for span, j in zip(spans, expected["question_index"]) if j == i]
            chosen = squad_answers.choose(context, of_question, params, has_impossible)
            assert answers["answer"][i].decode() == chosen.text
            assert context[answers["start"][i] : answers["end"][i]] == chosen.text
            entry = next(entry for entry in chosen.nbest if entry["text"] == chosen.text)
            if chosen.text or has_impossible:
                assert answers["score"][i] == entry["start_logit"] + entry["end_logit"]


def test_offsets_are_code_points(windows, session):
    texts = windows(QUESTIONS[2:3])
    start_logits, end_logits = np.zeros([2, *texts["input_ids"].shape], np.float32)
    end = squad_files.CAFE.index("é)") + 1
    rows, columns = np.nonzero((texts["token_ends"] == end) & (texts["is_max_context"] == 1))
    start_logits[rows[0], columns[0]] = end_logits[rows[0], columns[0]] = 9
    given = {name: tf.constant(values) for name, values in texts.items()}
    answers = session.run(
        squad_text_ops.answers(best_spans(given, start_logits, end_logits), given, False)
    )
    assert answers["end"][0] == end
    assert squad_files.CAFE[answers["start"][0] : end] == answers["answer"][0].decode()
    assert answers["score"][0] == 18.0
