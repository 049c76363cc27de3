"""Embeddings from a released checkpoint, and contrastive training, from files to an export."""

import json

import numpy as np
import pytest
import tensorflow as tf

import run_cpu
import run_tpu
from engine.checkpoints import writer as checkpoint_writer
from input_fns import convert
from input_fns.convert import writer
from input_fns.convert.options import Options
from models.text import bert
from models.text.correlation import ranking
from tests import bert_data, numerics
from tests.conftest import _runner
from tests.marks import slow
from tools.runtimes import signatures

STEPS, BATCH = 4, 16
# A row has 24 tokens; attention, feed-forward net, norms and the mean follow.
NETWORK = {"terms": 24, "depth": 60}
TINY = (
    "--params=num_layers=1,hidden_size=16,num_heads=2,ffn_size=24,max_positions=32",
    "--params=dropout=0,attention_dropout=0",
)


def _pairs(count, seed):
    """(score, text, text): 5 for texts of the same opinion, 0 for the others."""
    texts = bert_data.sentences(2 * count, seed)
    return [
        (5.0 * (a_label == b_label), a, b)
        for (a, a_label), (b, b_label) in zip(texts[::2], texts[1::2])
    ]


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    """Pairs with scores, 48 and 19, in rows of 24 tokens."""
    folder = tmp_path_factory.mktemp("pairs")
    (folder / "source").mkdir()
    (folder / "vocab.txt").write_bytes(bert_data.VOCAB)
    for name, count, seed in (("train", 48, 1), ("dev", 19, 2)):
        rows = "".join(f"{score}\t{a}\t{b}\n" for score, a, b in _pairs(count, seed))
        (folder / "source" / f"{name}.tsv").write_text(f"score\ta\tb\n{rows}")
    options = Options(
        "text_files",
        name="pairs",
        source=str(folder / "source"),
        text_columns=("a", "b"),
        label_columns=("score",),
        task="regression",
        vocabulary=str(folder / "vocab.txt"),
        max_length=24,
    )
    writer.write(convert.read(options), str(folder / "prepared"))
    return str(folder / "prepared")


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    """A checkpoint of an encoder without a head and a global step."""
    sizes = {"num_layers": 1, "hidden_size": 16, "num_heads": 2, "ffn_size": 24}
    vocab_size = len(bert_data.VOCAB.splitlines())
    params = {**bert.default_params(), **sizes, "max_positions": 32, "vocab_size": vocab_size}
    with tf.Graph().as_default():
        bert.encode({n: tf.zeros([1, 2], tf.int32) for n in bert.FEATURES}, params, False)
        shapes = {v.op.name: v.shape.as_list() for v in tf.compat.v1.global_variables()}
    folder, random = tmp_path_factory.mktemp("released"), np.random.default_rng(0)
    values = {name: random.normal(size=s).astype("f4") for name, s in shapes.items()}
    checkpoint_writer.write(f"{folder}/bert_model.ckpt", values)
    (folder / "vocab.txt").write_bytes(bert_data.VOCAB)
    return f"{folder}/bert_model.ckpt"


@pytest.fixture(scope="module")
def flags(data_dir):
    return [
        "--model=bert_tiny_embedder",
        *TINY,
        "--dataset=pairs",
        f"--data_dir={data_dir}",
        "--eval_split=validation",
        "--noexport_check",
        "--seed=1",
        *(f"--{mode}_batch_size={BATCH}" for mode in ("train", "eval", "predict")),
    ]


@pytest.fixture(scope="module")
def run(flags):
    return _runner(run_cpu, *flags)


@pytest.fixture
def predict(run, released, tmp_path):
    """Predicts with the released checkpoint; returns the lines."""

    def predict_with(*arguments):
        path = tmp_path / "predictions.jsonl"
        given = (f"--checkpoint={released}", f"--predict_output={path}")
        run(tmp_path / "model", "--mode=predict", *given, *arguments)
        return [json.loads(line) for line in path.read_text().splitlines()]

    return predict_with


@pytest.mark.slow(cost=0.1)
def test_cosines_and_their_correlation_need_no_training(predict, run, released, result, tmp_path):
    rows = predict()
    first, second = (
        np.array([row[name] for row in rows]) for name in ("embeddings", "second_embeddings")
    )
    norms = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    cosines = (first * second).sum(axis=1) / norms
    numerics.assert_close([row["scores"] for row in rows], cosines, **NETWORK)
    run(tmp_path / "model", "--mode=eval", f"--checkpoint={released}")
    (section,) = (v for v in result(tmp_path / "model", 0).values() if isinstance(v, dict))
    scores = np.array([score for score, _, _ in _pairs(19, seed=2)])
    expected = ranking.spearman(scores, np.array([row["scores"] for row in rows]))
    assert section["spearman"] == pytest.approx(expected, abs=1e-6)


def test_training_without_a_positive_pair_is_an_error(exit_status, flags, tmp_path, capsys):
    training = ["--mode=train", "--train_steps=1", f"--model_dir={tmp_path}/model"]
    assert exit_status(run_cpu, *flags, *training, "--params=positive_score=5.5") == 2
    assert "no pair of 'train' has a score of at least" in capsys.readouterr().err
    assert not (tmp_path / "model").exists()


TEXTS = ["the film is good.", "a bad plots", ""]


@pytest.fixture
def texts(tmp_path):
    path = tmp_path / "new.txt"
    path.write_text("".join(f"{text}\tthe film\n" for text in TEXTS))
    return f"--input={path}"


