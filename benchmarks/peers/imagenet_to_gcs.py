"""Runs tools/datasets/imagenet_to_gcs.py of tensorflow/tpu, for `prepare_images`.

    PYTHON benchmarks/peers/imagenet_to_gcs.py CHECKOUT SOURCE OUTPUT NUM_SHARDS

SOURCE has train/CLASS/*.JPEG. The program is unchanged: its upload, which is off, needs no library
of Google Cloud, and it writes NUM_SHARDS shards instead of 1024, and no validation images.
"""

import pathlib
import sys
import types

CHECKOUT, SOURCE, OUTPUT, NUM_SHARDS = sys.argv[1:]


def main():
    """Writes the shards."""
    # Only the names that it imports and annotates.
    storage = types.ModuleType("google.cloud.storage")
    storage.Client = object
    cloud = types.ModuleType("google.cloud")
    cloud.storage = storage
    sys.modules.update({"google.cloud": cloud, "google.cloud.storage": storage})
    sys.path.insert(0, str(pathlib.Path(CHECKOUT, "tools", "datasets")))
    sys.path = [path for path in sys.path if path != str(pathlib.Path(__file__).parent)]
    import imagenet_to_gcs
    import tensorflow.compat.v1 as tf

    tf.disable_v2_behavior()
    imagenet_to_gcs.TRAINING_SHARDS = int(NUM_SHARDS)
    imagenet_to_gcs.VALIDATION_SHARDS = 1
    pathlib.Path(SOURCE, imagenet_to_gcs.LABELS_FILE).touch()  # of validation images
    imagenet_to_gcs.run(SOURCE, False, None, None, OUTPUT)


if __name__ == "__main__":
    main()
