"""A training step of GPT-2 of Hugging Face in Flax as HLO for the TPU compiler; for `tpu_peers`.

    FLAX_PYTHON -m benchmarks.peers.flax_gpt2 OUTPUT BATCH_PER_CORE LENGTH

`FlaxGPT2LMHeadModel` in bfloat16, 124 million parameters, with the loss and AdamW of their example
`run_clm_flax.py`, without its all-reduce. OUTPUT is a serialized HloModuleProto. The environment is
that of `flax_resnet` with transformers==4.46.3.
"""

from __future__ import annotations

import os
import sys

os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import optax
import transformers


def main(path, batch_size, length):
    """Writes the HLO of the step to `path`."""
    # The generator that is faster on a TPU than the default.
    jax.config.update("jax_default_prng_impl", "rbg")
    config = transformers.GPT2Config()
    model = transformers.FlaxGPT2LMHeadModel(config, dtype=jnp.bfloat16, _do_init=False)
    optimizer = optax.adamw(5e-5, b1=0.9, b2=0.999, eps=1e-8, weight_decay=0.01)
    rows = jax.ShapeDtypeStruct((int(batch_size), int(length)), jnp.int32)

    def create(key):
        params = model.init_weights(key, (1, 2))
        return params, optimizer.init(params)

    def step(params, state, tokens, key):
        def loss_of(params):
            mask = jnp.ones_like(tokens)
            outputs = model(tokens, mask, params=params, dropout_rng=key, train=True)
            logits, targets = outputs.logits[:, :-1], tokens[:, 1:]
            one_hot = jax.nn.one_hot(targets, logits.shape[-1])
            return optax.softmax_cross_entropy(logits, one_hot).mean()

        loss, gradients = jax.value_and_grad(loss_of)(params)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, loss

    key = jax.random.PRNGKey(0)
    params, state = jax.eval_shape(create, key)
    lowered = jax.jit(step, donate_argnums=(0, 1)).lower(params, state, rows, key)
    with open(path, "wb") as file:
        file.write(lowered.compiler_ir("hlo").as_serialized_hlo_module_proto())


if __name__ == "__main__":
    main(*sys.argv[1:])
