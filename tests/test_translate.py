"""Trains, evaluates, predicts with and exports a Transformer on text files."""

import importlib.util
import json
import os
import re

import numpy as np
import pytest
import sacrebleu
import tensorflow as tf

from common.errors import UsageError
from input_fns import DataError, dataset_info
from input_fns.text.text_pipeline import TextPipeline
from tests.marks import slow

LENGTH = 32


@pytest.fixture(scope="module")
def translator(run_text_in, tmp_path_factory):
    """A model_dir with checkpoints of steps 60 and 120, and an evaluation of the last."""
    path = str(tmp_path_factory.mktemp("translator"))
    steps = ["--train_steps=120", "--save_checkpoints_steps=60"]
    run_text_in(path, "--mode=train", *steps)
    evaluation = ["--eval_split=validation", "--best_metric=bleu"]
    run_text_in(path, "--mode=train_and_eval", *steps, *evaluation)
    return path


@pytest.mark.slow(cost=0.1)
def test_eval_reports_bleu_and_token_metrics(translator, result):
    evaluated = result(translator, 120)["eval"]
    assert evaluated["examples"] == 13
    assert 0 < evaluated["token_accuracy"] <= 1
    assert evaluated["perplexity"] > 1
    assert 0 <= evaluated["bleu"] <= 100


@pytest.mark.slow(cost=0.1)
def test_perplexity_is_far_below_the_size_of_the_vocabulary(translator, result):
    assert result(translator, 120)["eval"]["perplexity"] < 384 / 10


@pytest.mark.slow(cost=0.1)
def test_best_metric_can_be_bleu(translator):
    with open(os.path.join(translator, "best", "best.json")) as file:
        assert json.load(file)["metric"] == "bleu"


@pytest.fixture(scope="module")
def translated(run_text_in, translator, pair_files):
    """The translations of the source file of the test split, for which no split is needed."""
    flags = [f"--input={pair_files}/test.en", "--eval_split=none"]
    run_text_in(translator, "--mode=predict", *flags)
    with open(os.path.join(translator, "predictions_120.txt")) as file:
        return file.read().splitlines()


@pytest.mark.slow(cost=0.1)
def test_a_file_is_translated_line_by_line(
    run_text_in, translator, translated, pairs_dir, pair_files, tmp_path
):
    lines = (pair_files / "test.en").read_text().splitlines()
    assert len(translated) == len(lines) == 11
    # The translation of a line does not depend on its position and batch.
    (tmp_path / "backwards.en").write_text("".join(f"{line}\n" for line in lines[::-1]))
    flags = [f"--input={tmp_path}/backwards.en", f"--predict_output={tmp_path}/out.txt"]
    run_text_in(translator, "--mode=predict", "--predict_batch_size=4", *flags)
    assert (tmp_path / "out.txt").read_text().splitlines()[::-1] == translated


@pytest.mark.slow(cost=0.1)
def test_bleu_matches_sacrebleu_on_the_translated_file(
    run_text_in, translator, translated, pair_files, result
):
    run_text_in(translator, "--mode=eval", "--eval_split=test")
    references = (pair_files / "test.de").read_text().splitlines()
    expected = sacrebleu.corpus_bleu(translated, [references]).score
    assert result(translator, 120)["eval_test"]["bleu"] == pytest.approx(expected)


@pytest.mark.slow
def test_bleu_of_the_first_examples(run_text_in, translator, translated, pair_files, result):
    run_text_in(translator, "--mode=eval", "--eval_split=test", "--max_eval_examples=5")
    references = (pair_files / "test.de").read_text().splitlines()[:5]
    expected = sacrebleu.corpus_bleu(translated[:5], [references]).score
    assert result(translator, 120)["eval_test_first_5"]["bleu"] == pytest.approx(expected)


@pytest.mark.slow
def test_eval_of_an_average_of_checkpoints(run_text_in, translator, capsys):
    run_text_in(translator, "--mode=eval", "--checkpoint=average:2")
    assert "average of 2 checkpoints" in capsys.readouterr().out


@pytest.fixture(scope="module")
def export_path(run_text_in, translator, tmp_path_factory):
    """The folder of an export, with the signature of texts if tensorflow_text is installed."""
    folder = tmp_path_factory.mktemp("export")
    has_text = importlib.util.find_spec("tensorflow_text") is not None
    more = ["--export_text"] if has_text else []
    run_text_in(translator, "--mode=export", f"--export_dir={folder}", *more)
    (path,) = folder.iterdir()
    return str(path)


@pytest.mark.slow(cost=0.1)
def test_exported_outputs_match_predict(export_path, translated, pairs_dir, session):
    pipeline = TextPipeline(dataset_info.load(pairs_dir, "pairs"))
    rows = pipeline.stored_rows("test")["source"]
    model = tf.compat.v1.saved_model.load(session, ["serve"], export_path)
    signature = model.signature_def["serving_default"]
    target = session.run(signature.outputs["target"].name, {signature.inputs["source"].name: rows})
    assert target.shape == (11, LENGTH)
    assert pipeline.vocabulary.decode(target) == translated
    (asset,) = os.listdir(os.path.join(export_path, "assets"))
    assert re.fullmatch(r"vocabulary-[0-9a-f]{8}\.model", asset)
    with open(os.path.join(export_path, "assets", asset), "rb") as file:
        assert file.read() == pipeline.vocabulary.model
    samples = np.load(os.path.join(export_path, "assets.extra", "sample_source.npy"))
    np.testing.assert_array_equal(samples, rows[:3])


@pytest.mark.slow(cost=0.1)
def test_export_text_maps_text_to_text(export_path, translated, pair_files):
    pytest.importorskip("tensorflow_text", reason="needs the extra text_ops")
    lines = (pair_files / "test.en").read_text().splitlines()
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        model = tf.compat.v1.saved_model.load(session, ["serve"], export_path)
        signature = model.signature_def["text"]
        text = signature.inputs["text"].name

        def serve(texts):
            return session.run(signature.outputs["text"].name, {text: texts})

        assert [answer.decode() for answer in serve(lines)] == translated
        assert serve([]).shape == (0,)
        with pytest.raises(tf.errors.InvalidArgumentError, match="more than the 32 tokens"):
            serve(["one " * 40])


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--augment=flip"], "--augment needs images, but pairs is text"),
        (["--image_size=8"], "--image_size needs images, but pairs is text"),
        (["--model=mlp"], "--model=mlp needs image, but the data set pairs holds source, target"),
        (["--params=vocab_size=512"], "vocab_size=512, but the data set has 384"),
        slow(["--best_metric=blue"], "--best_metric=blue is unknown. Did you mean 'bleu'"),
        (
            ["--mode=predict", "--predict_output=out.npz"],
            r"--predict_output=out.npz must end in .txt",
        ),
    ],
)
def test_invalid_flags_for_text(run_text_in, tmp_path, flags, message):
    with pytest.raises(UsageError, match=message):
        run_text_in(tmp_path, "--mode=train", "--train_steps=1", *flags)


def test_a_text_file_is_an_invalid_input_for_images(run):
    with pytest.raises(DataError, match=r"--input=text\.txt must be an image file or a folder"):
        run("--mode=predict", "--input=text.txt")


def test_a_translation_model_needs_text(run):
    with pytest.raises(UsageError, match="--model=transformer_tiny needs source and target"):
        run("--model=transformer_tiny", "--mode=train", "--train_steps=1")
