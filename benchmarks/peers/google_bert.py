"""Writes the HLO of a pre-training step of google-research/bert; run by `tpu_peers`.

    python -m benchmarks.peers.google_bert HLO_FILE BATCH_PER_CORE SLICE CHECKOUT LENGTH [large]

The model_fn of the unchanged `run_pretraining.py` in float32; 15 % of the tokens are predicted.
"""

from __future__ import annotations

import math
import sys

from benchmarks import hlo_table
from tpu import tf1

_LARGE = {
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
}


def main(path, batch_size, slice_name, checkout, length, size="base"):
    """Writes the program of one core."""
    tf1.install()
    sys.path.insert(0, checkout)
    import modeling
    import run_pretraining
    import tensorflow.compat.v1 as tf

    model_fn = run_pretraining.model_fn_builder(
        bert_config=modeling.BertConfig(30522, **(_LARGE if size == "large" else {})),
        init_checkpoint=None,
        learning_rate=1e-4,
        num_train_steps=1000000,
        num_warmup_steps=10000,
        use_tpu=True,
        use_one_hot_embeddings=True,
    )
    length = int(length)
    predictions = math.ceil(0.15 * length)

    def input_fn(params):
        sizes = dict.fromkeys(("input_ids", "input_mask", "segment_ids"), length)
        sizes.update(masked_lm_positions=predictions, masked_lm_ids=predictions)
        sizes["next_sentence_labels"] = 1
        rows = params["batch_size"]
        zeros = {name: tf.zeros([rows, size], tf.int32) for name, size in sizes.items()}
        zeros["masked_lm_weights"] = tf.zeros([rows, predictions])
        return tf.data.Dataset.from_tensors(zeros).repeat()

    hlo_table.write_step(path, slice_name, model_fn, input_fn, int(batch_size))


if __name__ == "__main__":
    main(*sys.argv[1:])
