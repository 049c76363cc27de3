"""Training: forward pass, train step, optimizers, schedules, host loop."""
