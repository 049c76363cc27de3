"""A training step of Flax' WMT example as HLO for the TPU compiler; `tpu_peers` runs this.

    FLAX_PYTHON -m benchmarks.peers.flax_transformer OUTPUT BATCH_PER_CORE CHECKOUT

Its own `models.py` and `train_step` in CHECKOUT/examples/wmt, with the sizes of Transformer base:
packed rows of 128 tokens, bfloat16, AdamW, without dropout of attention weights, metrics and
all-reduce. OUTPUT is a serialized HloModuleProto. The environment is that of `flax_resnet`.
"""

from __future__ import annotations

import importlib
import os
import sys
from unittest import mock

os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import optax
from flax.training import checkpoints  # noqa: F401 - before the mocks, which it would search

LENGTH, VOCAB_SIZE = 128, 32768
ROWS = ("inputs", "inputs_position", "inputs_segmentation")
# Modules that the example imports and its step does not use.
UNUSED = (
    *("clu", "tensorflow", "bleu", "decode", "input_pipeline", "tokenizer", "orbax.checkpoint"),
    *("absl", "ml_collections"),
)


def main(path, batch_size, checkout):
    """Writes the HLO of the step to `path`."""
    sys.path.insert(0, f"{checkout}/examples/wmt")
    with mock.patch.dict(sys.modules, {name: mock.MagicMock() for name in UNUSED}):
        models, train = (importlib.import_module(name) for name in ("models", "train"))
    # The generator that is faster on a TPU than the default.
    jax.config.update("jax_default_prng_impl", "rbg")
    config = models.TransformerConfig(
        vocab_size=VOCAB_SIZE,
        output_vocab_size=VOCAB_SIZE,
        share_embeddings=True,
        logits_via_embedding=True,
        dtype=jnp.bfloat16,
        max_len=LENGTH,
        attention_dropout_rate=0.0,
    )
    model, optimizer = models.Transformer(config), optax.adamw(0.001, b1=0.9, b2=0.98, eps=1e-9)
    row = jax.ShapeDtypeStruct((int(batch_size), LENGTH), jnp.int32)
    batch = dict.fromkeys((*ROWS, *(name.replace("inputs", "targets") for name in ROWS)), row)

    def create(key, inputs, targets):
        params = model.init({"params": key, "dropout": key}, inputs, targets)["params"]
        return train.TrainState.create(
            apply_fn=model.apply, params=params, tx=optimizer, dynamic_scale=None
        )

    state = jax.eval_shape(create, jax.random.PRNGKey(0), row, row)

    def step(state, batch, key):
        return train.train_step(state, batch, config, lambda step: 0.001, 0.1, key)[0]

    alone = {name: lambda values, axis_name: values for name in ("pmean", "psum")}
    with mock.patch.multiple(jax.lax, **alone):
        lowered = jax.jit(step, donate_argnums=0).lower(state, batch, jax.random.PRNGKey(0))
    with open(path, "wb") as file:
        file.write(lowered.compiler_ir("hlo").as_serialized_hlo_module_proto())


if __name__ == "__main__":
    main(*sys.argv[1:])
