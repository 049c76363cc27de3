"""TPU check: lint, memory and cost estimates, and the TPU compiler, without a TPU."""