def test_tokens_have_places_in_the_texts(predict, texts):
    rows = predict("--model=bert_tiny_regressor", "--predictions=embeddings", texts, TOKENS)
    first = rows[0]
    assert first["tokens"] == [
        "[CLS]",
        "the",
        "film",
        "is",
        "good",
        ".",
        "[SEP]",
        "the",
        "film",
        "[SEP]",
    ]
    line = f"{TEXTS[0]}\tthe film"
    places = list(zip(first["token_starts"], first["token_ends"]))
    assert [line[start:end] for start, end in places[1:6]] == first["tokens"][1:6]
    assert places[0] == places[6] == (0, 0)
    assert [len(row["token_embeddings"]) for row in rows] == [10, 9, 5]


@pytest.mark.slow(cost=0.1)
def test_texts_with_classes_are_embedded(predict, tmp_path):
    """Labels do not matter to embeddings."""
    data_dir = bert_data.prepare_sst2(tmp_path)
    rows = predict("--dataset=sst2", f"--data_dir={data_dir}")
    assert [len(row["embeddings"]) for row in rows] == [16] * 41


TOKENS = "--params=pooling=tokens"


def test_pairs_need_a_tab(predict, tmp_path):
    (tmp_path / "new.txt").write_text("the film\ta film\nthe film\n")
    with pytest.raises(Exception, match=r"new\.txt:2: 1 texts separated by tabs"):
        predict(f"--input={tmp_path}/new.txt")


@pytest.mark.slow
def test_the_export_embeds_ids_and_texts(run, predict, released, tmp_path):
    pytest.importorskip("tensorflow_text")
    export = (f"--export_dir={tmp_path}/export", "--export_text", f"--checkpoint={released}")
    model = ("--model=bert_tiny_regressor", "--predictions=embeddings", TOKENS)
    run(tmp_path / "model", "--mode=export", *export, *model)
    (path,) = (tmp_path / "export").iterdir()
    (tmp_path / "new.txt").write_text("".join(f"{text}\t\n" for text in TEXTS))
    rows = predict(*model, f"--input={tmp_path}/new.txt")
    with tf.compat.v1.Session(graph=tf.Graph()) as session:
        graph = tf.compat.v1.saved_model.load(session, ["serve"], str(path))
        signature = graph.signature_def["embed_text"]
        fetches = {name: tensor.name for name, tensor in signature.outputs.items()}
        found = session.run(fetches, {signature.inputs["text"].name: TEXTS})
        ids = graph.signature_def["embed"]
        length = found["token_ids"].shape[1]
        fed = {
            "input_ids": found["token_ids"],
            "input_mask": np.arange(length) < found["num_tokens"][:, None],
            "segment_ids": np.zeros_like(found["token_ids"]),
        }
        embedded = session.run(
            ids.outputs["token_embeddings"].name,
            {ids.inputs[name].name: values for name, values in fed.items()},
        )
    np.testing.assert_array_equal(embedded, found["token_embeddings"])
    for number, (row, text) in enumerate(zip(rows, TEXTS)):
        count = found["num_tokens"][number]
        assert row["tokens"][:count] == row["tokens"][: len(row["tokens"]) - 1]
        assert row["token_starts"][:count] == found["token_starts"][number][:count].tolist()
        assert row["token_ends"][:count] == found["token_ends"][number][:count].tolist()
        assert max(row["token_ends"]) <= len(text)


@pytest.mark.slow
def test_an_export_of_another_task_has_the_signature_too(run, tmp_path):
    model = ("--model=bert_tiny_regressor", "--train_steps=1", "--mode=train_and_eval")
    run(tmp_path / "model", *model, f"--export_dir={tmp_path}/export")
    (path,) = (tmp_path / "export").iterdir()
    outputs = {name: {*signature.outputs} for name, signature in signatures(str(path)).items()}
    assert outputs["embed"] == {"embeddings"}
    assert outputs["serving_default"] == {"scores"}


def test_heads_of_another_checkpoint_are_one_error_line(
    exit_status, flags, released, tmp_path, capsys
):
    arguments = ["--mode=predict", f"--checkpoint={released}", f"--model_dir={tmp_path}/model"]
    assert exit_status(run_cpu, *flags, *arguments, "--params=num_layers=2") == 2
    assert "bert/encoder/layer_1" in capsys.readouterr().err


@pytest.fixture(scope="module")
def trained(run, released, tmp_path_factory):
    """The model_dir of a contrastive training on one device."""
    folder = tmp_path_factory.mktemp("trained")
    run(folder, *TRAIN, f"--warm_start_from={released}")
    return folder


TRAIN = (
    "--mode=train",
    f"--train_steps={STEPS}",
    "--params=optimizer=sgd,schedule=constant,learning_rate=0.01",
)


@pytest.mark.parametrize("topology", [slow("1x2"), slow("v2-8")])
def test_cores_train_like_one_device(trained, flags, released, variables, tmp_path, topology):
    """The negatives of a text are those of the global batch."""
    run = _runner(run_tpu, *flags, "--tpu=emulator", f"--tpu_topology={topology}")
    run(tmp_path, *TRAIN, f"--warm_start_from={released}")
    arithmetic = {"terms": BATCH * 24, "depth": 60 * STEPS, "magnitude": 1.0}
    assert numerics.excess(variables(tmp_path), variables(trained), **arithmetic) < 1
