"""Recordings with transcripts, listed in tables: SOURCE/train.jsonl, SOURCE/test.csv, ...

A row has the columns `path`, a WAV file below the folder of the table, and `text`. `tables` says
which formats. An absolute path and one that leaves the folder are errors: a manifest is untrusted.
"""

from __future__ import annotations

import dataclasses
import os
import posixpath
import unicodedata

import numpy as np

from common import folders, names
from input_fns import DataError, characters, dataset_info
from input_fns.characters import Characters
from input_fns.convert import recordings, tables
from input_fns.convert.recordings import Recordings
from input_fns.convert.source import Options, RawDataset
from input_fns.convert.split_names import split_names
from input_fns.convert.text_files import table_files
from input_fns.convert.writer import content_name

_PATH, _TEXT = "path", "text"
_MAX_TOKENS = 2**14


@dataclasses.dataclass(frozen=True)
class _Manifest:
    """Rows of a split: places for errors, paths of recordings, texts, and groups or None."""

    places: list[str]
    paths: list[str]
    texts: list[str]
    groups: list[str] | None


def read(options: Options) -> RawDataset:
    """Returns a split per table, with the vocabulary as a file.

    Args:
      options: `source` is a folder of tables or one table; `vocabulary` is a file of characters or
        the folder of a prepared data set, "" for the characters of "train"; `lower_case`;
        `group_column` has values that are equal for rows that must stay in one split.

    Raises:
      DataError: a table, a column, a path or a text is missing or invalid.
    """
    source = options.source
    found = {stem: _read_table(path, options) for stem, path in table_files(source).items()}
    in_order = split_names(found, f"--source={source}")
    manifests = {ours: found[stem] for ours, stem in in_order.items()}
    _check_splits(manifests)
    if options.vocabulary:
        vocabulary = _load_vocabulary(options.vocabulary)
    else:
        reference = manifests.get("train") or next(iter(manifests.values()))
        vocabulary = characters.from_texts(reference.texts)
    encoded = {name: _encode(rows, vocabulary) for name, rows in manifests.items()}
    max_tokens = max(len(row) for rows in encoded.values() for row in rows)
    if max_tokens > _MAX_TOKENS:
        raise DataError(f"a text of --source={source} has {max_tokens} characters, too many")
    folder = source if folders.is_folder(source) else os.path.dirname(source) or "."
    options = dataclasses.replace(options, source=folder)
    file_name = content_name("characters.txt", vocabulary.content)
    splits = {
        name: Recordings(
            np.array(rows.paths, object),
            options,
            tokens=_to_array(encoded[name], max_tokens),
            groups=_groups(rows),
        )
        for name, rows in manifests.items()
    }
    return RawDataset(
        options.dataset,
        (),
        splits,
        files={file_name: vocabulary.content},
        labels=("tokens",),
        audio=recordings.metadata(
            options, vocabulary=file_name, vocab_size=vocabulary.size, max_tokens=max_tokens
        ),
    )


def _read_table(path, options):
    table = tables.read(path)
    if not table.rows:
        raise DataError(f"{path} has no rows")
    places = [table.where(row) for row in range(len(table.rows))]
    folder = os.path.dirname(path)
    paths = [_path(folder, *row) for row in zip(places, table.column(_PATH))]
    texts = [_text(*row, options.lower_case) for row in zip(places, table.column(_TEXT))]
    groups = None
    if options.group_column:
        groups = [str(value) for value in table.column(options.group_column)]
    return _Manifest(places, paths, texts, groups)


def _path(folder, place, name):
    """Returns the path of a recording."""
    if not name:
        raise DataError(f"{place}: no {_PATH}. Remove the row, or name a WAV file")
    normal = posixpath.normpath(name)
    if normal.startswith(("/", "../")) or normal in (".", "..") or "://" in name or "\0" in name:
        raise DataError(
            f"{place}: {name[:200]!a} is not a file below the folder of the table. Write a "
            "relative path without '..'"
        )
    return os.path.join(folder, normal)


def _text(place, text, lower_case):
    """Returns a text without repeated spaces, in Unicode's composed form."""
    text = unicodedata.normalize("NFC", " ".join((text or "").split()))
    text = text.lower() if lower_case else text
    if not text:
        raise DataError(f"{place}: no {_TEXT}. Remove the row, or add text")
    if not names.is_line(text):
        raise DataError(f"{place}: the text {text[:60]!a} has control characters")
    return text


def _check_splits(manifests):
    """Checks that no recording is in two splits, which would train on what is evaluated."""
    seen = {}
    for split, rows in manifests.items():
        for place, path in zip(rows.places, rows.paths):
            first, other = seen.setdefault(path, (split, place))
            if first != split:
                raise DataError(f"{place}: {names.printable(path)} is also in '{first}', {other}")


def _load_vocabulary(path):
    if not folders.is_folder(path):
        return characters.load(path)
    audio = dataset_info.read(path).audio
    if not audio or not audio.vocabulary:
        raise DataError(f"--vocabulary={path} is not a data set with transcripts")
    return characters.load(os.path.join(path, audio.vocabulary))


def _encode(rows, vocabulary: Characters):
    encoded, unknown = [], []
    for place, text in zip(rows.places, rows.texts):
        try:
            encoded.append(vocabulary.encode(text))
        except KeyError as error:
            unknown.append((place, error.args[0]))
    if unknown:
        place, character = unknown[0]
        raise DataError(
            f"{place}: the character {character!a} is not in the vocabulary, like those of "
            f"{len(unknown) - 1} other texts. Normalize the texts, or give --vocabulary"
        )
    return encoded


def _to_array(rows, width):
    array = np.zeros([len(rows), width], np.int32)
    for row, tokens in zip(array, rows):
        row[: len(tokens)] = tokens
    return array


def _groups(rows):
    """Returns what must stay together: equal groups, or equal recordings; None if all differ."""
    values = rows.groups or rows.paths
    if len(set(values)) == len(values):
        return None
    return np.array(values, object)
