"""Distributed training: `tf.distribute` strategies and TF_CONFIG clusters."""
