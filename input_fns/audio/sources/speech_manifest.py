"""Recordings with transcripts, listed in tables: SOURCE/train.jsonl, SOURCE/test.csv, ...

`tables` says which formats, `split_names` which names. A row names a recording and its text;
`table_recordings` says where recordings are found. A table is untrusted: a path never leads out of
--source.
"""

from __future__ import annotations

import dataclasses
import os
import unicodedata
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from common import folders, names
from input_fns import DataError, dataset_info
from input_fns.audio import characters
from input_fns.audio.characters import Characters
from input_fns.audio.kind import Audio
from input_fns.audio.sources import recordings, table_recordings
from input_fns.audio.sources.recordings import Recordings
from input_fns.audio.sources.table_recordings import RecordingFinder
from input_fns.convert import columns
from input_fns.convert.options import Options
from input_fns.convert.source import RawDataset, content_name
from input_fns.dataset_info import LeftOut

_USUAL = (
    *("text", "sentence", "transcript", "transcription", "transcriptions", "normalizedtext"),
    *("normalizedtranscription", "normalizedtranscript", "utterance", "caption"),
)
_MAX_TOKENS = 2**14


@dataclasses.dataclass(frozen=True)
class Manifest:
    """Rows of a split: places for errors, texts and recordings."""

    places: Sequence[str]
    texts: list[str]
    recordings: Recordings


def read(options: Options) -> RawDataset:
    """Returns a split per table, with the vocabulary as a file.

    Args:
      options: `source` is a folder of tables or one table; `vocabulary` is a file of characters or
        the folder of a prepared data set, "" for the characters of "train"; `lower_case`;
        `group_column` has values that are equal for rows that must stay in one split; `columns`,
        `audio_column`, `text_columns`, `split_column`, `split_files`, `audio_folder`.

    Raises:
      DataError: a table, a column or a path is missing or invalid, or no row is left.
    """
    if len(options.text_columns) > 1:
        raise DataError(f"--text_columns={','.join(options.text_columns)}: choose one column")
    finder, left_out = RecordingFinder(options), LeftOut()
    manifests = {
        split: _read_table(table, options, finder, left_out)
        for split, table in columns.split_tables(options).items()
    }
    return to_dataset(options, manifests, left_out)


def to_dataset(
    options: Options,
    manifests: Mapping[str, Manifest],
    left_out: LeftOut,
    left_out_paths: Mapping[str, str] = MappingProxyType({}),
) -> RawDataset:
    """Returns the data set of `{split: manifest}`; see `read` and `RawDataset`."""
    table_recordings.check_splits(
        {split: (rows.places, rows.recordings) for split, rows in manifests.items()}
    )
    if options.vocabulary:
        vocabulary = _load_vocabulary(options.vocabulary)
    else:
        reference = manifests.get("train") or next(iter(manifests.values()))
        vocabulary = characters.from_texts(reference.texts)
    encoded = {name: _encode(rows, vocabulary, left_out) for name, rows in manifests.items()}
    max_tokens = max(len(row) for _, rows in encoded.values() for row in rows)
    if max_tokens > _MAX_TOKENS:
        raise DataError(
            f"a text of --source={options.source} has {max_tokens} characters, more than "
            f"{_MAX_TOKENS}. Name the column of the texts with --text_columns"
        )
    file_name = content_name("characters.txt", vocabulary.content)
    splits = {
        name: dataclasses.replace(
            manifests[name].recordings.take(kept), tokens=_to_array(tokens, max_tokens)
        )
        for name, (kept, tokens) in encoded.items()
    }
    return RawDataset(
        options.dataset,
        (),
        splits,
        files={file_name: vocabulary.content},
        labels=("tokens",),
        kind=recordings.metadata(
            options, vocabulary=file_name, vocab_size=vocabulary.size, max_tokens=max_tokens
        ),
        left_out=left_out,
        left_out_paths=dict(left_out_paths),
    )


def _read_table(table, options, finder, left_out):
    (given,) = options.text_columns or ("",)
    column = columns.require(table.path, table.columns, _USUAL, "text_columns", given)
    if not table.rows:
        raise DataError(f"{table.path} has no rows")
    kept, texts = clean_texts(table.column(column), table.places, options, left_out, column)
    table = columns.take(table, kept)
    paths, segments = finder.find(table)
    groups = None
    if options.group_column:
        groups = np.array(table.cleaned(options.group_column), object)
    elif len(set(paths)) < len(paths):
        groups = paths
    rows = table_recordings.recordings_of(paths, segments, options, groups=groups)
    return Manifest(table.places, texts, rows)


def clean_texts(
    texts: Sequence[str | None],
    places: Sequence[str],
    options: Options,
    left_out: LeftOut,
    column: str = "",
) -> tuple[list[int], list[str]]:
    """Returns the rows whose texts can be used, and these texts; `left_out` gets the others.

    Raises:
      DataError: all texts are left out; the message names the column if it is given.
    """
    found = [_text(text, options.lower_case) for text in texts]
    kept = []
    for row, (_, problem) in enumerate(found):
        if problem:
            left_out.add(f"rows with {problem}", places[row])
        else:
            kept.append(row)
    if not kept:
        where = f" in column '{column}'" if column else ""
        advice = ". Name the column of the texts with --text_columns" if column else ""
        raise DataError(f"{places[0]}: {found[0][1]}{where}, as in all {len(found)} rows{advice}")
    return kept, [found[row][0] for row in kept]


def _text(text, lower_case):
    """Returns a text and why it is left out, "" if it is not.

    Repeated spaces are removed; it is in Unicode's composed form.
    """
    text = unicodedata.normalize("NFC", " ".join((text or "").split()))
    text = text.lower() if lower_case else text
    if not text:
        return text, "no text"
    return text, "" if names.is_line(text) else "control characters in the text"


def _load_vocabulary(path):
    if not folders.is_folder(path):
        return characters.load(path)
    audio = dataset_info.read(path).kind
    if not isinstance(audio, Audio) or not audio.vocabulary:
        raise DataError(f"--vocabulary={path} is not a data set with transcripts")
    return characters.load(os.path.join(path, audio.vocabulary))


def _encode(rows, vocabulary: Characters, left_out):
    """Returns the rows whose characters are in the vocabulary, and their tokens."""
    kept, encoded, unknown = [], [], []
    for row, text in enumerate(rows.texts):
        try:
            encoded.append(vocabulary.encode(text))
            kept.append(row)
        except KeyError as error:
            unknown.append((rows.places[row], error.args[0]))
    if len(unknown) > len(kept):
        place, character = unknown[0]
        raise DataError(
            f"{place}: the character {character!a} is not in the vocabulary, like those of "
            f"{len(unknown) - 1} other texts of {len(rows.texts)}. Normalize the texts, or give "
            "--vocabulary"
        )
    for place, character in unknown:
        reason = "rows whose text has a character that is not in the vocabulary"
        left_out.add(reason, f"{place} ({character!a})")
    return kept, encoded


def _to_array(rows, width):
    array = np.zeros([len(rows), width], np.int32)
    for row, tokens in zip(array, rows):
        row[: len(tokens)] = tokens
    return array
