"""BERT against google-research/bert with the same weights: outputs, loss and gradients."""

import numpy as np
import pytest
import tensorflow as tf

from engine.train import loss_reduction, optimizers
from models.text import bert, bert_pretraining
from tests import google_bert, minilm
from tools import bert_hugging_face

pytestmark = google_bert.needs_checkout
# Largest difference, relative to the largest number of an array, but at least to 1.
TOLERANCE = 1e-4
SIZES = {"num_layers": 3, "hidden_size": 24, "num_heads": 3, "ffn_size": 50}
ODD = {**SIZES, "vocab_size": 101, "max_positions": 40, "type_vocab_size": 3}


def make_features(params, length=13, num_predictions=5, batch=4, seed=0):
    """Rows of 1 to `length` tokens; padding of predictions and tokens holds ids, too."""
    random = np.random.default_rng(seed)
    lengths = np.linspace(1, length, batch).astype(int)
    features = {
        "input_ids": random.integers(0, params["vocab_size"], [batch, length]),
        "input_mask": np.arange(length) < lengths[:, np.newaxis],
        "segment_ids": random.integers(0, params["type_vocab_size"], [batch, length]),
        "masked_lm_positions": random.integers(0, length, [batch, num_predictions]),
    }
    labels = {
        "masked_lm_ids": random.integers(0, params["vocab_size"], [batch, num_predictions]),
        "masked_lm_weights": random.integers(0, 2, [batch, num_predictions]),
        "next_sentence_labels": np.arange(batch) % 2,
    }
    return tuple(
        {k: v.astype(np.int32) for k, v in values.items()} for values in (features, labels)
    )


def run(build, params, features, labels, values):
    """Outputs, loss and gradients of a pre-training graph, `{name: array}`.

    Args:
      build: `(features, labels, params) -> ({name: tensor}, loss)`.
      params: hyperparameters.
      features: arrays.
      labels: arrays.
      values: `{name: array}` of variables; others are random, also norms and biases.

    Returns:
      The results, and the values of all variables.
    """
    params = {**bert.default_params(), **params, "dropout": 0.0, "attention_dropout": 0.0}
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tensors, labels = tf.nest.map_structure(tf.constant, (features, labels))
        outputs, loss = build(tensors, labels, params)
        variables = {v.op.name: v for v in tf.compat.v1.trainable_variables()}
        random = np.random.default_rng(1)
        random_values = {
            name: random.normal(name.endswith("gamma"), 0.2, v.shape).astype(np.float32)
            for name, v in sorted(variables.items())
        }
        values = {**random_values, **(values or {})}
        assert values.keys() == variables.keys()
        for name, variable in variables.items():
            variable.load(values[name], session)
        gradients = tf.gradients(loss, list(variables.values()))
        assert None not in gradients
        gradients = dict(zip(variables, map(tf.convert_to_tensor, gradients)))
        return session.run({**outputs, "loss": loss, **gradients}), values


def build_ours(features, labels, params):
    outputs = bert_pretraining.inference(features, params, training=True)
    terms = bert_pretraining.losses(features, labels, outputs, params)
    means = loss_reduction.means(terms, loss_reduction.denominators(terms, params))
    (loss,) = loss_reduction.by_variables(terms, means).values()
    with tf.compat.v1.variable_scope("", reuse=True):
        sequence_output = bert.encode(features, params, training=False)
        pooled_output = bert.pool(sequence_output, params)
    return {"sequence_output": sequence_output, "pooled_output": pooled_output}, loss


def build_google(features, labels, params):
    modeling, program = google_bert.load("modeling"), google_bert.load("run_pretraining")
    config = modeling.BertConfig(
        **{theirs: params[ours] for ours, theirs in bert_hugging_face.PARAMS.items()}
    )
    model = modeling.BertModel(
        config,
        is_training=True,  # with dropout rates of 0
        input_ids=features["input_ids"],
        input_mask=features["input_mask"],
        token_type_ids=features["segment_ids"],
        use_one_hot_embeddings=True,
    )
    masked_lm_loss, *_ = program.get_masked_lm_output(
        config,
        model.get_sequence_output(),
        model.get_embedding_table(),
        features["masked_lm_positions"],
        labels["masked_lm_ids"],
        tf.cast(labels["masked_lm_weights"], tf.float32),
    )
    next_sentence_loss, *_ = program.get_next_sentence_output(
        config, model.get_pooled_output(), labels["next_sentence_labels"]
    )
    outputs = {
        "sequence_output": model.get_sequence_output(),
        "pooled_output": model.get_pooled_output(),
    }
    return outputs, masked_lm_loss + next_sentence_loss


def largest_difference(ours, theirs):
    assert ours.keys() == theirs.keys()
    return max(
        np.abs(ours[name] - value).max() / max(1.0, np.abs(value).max())
        for name, value in theirs.items()
    )


def compare(params, values=None, **sizes):
    features, labels = make_features(params, **sizes)
    theirs, values = run(build_google, params, features, labels, values)
    ours, _ = run(build_ours, params, features, labels, values)
    return largest_difference(ours, theirs)


@pytest.mark.parametrize("length", [13, 1, 40])
def test_outputs_loss_and_gradients_with_random_weights(length):
    assert compare(ODD, length=length) < TOLERANCE


@minilm.needs_files
def test_outputs_loss_and_gradients_with_released_weights(tmp_path):
    values = minilm.read(minilm.convert(tmp_path))
    assert compare({**bert.default_params(), **bert.SIZES["minilm"]}, values, length=37) < TOLERANCE


def test_the_exact_gelu_exceeds_the_tolerance(monkeypatch):
    monkeypatch.setattr(bert, "gelu", tf.nn.gelu)
    assert compare(ODD) > TOLERANCE


def test_their_training_resumes_here(tmp_path):
    """All variables of their checkpoint are ours: weights, slots and the global step."""
    rates = {"dropout": 0.0, "attention_dropout": 0.0}
    params = {**bert.default_params(), **ODD, **rates}
    features, labels = make_features(ODD)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        _, loss = build_google(*tf.nest.map_structure(tf.constant, (features, labels)), params)
        create_optimizer = google_bert.load("optimization").create_optimizer
        train_op = create_optimizer(loss, 1e-3, 10, 2, False)
        session.run(tf.compat.v1.global_variables_initializer())
        session.run(train_op)
        saver = tf.compat.v1.train.Saver()
        checkpoint = saver.save(session, f"{tmp_path}/model.ckpt", write_meta_graph=False)
    with tf.Graph().as_default():
        _, loss = build_ours(*tf.nest.map_structure(tf.constant, (features, labels)), params)
        params = {**optimizers.default_params(), "optimizer": "bert_adamw"}
        optimizer = optimizers.create(params, 1e-3)
        gradients = optimizers.compute_gradients(optimizer, loss, params)
        optimizers.apply_gradients(optimizer, gradients, params)
        ours = {v.op.name: v.shape.as_list() for v in tf.compat.v1.global_variables()}
    assert ours == dict(tf.train.list_variables(checkpoint))
