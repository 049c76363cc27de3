"""Recommendation: NeuMF, DLRM, metrics of rankings and clicks."""
