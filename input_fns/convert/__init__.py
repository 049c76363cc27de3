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
      is_shuffled: whether training examples are, before they are written.
      is_text: whether it yields text, to be cut into subwords.
    """

    module: str
    needs: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()
    is_shuffled: bool = False
    is_text: bool = False


# How SentencePiece learns subwords.
SUBWORDS = ("unigram", "bpe")
_ORDER = {"train": 0, "validation": 1, "test": 2}
_HOLD_OUT = ("validation_fraction", "test_fraction", "seed")
_PICTURES = ("image_size", "channels", "workers", "name", *_HOLD_OUT)
SOURCES = {
    "digits": Source("digits", takes=_HOLD_OUT),
    "mnist": Source("idx", ("source",), _HOLD_OUT),
    "fashion_mnist": Source("idx", ("source",), _HOLD_OUT),
    "cifar10": Source("cifar", ("source",), _HOLD_OUT),
    "cifar100": Source("cifar", ("source",), _HOLD_OUT),
    "image_folder": Source(
        "image_folder", ("source",), ("class_names", *_PICTURES), is_shuffled=True
    ),
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
        is_shuffled=True,
    ),
    "parallel_text": Source(
        "parallel_text",
        ("source", "languages"),
        ("vocabulary", "vocab_size", "subwords", "max_length", "name", *_HOLD_OUT),
        is_shuffled=True,
        is_text=True,
    ),
    "tfds": Source("tfds", takes=("source", *_PICTURES)),
}


def source_of(dataset: str) -> Source | None:
    """Returns the source of a data set, or None; that of "tfds:NAME" is "tfds"."""
    name, colon, rest = dataset.partition(":")
    if (name == "tfds") != bool(colon and rest):
        return None
    return SOURCES.get(name)


def read(options, progress=lambda line: None):
    """Reads the raw data set that `source.Options` describe, and holds out what they ask for.

    Args:
      options: `source.Options`.
      progress: called with a line now and then.

    Raises:
      DataError: something is missing, broken, or not what was asked for.
    """
    # Here, and not above: prepare_data.py's flags read `SOURCES` without TensorFlow.
    from input_fns.convert import holdout

    source = source_of(options.dataset)
    raw = importlib.import_module(f"input_fns.convert.{source.module}").read(options)
    splits = holdout.hold_out(raw.splits, options)
    held_out = splits.keys() - raw.splits.keys()
    if source.is_shuffled and "train" in splits:
        splits["train"] = holdout.shuffled(splits["train"], options.seed)
    in_order = sorted(splits, key=lambda name: (_ORDER.get(name, len(_ORDER)), name))
    raw = dataclasses.replace(
        raw, name=options.name or raw.name, splits={name: splits[name] for name in in_order}
    )
    if source.is_text:
        # Here too: SentencePiece is not installed with every other.
        from input_fns.convert import subwords

        raw = subwords.encode(raw, options, progress, held_out)
    return raw
