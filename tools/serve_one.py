"""Serves one prediction: loads the newest SavedModel of a folder and runs its sample image.

python tools/serve_one.py runs/digits/export
"""

import os
import sys
import warnings

# As in engine/cli/startup.py: of Google's API client, which TensorFlow imports if it is installed.
warnings.filterwarnings("ignore", category=FutureWarning, module=r"google\.")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402


def main(export_dir):
    """Prints the prediction for the sample image of the SavedModel."""
    names = tf.io.gfile.listdir(export_dir) if tf.io.gfile.isdir(export_dir) else []
    versions = [name.strip("/") for name in names if name.strip("/").isdigit()]
    if not versions:
        sys.exit(f"serve_one.py: error: {export_dir} has no exported version. Name an --export_dir")
    path = os.path.join(export_dir, max(versions, key=int))
    image = np.load(os.path.join(path, "assets.extra", "sample_image.npy"))[:1]
    serve = tf.saved_model.load(path).signatures["serving_default"]
    answer = {name: value.numpy()[0] for name, value in serve(image=tf.constant(image)).items()}
    name, probability = answer["class_names"].decode(), answer["probabilities"].max()
    print(f"served by {path}: the first test image is '{name}' (probability {probability:.3f})")


if __name__ == "__main__":
    main(*sys.argv[1:])
