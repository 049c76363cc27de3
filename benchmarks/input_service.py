"""CPU time of a training's host for its input: read locally, and from a tf.data service.

    python -m tools.data_service --host=127.0.0.1 --port=5050 &
    python -m benchmarks.input_service DATA_DIR grpc://127.0.0.1:5050 [ADDRESS ...]

DATA_DIR is a data set of images with classes. Images are cropped to 224x224 at random and flipped.
Prints the CPU time of the training's process per image, the median of 5 interleaved rounds.
"""

from __future__ import annotations

import statistics
import sys
import time

import tensorflow as tf

from benchmarks.subprocesses import interleave
from engine.cli import runtime
from input_fns import dataset_info
from input_fns.core import data_service
from input_fns.image import augment
from input_fns.image.image_pipeline import ImagePipeline

_BATCH, _WARM_UP, _BATCHES, _ROUNDS = 32, 20, 60, 5


def milliseconds(input_fn) -> float:
    """Returns the CPU time of this process per image."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        iterator = tf.compat.v1.data.make_initializable_iterator(input_fn({"batch_size": _BATCH}))
        pull = session.make_callable(tf.group(*tf.nest.flatten(iterator.get_next())))
        session.run(iterator.initializer)
        for _ in range(_WARM_UP):
            pull()
        started = time.process_time()
        for _ in range(_BATCHES):
            pull()
        return 1e3 * (time.process_time() - started) / (_BATCHES * _BATCH)


def main(data_dir: str, *addresses: str) -> None:
    """Prints the two times and their ratio in each round."""
    runtime.prepare()
    words = augment.parse("resize_crop:0.08 flip")
    pipeline = ImagePipeline(dataset_info.read(data_dir), (224, 224), words, cache="none")
    local = pipeline.train_input_fn("train", seed=1)
    served = data_service.distribute(local, addresses)
    sides = {"read locally": lambda: milliseconds(local)}
    sides[f"{len(addresses)} workers"] = lambda: milliseconds(served)
    times = interleave(sides, _ROUNDS)
    for name, found in times.items():
        print(f"{name}: {statistics.median(found):.3f} ms of CPU per image")
    ratios = sorted(a / b for a, b in zip(*times.values()))
    print(f"ratio: {statistics.median(ratios):.1f} ({ratios[0]:.1f} to {ratios[-1]:.1f})")


if __name__ == "__main__":
    main(*sys.argv[1:])
