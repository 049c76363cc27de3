"""Which modules and names TensorFlow 1.15 had, and where they are today."""

from __future__ import annotations

import importlib.util

# The areas of tf.contrib in TensorFlow 1.12 to 1.15. All can be imported; names that are neither in
# contrib/ nor in the tables below are refused at their first use.
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

# The names of an area today: `{area: {module, or part of tf.compat.v1: "name old=new"}}`.
# `contrib/` has those that TensorFlow 2.15 lacks.
ALIASES = {
    "autograph": {
        "tensorflow.python.autograph.core.converter": "ConversionOptions Feature",
        "tensorflow.python.autograph.impl.api": """AutoGraphError StackTraceMapper convert
            converted_call do_not_convert""",
        "tensorflow.python.autograph.lang.directives": "set_element_type set_loop_options",
        "tensorflow.python.autograph.lang.special_functions": "stack tensor_list",
        "v1.autograph": "to_code to_graph",
    },
    "checkpoint": {
        "tensorflow.python.trackable.autotrackable": "Checkpointable=AutoTrackable",
        "tensorflow.python.trackable.base": "CheckpointableBase=Trackable",
        "tensorflow.python.trackable.data_structures": "List Mapping NoDependency",
        "v1.train": "CheckpointManager",
    },
    "cluster_resolver": {
        "v1.distribute.cluster_resolver": """ClusterResolver GCEClusterResolver
            GceClusterResolver=GCEClusterResolver KubernetesClusterResolver SimpleClusterResolver
            SlurmClusterResolver TFConfigClusterResolver TPUClusterResolver
            UnionClusterResolver=UnionResolver UnionResolver"""
    },
    "compiler": {"v1.xla.experimental": "compile experimental_jit_scope=jit_scope"},
    "data": {
        "v1.data": "Options",
        "v1.data.experimental": """AUTOTUNE CheckpointInputPipelineHook Counter CsvDataset
            Optional RandomDataset Reducer SqlDataset TFRecordWriter bucket_by_sequence_length
            choose_from_datasets copy_to_device dense_to_sparse_batch enumerate_dataset
            get_next_as_optional get_single_element group_by_reducer group_by_window
            ignore_errors make_batched_features_dataset make_csv_dataset
            make_saveable_from_iterator map_and_batch map_and_batch_with_legacy_function
            parallel_interleave parse_example_dataset prefetch_to_device rejection_resample
            sample_from_datasets scan shuffle_and_repeat unbatch unique""",
    },
    "distribute": {
        "v1.distribute": "OneDeviceStrategy get_loss_reduction get_replica_context",
        "v1.distribute.experimental": "TPUStrategy",
        "tensorflow.python.distribute.cross_device_ops": "AllReduceCrossDeviceOps",
        "tensorflow.python.distribute.distribute_config": "DistributeConfig",
        "v1.tpu.experimental": "initialize_tpu_system",
    },
    "eager": {
        "v1": "GradientTape enable_eager_execution executing_eagerly py_func=py_function",
        "tensorflow.python.ops.resource_variable_ops": "Variable=ResourceVariable",
        "tensorflow.python.eager.context": "in_eager_mode=executing_eagerly num_gpus",
    },
    "estimator": {
        "v1.estimator": """BaselineEstimator DNNEstimator DNNLinearCombinedEstimator
            LinearEstimator add_metrics""",
        "v1.estimator.experimental": """InMemoryEvaluatorHook
            build_raw_supervised_input_receiver_fn call_logit_fn dnn_logit_fn_builder
            linear_logit_fn_builder make_early_stopping_hook make_stop_at_checkpoint_step_hook
            stop_if_higher_hook stop_if_lower_hook stop_if_no_decrease_hook
            stop_if_no_increase_hook""",
    },
    "feature_column": {
        "tensorflow.python.feature_column.sequence_feature_column": "concatenate_context_input",
        "v1.feature_column": """sequence_categorical_column_with_hash_bucket
            sequence_categorical_column_with_identity
            sequence_categorical_column_with_vocabulary_file
            sequence_categorical_column_with_vocabulary_list sequence_numeric_column""",
    },
    "framework": {
        "tensorflow.python.framework.smart_cond": "smart_case smart_cond smart_constant_value",
        "tensorflow.python.framework.tensor_spec": "BoundedTensorSpec TensorSpec",
        "tensorflow.python.util": "nest",
        "tensorflow.python.util.deprecation": "deprecated deprecated_arg_values deprecated_args",
        "v1": "argsort is_tensor sort",
        "v1.train": """create_global_step get_global_step get_or_create_global_step
            init_from_checkpoint list_variables load_checkpoint load_variable""",
    },
    "hooks": {"v1.train": "ProfilerHook"},
    "learn": {
        "v1.estimator.experimental": "KMeansClustering=KMeans",
        "v1.train": """NanLossDuringTrainingError CheckpointSaver=CheckpointSaverHook
            StopAtStep=StopAtStepHook""",
        "tensorflow_estimator.python.estimator.run_config": "TaskType",
    },
    "lookup": {
        "tensorflow.python.ops.lookup_ops": """FastHashSpec HashTable HasherSpec
            IdTableWithHashBuckets InitializableLookupTableBase KeyValueTensorInitializer
            LookupInterface MutableDenseHashTable=DenseHashTable MutableHashTable StrongHashSpec
            TextFileIdTableInitializer TextFileIndex TextFileInitializer
            TextFileStringTableInitializer index_table_from_file index_to_string_table_from_file
            tables_initializer"""
    },
    "metrics": {
        "v1.metrics": """streaming_mean=mean streaming_mean_absolute_error=mean_absolute_error
            streaming_mean_iou=mean_iou streaming_mean_squared_error=mean_squared_error
            streaming_root_mean_squared_error=root_mean_squared_error""",
        "v1.math": "confusion_matrix",
        "v1.sets": """set_difference=difference set_intersection=intersection set_size=size
            set_union=union""",
    },
    "nn": {"v1.nn": "conv1d_transpose", "tensorflow.python.ops.nn_ops": "nth_element"},
    "rnn": {
        "v1.nn.rnn_cell": """BasicLSTMCell BasicRNNCell DeviceWrapper DropoutWrapper GRUCell
            LSTMCell LSTMStateTuple MultiRNNCell RNNCell ResidualWrapper""",
        "v1.nn": "static_bidirectional_rnn static_rnn static_state_saving_rnn",
    },
    "stateless": {
        "v1.random": """stateless_multinomial stateless_random_normal=stateless_normal
            stateless_random_uniform=stateless_uniform stateless_truncated_normal"""
    },
    "summary": {
        "tensorflow.python.ops.summary_ops_v2": """SummaryWriter
            all_summary_ops=all_v2_summary_ops always_record_summaries audio create_file_writer
            create_summary_file_writer eval_dir flush=legacy_raw_flush generic graph=graph_v1
            histogram image import_event initialize never_record_summaries
            record_summaries_every_n_global_steps scalar
            should_record_summaries=_legacy_contrib_should_record_summaries
            summary_writer_initializer_op"""
    },
    "tpu": {
        "v1.estimator.tpu": "InputPipelineConfig RunConfig TPUConfig TPUEstimator TPUEstimatorSpec",
        "v1.estimator.tpu.experimental": "EmbeddingConfigSpec",
        "v1.tpu": """CrossShardOptimizer XLAOptions batch_parallel bfloat16_scope core
            cross_replica_sum initialize_system outside_compilation replicate rewrite shard
            shutdown_system""",
        "v1.tpu.experimental": """AdagradParameters AdamParameters DeviceAssignment
            FtrlParameters StochasticGradientDescentParameters embedding_column
            shared_embedding_columns""",
        "tensorflow.python.tpu.async_checkpoint": "AsyncCheckpointSaverHook",
        "tensorflow.python.tpu.device_assignment": "device_assignment",
        "tensorflow.python.tpu.functional": "TPUPartitionedCall",
        "tensorflow.python.tpu.ops.tpu_ops": """all_to_all collective_permute infeed_dequeue
            infeed_dequeue_tuple infeed_enqueue infeed_enqueue_tuple outfeed_dequeue
            outfeed_dequeue_tuple outfeed_enqueue outfeed_enqueue_tuple""",
        "tensorflow.python.tpu.tpu_embedding": "TPUEmbedding TableConfig FeatureConfig",
        "tensorflow.python.tpu.topology": "Topology",
        "tensorflow.python.tpu.tpu_feed": "InfeedQueue",
        "tensorflow.python.tpu.training_loop": "repeat while_loop",
        "tensorflow_estimator.python.estimator.tpu.tpu_estimator": "export_estimator_savedmodel",
    },
    "training": {
        "tpu.tf1.hparams": "HParams parse_values",
        "v1.train": "checkpoints_iterator",
        "tensorflow.python.training.checkpoint_utils": "wait_for_new_checkpoint",
        "tensorflow.python.training.evaluation": """StopAfterNEvalsHook=_StopAfterNEvalsHook
            get_or_create_eval_step=_get_or_create_eval_step""",
    },
    "util": {
        "tensorflow.python.framework.meta_graph": """ops_used_by_graph_def
            stripped_op_list_for_graph""",
        "v1": "make_ndarray make_tensor_proto constant_value=get_static_value",
    },
}

