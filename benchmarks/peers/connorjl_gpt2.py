"""Writes the HLO of a training step of ConnorJL/GPT2; run by `tpu_peers`.

    python -m benchmarks.peers.connorjl_gpt2 HLO_FILE BATCH_PER_CORE SLICE CHECKOUT LENGTH

The model_fn of the unchanged program with its `117M.json` and `"precision": "bfloat16"`, which
stores the weights and the slots of Adam in bfloat16, too.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import models
from benchmarks import hlo_table
from tpu import tf1


def main(path, batch_size, slice_name, checkout, length):
    """Writes the program of one core."""
    tf1.install()
    sys.path.insert(0, checkout)
    models.__path__.append(f"{checkout}/models")  # it has a package of the same name
    import model_fns
    import tensorflow.compat.v1 as tf

    params = json.loads(Path(checkout, "117M.json").read_text())
    params.update(n_ctx=int(length), precision="bfloat16", use_tpu=True)

    def input_fn(params):
        rows = tf.zeros([params["batch_size"], params["n_ctx"]], tf.int32)
        return tf.data.Dataset.from_tensors((rows, rows)).repeat()

    hlo_table.write_step(path, slice_name, model_fns.gpt2_model, input_fn, int(batch_size), params)


if __name__ == "__main__":
    main(*sys.argv[1:])
