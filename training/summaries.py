"""What TensorBoard shows: scalars and input images of training, the confusion matrix of evaluation.

The loss and its curve are written by the Estimator itself.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from training.progress import Rate

_NUM_IMAGES = 8
_CONFUSION_PIXELS = 400


def add_to_graph(features, learning_rate):
    """Adds the summaries of a training graph: learning rate and, where there are images, a few."""
    tf.compat.v1.summary.scalar("learning_rate", learning_rate)
    for name, tensor in features.items():
        if tensor.shape.rank == 4 and tensor.shape[-1] in (1, 3, 4):
            # As float32 the summary scales them to the full range: digits have pixels of 0 to 16.
            images = tf.cast(tensor[:_NUM_IMAGES], tf.float32)
            tf.compat.v1.summary.image(f"input/{name}", images, _NUM_IMAGES)


class TrainSummaryHook(tf.estimator.SessionRunHook):
    """Every N steps, writes the graph's summaries, the metrics of the batch and examples/s.

    In the place of the Estimator's own SummarySaverHook, which delays the very first step.
    """

    def __init__(self, metrics, batch_size, every_steps, model_dir, clock):
        """Takes the model's streaming metrics, `{name: (value, update_op)}`."""
        self._updates = {
            name: update for name, (value, update) in metrics.items() if value.shape.rank == 0
        }
        self._reset = tf.compat.v1.variables_initializer(
            tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.METRIC_VARIABLES)
        )
        self._every_steps = every_steps
        self._model_dir = model_dir
        self._rate = Rate(clock, batch_size)

    def begin(self):
        """Comes when the graph is built, with the summary of the loss that the Estimator adds."""
        self._summaries = tf.compat.v1.summary.merge_all()

    def after_create_session(self, session, coord):
        """Starts counting at the step that the session was restored to."""
        self._step = int(session.run(tf.compat.v1.train.get_global_step()))
        self._rate.restart(self._step)
        self._writer = tf.compat.v1.summary.FileWriterCache.get(self._model_dir)

    def before_run(self, run_context):
        """Asks for summaries and metrics where they are due."""
        if (self._step + 1) % self._every_steps:
            return None
        return tf.estimator.SessionRunArgs((self._updates, self._summaries))

    def after_run(self, run_context, run_values):
        """Writes what was asked for, and sets the metrics back: each value is of one batch."""
        self._step += 1
        if run_values.results is None:
            return
        metrics, summaries = run_values.results
        scalars = {**metrics, "examples/sec": self._rate.since_last(self._step)}
        self._writer.add_summary(summaries, self._step)
        self._writer.add_summary(_scalars(scalars), self._step)
        run_context.session.run(self._reset)


def write_confusion_matrix(directory, step, matrix, class_names):
    """Writes int `[num_classes, num_classes]`, labels as rows, as an image and as a table."""
    writer = tf.compat.v1.summary.FileWriterCache.get(directory)
    image = confusion_image(matrix)
    summary = tf.compat.v1.Summary()
    summary.value.add(
        tag="confusion_matrix/rows_are_labels",
        image=tf.compat.v1.Summary.Image(
            height=image.shape[0],
            width=image.shape[1],
            colorspace=1,
            encoded_image_string=encode_png(image),
        ),
    )
    text = summary.value.add(tag="confusion_matrix/table")
    text.metadata.plugin_data.plugin_name = "text"
    text.tensor.CopyFrom(tf.make_tensor_proto(_markdown(matrix, class_names), tf.string))
    writer.add_summary(summary, step)
    writer.flush()


def confusion_image(matrix):
    """Returns uint8 `[height, width]`: each row's shares, white for none, black for all."""
    shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    cell = max(1, _CONFUSION_PIXELS // len(matrix))
    return np.kron(255 - np.round(255 * shares), np.ones([cell, cell])).astype(np.uint8)


def encode_png(image):
    """Returns uint8 `[height, width]` as the bytes of a grey PNG."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        return session.run(tf.io.encode_png(image[..., np.newaxis]))


def _scalars(values):
    summary = tf.compat.v1.Summary()
    for name, value in values.items():
        summary.value.add(tag=name, simple_value=float(value))
    return summary


def _markdown(matrix, class_names):
    lines = [["label / prediction", *class_names], ["---"] * (len(class_names) + 1)]
    lines += [[f"**{name}**", *map(str, row)] for name, row in zip(class_names, matrix)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
