"""Memory of a training step of each recipe on TPU slices, by the TPU compiler, as a table.

    python -m benchmarks.recipe_memory [--slices=v5e-8,v5p-8,v6e-8] [RECIPE ...] [FLAG ...]

Checks each recipe of configs/ that is not for a larger slice, like run_tpu.py --mode=check but only
the training, on random data with the shapes of its data set. FLAGs are those of run_tpu.py. Needs
the TPU compiler (pip install libtpu==0.0.34), no TPU. Takes two hours on two idle cores.
"""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import sys

from benchmarks.subprocesses import ROOT

_SLICES = "v5e-8,v5p-8,v6e-8"
_RECIPES = ROOT / "configs"
# The number of values of each category in 7 days of Criteo's logs.
_CRITEO = (
    *(1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194, 27),
    *(14992, 5461306, 10, 5652, 2173, 4, 7046547, 18, 15, 286181, 105, 142572),
)


def _images(size, classes=10):
    return [f"--image_size={size}", f"--synthetic_classes={classes}"]


def _annotated(task, classes):
    return [f"--synthetic_task={task}", f"--synthetic_classes={classes}"]


def _texts(task, max_length):
    return [f"--synthetic_task={task}", f"--synthetic_text={max_length}x30522"]


# Flags of random data with the shapes of a data set. Recipes set other image sizes themselves.
_DATA = {
    "apple_leaf": ["--synthetic_classes=4"],
    "bccd": _annotated("detection", 3),
    "camvid": _annotated("segmentation", 11),
    "cifar10": _images(32),
    "cityscapes": _annotated("segmentation", 19),
    "coco": _annotated("detection", 80),
    "coco_instances": _annotated("instance_segmentation", 80),
    "cola": _texts("classification", 48),
    "criteo": ["--synthetic_task=clicks", f"--synthetic_tables={','.join(map(str, _CRITEO))}"],
    "digits": _images(8),
    "fashion_mnist": _images(28),
    "fsdd": ["--synthetic_audio=8000,12000", "--synthetic_classes=10"],
    "fsdd_digits": ["--synthetic_audio=8000,48000,11,7"],
    "imagenet": [],
    "imdb": _texts("classification", 256),
    "librispeech": ["--synthetic_audio=16000,256000,29,400"],
    "mnist": _images(28),
    "movielens": ["--synthetic_task=ratings", "--synthetic_tables=943,1682"],
    "multi30k": ["--synthetic_text=64x8192", "--best_metric="],
    "people": _annotated("instance_segmentation", 2),  # the fewest that are random
    "pretraining_text": _texts("pretraining", 128),
    "shapes": _annotated("detection", 2),
    "shapes_instances": _annotated("instance_segmentation", 2),
    "squad": _texts("squad", 384),
    "sst2": _texts("classification", 64),
    "synthetic": [],
    "tinyshakespeare": ["--synthetic_task=language_model", "--synthetic_text=64x65"],
    "trec": _texts("classification", 40),
    "wmt14": ["--synthetic_text=128x32768", "--best_metric="],
}

# Prints the report of a check of the training on each slice as a line of JSON.
_CHECK = """
import json, sys
import tensorflow as tf
import run_tpu
from engine.cli import resolve_flags, runtime
from engine.cli.flags import FLAGS
from tpu.check import check_program, to_json
from tpu.connect import connection, topology

runtime.prepare()
slices, *arguments = sys.argv[1:]
FLAGS(["run_tpu", f"--tpu_topology={slices.split(',')[0]}", "--model_dir=none", *arguments])
settings, state = resolve_flags.resolve(iterations_per_loop=10, use_tpu=True)
resolver = tf.distribute.cluster_resolver.TPUClusterResolver("local")
input_fns = {"train": run_tpu.build_input_fns(settings).train(0)}
for found in map(topology.find, slices.split(",")):
    estimator = run_tpu.build_estimator(settings, state, connection.Connection(found, resolver))
    report = check_program(estimator, input_fns, found)
    print(json.dumps(json.loads(to_json(report))), flush=True)
"""


def data_flags(recipe: pathlib.Path) -> list[str]:
    """Returns the flags that give a recipe random data with the shapes of its data set."""
    (dataset,) = re.findall(r"(?m)^--dataset=(.*)", recipe.read_text())
    data = list(_DATA[dataset])
    if recipe.stem.startswith("bert_base_pretraining_512"):
        data[-1] = data[-1].replace("=128x", "=512x")
    return ["--dataset=synthetic", *data, "--eval_split=test"]


def row(recipe: pathlib.Path, slices: list[str], *more: str) -> str:
    """Returns the row of a recipe with a cell per slice; `more` are flags of run_tpu.py."""
    given = [f"--flagfile={recipe}", *data_flags(recipe), *more]
    command = [sys.executable, "-c", _CHECK, ",".join(slices), *given]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    reports = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if len(reports) < len(slices):
        reason = (done.stderr.strip().splitlines() or ["no error message"])[-1]
        return f"| `{recipe.stem}` | failed with status {done.returncode}: {reason} |"
    cells = [f"`{' '.join([recipe.stem, *more])}`", *map(_cell, reports)]
    return f"| {' | '.join(cells)} |"


def _cell(report):
    """Returns the examples per device and their memory, or the first error."""
    errors = [found for found in report["findings"] if found["level"] == "error"]
    if errors:
        return f"**{errors[0]['code']}**: {errors[0]['message']}"
    train = report["modes"]["train"]
    if not train["compiled"]:
        return f"not compiled: {'; '.join(report['not_checked'])}"
    memory = train["compiled"]["memory"]["peak"] / 2**20
    warnings = sorted({found["code"] for found in report["findings"] if found["code"] == "hbm"})
    percent = 100 * memory / 2**10 / report["topology"]["hbm_gib"]
    warning = " (!)" if warnings else ""
    return f"{train['batch_size']}: {memory:,.0f} MiB ({percent:.0f} %){warning}"


def main(arguments: list[str]) -> None:
    """Prints the table."""
    slices, names, more = _SLICES, [], []
    for argument in arguments:
        if argument.startswith("--slices="):
            slices = argument.partition("=")[2]
        else:
            (more if argument.startswith("-") else names).append(argument)
    slices = slices.split(",")
    recipes = (path.stem for path in sorted(_RECIPES.glob("*.cfg")))
    names = names or [name for name in recipes if not name.endswith("-32")]
    print(f"| recipe | {' | '.join(slices)} |\n|{'---|' * (1 + len(slices))}", flush=True)
    for name in names:
        print(row(_RECIPES / f"{name}.cfg", slices, *more), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
