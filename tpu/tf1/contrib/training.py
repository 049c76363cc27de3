"""tf.contrib.training."""

from __future__ import annotations

from tpu.tf1.hparams import HParams, parse_values

NAMES = {
    "v1.train": "checkpoints_iterator",
    "tensorflow.python.training.checkpoint_utils": "wait_for_new_checkpoint",
    "tensorflow.python.training.evaluation": """
        StopAfterNEvalsHook=_StopAfterNEvalsHook
        get_or_create_eval_step=_get_or_create_eval_step""",
}
SOURCES = ("tf_slim.training.training", "tf_slim.evaluation")
__all__ = ["HParams", "parse_values"]
