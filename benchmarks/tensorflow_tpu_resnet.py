"""Writes the HLO of a training step of ResNet-50 v1.5 of tensorflow/tpu; run by `tpu_peers`.

    python -m benchmarks.tensorflow_tpu_resnet HLO_FILE SLICE CHECKOUT

The unchanged `models/official/resnet/resnet_main.py` with its default parameters: bfloat16,
transposed input, 128 images per core.
"""

from __future__ import annotations

import sys

from tpu import tf1


def main(path, slice_name, checkout):
    """Writes the program of one core."""
    tf1.install()
    sys.path[:0] = [f"{checkout}/models", f"{checkout}/models/official/resnet"]
    import tensorflow.compat.v1 as tf
    from absl import flags
    from official.resnet import imagenet_input, resnet_main
    from official.resnet.configs import resnet_config

    from tpu.check import graph_builder, hlo
    from tpu.connect import topology

    flags.FLAGS(["resnet_main", "--model_dir=none"])
    found = topology.find(slice_name)
    tpu = tf.estimator.tpu
    estimator = tpu.TPUEstimator(
        resnet_main.resnet_model_fn,
        config=tpu.RunConfig(
            cluster=tf.distribute.cluster_resolver.TPUClusterResolver("local"),
            model_dir="none",
            tpu_config=tpu.TPUConfig(
                iterations_per_loop=10,
                per_host_input_for_training=tpu.InputPipelineConfig.PER_HOST_V2,
            ),
        ),
        use_tpu=True,
        params=resnet_config.RESNET_CFG,
        train_batch_size=128 * found.num_cores,
    )
    images = imagenet_input.ImageNetInput(
        is_training=True, use_bfloat16=True, transpose_input=True, data_dir=""
    )
    step = graph_builder.build_step(estimator, images.input_fn, "train", found, True)
    with open(path, "wb") as file:
        file.write(hlo.lower(*step))


if __name__ == "__main__":
    main(*sys.argv[1:])
