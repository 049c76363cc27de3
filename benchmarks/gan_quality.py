"""Quality of GANs, beside real images, an untrained generator and noise, as a table.

    python -m benchmarks.gan_quality CLASSIFIER MODEL_DIR [MODEL_DIR ...]

CLASSIFIER is the folder of an exported classifier of the same images (--export_dir), the MODEL_DIRs
are runs of run_cpu.py, such as one per seed. All rows are judged against the test split: as many
training images, the images of each generator, those of a generator with initial weights, and
per-class Gaussian noise: pixels with the mean and the deviation of those of the class.
"""

from __future__ import annotations

import pathlib
import re
import statistics
import sys
import tempfile

from benchmarks.subprocesses import run_cpu, run_python

_METRICS = ("frechet_distance", "precision", "recall", "class_accuracy")
_NEIGHBORS = 3  # k of precision and recall, the default of the models
_SPLIT = "test"

# Judges training images and noise; prints the metrics of both as JSON.
_JUDGE = """
import json, sys
import numpy as np
from engine.cli import runtime
from input_fns import dataset_info
from input_fns.image.image_pipeline import ImagePipeline
from models.generation.sample_quality import SampleQuality

runtime.prepare()
path, data_dir, split, neighbors = sys.argv[1:]
pipeline = ImagePipeline(dataset_info.read(data_dir))

def examples(split, count):
    parts, left = [], count
    for features, labels in pipeline.host_examples(split, 1000):
        parts.append((features["image"][:left], labels[:left]))
        left -= len(parts[-1][0])
        if left <= 0:
            break
    return [np.concatenate(arrays) for arrays in zip(*parts)]

def judge(images, of_images):
    params = {"feature_network": path, "neighbors": int(neighbors)}
    metric = SampleQuality(params, has_classes=True)
    metric.update({"image": real}, of_images, {"image": images / 255})
    return metric.result()

count = pipeline.data.split(split).num_examples
real, labels = examples(split, count)
train, of_train = examples("train", min(count, pipeline.data.split("train").num_examples))
random, noise = np.random.default_rng(1), np.zeros(real.shape)
for number in range(pipeline.data.num_classes):
    images, rows = train[of_train == number].astype(float), labels == number
    if len(images) and rows.any():
        shape = noise[rows].shape
        noise[rows] = images.mean(0) + random.normal(size=shape) * images.std(0)
found = {"training images": judge(train, of_train), "noise": judge(np.clip(noise, 0, 255), labels)}
print(json.dumps(found))
"""


def main(classifier: str, *model_dirs: str) -> None:
    """Prints the table."""
    path = max(map(str, pathlib.Path(classifier).glob("[0-9]*")))
    flags = pathlib.Path(model_dirs[0], "flags.cfg").read_text()
    (data_dir,) = re.findall(r"(?m)^--data_dir=(.*)", flags)[-1:]
    rows = run_python(_JUDGE, path, data_dir, _SPLIT, _NEIGHBORS)
    judge = ["--mode=eval", f"--eval_split={_SPLIT}", f"--params=feature_network={path}"]
    with tempfile.TemporaryDirectory() as folder:
        start = [f"--flagfile={model_dirs[0]}/flags.cfg", f"--model_dir={folder}"]
        # A step that changes nothing makes a checkpoint of the initial weights.
        first = ["--mode=train", "--train_steps=1", "--params=learning_rate=1e-30,ema_decay=0"]
        run_cpu(*start, *first)
        found = run_cpu(*start, *judge, "--params=ema_decay=0")
        rows["untrained generator"] = found["eval"]
    for model_dir in model_dirs:
        run = f"--flagfile={model_dir}/flags.cfg", f"--model_dir={model_dir}"
        found = run_cpu(*run, *judge)
        rows[f"{model_dir}, step {found['step']}"] = found["eval"]
    if len(model_dirs) > 1:
        runs = list(rows.values())[-len(model_dirs) :]
        rows["mean"] = {name: statistics.mean(run[name] for run in runs) for name in _METRICS}
    print(f"| images | {' | '.join(_METRICS)} |\n|---|{'---|' * len(_METRICS)}")
    for name, row in rows.items():
        print(f"| {name} | {' | '.join(f'{row[metric]:.3f}' for metric in _METRICS)} |")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
