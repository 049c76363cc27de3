"""Writes the HLO of a training step of ResNet-50 v1.5 of tensorflow/tpu; run by `tpu_peers`.

    python -m benchmarks.peers.tensorflow_tpu_resnet HLO_FILE BATCH_PER_CORE SLICE CHECKOUT

The unchanged `models/official/resnet/resnet_main.py` with its default parameters: bfloat16,
transposed input.
"""

from __future__ import annotations

import sys

from benchmarks import hlo_table
from tpu import tf1


def main(path, batch_size, slice_name, checkout):
    """Writes the program of one core."""
    tf1.install()
    sys.path[:0] = [f"{checkout}/models", f"{checkout}/models/official/resnet"]
    from absl import flags
    from official.resnet import imagenet_input, resnet_main
    from official.resnet.configs import resnet_config

    flags.FLAGS(["resnet_main", "--model_dir=none"])
    images = imagenet_input.ImageNetInput(
        is_training=True, use_bfloat16=True, transpose_input=True, data_dir=""
    )
    model_fn, params = resnet_main.resnet_model_fn, resnet_config.RESNET_CFG
    hlo_table.write_step(path, slice_name, model_fn, images.input_fn, int(batch_size), params)


if __name__ == "__main__":
    main(*sys.argv[1:])