# Modules that have the names of an area under the same name, searched last: `{area: names}`.
SOURCES = {
    "distributions": """tensorflow_probability.python.distributions tensorflow_probability
        v1.distributions""",
    "framework": "tf_slim tf_slim.ops.framework_ops tf_slim.ops.variables",
    "layers": "tf_slim",
    "linalg": "v1.linalg",
    "losses": "tf_slim.losses",
    "metrics": "tf_slim.metrics",
    "signal": "v1.signal",
    "training": "tf_slim.training.training tf_slim.evaluation",
}

_ESTIMATOR = "tensorflow_estimator.python.estimator"
_STRATEGIES = "tensorflow.python.distribute.distribute_lib"

# Old module (below `tensorflow.`): modules that have its contents today. The longest match counts,
# the rest of the name is appended.
MOVED = {
    "contrib.cluster_resolver.python.training": "tensorflow.python.distribute.cluster_resolver",
    "contrib.gan": "tensorflow_gan",
    "contrib.keras": "keras.api._v1.keras",
    "contrib.slim": "tf_slim",
    "contrib.slim.python.slim": "tf_slim",
    "contrib.summary.summary_ops": "tensorflow.python.ops.summary_ops_v2",
    "contrib.tensorboard.plugins": "tensorboard.plugins",
    "contrib.tpu.proto": "tensorflow.core.protobuf.tpu",
    "contrib.tpu.python.ops": "tensorflow.python.tpu.ops",
    "contrib.tpu.python.tpu": f"{_ESTIMATOR}.tpu tensorflow.python.tpu",
    "keras": "keras.api._v1.keras",
    "python.data.experimental.ops.distribute_options": "tensorflow.python.data.ops.options",
    "python.data.experimental.ops.optimization_options": "tensorflow.python.data.ops.options",
    "python.data.experimental.ops.threading_options": "tensorflow.python.data.ops.options",
    "python.distribute.distribution_strategy_context": _STRATEGIES,
    "python.estimator": _ESTIMATOR,
    "python.keras": "keras.src tensorflow.python.keras",
    "python.training.checkpointable": "tensorflow.python.trackable",
    "python.training.checkpointable.util": "tensorflow.python.checkpoint.checkpoint",
    "python.training.distribution_strategy_context": _STRATEGIES,
    "python.ops.losses.loss_reduction": "keras.src.utils.losses_utils",
    "python.tpu._tpu_estimator_embedding": f"{_ESTIMATOR}.tpu._tpu_estimator_embedding",
    "python.training.saving.functional_saver": "tensorflow.python.checkpoint.functional_saver",
    "python.training.tracking": "tensorflow.python.trackable",
    "python.training.tracking.graph_view": "tensorflow.python.checkpoint.graph_view",
    "python.training.tracking.object_identity": "tensorflow.python.util.object_identity",
    "python.training.tracking.tracking": "tensorflow.python.trackable.autotrackable",
    "python.training.tracking.util": "tensorflow.python.checkpoint.checkpoint",
    "python.util.deprecation_wrapper": "tensorflow.python.util.module_wrapper",
    "python.pywrap_tensorflow": "tpu.tf1.pywrap_tensorflow",
    "python.layers": "keras.src.legacy_tf_layers tensorflow.python.layers",
}

