"""Writes the HLO of a step of run_tpu.py for one core, unoptimized.

    python -m benchmarks.our_step HLO_FILE SLICE train|eval|infer FLAGS

FLAGS are those of run_tpu.py; the data are random.
"""

from __future__ import annotations

import sys

import tensorflow as tf

import run_tpu
from benchmarks import hlo_table
from engine.cli import resolve_flags, runtime
from engine.cli.flags import FLAGS
from tpu.connect import connection, topology


def main(path, slice_name, mode, *arguments):
    """Writes the program."""
    runtime.prepare()
    arguments = (*arguments, "--dataset=synthetic", "--eval_split=test", "--best_metric=")
    FLAGS(["run_tpu", f"--tpu_topology={slice_name}", "--model_dir=none", *arguments])
    settings, state = resolve_flags.resolve(iterations_per_loop=10, use_tpu=True)
    found = topology.find(slice_name)
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver("local")
    estimator = run_tpu.build_estimator(settings, state, connection.Connection(found, resolver))
    input_fns = run_tpu.build_input_fns(settings)
    of_mode = {
        "train": lambda: input_fns.train(0),
        "eval": lambda: input_fns.evaluate("test"),
        "infer": lambda: input_fns.predict,
    }
    hlo_table.lower(path, estimator, of_mode[mode](), mode, found)


if __name__ == "__main__":
    main(*sys.argv[1:])
