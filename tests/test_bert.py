"""BERT from text files to a SavedModel that takes text; pre-training on one core and on many."""

import importlib.util
import json
import types

import numpy as np
import pytest
import tensorflow as tf
from absl import flags
from sklearn import metrics

from common.errors import UsageError
from engine.cli import pipelines
from engine.evaluation import host_metrics
from engine.train import loss_reduction
from input_fns import DataError, dataset_info
from input_fns.text.token_pipeline import TokenPipeline
from models.text import bert
from tests import bert_data, numerics

STEPS = 100
REQUIRED = ("--model=bert_tiny_classifier", "--model_dir=unused", "--train_steps=1")
# The longest sum is over the tokens of a row; attention, feed-forward net and norms follow.
NETWORK = {"terms": 24, "depth": 60, "magnitude": 4.0}


@pytest.fixture(scope="module")
def sst2(tmp_path_factory):
    return bert_data.prepare_sst2(tmp_path_factory.mktemp("sst2"))


@pytest.fixture(scope="module")
def unlabelled(sst2, tmp_path_factory):
    return bert_data.prepare_sst2_test(tmp_path_factory.mktemp("sst2_test"), sst2)


@pytest.fixture(scope="module")
def run_classifier(run_with, sst2):
    """Runs run_cpu.py with a tiny classifier: `run_classifier(model_dir, "--mode=eval", ...)`."""

    def run(model_dir, *arguments):
        run_with(
            "--model=bert_tiny_classifier",
            "--dataset=sst2",
            f"--data_dir={sst2}",
            f"--model_dir={model_dir}",
            *bert_data.TINY,
            "--params=learning_rate=0.003",
            *("--seed=1", "--train_batch_size=16", f"--train_steps={STEPS}"),
            *("--eval_split=validation", "--eval_batch_size=13", "--predict_batch_size=13"),
            *arguments,
        )

    return run


@pytest.fixture(scope="module")
def classifier(run_classifier, tmp_path_factory):
    """A model_dir after training, evaluation, prediction and export."""
    path = tmp_path_factory.mktemp("classifier")
    has_text = importlib.util.find_spec("tensorflow_text") is not None
    # A test below compares what the export predicts.
    export = (f"--export_dir={path}/export", f"--export_text={has_text}", "--noexport_check")
    run_classifier(path, *export)
    run_classifier(path, "--mode=predict", f"--predict_output={path}/predictions.jsonl")
    return path


@pytest.fixture(scope="module")
def predictions(classifier):
    with open(classifier / "predictions.jsonl") as file:
        return [json.loads(line) for line in file]


@pytest.mark.slow
def test_a_classifier_learns(classifier, result):
    assert result(classifier, STEPS)["eval"]["accuracy"] > 0.95


@pytest.mark.slow(cost=0.1)
def test_metrics_are_those_of_scikit_learn_over_the_split(classifier, result, predictions):
    labels = [label for _, label in bert_data.sentences(41, seed=2)]
    classes = [row["classes"] for row in predictions]
    found = result(classifier, STEPS)["eval"]
    assert found["examples"] == 41
    assert found["accuracy"] == pytest.approx(metrics.accuracy_score(labels, classes), abs=1e-6)
    assert found["f1"] == pytest.approx(metrics.f1_score(labels, classes))
    correlation = metrics.matthews_corrcoef(labels, classes)
    assert found["matthews_correlation"] == pytest.approx(correlation)


@pytest.mark.slow(cost=0.1)
def test_predictions_have_class_names(predictions):
    assert {row["class_names"] for row in predictions} == {"negative", "positive"}


@pytest.mark.slow(cost=0.1)
def test_texts_without_labels_can_be_predicted(
    run_classifier, classifier, predictions, unlabelled, tmp_path
):
    path = tmp_path / "test.jsonl"
    data = (f"--data_dir={unlabelled}", "--eval_split=test")
    run_classifier(classifier, "--mode=predict", f"--predict_output={path}", *data)
    found = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["class_names"] for row in found] == [row["class_names"] for row in predictions]
    probabilities = [[row["probabilities"] for row in rows] for rows in (found, predictions)]
    numerics.assert_close(*probabilities, **NETWORK)


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize(("mode", "flag"), [("eval", "eval_split"), ("train", "train_split")])
def test_texts_without_labels_are_not_evaluated(run_classifier, unlabelled, tmp_path, mode, flag):
    data = (f"--data_dir={unlabelled}", f"--{flag}=test")
    message = f"--{flag}=test: this split of sst2 has no labels, which --mode={mode} needs"
    with pytest.raises(UsageError, match=message):
        run_classifier(tmp_path / "model", f"--mode={mode}", *data)
    assert not (tmp_path / "model").exists()


