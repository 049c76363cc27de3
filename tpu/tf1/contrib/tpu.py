"""tf.contrib.tpu."""

from __future__ import annotations

NAMES = {
    "v1.estimator.tpu": "InputPipelineConfig RunConfig TPUConfig TPUEstimator TPUEstimatorSpec",
    "v1.estimator.tpu.experimental": "EmbeddingConfigSpec",
    "v1.tpu": """CrossShardOptimizer XLAOptions batch_parallel bfloat16_scope core cross_replica_sum
        initialize_system outside_compilation replicate rewrite shard shutdown_system""",
    "v1.tpu.experimental": """AdagradParameters AdamParameters DeviceAssignment FtrlParameters
        StochasticGradientDescentParameters embedding_column shared_embedding_columns""",
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
}
