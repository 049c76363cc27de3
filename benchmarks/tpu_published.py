"""Modeled throughput of public programs beside what was published of them on TPU hardware.

    python -m benchmarks.tpu_published --tpu_checkout=DIR --bert_checkout=DIR
        --flax_python=flax/bin/python

Each program is compiled once for a core, with full effort; a slice adds its all-reduce. Infeed and
host are left out. The programs are those of the publication, as far as they are public:

    resnet       tensorflow/tpu's `resnet_main.py` and ResNet-50 in Flax, bfloat16, 128 images
    bert_base    google-research/bert in float32: 900,000 steps of 128 tokens and 100,000 of 512
    bert_large   the same; its optimizer is AdamW, that of You et al. is LAMB

Needs libtpu (docs/check.md), no TPU. A program takes 3 to 8 minutes.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Mapping

from absl import app, flags

from benchmarks import hlo_table
from benchmarks.published import BERT_LARGE, RESNET50_FLAX
from benchmarks.tpu_programs import Peer
from tpu.check.cost import MEASURED_PER_MODELED
from tpu.check.links import all_reduce_seconds
from tpu.connect import topology

flags.DEFINE_list("figures", ["resnet", "bert_base", "bert_large"], "Programs.")


@dataclasses.dataclass(frozen=True)
class Figure:
    """A program and what was published of it.

    Attributes:
      name: of the program.
      slice_name: a slice of its generation, to compile for.
      batch_per_core: examples of a step of a core.
      kinds: `[(share of the steps, program)]`.
      published: `{slice: (examples/s, source)}`.
    """

    name: str
    slice_name: str
    batch_per_core: int
    kinds: tuple[tuple[float, Peer], ...]
    published: Mapping[str, tuple[float, str]]


def _bert(size):
    return tuple(
        (share, Peer("google_bert", ("{slice}", "{bert_checkout}", str(length), size)))
        for share, length in ((0.9, 128), (0.1, 512))
    )


_FOUR_DAYS = 4 * 24 * 3600 / 1e6  # a step of a million: Devlin et al. 2018, arXiv:1810.04805, A.2
_YOU = "You et al. 2019, arXiv:1904.00962, table 1"
FIGURES = {
    "resnet": (
        Figure(
            "tensorflow/tpu, ResNet-50",
            "v2-8",
            128,
            ((1.0, Peer("tensorflow_tpu_resnet", ("{slice}", "{tpu_checkout}"))),),
            {"v2-8": (3186, "a comparison by RiseML, 2018")},
        ),
        Figure(
            "Flax, ResNet-50",
            "v3-8",
            128,
            ((1.0, Peer("flax_resnet", (), "{flax_python}")),),
            {n: (r, "Flax' ImageNet example") for n, r in RESNET50_FLAX.items()},
        ),
    ),
    "bert_base": (
        Figure(
            "google-research/bert, BERT-base",
            "v2-8",
            8,
            _bert("base"),
            {"v2-32": (256 / _FOUR_DAYS, "Devlin et al. 2018, arXiv:1810.04805, A.2")},
        ),
    ),
    "bert_large": (
        Figure(
            "google-research/bert, BERT-large",
            "v3-8",
            16,
            _bert("large"),
            {name: (rate, _YOU) for name, rate in BERT_LARGE.items()},
        ),
    ),
}


def main(_):
    """Prints a row per published figure."""
    print(
        "| program | slice | step of a core | by bytes | all-reduce | examples/s | published | "
        "modeled / published | expected / published | source |"
    )
    print(f"|{' --- |' * 10}")
    with tempfile.TemporaryDirectory() as folder:
        for figure in (each for name in flags.FLAGS.figures for each in FIGURES[name]):
            if all(program.is_available for _, program in figure.kinds):
                try:
                    _print(figure, f"{folder}/program")
                except RuntimeError as error:  # such as a step that does not fit
                    print(f"{figure.name}: {error}", flush=True)


def _print(figure, path):
    seconds = moved = num_bytes = 0.0
    compiled_for = topology.find(figure.slice_name)
    for share, program in figure.kinds:
        program.write(path, figure.slice_name, figure.batch_per_core)
        time, _ = hlo_table.compile_step(path, compiled_for)
        seconds += share * time.compiler_seconds
        moved += share * time.moved_seconds
        num_bytes += share * hlo_table.all_reduce_bytes(path)
    for name, (published, source) in figure.published.items():
        found = topology.find(name)
        all_reduce = all_reduce_seconds(num_bytes, found)
        rate = figure.batch_per_core * found.num_cores / (seconds + moved + all_reduce)
        print(
            f"| {figure.name} | {name} | {seconds * 1e3:.1f} ms | {moved * 1e3:.1f} ms | "
            f"{all_reduce * 1e3:.1f} ms | {rate:,.0f} | {published:,.0f} | "
            f"{rate / published:.2f} | {rate / MEASURED_PER_MODELED / published:.2f} | {source} |",
            flush=True,
        )


if __name__ == "__main__":
    app.run(main)