@pytest.mark.slow(cost=0.1)
def test_a_table_is_no_input(run_classifier, tmp_path):
    (tmp_path / "new.tsv").write_text("sentence\ngood\n")
    with pytest.raises(DataError, match=r"new\.tsv is a table, .* Prepare the examples"):
        run_classifier(tmp_path / "model", "--mode=predict", f"--input={tmp_path}/new.tsv")


@pytest.mark.slow(cost=0.1)
def test_a_file_of_texts_is_predicted(run_classifier, classifier, predictions, tmp_path):
    texts = [text for text, _ in bert_data.sentences(41, seed=2)]
    (tmp_path / "new.txt").write_text("\n".join(texts))
    path = tmp_path / "predictions.jsonl"
    files = (f"--input={tmp_path}/new.txt", f"--predict_output={path}")
    run_classifier(classifier, "--mode=predict", *files)
    found = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["class_names"] for row in found] == [row["class_names"] for row in predictions]


@pytest.mark.slow(cost=0.1)
def test_static_padding_gives_the_same_predictions(
    run_classifier, classifier, predictions, tmp_path
):
    path = tmp_path / "static.jsonl"
    flags = ("--mode=predict", f"--predict_output={path}", "--dynamic_padding=false")
    run_classifier(classifier, *flags)
    static = [json.loads(line)["probabilities"] for line in path.read_text().splitlines()]
    numerics.assert_close([row["probabilities"] for row in predictions], static, **NETWORK)


@pytest.mark.slow(cost=0.1)
def test_an_export_takes_ids_and_text(classifier, predictions):
    pytest.importorskip("tensorflow_text")
    (path,) = (classifier / "export").iterdir()
    texts = [text for text, _ in bert_data.sentences(41, seed=2)][:5]
    expected = [row["probabilities"] for row in predictions[:5]]
    with tf.compat.v1.Session(graph=tf.Graph()) as session:
        graph = tf.compat.v1.saved_model.load(session, ["serve"], str(path))
        signature = graph.signature_def["text"]
        fetches = {name: signature.outputs[name].name for name in ("probabilities", "class_names")}
        found = session.run(fetches, {signature.inputs["text"].name: texts})
    numerics.assert_close(found["probabilities"], expected, **NETWORK)
    assert found["class_names"].tolist() == [row["class_names"].encode() for row in predictions[:5]]
    assert (path / "assets").is_dir()
    (vocabulary,) = (path / "assets").glob("vocab-*.txt")
    assert vocabulary.read_bytes() == bert_data.VOCAB


@pytest.mark.slow(cost=0.1)
def test_batches_are_as_long_as_their_longest_row(sst2, session):
    data = dataset_info.read(sst2)
    params = {"batch_size": 3}
    lengths = {}
    for is_dynamic in (True, False):
        dataset = TokenPipeline(data, dynamic_padding=is_dynamic).eval_input_fn("validation")
        element = tf.compat.v1.data.make_one_shot_iterator(dataset(params)).get_next()
        batches = [session.run(element)[0] for _ in range(14)]
        lengths[is_dynamic] = {batch["input_ids"].shape[1] for batch in batches}
        for batch in batches:
            assert batch["input_ids"].shape == batch["input_mask"].shape
            np.testing.assert_array_equal(batch["input_mask"] > 0, batch["input_ids"] > 0)
    assert lengths[False] == {24}
    assert len(lengths[True]) > 1
    assert lengths[True] <= {8, 16, 24}


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize("name", ["train", "eval"])
def test_batches_of_a_tpu_have_static_shapes(sst2, name):
    """A TPUEstimator gives the input_fn its context."""
    pipeline = TokenPipeline(dataset_info.read(sst2), dynamic_padding=True)
    input_fn = {
        "train": lambda: pipeline.train_input_fn("train", seed=1),
        "eval": lambda: pipeline.eval_input_fn("validation"),
    }[name]()
    context = types.SimpleNamespace(current_input_fn_deployment=lambda: (None, 0, 1, 2))
    features, _ = input_fn({"batch_size": 3, "context": context}).element_spec
    for feature in bert.FEATURES:
        assert features[feature].shape == [3, 24]


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize(
    ("arguments", "is_dynamic"),
    [([], True), (["--accumulate_steps=2"], False), (["--nodynamic_padding"], False)],
)
def test_micro_batches_have_static_shapes(sst2, arguments, is_dynamic):
    flags.FLAGS.unparse_flags()
    flags.FLAGS(["run_cpu.py", "--dataset=sst2", f"--data_dir={sst2}", *REQUIRED, *arguments])
    pipeline = pipelines.from_flags(["train"])
    features, _ = pipeline.train_input_fn("train", seed=1)({"batch_size": 3}).element_spec
    assert (features["input_ids"].shape.as_list() == [3, None]) == is_dynamic


