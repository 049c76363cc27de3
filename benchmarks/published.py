"""Throughput of trainings on TPU hardware that others have published, in rows/s by slice."""

# 90 epochs in 4.4 hours: Flax' ImageNet example.
RESNET50_FLAX = {"v3-8": 90 * 1_281_167 / (4.4 * 3600)}
# You et al. 2019, arXiv:1904.00962, table 1: rows * steps / time of pre-training with LAMB in
# float32, nine tenths of the steps with 128 tokens, 32 rows per chip.
BERT_LARGE = {
    "v3-32": 512 * 1_000_000 / (82.8 * 3600),
    "v3-64": 1024 * 500_000 / (43.2 * 3600),
    "v3-128": 2048 * 250_000 / (21.4 * 3600),
    "v3-256": 4096 * 125_000 / (693.6 * 60),
    "v3-512": 8192 * 62_500 / (390.5 * 60),
    "v3-1024": 16_384 * 31_250 / (200.0 * 60),
    "v3-2048": 32_768 * 15_625 / (101.2 * 60),
}
