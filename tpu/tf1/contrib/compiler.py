"""tf.contrib.compiler."""

from __future__ import annotations

import types

import tensorflow as tf

_xla = tf.compat.v1.xla.experimental

__all__ = ["jit", "xla"]

jit = types.SimpleNamespace(experimental_jit_scope=_xla.jit_scope)
xla = types.SimpleNamespace(compile=_xla.compile)
