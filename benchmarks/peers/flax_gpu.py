"""The training step of `flax_resnet` on a GPU; `gpu_speed` runs this.

    python -m benchmarks.peers.flax_gpu resnet50 BATCH_SIZE

Prints "ready" after the compilation, and then, for each line of the input, the seconds of a step.
The data are on the GPU.
"""

from __future__ import annotations

import os
import sys

os.environ.setdefault("JAX_PLATFORMS", "cuda")

import flax
import jax

from benchmarks.peers import flax_resnet, timed_steps


def main(name, batch_size):
    """Compiles, and then times steps whenever a line says so."""
    if name != "resnet50":
        sys.exit(f"no Flax network is named {name}")
    step, start = flax_resnet.build(int(batch_size))
    variables, slots, *batch = jax.jit(start)(jax.random.PRNGKey(0))
    compiled, loss = jax.jit(step, donate_argnums=(0, 1)), None

    def run():
        nonlocal variables, slots, loss
        variables, slots, loss = compiled(variables, slots, *batch)

    run()
    description = f"Flax {flax.__version__}, JAX {jax.__version__}, loss {float(loss):.3f}"
    timed_steps.serve(description, run, lambda: loss.block_until_ready())


if __name__ == "__main__":
    main(*sys.argv[1:])
