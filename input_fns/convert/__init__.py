"""Converts raw data sets to TFRecord shards. A source is one file and one line in `SOURCES`."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping

from common import folders
from common.constants import ANNOTATION_TASKS
from input_fns import DataError


@dataclasses.dataclass(frozen=True)
class Source:
    """A kind of raw data.

    Attributes:
      module: module of `input_fns.convert` whose `read(options)` returns a `source.RawDataset`.
      needs: required flags of prepare_data.py.
      takes: optional flags.
      is_shuffled: whether training examples are shuffled before they are written.
      encoder: module of `input_fns.convert` whose `encode` turns the text that it yields, in the
        final splits, into rows of tokens; "" if it yields rows.
      defaults: `{flag: default}`, if it differs from that of the flag.
      tasks: valid values of --task, if it is taken.
      holds_out: whether its module holds out validation and test itself, such as by time.
    """

    module: str
    needs: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()
    is_shuffled: bool = False
    encoder: str = ""
    defaults: Mapping[str, float | str] = dataclasses.field(default_factory=dict)
    tasks: tuple[str, ...] = ()
    holds_out: bool = False


# SentencePiece model types.
SUBWORDS = ("unigram", "bpe")
_ORDER = {"train": 0, "validation": 1, "test": 2}
_HOLD_OUT = ("validation_fraction", "test_fraction", "seed")
_WORDPIECE = ("vocabulary", "vocab_size", "lower_case", "max_length", "name", "skip", *_HOLD_OUT)
# Of text files, of one file for each split, and of tables with a header line or without.
_TEXT = ("encoding",)
_SPLIT_FILES = ("split_files",)
_TABLE = ("columns", "delimiter", "encoding")
_PRETRAINING = (
    *("max_predictions_per_seq", "masked_lm_prob", "whole_word_mask", "dupe_factor"),
    "short_seq_prob",
)
_MASKS = ("mask_folder", "mask_values", "ignored")
_AUDIO = ("sample_rate", "max_seconds", "workers", "name", "skip", *_HOLD_OUT)
_PIXELS = ("channels", "pixel_range", "workers", "name")
_IMAGES = ("image_size", *_PIXELS, *_HOLD_OUT)


def _annotated(module, tasks, takes):
    """Returns a source of images with boxes or masks."""
    takes = ("class_names", "image_folder", "skip", *_PIXELS, *takes, *_HOLD_OUT)
    takes = ("task", *takes) if len(tasks) > 1 else takes
    return Source(
        module, ("source",), takes, is_shuffled=True, defaults={"task": tasks[0]}, tasks=tasks
    )


def _text(module, needs=(), takes=(), encoder="text.sources.token_rows"):
    """Returns a source of text for BERT."""
    truncate = ("truncate",) if encoder == "token_rows" else ()
    takes = (*takes, *truncate, *_WORDPIECE)
    return Source(module, ("source", *needs), takes, is_shuffled=True, encoder=encoder)


SOURCES = {
    "digits": Source("image.sources.digits", takes=_HOLD_OUT),
    "mnist": Source("image.sources.idx", ("source",), _HOLD_OUT),
    "fashion_mnist": Source("image.sources.idx", ("source",), _HOLD_OUT),
    "cifar10": Source("image.sources.cifar", ("source",), _HOLD_OUT),
    "cifar100": Source("image.sources.cifar", ("source",), _HOLD_OUT),
    "image_folder": Source(
        "image.sources.image_folder",
        ("source",),
        ("class_names", "skip", *_IMAGES),
        is_shuffled=True,
    ),
    "image_csv": Source(
        "image.sources.image_csv",
        ("source", "csv"),
        (
            "image_column",
            "label_columns",
            "group_column",
            "split_column",
            "class_names",
            "skip",
            *_TABLE,
            *_IMAGES,
        ),
        is_shuffled=True,
    ),
    "coco": _annotated("image.sources.coco", ANNOTATION_TASKS, ("annotations", "max_boxes")),
    "voc": _annotated(
        "image.sources.voc",
        ANNOTATION_TASKS,
        ("max_boxes", "box_origin", "xml_folder", "encoding", *_MASKS),
    ),
    "image_masks": _annotated(
        "image.sources.image_masks", ANNOTATION_TASKS[1:], (*_MASKS, "image_suffix", "mask_suffix")
    ),
    "parallel_text": Source(
        "text.sources.parallel_text",
        ("source", "languages"),
        (
            *("vocabulary", "vocab_size", "subwords", "max_length", "name", "skip"),
            *(*_TEXT, *_SPLIT_FILES, *_HOLD_OUT),
        ),
        is_shuffled=True,
        encoder="text.sources.subwords",
    ),
    "squad": Source(
        "text.sources.squad",
        ("source",),
        ("doc_stride", "max_query_length", *_SPLIT_FILES, *_WORDPIECE),
        is_shuffled=True,
        encoder="text.sources.squad_encode",
        defaults={"max_length": 384},
    ),
    "text_files": dataclasses.replace(
        _text(
            "text.sources.text_files",
            needs=("text_columns",),
            takes=(
                *("label_columns", "split_column", "group_column"),
                *("class_names", "task", *_SPLIT_FILES, *_TABLE),
            ),
        ),
        tasks=("classification", "regression"),
    ),
    "token_files": _text(
        "text.sources.token_files",
        takes=("columns", "text_columns", "label_columns", *_SPLIT_FILES, *_TEXT),
        encoder="text.sources.token_files",
    ),
    "pretraining_text": dataclasses.replace(
        _text(
            "text.sources.pretraining_text",
            takes=(*_PRETRAINING, *_TEXT, *_SPLIT_FILES),
            encoder="text.sources.pretraining_rows",
        ),
        is_shuffled=False,  # by its encoder
    ),
    "text_folder": _text("text.sources.text_folder", takes=("class_names", *_TEXT)),
    "imdb": _text("text.sources.imdb", takes=_TEXT),
    "trec": _text("text.sources.trec", takes=_TEXT),
    **{
        name: _text("text.sources.glue")
        for name in ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "wnli")
    },
    "ratings": Source(
        "tables.sources.ratings",
        ("source",),
        (
            *("user_column", "item_column", "rating_column", "time_column", *_TABLE),
            *("name", "skip", "seed", "validation_fraction"),
        ),
        is_shuffled=True,
    ),
    "criteo": Source(
        "tables.sources.criteo",
        ("source",),
        ("name", "skip", "min_frequency", "hash_rows", "max_rows", *_SPLIT_FILES, *_HOLD_OUT[:2]),
        holds_out=True,
    ),
    "audio_folder": Source(
        "audio.sources.audio_folder",
        ("source",),
        ("class_names", *_AUDIO),
        is_shuffled=True,
        defaults={"max_seconds": 1.5},
    ),
    "audio_csv": Source(
        "audio.sources.audio_csv",
        ("source", "csv"),
        (
            *("audio_column", "label_columns", "group_column", "split_column", "class_names"),
            *(*_TABLE, *_AUDIO),
        ),
        is_shuffled=True,
        defaults={"max_seconds": 1.5},
    ),
    "fsdd": Source(
        "audio.sources.fsdd",
        ("source",),
        ("test_speaker", *_AUDIO),
        is_shuffled=True,
        defaults={"sample_rate": 8000, "max_seconds": 1.5},
    ),
    "speech_manifest": Source(
        "audio.sources.speech_manifest",
        ("source",),
        (
            *("vocabulary", "lower_case", "audio_folder", "audio_column", "text_columns"),
            *("group_column", "split_column", *_SPLIT_FILES, *_TABLE, *_AUDIO),
        ),
        is_shuffled=True,
    ),
    "tfds": Source("image.sources.tfds", takes=("source", *_IMAGES)),
}
# A function of the user, package.module:FUNCTION.
_CUSTOM = Source(
    "convert.custom", ("name",), ("source", "channels", "pixel_range", *_HOLD_OUT), is_shuffled=True
)


def source_of(dataset: str) -> Source | None:
    """Returns the source of "NAME", "tfds:NAME" or "package.module:FUNCTION"; None if unknown."""
    name, colon, rest = dataset.partition(":")
    if name == "tfds" or not colon:
        return SOURCES.get(name) if (name == "tfds") == bool(rest) else None
    parts = [*name.split("."), rest]
    return _CUSTOM if all(part.isidentifier() for part in parts) else None


def is_custom(dataset: str) -> bool:
    """Whether `dataset` names a function of the user, package.module:FUNCTION."""
    return source_of(dataset) is _CUSTOM


def users_of(flag: str) -> list[str]:
    """Returns the names of the sources that take a flag of prepare_data.py."""
    sources = {**SOURCES, "package.module:FUNCTION": _CUSTOM}
    return [name for name, source in sources.items() if flag in (*source.needs, *source.takes)]


def check_source(dataset: str, path: str | None) -> None:
    """Raises `DataError` if a data set needs --source and `path` is not a folder and not a file."""
    if "source" not in source_of(dataset).needs:
        return
    if not (folders.is_folder(path) or folders.is_file(path)):
        raise DataError(f"--source={path} is not a folder and not a file")


def read(options, progress=lambda line: None, function=None):
    """Reads the raw data set that `source.Options` describe, and holds out splits of "train".

    Args:
      options: `source.Options`.
      progress: function that prints a line.
      function: the user's function if `options.dataset` is custom; see `custom`.

    Returns:
      `source.RawDataset`.

    Raises:
      DataError: a file or an option is missing or invalid.
    """
    # Imported here: the flags of prepare_data.py read `SOURCES` without TensorFlow.
    from input_fns.convert import files, holdout, inventory

    check_source(options.dataset, options.source)
    source = source_of(options.dataset)
    module = importlib.import_module(f"input_fns.{source.module}")
    with files.recording(progress) as opened:
        raw = module.read(function, options) if source is _CUSTOM else module.read(options)
        if "source" in source.needs:  # a folder of raw files
            for split in raw.splits.values():
                opened.update(getattr(split, "paths", ()))
            used = {*opened, options.csv, options.vocabulary}
            raw.left_out.update(inventory.unread(options, used, raw.left_out_paths))
    holdout.check_groups(raw.splits, options)
    splits = raw.splits if source.holds_out else holdout.hold_out(raw.splits, options)
    holdout.require_groups_matter(splits, options)
    held_out = splits.keys() - raw.splits.keys()
    if source.is_shuffled and "train" in splits:
        splits["train"] = holdout.shuffled(splits["train"], options.seed)
    in_order = sorted(splits, key=lambda name: (_ORDER.get(name, len(_ORDER)), name))
    raw = dataclasses.replace(
        raw, name=options.name or raw.name, splits={name: splits[name] for name in in_order}
    )
    if source.encoder:
        # Its tokenizer is an optional dependency.
        encoder = importlib.import_module(f"input_fns.{source.encoder}")
        raw = encoder.encode(raw, options, progress, held_out)
    return raw
