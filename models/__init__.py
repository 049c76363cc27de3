"""What is computed: tensors in, tensors out. No flags, no files, no Estimator."""
