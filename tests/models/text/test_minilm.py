"""A released encoder in our graph: sentence embeddings of known similarity."""

import os

import numpy as np
import pytest
import tensorflow as tf

from models.text import bert
from tests import minilm

pytestmark = minilm.needs_files
SENTENCES = (
    "a man is eating food .",
    "a man is eating a piece of bread .",
    "the girl is carrying a baby .",
)
PARAMS = {**bert.default_params(), **bert.SIZES["minilm"], "dropout": 0.0, "attention_dropout": 0.0}


def tokenize(length=12):
    """Rows of token ids; every word of `SENTENCES` is in the vocabulary."""
    with open(os.path.join(os.environ["MINILM"], "vocab.txt"), encoding="utf-8") as file:
        ids = {token: i for i, token in enumerate(file.read().splitlines())}
    rows = [[ids[word] for word in f"[CLS] {text} [SEP]".split()] for text in SENTENCES]
    return np.array([row + [0] * (length - len(row)) for row in rows], np.int32)


def test_cosines_of_sentences(session, tmp_path):
    """Those that google-research/bert computes with these weights."""
    rows = tokenize()
    mask = np.int32(rows > 0)
    features = {"input_ids": rows, "input_mask": mask, "segment_ids": np.zeros_like(rows)}
    outputs = bert.encode(tf.nest.map_structure(tf.constant, features), PARAMS, training=False)
    values = minilm.read(minilm.convert(tmp_path))
    for variable in tf.compat.v1.global_variables():
        variable.load(values[variable.op.name], session)
    means = (session.run(outputs) * mask[..., np.newaxis]).sum(axis=1)
    means /= np.linalg.norm(means, axis=1, keepdims=True)  # cosines ignore the number of tokens
    assert means[0] @ means[1] == pytest.approx(0.755, abs=5e-4)
    assert means[0] @ means[2] == pytest.approx(-0.105, abs=5e-4)
