"""Layers, losses and cross-replica sums that several models use."""
