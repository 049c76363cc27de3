"""The input pipeline that the flags ask for: images, text, random numbers, or the user's own."""

from __future__ import annotations

import importlib
import inspect

from common.errors import UsageError
from engine.cli.flags import FLAGS, is_own_dataset
from input_fns import augment, caching, inspection, synthetic
from input_fns import dataset_info as datasets
from input_fns.image_pipeline import ImagePipeline
from input_fns.pipeline import Pipeline
from input_fns.synthetic import SyntheticPipeline
from models import registry


def from_flags(splits: list[str]) -> Pipeline:
    """Returns the pipeline.

    Args:
      splits: that will be read, whose shards must be there.

    Raises:
      UsageError, DataError, ModelError: it cannot be made.
    """
    if is_own_dataset(FLAGS.dataset):
        return _own()
    is_synthetic = FLAGS.dataset == synthetic.NAME
    data = _dataset(is_synthetic, splits)
    if data.text:
        return _of_text(data, is_synthetic)
    augmentation = augment.parse(FLAGS.augment)
    pipeline = ImagePipeline(data, FLAGS.image_size, augmentation, FLAGS.center_crop, _cache())
    if is_synthetic:
        return SyntheticPipeline(data, pipeline.features, augmentation.mixes)
    return pipeline


def properties(pipeline: Pipeline) -> dict[str, int]:
    """Returns the properties of the data set that determine hyperparameters."""
    text = pipeline.data.text
    found = {
        "num_classes": pipeline.data.num_classes,
        "vocab_size": text.vocab_size if text else 0,
    }
    return {name: value for name, value in found.items() if value}


def _own():
    """Calls the user's function with the folder of the data, None if there is none."""
    for name in ("augment", "image_size", "skip_bad_records"):
        if FLAGS[name].value:
            raise UsageError(f"--{name} is not for a --dataset of one's own")
    make = registry.attribute("dataset", FLAGS.dataset)
    if not callable(make):
        raise UsageError(f"--dataset={FLAGS.dataset} is no function of data_dir")
    try:
        inspect.signature(make).bind(FLAGS.data_dir)
    except TypeError as error:
        raise UsageError(
            f"--dataset={FLAGS.dataset} must be a function that takes data_dir: {error}"
        ) from error
    except ValueError:  # some built-in functions do not tell
        pass
    pipeline = make(FLAGS.data_dir)
    members = {*Pipeline.__annotations__, *vars(Pipeline)}
    wanted = {name for name in members if not name.startswith("_")}
    missing = sorted(name for name in wanted if not hasattr(pipeline, name))
    if missing:
        raise UsageError(
            f"--dataset={FLAGS.dataset} returns {type(pipeline).__name__}, which lacks "
            f"{', '.join(missing)} of input_fns.pipeline.Pipeline"
        )
    if not isinstance(pipeline.data, datasets.Dataset):
        raise UsageError(
            f"--dataset={FLAGS.dataset}: data of its pipeline is {type(pipeline.data).__name__}, "
            "not input_fns.dataset_info.Dataset"
        )
    return pipeline


def _dataset(is_synthetic, splits):
    if FLAGS.data_dir is not None:
        if is_synthetic:
            return datasets.read(FLAGS.data_dir)
        repaired_split = FLAGS.train_split if FLAGS.skip_bad_records else ""
        data = datasets.load(FLAGS.data_dir, FLAGS.dataset, splits, repaired_split)
        inspection.check_contents(data, [split for split in splits if split != repaired_split])
        return data
    if FLAGS.synthetic_text is not None:
        return synthetic.text_dataset(*FLAGS.synthetic_text)
    return synthetic.dataset(FLAGS.image_size, FLAGS.synthetic_classes)


def _of_text(data, is_synthetic):
    for name in ("augment", "image_size"):
        if FLAGS[name].value:
            raise UsageError(f"--{name} is for images, and {data.name} is text")
    if is_synthetic:
        return SyntheticPipeline(data, {"source": data.features["source"]})
    from input_fns.text_pipeline import TextPipeline  # SentencePiece is not installed everywhere

    if FLAGS.export_text:
        importlib.import_module("input_fns.text_ops")  # raises what is missing, before all else
    return TextPipeline(data, _cache(), FLAGS.export_text)


def _cache():
    """Returns --cache; a check, which writes nothing, does without a folder."""
    is_folder = FLAGS.cache not in (caching.AUTO, caching.MEMORY, caching.NONE)
    return caching.NONE if FLAGS.mode == "check" and is_folder else FLAGS.cache
