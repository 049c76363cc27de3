"""PJRT cores: the steps of a TPUEstimator program on the devices of JAX."""