@pytest.mark.slow(cost=0.1)
def test_rows_of_similar_length_share_a_batch(sst2, session):
    data = dataset_info.read(sst2)

    def mean_length(**options):
        pipeline = TokenPipeline(data, dynamic_padding=True, **options)
        dataset = pipeline.train_input_fn("train", seed=1)({"batch_size": 4})
        element = tf.compat.v1.data.make_one_shot_iterator(dataset).get_next()
        return np.mean([session.run(element)[0]["input_ids"].shape[1] for _ in range(20)])

    assert mean_length(group_by_length=True) < 0.9 * mean_length()


@pytest.mark.slow(cost=0.1)
def test_groups_need_a_split_in_memory(sst2):
    pipeline = TokenPipeline(dataset_info.read(sst2), "none", False, True, group_by_length=True)
    with pytest.raises(DataError, match=r"--group_by_length needs split 'train' in memory"):
        pipeline.train_input_fn("train", seed=1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--nodynamic_padding"], "--group_by_length needs --dynamic_padding"),
        (["--accumulate_steps=2"], "--group_by_length has no use with --accumulate_steps"),
        (
            ["--dataset=synthetic", "--image_size=8"],
            "--group_by_length needs prepared text for BERT",
        ),
    ],
)
def test_invalid_flags_with_groups(arguments, message):
    flags.FLAGS.unparse_flags()
    with pytest.raises((UsageError, flags.IllegalFlagValueError), match=message):  # noqa: PT012
        flags.FLAGS(["run_cpu.py", *REQUIRED, "--group_by_length", *arguments])
        pipelines.from_flags(["train"])


BATCH, UPDATES = 16, 10
PRETRAIN = (
    "--model=bert_tiny_pretraining",
    "--dataset=pretraining_text",
    "--mode=train",
    "--seed=1",
    *(f"--{mode}_batch_size={BATCH}" for mode in ("train", "eval", "predict")),
    f"--train_steps={UPDATES}",
    *bert_data.TINY,
    "--params=epsilon=0.01,learning_rate=0.01,weight_decay=0.01,clip_norm=1",
)
# Tokens of a global batch, whose gradients are summed in every step; variables of size 1.
TRAINING = {"terms": BATCH * 24, "depth": UPDATES, "magnitude": 1.0}


@pytest.fixture(scope="module")
def pretraining(tmp_path_factory):
    return bert_data.prepare_pretraining(tmp_path_factory.mktemp("pretraining"))


@pytest.fixture(scope="module")
def pretrain(run_with, pretraining):
    return lambda model_dir, *flags: run_with(
        *PRETRAIN, f"--data_dir={pretraining}", f"--model_dir={model_dir}", *flags
    )


@pytest.fixture(scope="module")
def start(pretrain, tmp_path_factory):
    """The model_dir of one step."""
    folder = tmp_path_factory.mktemp("start")
    pretrain(folder, "--train_steps=1")
    return folder


@pytest.fixture(scope="module")
def pretrained(pretrain, start, tmp_path_factory):
    """The checkpoint that trainings start from, and the model_dir of one on one core."""
    folder = tmp_path_factory.mktemp("pretrained")
    warm_start = f"--warm_start_from={start}"
    pretrain(folder, warm_start)
    return warm_start, folder


