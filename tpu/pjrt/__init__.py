"""TPUEstimator on PJRT devices: TPU v5e, v5p and v6e, GPUs, CPUs; JAX runs the steps."""
