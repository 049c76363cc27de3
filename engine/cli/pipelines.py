"""Creates the input pipeline of --dataset: a prepared, a synthetic or a custom data set."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from common.errors import UsageError
from engine.cli import early_checks
from engine.cli.flags import FLAGS, is_own_dataset, repaired_split
from input_fns import dataset_info as datasets
from input_fns import kinds
from input_fns.core import caching, inspection
from input_fns.core.synthetic import SyntheticPipeline
from input_fns.pipeline import Pipeline
from models import registry

# Flags of some kinds of data, and what they need.
_NEEDS = {
    "augment": "images",
    "image_size": "images",
    "center_crop": "images with classes",
    "export_text": "text",
    "group_by_length": "prepared text for BERT",
    "join_windows": "prepared text for BERT",
}


def from_flags(
    splits: list[str],
    params: Callable[[], dict[str, Any]] = dict,
    model_features: tuple[str, ...] = (),
) -> Pipeline:
    """Returns the pipeline.

    Args:
      splits: splits that will be read; their shards must exist.
      params: function that returns the hyperparameters, for a custom data set's function and for
        pipelines that read them.
      model_features: names of the features that the model declares.

    Raises:
      UsageError, DataError, ModelError: the flags or the data set are invalid.
    """
    if is_own_dataset(FLAGS.dataset):
        return _custom_pipeline(params())
    is_synthetic = FLAGS.dataset == kinds.SYNTHETIC
    data = _dataset(is_synthetic, splits)
    given = [name for name in _NEEDS if name in FLAGS and FLAGS[name].value != FLAGS[name].default]
    for name in given:
        if name not in data.kind.flags or (is_synthetic and name == "group_by_length"):
            what = "is synthetic" if name in data.kind.flags else data.kind.content
            features = ", ".join(data.features)
            raise UsageError(
                f"--{name} needs {_NEEDS[name]}, but {data.name} {what} ({features}). Remove "
                f"--{name}"
            )
    options = kinds.PipelineOptions(
        cache=_cache(),
        image_size=FLAGS.image_size,
        augment=FLAGS.augment,
        center_crop=FLAGS.center_crop,
        export_text=FLAGS.export_text and not is_synthetic,
        # A TPU and micro-batches need static shapes.
        dynamic_padding=_of_cpu("dynamic_padding") and FLAGS.accumulate_steps == 1,
        group_by_length=_of_cpu("group_by_length"),
        join_windows=FLAGS.join_windows,
        params=params,
        model_features=model_features,
    )
    pipeline = data.kind.pipeline(data, options)
    return SyntheticPipeline(pipeline) if is_synthetic else pipeline


def _dataset(is_synthetic, splits):
    if FLAGS.data_dir is not None and is_synthetic:
        return datasets.read(FLAGS.data_dir)
    if FLAGS.data_dir is not None:
        repaired = repaired_split()
        data = datasets.load(FLAGS.data_dir, FLAGS.dataset, splits, repaired)
        for split in splits:
            early_checks.require_split(data, split)
        inspection.check_contents(data, [split for split in splits if split != repaired])
        return data
    shapes = kinds.SyntheticShapes(
        FLAGS.synthetic_task,
        FLAGS.synthetic_classes,
        FLAGS.image_size or (0, 0),
        FLAGS.synthetic_text or (0, 0),
        tuple(map(int, FLAGS.synthetic_tables or ())),
        tuple([*map(int, FLAGS.synthetic_audio or ()), 0, 0, 0, 0][:4]),
    )
    return kinds.synthetic(shapes)


def _of_cpu(name):
    """Returns the value of a flag of run_cpu.py; False without it."""
    return name in FLAGS and FLAGS[name].value


def _custom_pipeline(params):
    """Calls the function of a custom --dataset with --data_dir, None if unset, and `params`."""
    for name in (*_NEEDS, "skip_bad_records", "cache"):
        if name in FLAGS and FLAGS[name].value != FLAGS[name].default:
            raise UsageError(f"--{name} is not valid with a custom --dataset. Remove it")
    make = registry.attribute("dataset", FLAGS.dataset)
    if not callable(make):
        raise UsageError(f"--dataset={FLAGS.dataset} is not a function of data_dir and params")
    try:
        args, kwargs = _arguments(make, params)
    except TypeError as error:
        raise UsageError(
            f"--dataset={FLAGS.dataset} must be a function that takes data_dir and params: {error}"
        ) from error
    pipeline = make(*args, **kwargs)
    members = {*Pipeline.__annotations__, *vars(Pipeline)}
    wanted = {name for name in members if not name.startswith("_")}
    missing = sorted(name for name in wanted if not hasattr(pipeline, name))
    if missing:
        raise UsageError(
            f"--dataset={FLAGS.dataset} returns {type(pipeline).__name__}, which lacks "
            f"{', '.join(missing)} of input_fns.pipeline.Pipeline"
        )
    if not isinstance(pipeline.data, datasets.DatasetInfo):
        raise UsageError(
            f"--dataset={FLAGS.dataset}: data of its pipeline is {type(pipeline.data).__name__}, "
            "not input_fns.dataset_info.DatasetInfo"
        )
    return pipeline


def _arguments(make, params):
    """Returns args and kwargs of a call of `make`: --data_dir, and `params` if it takes them.

    Raises:
      TypeError: it takes others.
    """
    args, kwargs = (FLAGS.data_dir,), {}
    try:
        signature = inspect.signature(make)
    except ValueError:  # some built-in functions have no signature
        return args, kwargs
    for position, (name, p) in enumerate(signature.parameters.items()):
        if p.kind is p.KEYWORD_ONLY and name == "params":
            kwargs = {"params": params}
        elif position == 1 and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD):
            # Another second argument is left alone if it has a default.
            args += (params,) if name == "params" or p.default is p.empty else ()
    signature.bind(*args, **kwargs)
    return args, kwargs


def _cache():
    """Returns --cache; a check, which writes nothing, does without a folder."""
    is_folder = FLAGS.cache not in (caching.AUTO, caching.MEMORY, caching.NONE)
    return caching.NONE if FLAGS.mode == "check" and is_folder else FLAGS.cache
