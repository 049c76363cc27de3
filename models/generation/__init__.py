"""Generative models of images: generative adversarial networks (GANs)."""
