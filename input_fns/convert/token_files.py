"""Words with tags, as in CoNLL 2003: a word per line, and an empty line between sentences.

One file for each split: SOURCE/train.txt, SOURCE/dev.conll.gz, ..., or eng.train, eng.testa and
eng.testb, as CoNLL 2002 and 2003 name train, validation and test. Columns are separated by tabs,
or by spaces; lines that start with -DOCSTART- are skipped. The first token of a word has its tag,
its other tokens, [CLS], [SEP] and padding -1.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Iterator, Sequence

import numpy as np

from common import folders
from common.names import is_line
from input_fns import DataError
from input_fns.convert import token_rows
from input_fns.convert.files import PACKED, iterate_lines, split_packed
from input_fns.convert.source import Options, RawDataset, Row
from input_fns.convert.split_names import split_names
from input_fns.dataset_info import Feature, WordPieceSplit
from input_fns.wordpiece import WordPieceTokenizer

_EXTENSIONS = (".txt", ".conll", ".tsv", ".bio", ".iob", ".iob2")
_CONLL = {".train": "train", ".testa": "dev", ".testb": "test"}
_DOCUMENT = "-DOCSTART-"
_NO_TAG = -1


@dataclasses.dataclass(frozen=True)
class RawSentences:
    """A split of sentences; `encode` turns it into a `RawSplit`.

    Attributes:
      words: words of each sentence.
      tags: tags of the words of each sentence.
      places: place of each sentence, for errors.
    """

    words: list[list[str]]
    tags: list[list[str]]
    places: list[str]
    labels: None = None

    @property
    def groups(self) -> np.ndarray:
        """Groups of equal sentences, which must stay in one split."""
        number_of: dict[tuple[str, ...], int] = {}
        return np.array([number_of.setdefault(tuple(row), len(number_of)) for row in self.words])

    def __len__(self) -> int:
        return len(self.words)

    def take(self, indices: Sequence[int]) -> RawSentences:
        """Returns the split of these sentences, in the order of the indices."""
        lists = (self.words, self.tags, self.places)
        return RawSentences(*([values[i] for i in indices] for values in lists))


@dataclasses.dataclass(frozen=True)
class RawTaggedRows:
    """A `RawSplit` of rows of ids and tags.

    Attributes:
      ids: token ids of each sentence, truncated.
      tag_ids: tag of each token, int32.
      tokenizer: the tokenizer.
      max_length: tokens per row.
    """

    ids: list[np.ndarray]
    tag_ids: list[np.ndarray]
    tokenizer: WordPieceTokenizer
    max_length: int
    labels: None = None
    groups: None = None

    @property
    def num_bytes(self) -> int:
        """Bytes of ids, mask, segments and tags."""
        return len(self) * self.max_length * (np.dtype(self.tokenizer.dtype).itemsize + 6)

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[Row]:
        features = token_rows.row_features(self.tokenizer, self.max_length)
        features["tag_ids"] = Feature("raw", "int32", (self.max_length,))
        for ids, tags in zip(self.ids, self.tag_ids):
            values = token_rows.row_values((ids,), self.tokenizer, self.max_length)
            row = np.full(self.max_length, _NO_TAG, "<i4")
            row[1 : len(tags) + 1] = tags
            yield Row({**values, "tag_ids": row.tobytes()}, features)


def read(options: Options) -> RawDataset:
    """Returns one split per file.

    Args:
      options: `source` is a folder or a file. `columns` names the columns, of which `text_columns`
        is the word and `label_columns` the tag; default: the first and the last.

    Raises:
      DataError: a file is missing, not UTF-8, or a line has another number of columns.
    """
    found = {}
    for stem, path in _files(options.source).items():
        found[stem] = _read_file(path, options)
    names = split_names(found, f"--source={options.source}")
    splits = {ours: found[name] for ours, name in names.items()}
    first = splits.get("train") or next(iter(splits.values()))
    tags = tuple(sorted({tag for sentence in first.tags for tag in sentence}))
    if len(tags) < 2:
        raise DataError(
            f"all words from {first.places[0]} on have the tag '{tags[0][:60]}': a classifier "
            "needs two tags at least"
        )
    return RawDataset(
        options.dataset,
        (),
        splits,
        labels=("tag_ids",),
        properties={"num_tags": len(tags), "tag_names": list(tags)},
        wordpiece=token_rows.draft("token_classification", False, {}),
    )


def _files(source):
    if folders.is_file(source):
        return {"train": source}
    found = {}
    for name in folders.names(source):
        stem, extension = os.path.splitext(split_packed(name)[0])
        stem = _CONLL.get(extension, stem)
        is_text = extension in (*_EXTENSIONS, *_CONLL)
        if is_text and stem in found:
            raise DataError(f"{source} has both {os.path.basename(found[stem])} and {name}")
        if is_text:
            found[stem] = os.path.join(source, name)
    if not found:
        raise DataError(
            f"--source={source} has no file that ends in {', '.join(_EXTENSIONS)}, plain or with "
            f"{' or '.join(PACKED)}"
        )
    return found


def _read_file(path, options):
    words, tags, places, width = [[]], [[]], [], len(options.columns)
    for number, line in enumerate(iterate_lines(path), start=1):
        values = line.split("\t") if "\t" in line else [v for v in line.split(" ") if v]
        if not line.strip() or values[0] == _DOCUMENT:
            if words[-1]:
                words.append([])
                tags.append([])
            continue
        where = f"{path}, line {number}"
        width = width or len(values)
        if len(values) != width or width < 2:
            raise DataError(
                f"{where}: {len(values)} columns instead of {max(2, width)}: a word and its tag, "
                "separated by a space or a tab, are needed"
            )
        word = values[_index(options, "text_columns", 0)]
        tag = values[_index(options, "label_columns", -1)]
        if not word.strip() or not tag.strip():
            raise DataError(f"{where}: {'the tag' if word.strip() else 'the word'} is empty")
        if not is_line(tag):
            raise DataError(f"{where}: the tag {tag!a} has control characters")
        if not words[-1]:
            places.append(where)
        words[-1].append(word)
        tags[-1].append(tag)
    if not words[-1]:
        words.pop()
        tags.pop()
    if not words:
        raise DataError(f"{path} has no words")
    return RawSentences(words, tags, places)


def _index(options, flag, default):
    """Returns the column that a flag names."""
    names = getattr(options, flag)
    if not names:
        return default
    if len(names) != 1 or names[0] not in options.columns:
        raise DataError(
            f"--{flag}={','.join(names)} must be one of --columns={','.join(options.columns)}"
        )
    return options.columns.index(names[0])


def encode(
    raw: RawDataset,
    options: Options,
    progress=lambda line: None,
    held_out: Collection[str] = (),
) -> RawDataset:
    """Returns the data set with rows of ids and tags.

    Args:
      raw: splits of `RawSentences`.
      options: see `token_rows.tokenizer_from_options`; `max_length`.
      progress: function that prints a line.
      held_out: unused.

    Raises:
      DataError: the vocabulary is invalid, or a tag is not one of the training split.
    """
    del held_out
    train = raw.splits.get("train")
    words = None if train is None else [word for sentence in train.words for word in sentence]
    tokenizer = token_rows.tokenizer_from_options(options, words, progress)
    numbers = {tag: number for number, tag in enumerate(raw.properties["tag_names"])}
    splits, described = {}, {}
    for name, split in raw.splits.items():
        rows, lost = _encode_split(split, tokenizer, numbers, options.max_length)
        splits[name] = rows
        num_truncated = sum(count > 0 for count in lost)
        num_tokens = sum(map(len, rows.ids)) + 2 * len(rows)
        described[name] = WordPieceSplit(len(split), num_tokens, num_truncated)
        progress(f"{name}: {described[name].describe(len(rows), options.max_length)}")
        if num_truncated:
            progress(f"{name}: {sum(lost)} words at the ends of truncated sentences have no tag")
    raw = dataclasses.replace(raw, splits=splits)
    return token_rows.with_vocabulary(raw, raw.wordpiece, tokenizer, options, described)


def _encode_split(split, tokenizer, numbers, max_length):
    """Returns the rows, and the number of words that each sentence loses."""
    ids, tag_ids, lost, room = [], [], [], max_length - 2
    pieces = iter(token_rows.encode_all(tokenizer, [w for words in split.words for w in words]))
    for words, tags, place in zip(split.words, split.tags, split.places):
        sentence, labels, dropped = [], [], 0
        for word, tag in zip(words, tags):
            if tag not in numbers:
                raise DataError(
                    f"the sentence from {place} on: unknown tag '{tag[:60]}' of {word[:60]!a}; "
                    f"those of 'train' are {', '.join(numbers)}"
                )
            # A word of control characters alone still has a tag.
            of_word = next(pieces).tolist() or [tokenizer.unk_id]
            dropped += len(sentence) >= room
            sentence += of_word
            labels += [numbers[tag]] + [_NO_TAG] * (len(of_word) - 1)
        ids.append(np.array(sentence[:room], tokenizer.dtype))
        tag_ids.append(np.array(labels[:room], np.int32))
        lost.append(dropped)
    return RawTaggedRows(ids, tag_ids, tokenizer, max_length), lost
