"""Writes the HLO of a training step of EfficientNet of tensorflow/tpu; run by `tpu_peers`.

    python -m benchmarks.peers.tensorflow_tpu_efficientnet HLO_FILE BATCH_PER_CORE SLICE CHECKOUT
        SIZE

The unchanged `models/official/efficientnet/main.py` with its default flags: bfloat16, transposed
input, RMSProp, EMA. SIZE is b0 to b7.
"""

from __future__ import annotations

import sys

import tpu
from benchmarks import hlo_table
from tpu import tf1
from tpu.connect import topology

_IMAGES = 1281167  # of ImageNet


def main(path, batch_size, slice_name, checkout, size):
    """Writes the program of one core."""
    tf1.install()
    folder = f"{checkout}/models/official/efficientnet"
    sys.path.insert(0, folder)
    tpu.__path__.append(f"{folder}/tpu")  # it has a package of the same name
    import imagenet_input
    import main as program
    import model_builder_factory
    from absl import flags

    name = f"efficientnet-{size}"
    global_batch = int(batch_size) * topology.find(slice_name).num_cores
    # A host call would write summaries to --model_dir, on the host.
    arguments = f"--model_name={name}", f"--train_batch_size={global_batch}", "--skip_host_call"
    flags.FLAGS(["main", *arguments])
    images = imagenet_input.ImageNetInput(
        is_training=True,
        use_bfloat16=True,
        transpose_input=True,
        data_dir="",
        image_size=model_builder_factory.get_model_input_size(name),
        num_label_classes=1000,
    )
    params = {"steps_per_epoch": _IMAGES / global_batch, "use_bfloat16": True}
    hlo_table.write_step(
        path, slice_name, program.model_fn, images.input_fn, int(batch_size), params
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
