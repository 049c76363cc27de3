"""What TensorBoard shows: scalars and input images of training, the confusion matrix of evaluation.

In a graph for a TPU there can be no summaries. There `host_call` takes the scalars out, step by
step, and `RateSummaryHook` writes the speed.
"""

from __future__ import annotations

import io

import tensorflow as tf
from PIL import Image

from engine.evaluation import confusion_matrix
from engine.hooks.progress import Rate

_NUM_IMAGES = 8


def of_step(features, scalars, metrics):
    """Returns the summary of a training step, a string.

    Args:
      features: of its batch; a few images are shown, where there are any.
      scalars: `{tag: tensor}`.
      metrics: the model's streaming metrics, `{name: (value, update_op)}`, of which those that are
        scalars are updated. `TrainSummaryHook` sets them back.

    What the model itself has put into the collection of summaries is taken out of it, and shown.
    """
    collected = tf.compat.v1.get_collection_ref(tf.compat.v1.GraphKeys.SUMMARIES)
    shown = list(collected)
    collected.clear()
    # tf.compat.v1.summary's own functions make tags out of scopes, such as a loop's.
    updates = {name: update for name, (value, update) in metrics.items() if not value.shape.rank}
    for name, tensor in {**scalars, **updates}.items():
        shown.append(tf.raw_ops.ScalarSummary(tags=name, values=tensor))
    for name, tensor in features.items():
        if tensor.shape.rank == 4 and tensor.shape[-1] in (1, 3, 4):
            # As float32 the summary scales them to the full range: digits have pixels of 0 to 16.
            images = tf.cast(tensor[:_NUM_IMAGES], tf.float32)
            image = tf.raw_ops.ImageSummary(
                tag=f"input/{name}", tensor=images, max_images=_NUM_IMAGES
            )
            shown.append(image)
    return tf.compat.v1.summary.merge(shown, collections=[])


class RateSummaryHook(tf.estimator.SessionRunHook):
    """Writes examples/s after each session.run that passes a multiple of N steps."""

    def __init__(self, batch_size, every_steps, model_dir, clock, counter):
        """Takes the global batch size and the StepCounter."""
        self._every_steps = every_steps
        self._model_dir = model_dir
        self._rate = Rate(clock, batch_size)
        self._counter = counter

    def after_create_session(self, session, coord):
        """Starts counting at the step that the session was restored to."""
        self._rate.restart(self._counter.step)
        self._set_next()
        self._writer = tf.compat.v1.summary.FileWriterCache.get(self._model_dir)

    def after_run(self, run_context, run_values):
        """Writes where it is due."""
        step = self._counter.step
        if step >= self._next:
            self._set_next()
            self._writer.add_summary(_scalars({"examples/sec": self._rate.since_last(step)}), step)

    def end(self, session):
        """Lets the last point be seen at once."""
        self._writer.flush()

    def _set_next(self):
        self._next = (self._counter.step // self._every_steps + 1) * self._every_steps


class TrainSummaryHook(RateSummaryHook):
    """Every N steps, writes the summary of the step and examples/s.

    In the place of the Estimator's own SummarySaverHook, which delays the very first step.
    """

    def __init__(self, summary, *arguments):
        """Takes the summary, of `of_step`, and what a RateSummaryHook takes."""
        super().__init__(*arguments)
        self._summary = summary
        self._reset = tf.compat.v1.variables_initializer(
            tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.METRIC_VARIABLES)
        )

    def before_run(self, run_context):
        """Asks for the summary where it is due."""
        if self._counter.next < self._next:
            return None
        return tf.estimator.SessionRunArgs(self._summary)

    def after_run(self, run_context, run_values):
        """Writes what was asked for, and sets the metrics back: each value is of one batch."""
        if run_values.results is None:
            return
        self._writer.add_summary(run_values.results, self._counter.step)
        super().after_run(run_context, run_values)
        run_context.session.run(self._reset)


def host_call(scalars, train_op, model_dir, every_steps):
    """Returns the `host_call` of a TPUEstimatorSpec that writes scalars from within the loop.

    Args:
      scalars: `{tag: float32 scalar tensor}`. A TPU hands them over core by core; the mean is
        written.
      train_op: of the step; the point of a curve stands at the global step after it.
      model_dir: folder of the event files; from a TPU's own host, so gs:// or local to that.
      every_steps: steps between the points of a curve.
    """
    with tf.control_dependencies([train_op]):
        step = tf.compat.v1.train.get_global_step().read_value()
    # A core hands over batches: of size one here.
    per_core = {tag: tf.reshape(scalar, [1]) for tag, scalar in scalars.items()}

    def write_on_host(global_step, **scalars):
        step = global_step[0]
        writer = tf.summary.create_file_writer(model_dir)
        with writer.as_default(), tf.summary.record_if(tf.equal(step % every_steps, 0)):
            for tag, values in scalars.items():
                tf.summary.scalar(tag, tf.reduce_mean(values), step=step)
            return tf.compat.v1.summary.all_v2_summary_ops()

    return write_on_host, {"global_step": tf.reshape(step, [1]), **per_core}


def write_confusion_matrix(directory, step, matrix, class_names, png):
    """Writes int `[num_classes, num_classes]`, labels as rows: its PNG and, if small, a table."""
    summary = _image("confusion_matrix/rows_are_labels", png)
    if len(matrix) <= confusion_matrix.MAX_LISTED:
        text = summary.value.add(tag="confusion_matrix/table")
        text.metadata.plugin_data.plugin_name = "text"
        table = confusion_matrix.markdown(matrix, class_names)
        text.tensor.CopyFrom(tf.make_tensor_proto(table, tf.string))
    _write(directory, step, summary)


def write_image(directory, step, tag, png):
    """Writes a picture, the bytes of an RGB PNG."""
    _write(directory, step, _image(tag, png))


def _image(tag, png):
    width, height = Image.open(io.BytesIO(png)).size
    image = tf.compat.v1.Summary.Image(
        height=height, width=width, colorspace=3, encoded_image_string=png
    )
    summary = tf.compat.v1.Summary()
    summary.value.add(tag=tag, image=image)
    return summary


def _write(directory, step, summary):
    writer = tf.compat.v1.summary.FileWriterCache.get(directory)
    writer.add_summary(summary, step)
    writer.flush()


def _scalars(values):
    summary = tf.compat.v1.Summary()
    for name, value in values.items():
        summary.value.add(tag=name, simple_value=float(value))
    return summary
