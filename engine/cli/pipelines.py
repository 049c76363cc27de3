"""Creates the input pipeline of --dataset: images, text, records, synthetic or custom data.

The pipeline of a task is imported where it is made: a start needs one of them.
"""

from __future__ import annotations

import importlib
import inspect
from typing import Any

from common.constants import ANNOTATION_TASKS, NUM_NEGATIVES, TABLE_TASKS
from common.errors import UsageError
from engine.cli.flags import FLAGS, TRANSLATION, is_own_dataset, repaired_split
from input_fns import dataset_info as datasets
from input_fns.core import caching, inspection, synthetic
from input_fns.core.synthetic import SyntheticPipeline
from input_fns.image import augment
from input_fns.pipeline import Pipeline
from input_fns.record_pipeline import RecordPipeline
from models import registry

_OF_IMAGES = ("augment", "image_size", "center_crop")


def from_flags(splits: list[str], params: dict[str, Any] | None = None) -> Pipeline:
    """Returns the pipeline.

    Args:
      splits: splits that will be read; their shards must exist.
      params: hyperparameters, for a custom data set's function and `num_negatives` of ratings.

    Raises:
      UsageError, DataError, ModelError: the flags or the data set are invalid.
    """
    is_synthetic = FLAGS.dataset == synthetic.NAME
    is_own = is_own_dataset(FLAGS.dataset)
    data = None if is_own else _dataset(is_synthetic, splits)
    if _group_by_length() and (is_own or is_synthetic or not data.wordpiece):
        raise UsageError(
            f"--group_by_length needs prepared text for BERT, but --dataset={FLAGS.dataset} is "
            "not. Remove --group_by_length"
        )
    if is_own:
        return _custom_pipeline(params or {})
    if data.text:
        return _text_pipeline(data, is_synthetic)
    if data.wordpiece:
        return _token_pipeline(data, is_synthetic)
    if data.annotations:
        return _annotated_pipeline(data, is_synthetic)
    if data.ratings:
        return _ratings_pipeline(data, is_synthetic, params or {})
    if data.clicks:
        return _clicks_pipeline(data, is_synthetic)
    if data.audio:
        return _audio_pipeline(data, is_synthetic)
    if not data.has_only_images:
        return _record_pipeline(data, is_synthetic)
    from input_fns.image.image_pipeline import ImagePipeline

    augmentation = augment.parse(FLAGS.augment)
    pipeline = ImagePipeline(data, FLAGS.image_size, augmentation, FLAGS.center_crop, _cache())
    if is_synthetic:
        return SyntheticPipeline(data, pipeline.features, augmentation.mixes)
    return pipeline


def _record_pipeline(data, is_synthetic):
    if is_synthetic:
        raise UsageError(f"--dataset={synthetic.NAME} imitates images and text, not {data.name}")
    features = ", ".join(data.features)
    _reject_flags(
        _OF_IMAGES,
        f"needs images with classes, but {data.name} has the features {features}",
    )
    return RecordPipeline(data, _cache())


def _ratings_pipeline(data, is_synthetic, params):
    _reject_flags(_OF_IMAGES, f"needs images, but {data.name} has ratings")
    from input_fns.tables.ratings_pipeline import RatingsPipeline

    num_negatives = params.get("num_negatives", NUM_NEGATIVES)
    has_probability = params.get("logq_correction", False)
    rank_all_items = params.get("rank_all_items", False)
    pipeline = RatingsPipeline(data, _cache(), num_negatives, has_probability, rank_all_items)
    if is_synthetic:
        return SyntheticPipeline(data, pipeline.features, num_negatives=num_negatives)
    return pipeline


def _clicks_pipeline(data, is_synthetic):
    _reject_flags(_OF_IMAGES, f"needs images, but {data.name} has clicks")
    from input_fns.tables.clicks_pipeline import ClicksPipeline

    pipeline = ClicksPipeline(data, _cache())
    return SyntheticPipeline(data, pipeline.features) if is_synthetic else pipeline


def _audio_pipeline(data, is_synthetic):
    _reject_flags(("image_size", "center_crop"), f"needs images, but {data.name} has recordings")
    from input_fns.audio import augment as audio_augment
    from input_fns.audio.audio_pipeline import AudioPipeline

    pipeline = AudioPipeline(data, audio_augment.parse(FLAGS.augment), _cache())
    if is_synthetic:
        return SyntheticPipeline(data, pipeline.features, masks=pipeline.augmentation.masks)
    return pipeline