@pytest.fixture
def excess(run_tpu_with, pretraining, pretrained, variables, tmp_path):
    """Trains on emulated cores; returns the difference from one core in tolerances."""

    def measure(topology, *more):
        warm_start, end = pretrained
        folders = (f"--data_dir={pretraining}", f"--model_dir={tmp_path}/tpu")
        tpu = ("--tpu=emulator", f"--tpu_topology={topology}")
        run_tpu_with(*PRETRAIN, *folders, *tpu, warm_start, *more)
        return numerics.excess(variables(tmp_path / "tpu"), variables(end), **TRAINING)

    return measure


@pytest.mark.slow  # for the next tests
def test_cores_have_unequal_numbers_of_masked_tokens(pretraining, session):
    batches = TokenPipeline(dataset_info.read(pretraining)).train_input_fn("train", seed=1)
    element = tf.compat.v1.data.make_one_shot_iterator(batches({"batch_size": BATCH})).get_next()
    _, labels = session.run(element)
    counts = labels["masked_lm_weights"].reshape(8, -1).sum(axis=1)
    assert counts.min() < counts.max()


@pytest.mark.slow  # tests/contract/test_masked_lm.py compares another model on 2 cores
@pytest.mark.parametrize("topology", ["1x2", "v2-8"])
def test_pre_training_on_cores_equals_one_core(excess, topology):
    assert excess(topology) < 1


@pytest.mark.slow  # tests/models/layers/test_recompute.py compares layers
def test_pre_training_on_cores_with_recompute_equals_one_core_without(excess):
    assert excess("1x2", "--params=recompute=true") < 1


@pytest.mark.slow  # like that of tests/contract/test_masked_lm.py
def test_a_mean_over_the_masked_tokens_of_each_core_differs(excess, monkeypatch):
    def per_core(terms, params):
        return {"masked_lm": tf.reduce_sum(terms["masked_lm"].weights), "next_sentence": BATCH / 2}

    monkeypatch.setattr(loss_reduction, "denominators", per_core)
    assert excess("1x2") > numerics.FAR


@pytest.mark.slow  # tests/test_interruption.py resumes other models
def test_a_resumed_pre_training_is_bit_identical(pretrain, variables, tmp_path):
    dropout = "--params=dropout=0.1,attention_dropout=0.1"
    pretrain(tmp_path / "whole", dropout)
    pretrain(tmp_path / "parts", dropout, "--train_steps=4")
    pretrain(tmp_path / "parts", dropout)
    whole, parts = variables(tmp_path / "whole"), variables(tmp_path / "parts")
    assert whole.keys() == parts.keys()
    for name, value in whole.items():
        np.testing.assert_array_equal(parts[name], value, name)


@pytest.mark.slow
def test_evaluation_of_pre_training_reports_both_tasks(pretrain, start, result):
    pretrain(start, "--mode=eval", "--eval_split=validation", "--eval_batch_size=13")
    found = result(start, 1)["eval"]
    assert {"masked_lm_loss", "next_sentence_loss"} < found.keys()
    assert 0 <= found["masked_lm_accuracy"] <= 1
    assert 0 <= found["next_sentence_accuracy"] <= 1


@pytest.mark.slow
def test_entities_of_shortened_batches_are_scored_like_predictions(
    run_with, tmp_path, monkeypatch, result
):
    data_dir = bert_data.prepare_tags(tmp_path)

    def evaluate(mode):
        run_with(
            "--model=bert_tiny_token_classifier",
            "--dataset=token_files",
            f"--data_dir={data_dir}",
            f"--model_dir={tmp_path / 'model'}",
            *bert_data.TINY,
            "--params=learning_rate=0.01",
            *("--seed=1", "--train_batch_size=16", "--train_steps=20", f"--mode={mode}"),
            *("--eval_split=validation", "--eval_batch_size=5", "--predict_batch_size=5"),
        )
        return result(tmp_path / "model", 20)["eval"]

    with monkeypatch.context() as patched:
        patched.delattr(host_metrics, "predict")
        one_pass = evaluate("train_and_eval")
    monkeypatch.setattr(host_metrics, "update_hook", lambda *_: None)
    assert evaluate("eval") == one_pass
    assert one_pass["entity_f1"] > 0.5
