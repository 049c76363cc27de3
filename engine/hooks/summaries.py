"""TensorBoard summaries: scalars and input images of training, images and text of evaluation.

A TPU graph cannot contain summary ops: there `host_call` writes the scalars, and `RateSummaryHook`
the examples/s.
"""

from __future__ import annotations

import io

import tensorflow as tf
from PIL import Image

from engine.hooks.progress import Rate

_NUM_IMAGES = 8
_Summary = tf.compat.v1.Summary


def train_summary(features, scalars, metrics):
    """Returns the merged summary of a training step, a string tensor.

    Includes the summaries that the model added to the `SUMMARIES` collection.

    Args:
      features: features of the batch; the first images are written.
      scalars: `{tag: scalar tensor}`.
      metrics: streaming metrics of the model, `{name: (value, update_op)}`; scalars are written.
        `TrainSummaryHook` resets them after each summary.
    """
    collected = tf.compat.v1.get_collection_ref(tf.compat.v1.GraphKeys.SUMMARIES)
    summaries = list(collected)
    collected.clear()
    updates = {name: update for name, (value, update) in metrics.items() if not value.shape.rank}
    # tf.compat.v1.summary.scalar would add the name scope, such as that of a loop, to the tag.
    for name, tensor in {**scalars, **updates}.items():
        summaries.append(tf.raw_ops.ScalarSummary(tags=name, values=tensor))
    for name, tensor in features.items():
        if _is_image_batch(tensor):
            # ImageSummary scales float32 to the full range: the digits have pixels of 0 to 16.
            images = tf.cast(tensor[:_NUM_IMAGES], tf.float32)
            summaries.append(
                tf.raw_ops.ImageSummary(tag=f"input/{name}", tensor=images, max_images=_NUM_IMAGES)
            )
    return tf.compat.v1.summary.merge(summaries, collections=[])


def _is_image_batch(tensor):
    return (
        isinstance(tensor, tf.Tensor) and tensor.shape.rank == 4 and tensor.shape[-1] in (1, 3, 4)
    )


class RateSummaryHook(tf.estimator.SessionRunHook):
    """Writes examples/s every N steps, or at the end of the TPU loop that reaches them."""

    def __init__(self, settings, state):
        """Initializes the hook with `RunSettings` and `TrainingState`."""
        self._every_steps = settings.train.summary_steps
        self._model_dir = settings.model_dir
        self._rate = Rate(state.clock, settings.train.batch_size)
        self._counter = state.counter

    def after_create_session(self, session, coord):
        """Counts from the step at which the session starts."""
        self._rate.restart(self._counter.step)
        self._set_next()
        self._writer = tf.compat.v1.summary.FileWriterCache.get(self._model_dir)

    def after_run(self, run_context, run_values):
        """Writes examples/s if due."""
        step = self._counter.step
        if step >= self._next:
            self._set_next()
            self._writer.add_summary(_scalars({"examples/sec": self._rate.since_last(step)}), step)

    def end(self, session):
        """Flushes the event file."""
        self._writer.flush()

    def _set_next(self):
        self._next = (self._counter.step // self._every_steps + 1) * self._every_steps


class TrainSummaryHook(RateSummaryHook):
    """Writes the summary of a training step and examples/s every N steps.

    Unlike tf.estimator.SummarySaverHook it does not write the first step, which would delay it.

    Attributes:
      build_summary: function that builds the summary.
      summary: string tensor, built when the graph is complete, or set by `engine.train.host_loop`.
    """

    def __init__(self, build_summary, settings, state):
        """Initializes the hook; `build_summary` returns the summary, a string tensor."""
        super().__init__(settings, state)
        self.build_summary = build_summary
        # Under a tf.distribute strategy metrics must be built in replica context.
        self.summary = build_summary() if tf.distribute.has_strategy() else None

    def begin(self):
        """Builds the summary, unless it was built or set before."""
        if self.summary is None:
            self.summary = self.build_summary()
        self._reset = tf.compat.v1.variables_initializer(
            tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.METRIC_VARIABLES)
        )

    def before_run(self, run_context):
        """Fetches the summary if due."""
        if self._counter.next < self._next:
            return None
        return tf.estimator.SessionRunArgs(self.summary)

    def after_run(self, run_context, run_values):
        """Writes the summary, and resets the metrics, so that each value is of one batch."""
        if run_values.results is None:
            return
        self._writer.add_summary(run_values.results, self._counter.step)
        super().after_run(run_context, run_values)
        run_context.session.run(self._reset)


def host_call(scalars, train_op, model_dir, every_steps):
    """Returns the `host_call` of a TPUEstimatorSpec, which writes scalars on the TPU host.

    Args:
      scalars: `{tag: float32 scalar tensor}` per core; the mean over cores is written.
      train_op: train_op of the step; scalars are written at the global step after it.
      model_dir: folder of the event files: gs://, or local to the TPU host.
      every_steps: steps between summaries.
    """
    with tf.control_dependencies([train_op]):
        step = tf.compat.v1.train.get_global_step().read_value()
    # host_call concatenates the tensors of the cores along the batch: make each `[1]`.
    per_core = {tag: tf.reshape(scalar, [1]) for tag, scalar in scalars.items()}

    def write_on_host(global_step, **scalars):
        step = global_step[0]
        writer = tf.summary.create_file_writer(model_dir)
        with writer.as_default(), tf.summary.record_if(tf.equal(step % every_steps, 0)):
            for tag, values in scalars.items():
                tf.summary.scalar(tag, tf.reduce_mean(values), step=step)
            return tf.compat.v1.summary.all_v2_summary_ops()

    return write_on_host, {"global_step": tf.reshape(step, [1]), **per_core}


def write_scalars(directory, step, values):
    """Writes `{tag: number}`."""
    _write(directory, step, _scalars(values))


def write_image(directory, step, tag, png):
    """Writes an RGB PNG (bytes) for TensorBoard's images tab."""
    width, height = Image.open(io.BytesIO(png)).size
    image = _Summary.Image(height=height, width=width, colorspace=3, encoded_image_string=png)
    _write(directory, step, _Summary(value=[_Summary.Value(tag=tag, image=image)]))


def write_text(directory, step, tag, markdown):
    """Writes Markdown for TensorBoard's text tab."""
    summary = _Summary()
    text = summary.value.add(tag=tag, tensor=tf.make_tensor_proto(markdown, tf.string))
    text.metadata.plugin_data.plugin_name = "text"
    _write(directory, step, summary)


def _write(directory, step, summary):
    writer = tf.compat.v1.summary.FileWriterCache.get(directory)
    writer.add_summary(summary, step)
    writer.flush()


def _scalars(values):
    return _Summary(
        value=[_Summary.Value(tag=tag, simple_value=float(v)) for tag, v in values.items()]
    )
