"""Models: inference functions, losses and metrics on tensors. No flags, files or Estimators."""
