"""Converts raw data sets to TFRecord shards. A source is one file and one line in `SOURCES`."""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections.abc import Mapping

from common import folders
from common.constants import ANNOTATION_TASKS, TARGETS
from input_fns import DataError


@dataclasses.dataclass(frozen=True)
class Source:
    """A kind of raw data.

    Attributes:
      module: module of `input_fns` whose `read(options)` returns a `source.RawDataset`.
      needs: required flags of prepare_data.py.
      takes: optional flags.
      is_shuffled: whether training examples are shuffled before they are written.
      defaults: `{flag: default}`, if it differs from that of the flag.
      tasks: valid values of --task, the default first; () without tasks.
      holds_out: whether its module holds out validation and test itself, such as by time.
      in_parts: whether it reads parts in worker processes: `read(options, runner)`.
    """

    module: str
    needs: tuple[str, ...]
    takes: tuple[str, ...]
    is_shuffled: bool = True
    defaults: Mapping[str, float | str | tuple[str, ...]] = dataclasses.field(default_factory=dict)
    tasks: tuple[str, ...] = ()
    holds_out: bool = False
    in_parts: bool = False


def _source(module, takes, needs="source", tasks=(), defaults=None, **options):
    """Returns a source; `needs` and `takes` are names of flags, separated by spaces."""
    room = module.partition(".")[0]
    needs, takes = tuple(needs.split()), (*takes.split(), *["task"] * (len(tasks) > 1))
    defaults = {**(defaults or {}), **({"task": tasks[0]} if tasks else {})}
    module = module.replace(".", ".sources.", 1) if room != "convert" else module
    return Source(module, needs, takes, defaults=defaults, tasks=tasks, **options)


_ORDER = {"train": 0, "validation": 1, "test": 2}
_HOLD_OUT = "validation_fraction test_fraction seed"
_TABLE = "columns delimiter encoding"
_LABELS = "label_columns label_separator group_column split_column class_names"
_PIXELS = f"channels pixel_range name {_HOLD_OUT}"
_IMAGES = f"image_size skip {_PIXELS}"
_ANNOTATED = f"class_names image_folder skip {_PIXELS}"
_MASKS = "mask_folder mask_values ignored"
_AUDIO = f"sample_rate max_seconds name skip {_HOLD_OUT}"
_MANIFEST = (
    "vocabulary lower_case audio_folder audio_column text_columns group_column split_column "
    f"split_files {_TABLE} {_AUDIO}"
)
_BERT = f"vocabulary vocab_size lower_case strip_accents max_length name skip {_HOLD_OUT}"
_TEXT = f"truncate doc_stride {_BERT}"  # with windows
_SUBWORDS = f"vocabulary vocab_size subwords max_length name skip {_HOLD_OUT}"
_PAIRS = "max_predictions_per_seq masked_lm_prob whole_word_mask dupe_factor short_seq_prob"
_WORDS = {"max_seconds": 1.5}  # of audio: short recordings
_COMMON_VOICE = {
    "split_files": ("train=train.tsv", "validation=dev.tsv", "test=test.tsv"),
    "audio_folder": "clips",
    "group_column": "client_id",
}
_IN_ORDER = {"is_shuffled": False}

