"""Converts TensorFlow errors of a run to one-line errors that say what to do."""

from __future__ import annotations

import contextlib

import tensorflow as tf

from common.errors import RunError
from input_fns import DataError
from input_fns import dataset_info as datasets
from input_fns.core import data_service, inspection

_RESUME = "Checkpoints are kept; run the same command again to resume"


@contextlib.contextmanager
def data_errors(settings):
    """Converts TensorFlow's error about a broken record to a DataError that names the record."""
    try:
        yield
    except (tf.errors.DataLossError, tf.errors.InvalidArgumentError) as error:
        if data_service.LOST in error.message:
            raise RunError(f"{data_service.LOST}. {_RESUME}") from error
        undecodable = getattr(settings.prediction.examples, "undecodable", "")
        if undecodable:
            raise DataError(f"--input: {undecodable}: {error.message}") from error
        _check_not_replaced(settings, error)
        print("checking every record for the cause of the error", flush=True)
        for problem in inspection.problems(settings.dataset, settings.splits):
            raise DataError(f"{problem} (prepare_data.py --mode=inspect lists all)") from error
        raise
    except tf.errors.NotFoundError as error:
        _check_not_replaced(settings, error)
        if not settings.train.data_service:
            raise
        raise RunError(
            f"--data_service: {data_service.cause(error)}. A worker was restarted, or cannot read "
            f"the data set at its path here. {_RESUME}"
        ) from error


def _check_not_replaced(settings, error):
    """Raises RunError if the data set in data_dir was replaced during this run."""
    data = settings.dataset
    shards = [shard for name in settings.splits for shard in data.split(name).shards]
    if not data.data_dir or not all(shard.name for shard in shards):
        return  # synthetic or custom data
    try:
        now = {
            shard
            for split in datasets.read(data.data_dir).splits.values()
            for shard in split.shards
        }
    except DataError:
        now = set()
    if not {shard for shard in shards if not shard.path} <= now:
        what = f"the data set in {data.data_dir} was replaced or removed while this run read it"
    else:
        broken = datasets.broken_shards(data, settings.splits)
        if not broken:
            return
        what = f"{data.data_dir}: {broken[0]} since this run began"
    raise RunError(f"{what}. {_RESUME}") from error


@contextlib.contextmanager
def checkpoint_errors(settings):
    """Converts the error about a checkpoint that was removed while in use to a RunError."""
    try:
        yield
    except (tf.errors.OpError, ValueError) as error:
        given = settings.checkpoint
        if settings.is_training or given is None or tf.io.gfile.exists(f"{given}.index"):
            raise
        raise RunError(
            f"{given} was removed while it was in use, probably by a training in that folder "
            "(--keep_checkpoint_max). Run the same command again"
        ) from error
