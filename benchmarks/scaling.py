"""Predicted training throughput of ResNet-50 and BERT-large on slices of one host to a pod.

    python -m benchmarks.scaling [--workloads=resnet50,bert_large] [--plot=docs/scaling.svg]
        [--slices=v5e-8,v5e-256]

For each slice: the time of a step on one core by the TPU compiler with full effort, plus that of
the all-reduce of the gradients by `tpu.check.links`. Nothing overlaps, and infeed and host are
left out: the last columns say what a host has to deliver. The batch per core is constant up to the
largest batch of a published training. Needs libtpu (docs/check.md), no TPU; the plot needs
matplotlib. Takes 40 minutes.
"""

from __future__ import annotations

import dataclasses
import math
import os
import tempfile

from absl import app, flags

from benchmarks import hlo_table
from benchmarks.published import BERT_LARGE, RESNET50_FLAX
from benchmarks.subprocesses import run_module
from tpu.check.cost import MEASURED_PER_MODELED
from tpu.check.links import all_reduce_seconds
from tpu.connect import topology

flags.DEFINE_list("workloads", ["resnet50", "bert_large"], "Workloads.")
flags.DEFINE_string("plot", "", "File for a plot of the throughput, of one generation.")
flags.DEFINE_list("slices", "", "Slices, the smallest of each generation first; default: all v3.")

EFFICIENT = 0.8  # of linear scaling


@dataclasses.dataclass(frozen=True)
class Workload:
    """A training.

    Attributes:
      arguments: flags of run_tpu.py.
      kinds: `[(share of the steps, flags of these steps)]`.
      batch_per_core: rows per core, on slices where the global batch is not the limit.
      largest_batch: largest global batch with published accuracy.
      epoch: rows of an epoch; 0 if there is no evaluation.
      eval_rows: rows of an evaluation.
      published: `{slice: rows/s}`.
    """

    arguments: list[str]
    kinds: list[tuple[float, list[str]]]
    batch_per_core: int
    largest_batch: int
    epoch: int
    eval_rows: int
    published: dict[str, float]


WORKLOADS = {
    # 1.05 million: Ying et al. 2018,
    # arXiv:1811.06992, whose largest batch is 32,768.
    "resnet50": Workload(
        [
            "--flagfile=configs/imagenet_resnet50_v3-32.cfg",
            "--image_size=224x224",
            "--synthetic_classes=1000",
        ],
        [(1.0, [])],
        batch_per_core=128,
        largest_batch=32_768,
        epoch=1_281_167,
        eval_rows=50_000,
        published={**RESNET50_FLAX, "v3-2048": 1.05e6},
    ),
    "bert_large": Workload(
        [
            "--model=bert_large_pretraining",
            "--precision=bfloat16",
            "--synthetic_task=pretraining",
            "--train_steps=1000000",
            "--params=optimizer=lamb,weight_decay=0.01,clip_norm=1",
        ],
        [(0.9, ["--synthetic_text=128x30522"]), (0.1, ["--synthetic_text=512x30522"])],
        batch_per_core=16,
        largest_batch=32_768,
        epoch=0,
        eval_rows=0,
        published=BERT_LARGE,
    ),
}


@dataclasses.dataclass(frozen=True)
class Prediction:
    """Training on a slice: global batch and rows/s, seconds of a step and its all-reduce."""

    batch_size: int
    step: float
    all_reduce: float

    @property
    def rate(self) -> float:
        """Rows/s, at most."""
        return self.batch_size / (self.step + self.all_reduce)

    @property
    def expected_rate(self) -> float:
        """Rows/s of a training, about, as trainings were published."""
        return self.rate / MEASURED_PER_MODELED


def main(_):
    """Prints a table per workload."""
    if flags.FLAGS.plot:
        import matplotlib.pyplot  # noqa: F401, fails before the work
    slices = flags.FLAGS.slices or [name for name in topology.names() if name.startswith("v3-")]
    generations = dict.fromkeys(topology.find(name).generation for name in slices)
    predicted = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in flags.FLAGS.workloads:
            workload = WORKLOADS[name]
            for generation in generations:
                of_it = [s for s in slices if topology.find(s).generation == generation]
                measured = _Steps(workload, of_it[0], os.path.join(folder, name))
                predicted[name] = {found: _predict(workload, measured, found) for found in of_it}
                _print(name, workload, predicted[name])
                if workload.eval_rows:
                    _print_evaluation(workload, measured, predicted[name], of_it[0])
    if flags.FLAGS.plot:
        _plot(predicted, flags.FLAGS.plot)


