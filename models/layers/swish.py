"""Swish, also SiLU: x times its sigmoid (Ramachandran et al. 2017, arXiv:1710.05941)."""

from __future__ import annotations

import tensorflow as tf

from models.layers import fusion


def swish(x):
    """Returns `x * sigmoid(x)`, of the shape and dtype of float32 or bfloat16 `x`."""
    return fusion.fuse(tf.nn.swish, x)
