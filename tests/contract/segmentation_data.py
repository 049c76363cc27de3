"""Writes the files that the case `segmentation` reads."""

import numpy as np

HEIGHT, WIDTH = 7, 9
IGNORED = 255


def write_images(folder):
    """Writes train.npz and test.npz: the color of a pixel is its class, some pixels have none."""
    random = np.random.default_rng(1)
    for name, size in (("train", 97), ("test", 41)):
        classes = random.choice(3, [size, HEIGHT, WIDTH], p=[0.7, 0.2, 0.1]).astype(np.uint8)
        images = random.integers(0, 150, [size, HEIGHT, WIDTH, 3], dtype=np.uint8)
        images += (100 * np.eye(3)[classes]).astype(np.uint8)
        # The share of ignored pixels differs between images; the first image has no others.
        is_ignored = random.random(classes.shape) < random.random([size, 1, 1])
        is_ignored[0] = True
        np.savez(folder / f"{name}.npz", image=images, classes=np.where(is_ignored, 255, classes))
