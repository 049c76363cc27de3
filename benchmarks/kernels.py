"""Speed of a recipe with different environment variables, interleaved, medians.

    python -m benchmarks.kernels [--recipes=mnist_mlp,cifar10_cnn] [--rounds=3]
        [--setting="TF_ENABLE_ONEDNN_OPTS=0" --setting="TF_ENABLE_ONEDNN_OPTS=1 OMP_NUM_THREADS=1"]

Shows whether oneDNN's kernels, an instruction set or a number of threads is faster on this CPU.
Each round runs each setting in a child process: training on synthetic examples, a second
evaluation, and serving 1 and 32 examples. Prints medians, and the median ratio to the first setting
of the same round.
"""

from __future__ import annotations

import statistics
import tempfile

from absl import app, flags

from benchmarks.subprocesses import format_ratios, run_python

# Recipe -> (flags of its synthetic data, training steps, evaluation examples); a few seconds each.
RECIPES = {
    "mnist_mlp": (["--image_size=28x28"], 1500, 10_000),
    "mnist_cnn": (["--image_size=28x28"], 100, 3000),
    "cifar10_cnn": (["--image_size=32x32"], 40, 2000),
    "cifar10_resnet": (["--image_size=32x32"], 20, 1000),
    "multi30k_tiny": (["--synthetic_text=64x4096"], 20, 500),
}
SETTINGS = ["TF_ENABLE_ONEDNN_OPTS=0", "TF_ENABLE_ONEDNN_OPTS=1"]
# Measure -> (unit, whether a larger number is better).
MEASURES = {
    "train": ("examples/s", True),
    "evaluate": ("examples/s", True),
    "serve 1": ("ms", False),
    "serve 32": ("ms", False),
}

flags.DEFINE_list("recipes", list(RECIPES), "Recipes to run.")
flags.DEFINE_multi_string(
    "setting", SETTINGS, "Environment variables, NAME=VALUE separated by spaces; repeatable."
)
flags.DEFINE_integer("rounds", 3, "Rounds; each runs every setting once.")

CODE = """
import json, sys, time
from benchmarks import runs
from engine.evaluation.evaluator import Evaluator
from tools import runtimes, serving_equality

eval_examples, folder, *arguments = sys.argv[1:]
arguments += [f"--model_dir={folder}/model", "--noexport_check"]

sys.argv[1:] = [*arguments, "--mode=train"]
found = {"train": runs.run()["train"]["examples_per_second"]}

evaluation = "--mode=eval", f"--max_eval_examples={eval_examples}"
settings, estimator, input_fns = runs.build(*arguments, *evaluation)
evaluator = Evaluator(estimator, settings, input_fns)
evaluator.evaluate(settings.checkpoint)
started = time.time()
evaluator.evaluate(settings.checkpoint)
found["evaluate"] = int(eval_examples) / (time.time() - started)

exported = serving_equality.export_run(f"{folder}/export", *arguments)
served = runtimes.SavedModel(exported.path)
for count in (1, 32):
    inputs = {key: rows[:count] for key, rows in exported.requests["serving_default"].items()}
    repeats = max(3, int(1 / served.seconds(inputs, 3)))
    found[f"serve {count}"] = 1e3 * served.seconds(inputs, repeats)
print(json.dumps(found))
"""


def main(_):
    """Runs the rounds and prints a row per recipe, measure and setting."""
    settings = flags.FLAGS.setting
    for recipe in flags.FLAGS.recipes:
        rounds = [
            [_measure(recipe, setting) for setting in settings] for _ in range(flags.FLAGS.rounds)
        ]
        for measure, (unit, larger_is_better) in MEASURES.items():
            for i, setting in enumerate(settings):
                first, found = ([done[j][measure] for done in rounds] for j in (0, i))
                pair = (found, first) if larger_is_better else (first, found)
                print(
                    f"{recipe:16}{measure:10}{setting:44}{statistics.median(found):12,.2f} "
                    f"{unit:11}speed {format_ratios(*pair)}",
                    flush=True,
                )


def _measure(recipe, setting):
    """Returns `{measure: value}` of one child process."""
    data, steps, eval_examples = RECIPES[recipe]
    environment = dict(assignment.split("=", 1) for assignment in setting.split())
    with tempfile.TemporaryDirectory() as folder:
        return run_python(
            CODE,
            eval_examples,
            folder,
            f"--flagfile=configs/{recipe}.cfg",
            "--dataset=synthetic",
            *data,
            f"--train_steps={steps}",
            "--seed=1",
            "--augment=",
            "--best_metric=",
            "--early_stop_evals=0",
            "--eval_split=test",
            "--predict_batch_size=32",
            "--save_checkpoints_steps=1000000",
            environment=environment,
        )


if __name__ == "__main__":
    app.run(main)
