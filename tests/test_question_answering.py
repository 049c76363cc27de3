"""Trains, evaluates, predicts with and exports BERT on questions about texts."""

import json
import os

import pytest
import tensorflow as tf

from common.errors import UsageError
from input_fns import convert
from input_fns.convert import writer
from input_fns.convert.options import Options
from models.text import bert_squad
from tests import squad_files

SIZES = "num_layers=1,hidden_size=32,num_heads=2,ffn_size=48,dropout=0,attention_dropout=0"


@pytest.fixture(scope="module")
def squad_flags(tmp_path_factory):
    """Flags of both wrappers for a tiny model on questions of SQuAD 2.0."""
    folder = tmp_path_factory.mktemp("squad")
    questions = squad_files.paris_questions("v2.0")
    squad_files.write(folder / "raw", train=questions, dev=questions)
    options = Options(
        "squad",
        source=str(folder / "raw"),
        vocabulary=str(folder / "raw" / "vocab.txt"),
        max_length=28,
        max_query_length=9,
        doc_stride=6,
    )
    writer.write(convert.read(options), str(folder / "data"))
    return [
        "--model=bert_tiny_squad",
        f"--params={SIZES},learning_rate=0.01,null_threshold=-1",
        "--dataset=squad",
        f"--data_dir={folder}/data",
        "--train_batch_size=8",
        "--eval_batch_size=4",
        "--predict_batch_size=4",
        "--eval_split=validation",
        "--seed=1",
    ]


@pytest.fixture(scope="module")
def model_dir(run_with, squad_flags, tmp_path_factory):
    """A model of 80 steps, evaluated."""
    path = str(tmp_path_factory.mktemp("answers"))
    steps = ["--train_steps=80", "--save_checkpoints_steps=80"]
    run_with(
        "--mode=train_and_eval", "--best_metric=f1", f"--model_dir={path}", *steps, *squad_flags
    )
    return path


def read(*parts):
    with open(os.path.join(*parts)) as file:
        return json.load(file)


@pytest.mark.slow(cost=0.1)
def test_eval_scores_every_question(model_dir, result):
    evaluated = result(model_dir, 80)["eval"]
    assert set(read(model_dir, "eval", "predictions.json")) == {
        *("capital", "year", "king", "queen", "café")
    }
    # It knows the answers by heart.
    assert evaluated["HasAns_f1"] > 50
    assert evaluated["best_f1"] >= evaluated["f1"]


@pytest.mark.slow
def test_the_first_windows_score_the_first_questions(run_with, squad_flags, model_dir, result):
    run_with("--mode=eval", f"--model_dir={model_dir}", "--max_eval_examples=2", *squad_flags)
    answered = read(model_dir, "eval_first_2", "predictions.json")
    assert 1 <= len(answered) <= 2
    found = result(model_dir, 80)["eval_first_2"]
    assert (found["examples"], found["exact"]) == (2, 100)  # it knows the answers by heart


@pytest.mark.slow(cost=0.1)
def test_predict_writes_the_files_of_run_squad(run_with, squad_flags, model_dir, tmp_path):
    folder = str(tmp_path / "answers")
    flags = [f"--model_dir={model_dir}", f"--predict_output={folder}", *squad_flags]
    run_with("--mode=predict", *flags)
    assert read(folder, "predictions.json") == read(model_dir, "eval", "predictions.json")
    # The kernels of an evaluation round differently.
    best = read(folder, "nbest_predictions.json")
    for question, answers in read(model_dir, "eval", "nbest_predictions.json").items():
        assert best[question][0]["text"] == answers[0]["text"]
        assert best[question][0]["probability"] == pytest.approx(
            answers[0]["probability"], rel=1e-3
        )
    null_odds = read(model_dir, "eval", "null_odds.json")
    assert read(folder, "null_odds.json") == pytest.approx(null_odds, rel=1e-3, abs=1e-3)


@pytest.mark.slow(cost=0.1)
def test_predict_output_is_a_folder(run_with, squad_flags, model_dir, tmp_path):
    path = tmp_path / "file.json"
    path.touch()
    flags = [f"--model_dir={model_dir}", f"--predict_output={path}", *squad_flags]
    with pytest.raises(UsageError, match=r"is a file, but several files are written"):
        run_with("--mode=predict", *flags)


def test_logits_of_dynamic_padding_are_padded_to_max_length(session):
    logits = tf.compat.v1.placeholder_with_default([[0.5, 1, 2]], [None, None])
    features = {"input_mask": tf.compat.v1.placeholder_with_default([[1, 1, 0]], [None, None])}
    outputs = {"start_logits": logits, "end_logits": logits}
    found = session.run(bert_squad.predictions(features, outputs, {"max_length": 5}))
    row = [0.5, 1, 2, bert_squad.PADDING_LOGIT, bert_squad.PADDING_LOGIT]
    for name in outputs:
        assert found[name].tolist() == [row]


@pytest.mark.slow
def test_a_tpu_predicts_the_same(run_tpu_with, squad_flags, model_dir, tmp_path):
    flags = [
        "--tpu=emulator",
        "--tpu_topology=1x2",
        "--nodynamic_padding",
        f"--model_dir={model_dir}",
        *squad_flags,
    ]
    run_tpu_with("--mode=predict", f"--predict_output={tmp_path}", *flags)
    assert read(tmp_path, "predictions.json") == read(model_dir, "eval", "predictions.json")


@pytest.mark.slow  # test_squad_text_ops.py runs its ops, test_bert.py an export
def test_a_saved_model_answers_text(
    run_with, squad_flags, model_dir, tmp_path, serve_in_this_process
):
    pytest.importorskip("tensorflow_text")
    flags = [f"--model_dir={model_dir}", f"--export_dir={tmp_path}", *squad_flags]
    with serve_in_this_process():
        run_with("--mode=export", "--export_text", *flags)
    (version,) = os.listdir(tmp_path)
    expected = read(model_dir, "eval", "predictions.json")
    questions = [
        (question["id"], question["question"], paragraph["context"])
        for paragraph in json.loads(squad_files.paris_questions("v2.0"))["data"][0]["paragraphs"]
        for question in paragraph["qas"]
    ]
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        model = tf.compat.v1.saved_model.load(session, ["serve"], str(tmp_path / version))
        signature = model.signature_def["text"]
        answers = session.run(
            {name: tensor.name for name, tensor in signature.outputs.items()},
            {
                signature.inputs["question"].name: [text for _, text, _ in questions],
                signature.inputs["context"].name: [context for _, _, context in questions],
            },
        )
    assert {
        name: answer.decode() for (name, _, _), answer in zip(questions, answers["answer"])
    } == expected
    for (_, _, context), answer, start, end in zip(
        questions, *(answers[name].tolist() for name in ("answer", "start", "end"))
    ):
        assert context[start:end] == answer.decode()
