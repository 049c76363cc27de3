"""A training step of the Transformer base of tf-models-official (`Seq2SeqTransformer`)."""

from __future__ import annotations

import tensorflow as tf
from official.legacy.transformer import metrics
from official.nlp.modeling.models import seq2seq_transformer

LABEL_SMOOTHING, DROPOUT = 0.1, 0.1


def build_step(batch_size, length, vocab_size):
    """Returns (step, specs): a `tf.function` compiled with XLA, and the specs of its arguments.

    The network of `TranslationTask` with its loss, in the sizes of the paper, without dropout of
    attention weights. It masks padding, but does not know packed rows.

    Args:
      batch_size: rows per step.
      length: tokens of a row.
      vocab_size: shared by source and target.
    """
    dropouts = {"dropout_rate": DROPOUT, "intermediate_dropout": DROPOUT}
    model = seq2seq_transformer.Seq2SeqTransformer(
        vocab_size,
        dropout_rate=DROPOUT,
        encoder_layer=seq2seq_transformer.TransformerEncoder(**dropouts),
        decoder_layer=seq2seq_transformer.TransformerDecoder(**dropouts),
    )
    optimizer = tf.keras.optimizers.Adam(0.001, beta_2=0.98)
    specs = [tf.TensorSpec([batch_size, length], tf.int32)] * 2
    model({"inputs": tf.ones([1, length], tf.int32), "targets": tf.ones([1, length], tf.int32)})
    optimizer.build(model.trainable_variables)

    @tf.function(jit_compile=True)
    def step(source, target):
        with tf.GradientTape() as tape:
            logits = model({"inputs": source, "targets": target}, training=True)
            loss = metrics.transformer_loss(logits, target, LABEL_SMOOTHING, vocab_size)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    return step, specs
