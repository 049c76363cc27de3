"""Writes the HLO of a training step of google/compare_gan; run by `tpu_peers`.

    python -m benchmarks.peers.compare_gan HLO_FILE BATCH_PER_CORE SLICE CHECKOUT SIDE

The unchanged `ModularGAN` with `example_configs/dcgan_celeba64.gin`, images of SIDE x SIDE, and one
step of the discriminator for each of the generator. It needs gin-config==0.4.0, six,
tensorflow-gan==2.1.0 and tensorflow-probability==0.23.0 with their dependencies, as by
`pip install --no-deps --target=FOLDER` with FOLDER in PYTHONPATH.
"""

from __future__ import annotations

import sys
from unittest import mock

from benchmarks import hlo_table
from tpu import tf1


def write(path, batch_size, slice_name, checkout, side):
    """Writes the program of one core."""
    tf1.install()
    sys.path.insert(0, checkout)
    # Neither data nor distributions are used.
    for name in ("tensorflow_datasets", "tensorflow_probability"):
        sys.modules[name] = mock.MagicMock(__version__="9")
    import gin
    import gin.tf.external_configurables
    import tensorflow.compat.v1 as tf
    from absl import flags
    from compare_gan import datasets, main, runner_lib
    from compare_gan.gans.modular_gan import ModularGAN

    flags.FLAGS([main.__name__, "--model_dir=none", "--use_tpu"])
    side = int(side)

    class Images(datasets.ImageDatasetV2):
        """Images of zeros, without files."""

        def __init__(self):
            super().__init__("images", None, side, 3, 10, 1, 0)

        def _load_dataset(self, split):
            example = tf.zeros([side, side, 3], tf.float32), tf.zeros([], tf.int32)
            return tf.data.Dataset.from_tensors(example)

    config = f"{checkout}/example_configs/dcgan_celeba64.gin"
    gin.parse_config_files_and_bindings([config], ["options.disc_iters = 1"])
    options = runner_lib.get_options_dict()
    gan = ModularGAN(dataset=Images(), parameters=options, model_dir="none")
    # Each step of the two networks takes a batch.
    hlo_table.write_step(path, slice_name, gan.model_fn, gan.input_fn, 2 * int(batch_size))


if __name__ == "__main__":
    write(*sys.argv[1:])