# A source is a file and a line here: its module, the flags that it needs and those that it takes.
SOURCES = {
    "digits": _source("image.digits", _HOLD_OUT, needs="", **_IN_ORDER),
    "mnist": _source("image.idx", _HOLD_OUT, **_IN_ORDER),
    "fashion_mnist": _source("image.idx", _HOLD_OUT, **_IN_ORDER),
    "cifar10": _source("image.cifar", _HOLD_OUT, **_IN_ORDER),
    "cifar100": _source("image.cifar", _HOLD_OUT, **_IN_ORDER),
    "image_folder": _source(
        "image.image_files",
        f"class_names {_IMAGES}",
        tasks=("classification", "multilabel"),
    ),
    "imagenet": _source("image.imagenet", _IMAGES),
    "image_csv": _source(
        "image.image_files",
        f"image_column {_LABELS} {_TABLE} {_IMAGES}",
        needs="source csv",
        tasks=TARGETS,
    ),
    "coco": _source("image.coco", f"annotations max_boxes {_ANNOTATED}", tasks=ANNOTATION_TASKS),
    "voc": _source(
        "image.voc",
        f"max_boxes box_origin xml_folder encoding {_MASKS} {_ANNOTATED}",
        tasks=ANNOTATION_TASKS,
    ),
    "yolo": _source(
        "image.yolo",
        f"max_boxes class_names skip {_PIXELS}",
        tasks=(ANNOTATION_TASKS[0], ANNOTATION_TASKS[2], ANNOTATION_TASKS[1]),
    ),
    "image_masks": _source(
        "image.image_masks",
        f"{_MASKS} image_suffix mask_suffix label_divisor max_boxes {_ANNOTATED}",
        tasks=ANNOTATION_TASKS[1:],
    ),
    "parallel_text": _source(
        "text.parallel_text",
        f"encoding split_files {_SUBWORDS}",
        needs="source languages",
    ),
    "squad": _source(
        "text.squad",
        f"doc_stride max_query_length split_files {_BERT}",
        defaults={"max_length": 384},
    ),
    "text_files": _source(
        "text.text_files",
        f"{_LABELS} split_files {_TABLE} {_TEXT}",
        needs="source text_columns",
        in_parts=True,
        tasks=TARGETS,
    ),
    "token_files": _source(
        "text.token_files",
        f"columns text_columns label_columns split_files encoding {_TEXT}",
    ),
    "pretraining_text": _source(  # its encoder shuffles
        "text.pretraining_text",
        f"{_PAIRS} encoding split_files {_BERT}",
        in_parts=True,
        **_IN_ORDER,
    ),
    "lm_text": _source(
        "text.lm_text",
        f"tokenizer vocabulary vocab_size max_length name skip encoding split_files {_HOLD_OUT}",
        defaults={"max_length": 1024},
        holds_out=True,
    ),
    "text_folder": _source("text.text_folder", f"class_names encoding {_TEXT}"),
    "imdb": _source("text.imdb", f"encoding {_TEXT}", in_parts=True),
    "trec": _source("text.trec", f"encoding {_TEXT}"),
    **{
        name: _source("text.glue", _TEXT)
        for name in ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "wnli")
    },
    "ratings": _source(
        "tables.ratings",
        "user_column item_column rating_column time_column name skip seed validation_fraction "
        f"{_TABLE}",
    ),
    "criteo": _source(
        "tables.criteo",
        "min_frequency hash_rows max_rows split_files name skip validation_fraction test_fraction",
        holds_out=True,
        in_parts=True,
        **_IN_ORDER,
    ),
    "audio_folder": _source("audio.labelled_recordings", f"class_names {_AUDIO}", defaults=_WORDS),
    "audio_csv": _source(
        "audio.labelled_recordings",
        f"audio_column {_LABELS} {_TABLE} {_AUDIO}",
        needs="source csv",
        defaults=_WORDS,
        tasks=TARGETS,
    ),
    "fsdd": _source(
        "audio.fsdd", f"test_speaker {_AUDIO}", defaults={"sample_rate": 8000, **_WORDS}
    ),
    "speech_manifest": _source("audio.speech_manifest", _MANIFEST),
    "common_voice": _source("audio.speech_manifest", _MANIFEST, defaults=_COMMON_VOICE),
    "librispeech": _source("audio.librispeech", f"vocabulary lower_case {_AUDIO}"),
    "tfds": _source(  # takes the flags of each kind that it reads
        "convert.tfds",
        "source image_size class_names max_boxes mask_values ignored sample_rate max_seconds "
        "label_columns doc_stride max_query_length "
        "languages text_columns vocabulary vocab_size lower_case strip_accents max_length "
        "truncate subwords "
        f"{_PIXELS}",
        needs="",
        tasks=("classification", "multilabel", "regression", *ANNOTATION_TASKS[:2]),
        in_parts=True,
        **_IN_ORDER,
    ),
}
# A function of the user, package.module:FUNCTION.
_CUSTOM = _source("convert.custom", f"source channels pixel_range {_HOLD_OUT}", needs="name")


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


def read(options, progress=lambda line: None, function=None, runner=None):
    """Reads the raw data set that `options.Options` describe, and holds out splits of "train".

    Args:
      options: `options.Options`.
      progress: function that prints a line.
      function: the user's function if `options.dataset` is custom; see `custom`.
      runner: `runners.Runner` that reads parts of the source; default: this process reads them.

    Returns:
      `source.RawDataset`.

    Raises:
      DataError: a file or an option is missing or invalid.
    """
    # Imported here: the flags of prepare_data.py read `SOURCES` without TensorFlow.
    from input_fns.convert import files, holdout, inventory

    check_source(options.dataset, options.source)
    source = source_of(options.dataset)
    if options.source and "source" in source.needs:  # as a shell completes it
        options = dataclasses.replace(options, source=options.source.rstrip("/") or "/")
    module = importlib.import_module(f"input_fns.{source.module}")
    runner = runner or _this_process()
    with files.recording(progress) as opened:
        if source is _CUSTOM:
            raw = module.read(function, options)
        else:
            raw = module.read(options, *[runner] * source.in_parts)
        if "source" in source.needs:  # a folder of raw files
            for split in raw.splits.values():
                if not getattr(split, "archives", ()):  # whose files are no files of the source
                    opened.update(getattr(split, "paths", ()))
            used = {*opened, options.csv, options.vocabulary}
            raw.left_out.update(inventory.unread(options, used, raw.left_out_paths))
    holdout.check_groups(raw.splits, options)
    splits = raw.splits if source.holds_out else holdout.hold_out(raw.splits, options)
    holdout.require_groups_matter(splits, options)
    if source.is_shuffled and "train" in splits:
        splits["train"] = holdout.shuffled(splits["train"], options.seed)
    in_order = sorted(splits, key=lambda name: (_ORDER.get(name, len(_ORDER)), name))
    target = raw.target
    if target and getattr(splits.get("train"), "targets", None) is not None:
        target = target.measured(splits["train"].targets)
    raw = dataclasses.replace(
        raw,
        name=options.name or raw.name,
        target=target,
        splits={name: splits[name] for name in in_order},
        held_out=frozenset(splits.keys() - raw.splits.keys()),
        path=options.source or "",
    )
    if raw.encoder:
        # Its tokenizer is an optional dependency.
        encoder = importlib.import_module(f"input_fns.{raw.encoder}")
        raw = encoder.encode(raw, options, progress, runner)
    return raw


@functools.cache
def _this_process():
    """Returns a runner whose files stay until this process ends: what was read may be in them."""
    from input_fns.convert import runners

    return runners.InProcess()