# What to do about missing names; the longest prefix counts.
_ADVICE = {
    "tf.examples.tutorials": "Read the data with tf.keras.datasets.mnist.",
    "tf.contrib.cudnn_rnn": "cuDNN needs a GPU. Use tf.nn.rnn_cell.LSTMCell.",
    "tf.contrib.distributions": "Run: pip install 'tensorflow-probability==0.23.0'.",
    "tf.contrib.estimator.logistic_regression_head": "Use tf.estimator.LogisticRegressionHead.",
    "tf.contrib.estimator.multi_head": "Use tf.estimator.MultiHead.",
    "tf.contrib.estimator.multi_label_head": "Use tf.estimator.MultiLabelHead.",
    "tf.contrib.estimator.poisson_regression_head": "Use tf.estimator.PoissonRegressionHead.",
    "tf.contrib.feature_column": "Use tf.keras.experimental.SequenceFeatures.",
    "tf.contrib.learn": "Use tf.estimator.",
    "tf.contrib.learn.datasets": "Read the data with tf.keras.datasets.",
    "tf.contrib.learn.preprocessing": "Use tf.keras.preprocessing.text.Tokenizer.",
    "tf.contrib.gan": "Run: pip install tensorflow-gan.",
    "tf.contrib.slim": "Run: pip install tf_slim.",
    "tf.contrib.layers": "Run: pip install tf_slim (it has most of tf.contrib.layers).",
    "tf.contrib.framework": "Run: pip install tf_slim (it has most of tf.contrib.framework).",
    "tf.contrib.metrics": "Run: pip install tf_slim (it has most of tf.contrib.metrics).",
}
_DEFAULT_ADVICE = "Replace it with an equivalent of TensorFlow 2.15, or remove the call."


def advice(name: str) -> str:
    """Returns what to do about a missing name, a sentence."""
    parts = name.split(".")
    prefixes = [".".join(parts[:length]) for length in range(len(parts), 0, -1)]
    text = next((_ADVICE[prefix] for prefix in prefixes if prefix in _ADVICE), _DEFAULT_ADVICE)
    if "pip install tf_slim" in text and importlib.util.find_spec("tf_slim") is not None:
        return f"The installed tf_slim lacks it too. {_DEFAULT_ADVICE}"
    return text