class _Steps:
    """Steps of a core of a slice, compiled once for each batch per core."""

    def __init__(self, workload, slice_name, path):
        self._workload, self._path, self._found = workload, path, {}
        self._slice = topology.find(slice_name)

    def train(self, batch_per_core):
        """Returns `(seconds of a step, bytes of its all-reduces)`, means over the kinds."""
        if batch_per_core not in self._found:
            steps = [
                (share, *self._compile("train", batch_per_core, arguments))
                for share, arguments in self._workload.kinds
            ]
            seconds = sum(share * seconds for share, seconds, _ in steps)
            self._found[batch_per_core] = seconds, sum(share * size for share, _, size in steps)
        return self._found[batch_per_core]

    def evaluate(self, batch_per_core):
        """Returns the seconds of an evaluation step."""
        return self._compile("eval", batch_per_core, self._workload.kinds[0][1])[0]

    def _compile(self, mode, batch_per_core, arguments):
        found = self._slice
        batch_size = batch_per_core * found.num_cores
        arguments = [
            *self._workload.arguments,
            *arguments,
            f"--train_batch_size={batch_size}",
            f"--eval_batch_size={batch_size}",
        ]
        run_module("our_step", self._path, found.name, mode, *arguments)
        time, _ = hlo_table.compile_step(self._path, found)
        return time.seconds, hlo_table.all_reduce_bytes(self._path)


def _predict(workload, measured, slice_name):
    found = topology.find(slice_name)
    cores = found.num_cores
    batch_size = min(workload.batch_per_core * cores, workload.largest_batch)
    step, num_bytes = measured.train(batch_size // cores)
    return Prediction(batch_size, step, all_reduce_seconds(num_bytes, found))


def _print(name, workload, predictions):
    print(f"\n{name}\n")
    print(
        "| slice | global batch | per core | step of a core | all-reduce | rows/s | of linear | "
        "rows/s per host | expected | published | expected / published |"
    )
    print(f"|{' --- |' * 11}")
    per_core = {
        found: predictions[found].rate / topology.find(found).num_cores for found in predictions
    }
    smallest = next(iter(per_core.values()))
    for slice_name, found in predictions.items():
        place = topology.find(slice_name)
        published = workload.published.get(slice_name)
        print(
            f"| {slice_name} | {found.batch_size:,} | {found.batch_size // place.num_cores} | "
            f"{found.step * 1e3:.1f} ms | {found.all_reduce * 1e3:.2f} ms | {found.rate:,.0f} | "
            f"{per_core[slice_name] / smallest:.2f} | {found.rate / place.num_hosts:,.0f} | "
            f"{found.expected_rate:,.0f} | "
            + (
                f"{published:,.0f} | {found.expected_rate / published:.2f} |"
                if published
                else "| |"
            )
        )
    scales = [found for found in predictions if per_core[found] >= EFFICIENT * smallest]
    print(f"\nAt least {EFFICIENT:.0%} of linear scaling up to {scales[-1]}.")


def _print_evaluation(workload, measured, predictions, slice_name):
    found = topology.find(slice_name)
    steps = math.ceil(workload.eval_rows / (workload.batch_per_core * found.num_cores))
    seconds = steps * measured.evaluate(workload.batch_per_core)
    print(
        f"\nAn evaluation of {workload.eval_rows:,} rows on a {slice_name} takes {seconds:.2f} s; "
        "an epoch"
    )
    for slice_name, prediction in predictions.items():
        epoch = workload.epoch / prediction.rate
        print(f"    {slice_name:8}{epoch:8.2f} s, {epoch / seconds:6.1f} evaluations")


def _plot(predicted, path):
    import matplotlib.pyplot as plt

    figure, plots = plt.subplots(1, len(predicted), figsize=(5.5 * len(predicted), 4.5))
    for plot, (name, predictions) in zip(
        [plots] if len(predicted) == 1 else plots, predicted.items()
    ):
        cores = {found: topology.find(found).num_cores for found in predictions}
        rates = [prediction.rate for prediction in predictions.values()]
        published = WORKLOADS[name].published
        first = rates[0] / next(iter(cores.values()))
        plot.plot(cores.values(), [first * n for n in cores.values()], "--", label="linear")
        plot.plot(cores.values(), rates, marker="o", label="predicted")
        known = [cores[found] for found in published]
        plot.plot(known, published.values(), "s", label="published, on hardware")
        plot.set_xscale("log", base=2)
        plot.set_yscale("log")
        plot.set_xlabel("cores")
        plot.set_ylabel("examples/s")
        plot.set_title(name)
        plot.grid(alpha=0.3)
        plot.legend()
    figure.tight_layout()
    figure.savefig(path)


if __name__ == "__main__":
    app.run(main)
