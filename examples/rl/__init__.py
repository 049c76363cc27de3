"""Reinforcement learning with the wrappers as learners; see docs/reinforcement_learning.md."""

import os
import warnings

from engine.cli import cpu_kernels

# Before TensorFlow is imported.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
cpu_kernels.prefer_onednn()
# Of Google's API client, which TensorFlow imports if it is installed.
warnings.filterwarnings("ignore", category=FutureWarning, module=r"google\.")
