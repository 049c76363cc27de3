"""Long texts from a table to predictions: an example per window, a result per document."""

import json

import numpy as np
import pytest
import tensorflow as tf

import run_cpu
import run_tpu
from input_fns import DataError, convert
from input_fns.convert import writer
from input_fns.convert.options import Options
from tests import bert_data, numerics
from tests.conftest import _runner
from tests.marks import slow

STEPS = 3


def texts(count, seed):
    """(text, label) of 1 to 5 sentences; the label is that of the first."""
    random = np.random.default_rng(seed)
    sentences = bert_data.sentences(5 * count, seed)
    for i in range(count):
        some = sentences[5 * i : 5 * i + int(random.integers(1, 6))]
        yield " ".join(text for text, _ in some), some[0][1]


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    folder = tmp_path_factory.mktemp("long")
    (folder / "vocab.txt").write_bytes(bert_data.VOCAB)
    (folder / "source").mkdir()
    for name, count in (("train", 24), ("dev", 17)):
        rows = "".join(f"{text}\t{label}\n" for text, label in texts(count, len(name)))
        (folder / "source" / f"{name}.tsv").write_text(f"text\tlabel\n{rows}")
    return folder


def options(folder, **more):
    given = {
        "name": "long",
        "source": str(folder / "source"),
        "text_columns": ("text",),
        "label_columns": ("label",),
        "vocabulary": str(folder / "vocab.txt"),
        "max_length": 16,
        "truncate": "windows",
        "doc_stride": 7,
    }
    return Options("text_files", **{**given, **more})


@pytest.fixture(scope="module")
def flags(source):
    writer.write(convert.read(options(source)), str(source / "prepared"))
    return [
        "--model=bert_tiny_classifier",
        *bert_data.TINY,
        "--params=learning_rate=0.003",
        "--dataset=long",
        f"--data_dir={source}/prepared",
        "--eval_split=validation",
        "--noexport_check",
        "--seed=1",
        "--train_batch_size=16",
        f"--train_steps={STEPS}",
    ]


@pytest.fixture(scope="module")
def run(flags):
    return _runner(run_cpu, *flags)


@pytest.fixture(scope="module")
def trained(run, tmp_path_factory):
    """The model_dir after training and an evaluation."""
    folder = tmp_path_factory.mktemp("trained")
    run(folder, "--eval_batch_size=5")
    return folder


@pytest.fixture(scope="module")
def lines(run, trained):
    """A prediction per document."""
    path = trained / "predictions.jsonl"
    run(trained, "--mode=predict", "--predict_batch_size=3", f"--predict_output={path}")
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.slow(cost=0.1)
def test_no_token_is_lost(source):
    raw = convert.read(options(source))
    described = raw.kind.splits["train"]
    assert (described.num_texts, described.num_truncated) == (24, 0)
    assert len(raw.splits["train"]) > 24
    last = raw.splits["train"].documents[-1]
    assert last == 23


@pytest.mark.slow(cost=0.1)
def test_windows_need_one_label_per_text(source):
    message = "--truncate=windows is not valid for --task=multilabel"
    with pytest.raises(DataError, match=message):
        convert.read(options(source, task="multilabel", label_separator="|"))


@pytest.mark.slow(cost=0.1)
def test_each_window_of_a_pair_has_the_first_text(source):
    pairs = options(source, text_columns=("label", "text"), max_length=12)
    train = convert.read(pairs).splits["train"]
    single = convert.read(options(source, max_length=10)).splits["train"]  # the same room
    np.testing.assert_array_equal(train.documents, single.documents)
    assert (train.lengths[:, 0] == 1).all()


@pytest.mark.slow(cost=0.1)
def test_a_prediction_per_document(lines, trained, result):
    labels = [label for _, label in texts(17, 3)]
    assert len(lines) == 17
    assert max(line["windows"] for line in lines) > 2
    correct = np.mean([line["classes"] == label for line, label in zip(lines, labels)])
    found = result(trained, STEPS)["eval"]
    assert found["document_accuracy"] == pytest.approx(correct)
    assert found["examples"] == sum(line["windows"] for line in lines)


@pytest.mark.slow
@pytest.mark.parametrize("topology", ["1x1", slow("v2-8")])
def test_cores_and_batches_do_not_change_an_evaluation(flags, trained, result, topology):
    expected = result(trained, STEPS)["eval"]
    run = _runner(run_tpu, *flags, "--tpu=emulator", f"--tpu_topology={topology}")
    run(trained, "--mode=eval", "--eval_batch_size=8", "--predict_batch_size=16")
    found = result(trained, STEPS)["eval"]
    for name in ("document_accuracy", "document_f1", "document_matthews_correlation"):
        assert found[name] == expected[name]


@pytest.mark.slow
def test_the_export_takes_texts_of_any_length(run, trained, lines, tmp_path):
    pytest.importorskip("tensorflow_text")
    run(trained, "--mode=export", f"--export_dir={tmp_path}/export", "--export_text")
    (path,) = (tmp_path / "export").iterdir()
    with tf.compat.v1.Session(graph=tf.Graph()) as session:
        graph = tf.compat.v1.saved_model.load(session, ["serve"], str(path))
        signature = graph.signature_def["text"]
        fetches = {name: tensor.name for name, tensor in signature.outputs.items()}
        fed = {signature.inputs["text"].name: [text for text, _ in texts(17, 3)]}
        found = session.run(fetches, fed)
    expected = [line["probabilities"] for line in lines]
    numerics.assert_close(found["probabilities"], expected, terms=24, depth=60, magnitude=4.0)
    assert found["classes"].tolist() == [line["classes"] for line in lines]


@pytest.mark.slow(cost=0.1)
def test_scores_have_no_votes(exit_status, flags, tmp_path, capsys):
    arguments = ["--mode=eval", f"--model_dir={tmp_path}/model", "--dataset=synthetic"]
    arguments += ["--synthetic_task=regression", "--synthetic_text=8x31", "--join_windows=vote"]
    kept = [flag for flag in flags if not flag.startswith(("--dataset", "--data_dir"))]
    assert exit_status(run_cpu, *kept, *arguments, "--model=bert_tiny_regressor") == 2
    (line,) = capsys.readouterr().err.splitlines()[-1:]
    assert "--join_windows=vote needs a data set of long texts" in line
