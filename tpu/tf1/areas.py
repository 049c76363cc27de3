"""Which modules TensorFlow 1.15 had, and where they are today."""

from __future__ import annotations

# The areas of tf.contrib in TensorFlow 1.12 to 1.15. Those without a module in contrib/ can be
# imported; what they contain is refused at its first use.
_NAMES = """
all_reduce autograph batching bayesflow bigtable boosted_trees checkpoint cloud cluster_resolver
coder compiler constrained_optimization copy_graph crf cudnn_rnn data decision_trees deprecated
distribute distributions eager estimator factorization feature_column ffmpeg framework fused_conv
gan gdr graph_editor grid_rnn hadoop hooks hvx ignite image input_pipeline integrate kafka keras
kernel_methods kinesis labeled_tensor layers learn legacy_seq2seq libsvm linalg linear_optimizer
lite lookup losses makefile memory_stats meta_graph_transform metrics mixed_precision model_pruning
mpi mpi_collectives nccl nearest_neighbor nn opt optimizer_v2 periodic_resample predictor proto
quantization quantize receptive_field recurrent reduce_slice_ops remote_fused_graph resampler rnn
rpc saved_model seq2seq session_bundle signal slim solvers sparsemax specs staging stat_summarizer
stateless statistics summary tensor_forest tensorboard tensorrt testing text tfprof timeseries tpu
training util verbs
"""
NAMES = frozenset(_NAMES.split())

# Modules of an area that are attributes of it, beside `python`.
MODULES = {
    "compiler": ("jit", "xla"),
    "learn": ("monitors",),
    "tfprof": ("model_analyzer", "tfprof_logger"),
    "tpu": ("proto",),
}

_ESTIMATOR = "tensorflow_estimator.python.estimator"

# Old module (below `tensorflow.`): modules that have its contents today. The longest match counts,
# the rest of the name is appended.
MOVED = {
    "contrib.autograph": ("tensorflow.python.autograph",),
    "contrib.cluster_resolver.python.training": ("tensorflow.python.distribute.cluster_resolver",),
    "contrib.gan": ("tensorflow_gan",),
    "contrib.keras": ("keras.api._v1.keras",),
    "contrib.slim": ("tf_slim",),
    "contrib.slim.python.slim": ("tf_slim",),
    "contrib.summary.summary_ops": ("tensorflow.python.ops.summary_ops_v2",),
    "contrib.tensorboard.plugins": ("tensorboard.plugins",),
    "contrib.tpu.proto": ("tensorflow.core.protobuf.tpu",),
    "contrib.tpu.python.ops": ("tensorflow.python.tpu.ops",),
    "contrib.tpu.python.tpu": (f"{_ESTIMATOR}.tpu", "tensorflow.python.tpu"),
    "keras": ("keras.api._v1.keras",),
    "python.data.experimental.ops.distribute_options": ("tensorflow.python.data.ops.options",),
    "python.data.experimental.ops.optimization_options": ("tensorflow.python.data.ops.options",),
    "python.data.experimental.ops.threading_options": ("tensorflow.python.data.ops.options",),
    "python.distribute.distribution_strategy_context": (
        "tensorflow.python.distribute.distribute_lib",
    ),
    "python.estimator": (_ESTIMATOR,),
    "python.keras": ("keras.src", "tensorflow.python.keras"),
    "python.training.checkpointable": ("tensorflow.python.trackable",),
    "python.training.distribution_strategy_context": (
        "tensorflow.python.distribute.distribute_lib",
    ),
    "python.ops.losses.loss_reduction": ("keras.src.utils.losses_utils",),
    "python.tpu._tpu_estimator_embedding": (f"{_ESTIMATOR}.tpu._tpu_estimator_embedding",),
    "python.training.saving.functional_saver": ("tensorflow.python.checkpoint.functional_saver",),
    "python.training.tracking": ("tensorflow.python.trackable",),
    "python.training.tracking.graph_view": ("tensorflow.python.checkpoint.graph_view",),
    "python.training.tracking.tracking": ("tensorflow.python.trackable.autotrackable",),
    "python.training.tracking.util": ("tensorflow.python.checkpoint.checkpoint",),
    "python.util.deprecation_wrapper": ("tensorflow.python.util.module_wrapper",),
    "python.pywrap_tensorflow": ("tpu.tf1.pywrap_tensorflow",),
    "python.layers": ("keras.src.legacy_tf_layers", "tensorflow.python.layers"),
}

_ADVICE = {
    "tf.examples.tutorials": "Read the data with tf.keras.datasets.mnist.",
    "tf.contrib.cudnn_rnn": "cuDNN needs a GPU. Use tf.nn.rnn_cell.LSTMCell.",
    "tf.contrib.distributions": "Run: pip install 'tensorflow-probability==0.23.0'.",
    "tf.contrib.learn": "Use tf.estimator.",
    "tf.contrib.gan": "Run: pip install tensorflow-gan.",
    "tf.contrib.slim": "Run: pip install tf_slim.",
    "tf.contrib.layers": "Run: pip install tf_slim (it has most of tf.contrib.layers).",
    "tf.contrib.framework": "Run: pip install tf_slim (it has most of tf.contrib.framework).",
    "tf.contrib.metrics": "Run: pip install tf_slim (it has most of tf.contrib.metrics).",
}
_DEFAULT_ADVICE = "Replace it with an equivalent of TensorFlow 2.15, or remove the call."


def advice(name: str) -> str:
    """Returns what to do about a missing name, a sentence."""
    area = ".".join(name.split(".")[:3])
    return _ADVICE.get(area, _DEFAULT_ADVICE)
