"""A pre-training step of BERT-base of tf-models-official."""

from __future__ import annotations

import math

import tensorflow as tf
from official.modeling.optimization.legacy_adamw import AdamWeightDecay
from official.nlp.modeling import layers, networks

VOCAB_SIZE, PREDICTED_SHARE = 30522, 0.15
NAMES = ("input_word_ids", "input_mask", "input_type_ids")


def build_step(batch_size, length):
    """Returns (step, specs): a `tf.function` compiled with XLA, and the specs of its arguments.

    The encoder, the masked language model and a layer for the next sentence, with BERT's AdamW and
    gradient clipping.

    Args:
      batch_size: rows per step.
      length: tokens of a row; `PREDICTED_SHARE` of them are predicted.
    """
    encoder = networks.BertEncoder(
        VOCAB_SIZE, max_sequence_length=512, type_vocab_size=2, dict_outputs=True
    )
    gelu = tf.keras.activations.gelu
    masked_lm = layers.MaskedLM(encoder.get_embedding_table(), lambda x: gelu(x, approximate=True))
    next_sentence = tf.keras.layers.Dense(2)
    predictions = math.ceil(PREDICTED_SHARE * length)
    specs = [tf.TensorSpec([batch_size, length], tf.int32)] * 3
    specs += [tf.TensorSpec([batch_size, predictions], tf.int32)] * 3
    specs += [tf.TensorSpec([batch_size], tf.int32)]

    def forward(*batch):
        cross_entropy = tf.nn.sparse_softmax_cross_entropy_with_logits
        outputs = encoder(dict(zip(NAMES, batch)), training=True)
        positions, ids, weights, labels = batch[3:]
        weights = tf.cast(weights, tf.float32)
        logits = tf.cast(masked_lm(outputs["sequence_output"], positions), tf.float32)
        losses = cross_entropy(labels=ids, logits=logits)
        pair = tf.cast(next_sentence(outputs["pooled_output"]), tf.float32)
        loss = tf.reduce_mean(cross_entropy(labels=labels, logits=pair))
        return loss + tf.reduce_sum(losses * weights) / tf.reduce_sum(weights)

    forward(*(tf.ones([1, *spec.shape[1:]], spec.dtype) for spec in specs))  # builds the layers
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

    return step, specs
