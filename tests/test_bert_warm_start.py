"""Fine-tuning from a released BERT checkpoint, and from those of another encoder."""

import json
import os

import numpy as np
import pytest
import tensorflow as tf

import run_cpu
import run_tpu
from engine.checkpoints import writer
from models.text import bert
from tests.conftest import EMULATED
from tests.marks import slow

SIZES = {"num_layers": 1, "hidden_size": 6, "num_heads": 3, "ffn_size": 5}
VOCAB_SIZE = 31
FLAGS = [
    "--model=bert_tiny_classifier",
    f"--params={','.join(f'{name}={size}' for name, size in SIZES.items())}",
    "--params=optimizer=bert_adamw,layer_decay=0.5,dropout=0,learning_rate=0.001",
    "--dataset=synthetic",
    "--synthetic_task=classification",
    f"--synthetic_text=8x{VOCAB_SIZE}",
    "--mode=train",
    "--train_steps=1",
    "--train_batch_size=4",
    "--seed=1",
]
WRAPPERS = {run_cpu: (), run_tpu: EMULATED}


@pytest.fixture
def release(tmp_path):
    """Writes a checkpoint of an encoder and a pooler: `release(num_layers=2)` returns its path."""

    def write(vocab_size=VOCAB_SIZE, **sizes):
        params = {**bert.default_params(), **SIZES, "vocab_size": vocab_size, **sizes}
        with tf.Graph().as_default():
            features = {name: tf.zeros([1, 2], tf.int32) for name in bert.FEATURES}
            bert.pool(bert.encode(features, params, False), params)
            shapes = {v.op.name: v.shape.as_list() for v in tf.compat.v1.global_variables()}
        path = str(tmp_path / "released" / "bert_model.ckpt")
        random = np.random.default_rng(0)
        writer.write(path, {n: random.normal(size=s).astype("f4") for n, s in shapes.items()})
        return path

    return write


@pytest.fixture
def train(exit_status, tmp_path, capsys):
    """Trains a step from a checkpoint; returns the exit status and the lines of standard error."""

    def run(wrapper, checkpoint):
        folders = [f"--model_dir={tmp_path}/model", f"--warm_start_from={checkpoint}"]
        capsys.readouterr()
        status = exit_status(wrapper, *FLAGS, *WRAPPERS[wrapper], *folders)
        return status, capsys.readouterr().err.splitlines()

    return run


def test_a_released_encoder_is_fine_tuned(train, release, variables, tmp_path):
    """Without bias correction, the first step of Adam moves a weight by 0.1 / sqrt(0.001) rates."""
    checkpoint = release()
    assert train(run_cpu, checkpoint)[0] == 0
    values = variables(tmp_path / "model")
    assert {"output_weights/adam_m", "bert/pooler/dense/kernel/adam_v"} <= values.keys()
    for name, factor in (
        ("bert/pooler/dense/bias", 1),
        ("bert/encoder/layer_0/output/LayerNorm/beta", 0.5),
        ("bert/embeddings/LayerNorm/beta", 0.25),
    ):
        moved = np.abs(values[name] - tf.train.load_variable(checkpoint, name)).max()
        assert moved == pytest.approx(0.001 * factor * 0.1 / 0.001**0.5, rel=0.02), name


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize("wrapper", [run_cpu, slow(run_tpu)], ids=lambda w: w.__name__)
@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"num_layers": 3}, "3 bert/encoder/layer_* in the checkpoint, 1 in this model"),
        slow(
            {"vocab_size": 37},
            "word_embeddings is [37, 6] in the checkpoint, [31, 6] in this model",
        ),
    ],
    ids=str,
)
def test_another_encoder_is_one_error_line(train, release, tmp_path, wrapper, sizes, message):
    status, (line,) = train(wrapper, release(**sizes))
    assert status == 2
    assert message in line
    assert not os.path.exists(tmp_path / "model")


def test_a_data_set_of_another_task_is_one_error_line(exit_status, tmp_path, capsys):
    flags = [*FLAGS, f"--model_dir={tmp_path}/model", "--model=bert_tiny_regressor"]
    assert exit_status(run_cpu, *flags) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "needs the labels score, but the data set synthetic has label" in line


def test_other_heads_beside_the_checkpoint(train, release, tmp_path):
    checkpoint = release()
    (tmp_path / "released" / "bert_config.json").write_text(json.dumps({"num_attention_heads": 2}))
    status, (line,) = train(run_cpu, checkpoint)
    assert status == 2
    assert "num_attention_heads=2, but this model has num_heads=3" in line
