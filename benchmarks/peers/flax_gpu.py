"""The training step of `flax_resnet` on a GPU; `gpu_speed` runs this.

    python -m benchmarks.peers.flax_gpu resnet50 BATCH_SIZE

Prints "ready" after the compilation, and then, for each line of the input, the seconds of a step.
The data are on the GPU.
"""

from __future__ import annotations

import os
import sys
import time

os.environ["JAX_PLATFORMS"] = os.environ.get("JAX_PLATFORMS", "cuda")

import flax
import jax

from benchmarks.peers import flax_resnet

_STEPS = 30


def main(name, batch_size):
    """Compiles, and then times steps whenever a line says so."""
    if name != "resnet50":
        sys.exit(f"no Flax network is named {name}")
    step, start = flax_resnet.build(int(batch_size))
    variables, slots, *batch = jax.jit(start)(jax.random.PRNGKey(0))
    step = jax.jit(step, donate_argnums=(0, 1))
    variables, slots, loss = step(variables, slots, *batch)
    version = f"Flax {flax.__version__}, JAX {jax.__version__}"
    print(f"ready: {version}, loss {float(loss):.3f}", flush=True)
    for _ in sys.stdin:
        for count in (3, _STEPS):  # the first steps warm up
            started = time.perf_counter()
            for _ in range(count):
                variables, slots, loss = step(variables, slots, *batch)
            loss.block_until_ready()
        print((time.perf_counter() - started) / _STEPS, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
