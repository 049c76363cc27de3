"""A training step of MLCommons' Conformer in JAX as HLO for the TPU compiler; for `tpu_peers`.

    FLAX_PYTHON -m benchmarks.peers.mlcommons_conformer OUTPUT BATCH_PER_CORE CHECKOUT

`Conformer` of the workload librispeech_conformer of mlcommons/algorithmic-efficiency, with the
sizes of configs/librispeech_conformer_v3-8.cfg: 16 blocks of 144 units and 4 heads, kernels of 31,
recordings of 16 s, 29 tokens; its log-mel spectrograms, SpecAugment and `optax.ctc_loss`, and
AdamW. It has float32 only, attention without relative positions and batch norm. OUTPUT is a
serialized HloModuleProto. The environment is that of `flax_resnet`.
"""

from __future__ import annotations

import os
import sys
import types

os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import optax

SAMPLES, TOKENS, VOCAB_SIZE = 256_000, 400, 29


def main(path, batch_size, checkout):
    """Writes the HLO of the step to `path`."""
    # The generator that is faster on a TPU than the default.
    jax.config.update("jax_default_prng_impl", "rbg")
    # The package itself imports a version that its installation writes.
    package = types.ModuleType("algoperf")
    package.__path__ = [os.path.join(checkout, "algoperf")]
    sys.modules["algoperf"] = package
    from algoperf.workloads.librispeech_conformer.librispeech_jax import models

    config = models.ConformerConfig(
        vocab_size=VOCAB_SIZE,
        encoder_dim=144,
        num_attention_heads=4,
        num_encoder_layers=16,
        convolution_kernel_size=31,
    )
    model = models.Conformer(config)
    optimizer = optax.adamw(1e-3, b1=0.9, b2=0.98, eps=1e-9, weight_decay=0.001)
    batch_size = int(batch_size)
    waveforms = jax.ShapeDtypeStruct((batch_size, SAMPLES), jnp.float32)
    tokens = jax.ShapeDtypeStruct((batch_size, TOKENS), jnp.int32)

    def create(key, waveforms):
        variables = model.init({"params": key}, waveforms, jnp.zeros_like(waveforms), train=False)
        params = variables["params"]
        return params, variables["batch_stats"], optimizer.init(params)

    def step(params, statistics, state, waveforms, paddings, tokens, key):
        def loss_of(params):
            variables = {"params": params, "batch_stats": statistics}
            (logits, logit_paddings), updated = model.apply(
                variables,
                waveforms,
                paddings,
                train=True,
                rngs={"dropout": key},
                mutable=["batch_stats"],
            )
            label_paddings = (tokens == 0).astype(jnp.float32)
            losses = optax.ctc_loss(logits, logit_paddings, tokens, label_paddings)
            return losses.sum() / (1 - label_paddings).sum(), updated["batch_stats"]

        (loss, updated), gradients = jax.value_and_grad(loss_of, has_aux=True)(params)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), updated, state, loss

    key = jax.random.PRNGKey(0)
    created = jax.eval_shape(create, key, waveforms)
    lowered = jax.jit(step, donate_argnums=(0, 1, 2)).lower(
        *created, waveforms, waveforms, tokens, key
    )
    with open(path, "wb") as file:
        file.write(lowered.compiler_ir("hlo").as_serialized_hlo_module_proto())


if __name__ == "__main__":
    main(*sys.argv[1:])
