"""Raw data sets to TFRecord shards. A source is one file and one line in `SOURCES`."""

from __future__ import annotations

import dataclasses
import importlib


@dataclasses.dataclass(frozen=True)
class Source:
    """A kind of raw data.

    Attributes:
      module: in `input_fns.convert`, whose `read(options)` returns a `source.RawDataset`.
      needs: flags of prepare_data.py that must be given.
      takes: others that may be.
      in_order_of_class: whether training examples must be shuffled before they are written.
    """

    module: str
    needs: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()
    in_order_of_class: bool = False


_ORDER = {"train": 0, "validation": 1, "test": 2}
_HOLD_OUT = ("validation_fraction", "test_fraction", "seed")
_PICTURES = ("image_size", "channels", "workers", "name", *_HOLD_OUT)
SOURCES = {
    "digits": Source("digits", takes=_HOLD_OUT),
    "mnist": Source("idx", ("source",), _HOLD_OUT),
    "fashion_mnist": Source("idx", ("source",), _HOLD_OUT),
    "cifar10": Source("cifar", ("source",), _HOLD_OUT),
    "cifar100": Source("cifar", ("source",), _HOLD_OUT),
    "image_folder": Source("image_folder", ("source",), ("class_names", *_PICTURES), True),
    "image_csv": Source(
        "image_csv",
        ("source", "csv"),
        (
            "image_column",
            "label_columns",
            "group_column",
            "split_column",
            "class_names",
            *_PICTURES,
        ),
        True,
    ),
    "parallel_text": Source("parallel_text", ("source", "languages"), ("name",)),
    "tfds": Source("tfds", takes=("source", *_PICTURES)),
}


def source_of(dataset: str) -> Source | None:
    """Returns the source of a data set, or None; that of "tfds:NAME" is "tfds"."""
    name, colon, rest = dataset.partition(":")
    if (name == "tfds") != bool(colon and rest):
        return None
    return SOURCES.get(name)


def read(options):
    """Reads the raw data set that `source.Options` describe, and holds out what they ask for.

    Raises:
      DataError: something is missing, broken, or not what was asked for.
    """
    # Here, and not above: prepare_data.py's flags read `SOURCES` without TensorFlow.
    from input_fns.convert import holdout

    source = source_of(options.dataset)
    raw = importlib.import_module(f"input_fns.convert.{source.module}").read(options)
    splits = holdout.hold_out(raw.splits, options)
    if source.in_order_of_class and "train" in splits:
        splits["train"] = holdout.shuffled(splits["train"], options.seed)
    in_order = sorted(splits, key=lambda name: (_ORDER.get(name, len(_ORDER)), name))
    return dataclasses.replace(
        raw, name=options.name or raw.name, splits={name: splits[name] for name in in_order}
    )
