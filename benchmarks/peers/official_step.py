"""Writes the HLO of a training step of tf-models-official; run by `tpu_peers`.

    OFFICIAL_PYTHON -m benchmarks.peers.official_step HLO_FILE BATCH_PER_CORE NETWORK PRECISION
        [LENGTH]

NETWORK: bert, deeplab, dlrm, mask_rcnn, neumf, retinanet or transformer. PRECISION: float32 or
bfloat16. The environment:

    python3.11 -m venv official
    official/bin/pip install tensorflow==2.15.1
    official/bin/pip install --no-deps tf-models-official==2.15.0 tensorflow-recommenders==0.7.3
    official/bin/pip install gin-config scipy tensorflow-text==2.15.0 tf-slim six sentencepiece
    official/bin/pip install tensorflow-hub==0.15.0 tensorflow-model-optimization 'setuptools<81'
    official/bin/pip install pyyaml tensorflow-datasets==4.9.4 'tensorflow-metadata<1.16' matplotlib
    official/bin/pip install immutabledict pycocotools Pillow 'opencv-python-headless<4.10'
    official/bin/pip install 'pandas<2.3' 'numpy<2'
"""

from __future__ import annotations

import importlib
import sys

import tensorflow as tf

# Arguments of `build_step` after the batch size and the command line's.
ARGUMENTS = {
    "deeplab": (769, tf.float32, True),
    "mask_rcnn": (1024, tf.bfloat16, True),
    "neumf": (138493, 26744),
    "retinanet": (640, 80, tf.bfloat16, True),
    "transformer": (128, 32768),
}


def main(path, batch_size, network, precision, *sizes):
    """Writes the program."""
    if precision == "bfloat16":
        tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")
    module = importlib.import_module(f"benchmarks.peers.official_{network}")
    more = (*map(int, sizes), *ARGUMENTS.get(network, ()))
    step, specs = module.build_step(int(batch_size), *more)
    with open(path, "wb") as file:
        file.write(step.experimental_get_compiler_ir(*specs)(stage="hlo_serialized"))


if __name__ == "__main__":
    main(*sys.argv[1:])
