"""Recommendation: NeuMF, ranking metrics."""
