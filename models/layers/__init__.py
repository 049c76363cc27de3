"""Layers, losses and the device scope that several models use."""
