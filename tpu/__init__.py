"""The TPU without a TPU. Knows TensorFlow and TPUEstimator, and no model: works on anybody's."""
