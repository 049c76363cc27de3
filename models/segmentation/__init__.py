"""Semantic segmentation: U-Net and DeepLabV3+, losses, exact IoU, reports."""
