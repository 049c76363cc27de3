"""ALBERT and ELECTRA: fine-tuned from a release, the same with both wrappers, for every task."""

import json
import shutil

import numpy as np
import pytest
import tensorflow as tf

import run_cpu
import run_tpu
from engine.checkpoints import writer
from models.text import encoders
from tests import bert_data, encoder_data, numerics
from tests.conftest import EMULATED
from tests.marks import slow

VOCAB_SIZE, BATCH, STEPS = 31, 16, 3
SIZES = {"num_layers": 2, "hidden_size": 6, "num_heads": 3, "ffn_size": 5, "embedding_size": 4}
PRESETS = {"albert": "albert_base_v2", "electra": "electra_small"}
# Tokens of a global batch, whose gradients are summed in every step; variables of size 1.
TRAINING = {"terms": BATCH * 24, "depth": STEPS, "magnitude": 1.0}
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


@pytest.fixture(scope="module")
def sst2(tmp_path_factory):
    return bert_data.prepare_sst2(tmp_path_factory.mktemp("sst2"))


@pytest.mark.slow
@pytest.mark.parametrize("family", PRESETS)
def test_emulated_cores_train_as_one_core(train, sst2, family, tmp_path):
    sizes = flags_of(family)[1:3]
    data = ["--dataset=sst2", f"--data_dir={sst2}", "--mode=train", f"--train_batch_size={BATCH}"]
    flags = ["--model=bert_classifier", *sizes, *data, "--seed=1"]
    flags += ["--params=optimizer=bert_adamw,epsilon=0.01,learning_rate=0.01"]
    _, _, start = train(run_cpu, *flags, "--train_steps=1")
    shutil.move(tmp_path / "run_cpu", tmp_path / "start")
    flags += [f"--warm_start_from={tmp_path}/start", f"--train_steps={STEPS}"]
    (_, _, expected), (_, _, actual) = (train(wrapper, *flags) for wrapper in WRAPPERS)
    assert numerics.excess(actual, expected, **TRAINING) < 1
    names = [name for name in start if name in expected and "encoder" in name]
    moved = {name: start[name] for name in names}, {name: expected[name] for name in names}
    assert numerics.excess(*moved, **TRAINING) > numerics.FAR  # the negative control


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize("family", [slow("albert"), "electra"])
def test_a_release_is_fine_tuned_without_its_weights_of_pretraining(train, release, family):
    flags = [*flags_of(family), f"--warm_start_from={release(family)}", "--train_steps=1"]
    status, out, _ = train(run_cpu, *flags)
    assert status == 0, out
    assert "warm start: restored" in out
    assert ("discriminator_predictions/* (1); generator/* (1)" in out) == (family == "electra")


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
