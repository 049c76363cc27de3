"""Writes the HLO of a training step of Mask R-CNN of tensorflow/tpu; run by `tpu_peers`.

    python -m benchmarks.peers.tensorflow_tpu_mask_rcnn HLO_FILE BATCH_PER_CORE SLICE CHECKOUT

The unchanged `models/official/mask_rcnn` with its default configuration: ResNet-50, 1024x1024,
bfloat16, transposed input with 2x2 pixels as channels. It freezes the statistics of
batch norm and the layers up to the first stage of the ResNet.
"""

from __future__ import annotations

import sys

from benchmarks import hlo_table
from tpu import tf1


def main(path, batch_size, slice_name, checkout):
    """Writes the program of one core."""
    tf1.install()
    models = f"{checkout}/models"
    folders = ("mask_rcnn", "mnasnet", "efficientnet")
    sys.path[:0] = [*(f"{models}/official/{folder}" for folder in folders), models]
    import dataloader
    import mask_rcnn_model
    from hyperparameters import params_dict

    from configs import mask_rcnn_config

    params = params_dict.ParamsDict(
        mask_rcnn_config.MASK_RCNN_CFG, mask_rcnn_config.MASK_RCNN_RESTRICTIONS
    )
    input_fn = dataloader.InputReader("", use_instance_mask=params.include_mask)
    hlo_table.write_step(
        path,
        slice_name,
        mask_rcnn_model.mask_rcnn_model_fn,
        input_fn,
        int(batch_size),
        {**params.as_dict(), "mode": "train"},
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
