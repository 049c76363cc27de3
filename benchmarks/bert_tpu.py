"""Modeled TPU step time of BERT-base pre-training: ours, google-research/bert, tf-models-official.

    python -m benchmarks.bert_tpu --bert_checkout=DIR [--peers_python=peers/bin/python]
        [--shapes=32x128,8x512] [--topologies=v3-8]

By the TPU compiler with full effort, for one core: the unchanged `run_pretraining.py` of
google-research/bert in float32, ours in float32 and bfloat16, and with --peers_python (see
`bert_speed`) the encoder and the masked language model of tf-models-official in both. All predict
15 % of the tokens, with dropout 0.1, BERT's AdamW and gradient clipping. The estimate excludes
all-reduces, infeed, gathers, scatters and random bits. Needs libtpu (docs/check.md), no TPU. Takes
20 minutes.
"""

from __future__ import annotations

import math
import tempfile

from absl import app, flags

from benchmarks import hlo_table
from benchmarks.subprocesses import run_python
from tpu.connect import topology

flags.DEFINE_string("bert_checkout", None, "Checkout of google-research/bert.", required=True)
flags.DEFINE_string("peers_python", "", "Python with tf-models-official.")
flags.DEFINE_list("shapes", ["32x128", "8x512"], "Rows per core x tokens per row.")
flags.DEFINE_list("topologies", ["v3-8"], "Slices to compile for.")

GOOGLE = """
import sys
path, slice_name, checkout, *sizes = sys.argv[1:]
batch_size, length, predictions = map(int, sizes)
from benchmarks import hlo_table
from tpu import tf1
tf1.install()
sys.path.insert(0, checkout)
import modeling, run_pretraining
import tensorflow.compat.v1 as tf
model_fn = run_pretraining.model_fn_builder(
    bert_config=modeling.BertConfig(vocab_size=30522),
    init_checkpoint=None,
    learning_rate=1e-4,
    num_train_steps=1000000,
    num_warmup_steps=10000,
    use_tpu=True,
    use_one_hot_embeddings=True,
)

def input_fn(params):
    sizes = dict.fromkeys(("input_ids", "input_mask", "segment_ids"), length)
    sizes.update(masked_lm_positions=predictions, masked_lm_ids=predictions, next_sentence_labels=1)
    zeros = {name: tf.zeros([params["batch_size"], size], tf.int32) for name, size in sizes.items()}
    zeros["masked_lm_weights"] = tf.zeros([params["batch_size"], predictions])
    return tf.data.Dataset.from_tensors(zeros).repeat()

hlo_table.write_step(path, slice_name, model_fn, input_fn, batch_size)
print("null")
"""

OFFICIAL = """
import sys
import tensorflow as tf
from official.modeling.optimization.legacy_adamw import AdamWeightDecay
from official.nlp.modeling import layers, networks
path, precision, *sizes = sys.argv[1:]
batch_size, length, predictions = map(int, sizes)
if precision == "bfloat16":
    tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")
encoder = networks.BertEncoder(
    30522, max_sequence_length=512, type_vocab_size=2, dict_outputs=True
)
gelu = tf.keras.activations.gelu
masked_lm = layers.MaskedLM(encoder.get_embedding_table(), lambda x: gelu(x, approximate=True))
next_sentence = tf.keras.layers.Dense(2)
names = ("input_word_ids", "input_mask", "input_type_ids")
specs = [tf.TensorSpec([batch_size, length], tf.int32)] * 3
specs += [tf.TensorSpec([batch_size, predictions], tf.int32)] * 3
specs += [tf.TensorSpec([batch_size], tf.int32)]
cross_entropy = tf.nn.sparse_softmax_cross_entropy_with_logits

def forward(*batch):
    outputs = encoder(dict(zip(names, batch)), training=True)
    positions, ids, weights, labels = batch[3:]
    weights = tf.cast(weights, tf.float32)
    logits = tf.cast(masked_lm(outputs["sequence_output"], positions), tf.float32)
    losses = cross_entropy(labels=ids, logits=logits)
    pair = tf.cast(next_sentence(outputs["pooled_output"]), tf.float32)
    loss = tf.reduce_mean(cross_entropy(labels=labels, logits=pair))
    return loss + tf.reduce_sum(losses * weights) / tf.reduce_sum(weights)

forward(*(tf.ones(spec.shape, spec.dtype) for spec in specs))  # builds the layers
variables = encoder.trainable_variables + masked_lm.trainable_variables
variables += next_sentence.trainable_variables
variables = list({variable.ref(): variable for variable in variables}.values())
optimizer = AdamWeightDecay(
    1e-4,
    weight_decay_rate=0.01,
    epsilon=1e-6,
    gradient_clip_norm=1.0,
    exclude_from_weight_decay=["layer_norm", "LayerNorm", "bias"],
)
optimizer._create_all_weights(variables)

@tf.function(jit_compile=True)
def step(*batch):
    with tf.GradientTape() as tape:
        loss = forward(*batch)
    gradients = map(tf.convert_to_tensor, tape.gradient(loss, variables))
    optimizer.apply_gradients(zip(gradients, variables))
    return loss

with open(path, "wb") as file:
    file.write(step.experimental_get_compiler_ir(*specs)(stage="hlo_serialized"))
print("null")
"""


def main(_):
    """Prints a row per shape, generation and program."""
    wanted = flags.FLAGS
    print(hlo_table.HEADER)
    with tempfile.TemporaryDirectory() as folder:
        for shape in wanted.shapes:
            for name in wanted.topologies:
                programs = _write(folder, name, *map(int, shape.split("x")))
                hlo_table.print_rows(f"BERT-base {shape}", topology.find(name), programs)


def _write(folder, slice_name, batch_size, length):
    """Writes the HLO of all programs; returns `{name: path}`."""
    sizes = batch_size, length, math.ceil(0.15 * length)
    programs = {}
    for precision in ("bfloat16", "float32"):
        programs[f"ours, {precision}"] = path = f"{folder}/ours_{precision}"
        run_python(
            hlo_table.OURS,
            path,
            slice_name,
            "train",
            "--model=bert_base_pretraining",
            f"--precision={precision}",
            "--synthetic_task=pretraining",
            f"--synthetic_text={length}x30522",
            f"--train_batch_size={batch_size * topology.find(slice_name).num_cores}",
            "--train_steps=1000000",
            "--params=optimizer=bert_adamw,weight_decay=0.01,epsilon=1e-6,clip_norm=1",
        )
    programs["google-research/bert"] = path = f"{folder}/google"
    run_python(GOOGLE, path, slice_name, flags.FLAGS.bert_checkout, *sizes)
    if flags.FLAGS.peers_python:
        for precision in ("bfloat16", "float32"):
            programs[f"tf-models-official, {precision}"] = path = f"{folder}/official_{precision}"
            run_python(OFFICIAL, path, precision, *sizes, python=flags.FLAGS.peers_python)
    return programs


if __name__ == "__main__":
    app.run(main)
