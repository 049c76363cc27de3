"""ALBERT and ELECTRA: fine-tuned from a release, the same with both wrappers, for every task."""

import json

import numpy as np
import pytest
import tensorflow as tf

import run_cpu
import run_tpu
from engine.checkpoints import writer
from models.text import encoders
from tests import encoder_data, numerics
from tests.conftest import EMULATED
from tests.marks import slow

VOCAB_SIZE, BATCH, STEPS = 31, 16, 3
SIZES = {"num_layers": 2, "hidden_size": 6, "num_heads": 3, "ffn_size": 5, "embedding_size": 4}
PRESETS = {"albert": "albert_base_v2", "electra": "electra_small"}
# The longest sum is over a row of 8 tokens or the batch; the layers and the steps follow.
NETWORK = {"terms": BATCH, "depth": STEPS * 2 * 48, "magnitude": 1.0}
WRAPPERS = {run_cpu: (), run_tpu: EMULATED}
PRETRAINING = {"electra": ("generator/encoder/x", "discriminator_predictions/dense/bias")}


def flags_of(family, task="classification", model="bert_classifier"):
    sizes = ",".join(f"{name}={size}" for name, size in SIZES.items())
    return [
        f"--model={model}",
        f"--params=size={PRESETS[family]},{sizes},dropout=0,attention_dropout=0",
        "--params=optimizer=momentum,learning_rate=0.1,initializer_range=0.3",
        "--dataset=synthetic",
        f"--synthetic_task={task}",
        f"--synthetic_text=8x{VOCAB_SIZE}",
        "--mode=train",
        f"--train_steps={STEPS}",
        f"--train_batch_size={BATCH}",
        "--seed=1",
    ]


@pytest.fixture
def release(tmp_path):
    """Function that writes a checkpoint as released, with the weights of pre-training."""

    def write(family):
        params = encoder_data.params(family, **SIZES, vocab_size=VOCAB_SIZE, max_positions=512)
        with tf.Graph().as_default():
            encoder_data.encode(params)
            variables = tf.compat.v1.trainable_variables()
            shapes = {v.op.name: v.shape.as_list() for v in variables}
        values = encoder_data.random_values(shapes)
        path = str(tmp_path / "released" / "model.ckpt")
        others = {name: np.zeros(2, "f4") for name in PRETRAINING.get(family, ())}
        writer.write(path, {**values, **others})
        return path

    return write


@pytest.fixture
def train(exit_status, capsys, variables, tmp_path):
    """Function that trains; returns the exit status, the output and the variables."""

    def run(wrapper, *flags):
        capsys.readouterr()
        model_dir = tmp_path / wrapper.__name__
        status = exit_status(wrapper, *flags, *WRAPPERS[wrapper], f"--model_dir={model_dir}")
        captured = capsys.readouterr()
        if status:
            return status, captured.err, {}
        return status, captured.out, variables(model_dir)

    return run


@pytest.mark.slow
@pytest.mark.parametrize("family", PRESETS)
def test_both_wrappers_fine_tune_a_release_alike(train, release, family):
    checkpoint = release(family)
    flags = [*flags_of(family), f"--warm_start_from={checkpoint}"]
    found = {}
    for wrapper in WRAPPERS:
        status, out, found[wrapper] = train(wrapper, *flags)
        assert status == 0, out
        assert "warm start: restored" in out
        assert ("discriminator_predictions/* (1); generator/* (1)" in out) == (family == "electra")
    expected, actual = found[run_cpu], found[run_tpu]
    encoder = f"{encoders.FAMILIES[family].SCOPE}/encoder"
    names = [name for name, _ in tf.train.list_variables(checkpoint) if name in expected]
    changes = [
        np.abs(expected[name] - tf.train.load_variable(checkpoint, name)).max()
        for name in names
        if name.startswith(encoder)
    ]
    assert max(changes) > 1e-3  # the negative control: training changes the encoder
    for name in [*names, "output_weights", "output_bias"]:
        numerics.assert_close(actual[name], expected[name], name=name, **NETWORK)


@pytest.mark.parametrize("family", PRESETS)
@pytest.mark.parametrize(
    ("task", "model"),
    [
        slow("regression", "bert_regressor"),
        slow("token_classification", "bert_token_classifier"),
        slow("squad", "bert_squad"),
    ],
)
def test_every_task_trains(train, family, task, model):
    status, out, found = train(run_cpu, *flags_of(family, task, model), "--train_steps=1")
    assert status == 0, out
    assert any(name.startswith(f"{encoders.FAMILIES[family].SCOPE}/encoder") for name in found)


def test_pretraining_is_of_bert_only(train):
    flags = flags_of("albert", "pretraining", "bert_pretraining")
    status, err, _ = train(run_cpu, *flags)
    assert status == 2
    (line,) = err.splitlines()
    assert "family=albert: bert_pretraining trains BERT only" in line


def test_the_release_of_another_family_is_one_error_line(train, release):
    checkpoint = release("electra")
    status, err, _ = train(run_cpu, *flags_of("albert"), f"--warm_start_from={checkpoint}")
    assert status == 2
    (line,) = err.splitlines()
    assert "is a checkpoint of ELECTRA, but this model is ALBERT" in line


def test_another_number_of_heads_beside_the_release(train, release, tmp_path):
    checkpoint = release("albert")
    config = tmp_path / "released" / "albert_config.json"
    config.write_text(json.dumps({"num_attention_heads": 2, "embedding_size": 5}))
    status, err, _ = train(run_cpu, *flags_of("albert"), f"--warm_start_from={checkpoint}")
    assert status == 2
    assert "Use --params=num_heads=2,embedding_size=5" in err
