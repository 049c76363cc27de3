"""Evaluation and prediction: metrics, BLEU, confusion matrix, prediction files."""
