"""Checkpoints of BERT in `transformers` of Hugging Face and back: the same outputs.

Needs transformers and PyTorch, which no part of this package needs.
"""

import importlib.util
import json

import numpy as np
import pytest
import tensorflow as tf

from engine.train import optimizers
from models.text import (
    bert,
    bert_classifier,
    bert_pretraining,
    bert_squad,
    bert_token_classifier,
)
from tools import bert_checkpoint, bert_hugging_face

pytestmark = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("torch", "transformers", "safetensors"))),
    reason="torch, transformers or safetensors is not installed",
)
# Largest difference, relative to the largest number of an array, but at least to 1.
TOLERANCE = 1e-4
CONFIG = {
    "vocab_size": 101,
    "num_hidden_layers": 3,
    "hidden_size": 24,
    "num_attention_heads": 3,
    "intermediate_size": 50,
    "max_position_embeddings": 40,
    "type_vocab_size": 2,
}
PARAMS = {
    **bert.default_params(),
    **{name: CONFIG[key] for name, key in bert_hugging_face.PARAMS.items() if key in CONFIG},
    "dropout": 0.0,
    "attention_dropout": 0.0,
    "num_classes": 3,
    "num_tags": 5,
}
LENGTH, BATCH = 13, 4
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
VOCABULARY = [*SPECIAL, *(f"token{i}" for i in range(CONFIG["vocab_size"] - len(SPECIAL)))]


def make_features():
    random = np.random.default_rng(0)
    lengths = np.linspace(2, LENGTH, BATCH).astype(int)
    features = {
        "input_ids": random.integers(0, CONFIG["vocab_size"], [BATCH, LENGTH]),
        "input_mask": np.arange(LENGTH) < lengths[:, np.newaxis],
        "segment_ids": random.integers(0, 2, [BATCH, LENGTH]),
        "masked_lm_positions": np.tile(np.arange(LENGTH), [BATCH, 1]),  # all, like transformers
    }
    return {name: value.astype(np.int32) for name, value in features.items()}


FEATURES = make_features()


def run_ours(module, checkpoint=None, save=None, num_steps=0):
    """Outputs of a model: of random weights, or of a checkpoint.

    Args:
      module: with an `inference`.
      checkpoint: path, or None.
      save: path of a checkpoint to write, or None.
      num_steps: training steps before the outputs; `save` then has slots and a global step.
    """
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        features = {name: tf.constant(value) for name, value in FEATURES.items()}
        outputs = module.inference(features, PARAMS, training=False)
        variables = tf.compat.v1.trainable_variables()
        loss = tf.add_n([tf.reduce_sum(output**2) for output in outputs.values()])
        params = {**optimizers.default_params(), "optimizer": "bert_adamw", "weight_decay": 0.01}
        optimizer = optimizers.create(params, 1e-3)
        gradients = optimizers.compute_gradients(optimizer, loss, params)
        train_op = optimizers.apply_gradients(optimizer, gradients, params)
        session.run(tf.compat.v1.global_variables_initializer())
        random = np.random.default_rng(1)
        for v in variables:
            mean = v.op.name.endswith("gamma")
            v.load(random.normal(mean, 0.2, v.shape).astype(np.float32), session)
        if checkpoint:
            tf.compat.v1.train.Saver(variables).restore(session, checkpoint)
        for _ in range(num_steps):
            session.run(train_op)
        if save:
            saved = tf.compat.v1.global_variables() if num_steps else variables
            tf.compat.v1.train.Saver(saved).save(session, save, write_meta_graph=False)
        return session.run(outputs)


def run_theirs(model):
    """Outputs of a model of transformers, by name."""
    import torch

    names = {
        "input_ids": "input_ids",
        "input_mask": "attention_mask",
        "segment_ids": "token_type_ids",
    }
    inputs = {names[n]: torch.tensor(v).long() for n, v in FEATURES.items() if n in names}
    with torch.no_grad():
        return {name: value.numpy() for name, value in model.eval()(**inputs).items()}


def config(**changes):
    import transformers

    return transformers.BertConfig(**{**CONFIG, "hidden_act": "gelu_new", **changes})


def assert_same(ours, theirs, names):
    """Compares outputs; `names` maps ours to those of transformers."""
    assert ours.keys() == names.keys()
    for name, other in names.items():
        bound = TOLERANCE * max(1.0, np.abs(theirs[other]).max())
        np.testing.assert_allclose(ours[name], theirs[other], rtol=0, atol=bound, err_msg=name)


PRETRAINING = {
    "masked_lm_logits": "prediction_logits",
    "next_sentence_logits": "seq_relationship_logits",
}
HEADS = {
    "BertForPreTraining": (bert_pretraining, PRETRAINING),
    "BertForSequenceClassification": (bert_classifier, {"logits": "logits"}),
    "BertForTokenClassification": (bert_token_classifier, {"logits": "logits"}),
    "BertForQuestionAnswering": (
        bert_squad,
        {"start_logits": "start_logits", "end_logits": "end_logits"},
    ),
}


def write_beside(folder):
    """Writes bert_config.json and vocab.txt, as beside a released checkpoint."""
    fields = {**CONFIG, "hidden_act": "gelu"}
    (folder / "bert_config.json").write_text(json.dumps(fields))
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in VOCABULARY))


@pytest.mark.parametrize("num_steps", [0, 3])
def test_their_converter_reads_our_checkpoint(tmp_path, num_steps):
    """One of training has slots, which the converter must not load over the weights."""
    import transformers
    from transformers.models.bert import modeling_bert

    path = str(tmp_path / "model.ckpt-3")
    ours = run_ours(bert_pretraining, save=path, num_steps=num_steps)
    slots = [name for name, _ in tf.train.list_variables(path) if "adam_" in name]
    assert bool(slots) == bool(num_steps)
    model = transformers.BertForPreTraining(config())
    modeling_bert.load_tf_weights_in_bert(model, model.config, path)
    assert_same(ours, run_theirs(model), PRETRAINING)


@pytest.mark.parametrize("architecture", HEADS)
def test_their_weights_in_our_graph(tmp_path, architecture):
    import transformers

    module, names = HEADS[architecture]
    num_labels = {"BertForSequenceClassification": 3, "BertForTokenClassification": 5}
    their_config = config(num_labels=num_labels.get(architecture, 2), initializer_range=0.2)
    model = getattr(transformers, architecture)(their_config)
    model.save_pretrained(tmp_path / "theirs")
    (tmp_path / "theirs" / "vocab.txt").write_text("".join(f"{t}\n" for t in VOCABULARY))
    bert_checkpoint.main("from_hugging_face", str(tmp_path / "theirs"), str(tmp_path / "ours"))
    ours = run_ours(module, checkpoint=str(tmp_path / "ours" / "bert_model.ckpt"))
    assert_same(ours, run_theirs(model), names)


@pytest.mark.parametrize("architecture", HEADS)
def test_our_weights_in_their_classes(tmp_path, architecture, monkeypatch):
    import transformers

    module, names = HEADS[architecture]
    write_beside(tmp_path)
    ours = run_ours(module, save=str(tmp_path / "model.ckpt-3"), num_steps=3)
    if module is bert_token_classifier:  # a model_dir says so
        monkeypatch.setattr(bert_checkpoint, "architecture", lambda *_: architecture)
    bert_checkpoint.main("to_hugging_face", str(tmp_path), str(tmp_path / "theirs"))
    model, report = getattr(transformers, architecture).from_pretrained(
        tmp_path / "theirs", output_loading_info=True
    )
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    assert_same(ours, run_theirs(model), names)