def _annotated_pipeline(data, is_synthetic):
    from input_fns.image.detection_pipeline import DetectionPipeline
    from input_fns.image.segmentation_pipeline import SegmentationPipeline

    _reject_flags(("center_crop",), f"is of images with classes; {data.name} has annotations")
    is_detection = data.annotations.task == "detection"
    make = DetectionPipeline if is_detection else SegmentationPipeline
    augmentation = augment.parse(FLAGS.augment)
    pipeline = make(data, FLAGS.image_size, augmentation, _cache())
    if is_synthetic:
        return SyntheticPipeline(data, pipeline.features, bool(augmentation.mosaic))
    return pipeline


def _custom_pipeline(params):
    """Calls the function of a custom --dataset with --data_dir, None if unset, and `params`."""
    _reject_flags(
        (*_OF_IMAGES, "skip_bad_records", "cache"),
        "is not valid with a custom --dataset. Remove it",
    )
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


def _reject_flags(names, reason):
    for name in names:
        if FLAGS[name].value != FLAGS[name].default:
            raise UsageError(f"--{name} {reason}")


def _dataset(is_synthetic, splits):
    if FLAGS.data_dir is not None:
        if is_synthetic:
            return datasets.read(FLAGS.data_dir)
        repaired = repaired_split()
        data = datasets.load(FLAGS.data_dir, FLAGS.dataset, splits, repaired)
        inspection.check_contents(data, [split for split in splits if split != repaired])
        return data
    if FLAGS.synthetic_text is not None and FLAGS.synthetic_task == TRANSLATION:
        return synthetic.text_dataset(*FLAGS.synthetic_text)
    if FLAGS.synthetic_text is not None:
        return synthetic.token_dataset(FLAGS.synthetic_task, *FLAGS.synthetic_text)
    if FLAGS.synthetic_task in TABLE_TASKS:
        is_ratings = FLAGS.synthetic_task == "ratings"
        make = synthetic.ratings_dataset if is_ratings else synthetic.clicks_dataset
        return make(*map(int, FLAGS.synthetic_tables))
    if FLAGS.synthetic_audio is not None:
        sizes = [*map(int, FLAGS.synthetic_audio), 0, 0][:4]
        return synthetic.audio_dataset(*sizes, FLAGS.synthetic_classes)
    if FLAGS.synthetic_task in ANNOTATION_TASKS:
        make = synthetic.annotated_dataset
        return make(FLAGS.synthetic_task, FLAGS.image_size, FLAGS.synthetic_classes)
    return synthetic.dataset(FLAGS.image_size, FLAGS.synthetic_classes)


def _text_pipeline(data, is_synthetic):
    _reject_flags(_OF_IMAGES, f"needs images, but {data.name} is text")
    if is_synthetic:
        return SyntheticPipeline(data, {"source": data.features["source"]})
    from input_fns.text.text_pipeline import (
        TextPipeline,  # SentencePiece is not installed everywhere
    )

    if FLAGS.export_text:
        importlib.import_module("input_fns.text.text_ops")  # raises what is missing
    return TextPipeline(data, _cache(), FLAGS.export_text)


def _token_pipeline(data, is_synthetic):
    _reject_flags(_OF_IMAGES, f"needs images, but {data.name} is text")
    from input_fns.text.squad_pipeline import SquadPipeline
    from input_fns.text.token_pipeline import TokenPipeline

    pipeline = SquadPipeline if data.wordpiece.task == "squad" else TokenPipeline
    if is_synthetic:
        return SyntheticPipeline(data, pipeline(data).features)
    if FLAGS.export_text:
        if data.wordpiece.task not in ("classification", "regression", "squad"):
            raise UsageError(
                "--export_text needs texts with classes or scores, or questions about texts; "
                f"{data.name} is a data set of {data.wordpiece.task}"
            )
        importlib.import_module("input_fns.text.wordpiece_ops")  # raises what is missing
    return pipeline(data, _cache(), FLAGS.export_text, _dynamic_padding(), _group_by_length())


def _dynamic_padding():
    """Returns --dynamic_padding of run_cpu.py; a TPU and micro-batches need static shapes."""
    return "dynamic_padding" in FLAGS and FLAGS.dynamic_padding and FLAGS.accumulate_steps == 1


def _group_by_length():
    return "group_by_length" in FLAGS and FLAGS.group_by_length


def _cache():
    """Returns --cache; a check, which writes nothing, does without a folder."""
    is_folder = FLAGS.cache not in (caching.AUTO, caching.MEMORY, caching.NONE)
    return caching.NONE if FLAGS.mode == "check" and is_folder else FLAGS.cache
