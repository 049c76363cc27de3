"""tf.contrib.cloud."""

from __future__ import annotations

import tensorflow as tf

__all__ = ["ConfigureGcsHook", "configure_colab_session", "configure_gcs"]


def configure_gcs(session, credentials=None, block_cache=None, device=None):
    """Does nothing: it sent credentials to a TPU worker, and this process has its own."""
    del session, credentials, block_cache, device


def configure_colab_session(session):
    """Does nothing, as `configure_gcs`."""
    del session


class ConfigureGcsHook(tf.estimator.SessionRunHook):
    """Does nothing, as `configure_gcs`."""

    def __init__(self, credentials=None, block_cache=None):
        del credentials, block_cache
