"""Words with tags, as in CoNLL 2003: a word per line, and an empty line between sentences.

One file for each split: SOURCE/train.txt, SOURCE/dev.conll.gz, ..., or eng.train, eng.testa and
eng.testb, as CoNLL 2002 and 2003 name train, validation and test. Columns are separated by tabs,
or by spaces; lines that start with -DOCSTART- are skipped, and so are comments, `# ...` before the
first word of a sentence. A .conllu has the columns of CoNLL-U. The first token of a word has its
tag, its other tokens, [CLS], [SEP] and padding -1.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Collection, Iterator, Sequence

import numpy as np

from common import folders
from common.names import is_line, normalized
from input_fns import DataError
from input_fns.convert import token_rows
from input_fns.convert.files import iterate_lines, split_packed
from input_fns.convert.source import Options, RawDataset, Row
from input_fns.convert.split_names import find_files, split_in, stem_of
from input_fns.convert.tables import Places
from input_fns.dataset_info import Feature, LeftOut, WordPieceSplit
from input_fns.wordpiece import WordPieceTokenizer

_CONLLU = ".conllu"
_EXTENSIONS = (".txt", ".conll", ".tsv", ".bio", ".iob", ".iob2", ".annotated", _CONLLU)
_CONLL = {".train": "train", ".testa": "dev", ".testb": "test"}
_DOCUMENT = "-DOCSTART-"
_CONLLU_COLUMNS = (
    *("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc"),
)
# Numbers of words that are in no sentence as it is written, in CoNLL-U.
_EXTRA_NUMBER = re.compile(r"\d+[-.]\d+")
_COMMENTS = "comment lines"
_EXTRA_WORDS = "multiword ranges (1-2) and empty nodes (1.1)"
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
    places: Places
    labels: None = None

    @property
    def groups(self) -> np.ndarray:
        """Groups of equal sentences, which must stay in one split."""
        number_of: dict[tuple[str, ...], int] = {}
        numbers = (number_of.setdefault(tuple(row), len(number_of)) for row in self.words)
        return np.fromiter(numbers, np.int64, len(self))

    def __len__(self) -> int:
        return len(self.words)

    def take(self, indices: Sequence[int]) -> RawSentences:
        """Returns the split of these sentences, in the order of the indices."""
        lists = ([values[i] for i in indices] for values in (self.words, self.tags))
        return RawSentences(*lists, self.places.take(indices))


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
    left_out = LeftOut()
    splits = {
        split: _Reader(path, options, left_out).read() for split, path in _files(options).items()
    }
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
        left_out=left_out,
    )


def _files(options):
    """Returns `{split: path}`."""
    if folders.is_file(options.source):  # of any extension
        name = os.path.basename(options.source)
        return {split_in(stem_of(name, _EXTENSIONS, _CONLL)[0]) or "train": options.source}
    return find_files(options, _EXTENSIONS, _CONLL)


class _Reader:
    """Reads the sentences of a file."""

    def __init__(self, path: str, options: Options, left_out: LeftOut):
        """Takes the path, `columns` and the flags that choose of them, and where to count."""
        columns = tuple(map(normalized, options.columns))
        word, tag = 0, -1
        if not columns and split_packed(path)[0].lower().endswith(_CONLLU):
            columns, word, tag = _CONLLU_COLUMNS, 1, 3
        self._word = _index(options.text_columns, columns, "text_columns", word)
        self._tag = _index(options.label_columns, columns, "label_columns", tag)
        self._path, self._encoding, self._left_out = path, options.encoding, left_out
        self._width = len(columns)
        self._has_columns = bool(columns)

    def read(self) -> RawSentences:
        """Returns the sentences.

        Raises:
          DataError: a line has another number of columns, or the word or the tag is not text.
        """
        tags_of_words = self._look_at_words()
        words, tags, lines, numbered = [[]], [[]], [], True
        known: dict[str, str] = {}  # one object for equal words
        for number, line in enumerate(iterate_lines(self._path, self._encoding), start=1):
            values = _values(line)
            if not values or values[0] == _DOCUMENT:
                if words[-1]:
                    words.append([])
                    tags.append([])
                continue
            where = f"{self._path}, line {number}"
            if not words[-1] and self._is_comment(line, values, tags_of_words):
                self._left_out.add(_COMMENTS, where)
                continue
            word, tag = self._word_and_tag(values, where)
            if self._word != 0 and _EXTRA_NUMBER.fullmatch(values[0]):
                self._left_out.add(_EXTRA_WORDS, where)
                continue
            if not words[-1]:
                lines.append(number)
            words[-1].append(known.setdefault(word, word))
            tags[-1].append(known.setdefault(tag, tag))
            numbered = numbered and word == str(len(words[-1]))
        if not words[-1]:
            words.pop()
            tags.pop()
        if not words:
            raise DataError(f"{self._path} has no words")
        if numbered and len(words) > 1 and not self._has_columns:
            raise DataError(
                f"{self._path}: the first column numbers the words. Name the columns, such as "
                "--columns=id,word,tag --text_columns=word --label_columns=tag"
            )
        return RawSentences(words, tags, Places(f"{self._path}, line ", np.array(lines)))

    def _look_at_words(self):
        """Sets the number of columns; returns the tags of lines that cannot be comments."""
        tags, is_inside = set(), False
        for line in iterate_lines(self._path, self._encoding):
            values = _values(line)
            if not values or values[0] == _DOCUMENT:
                is_inside = False
            elif is_inside or not line.startswith("#"):
                self._width, is_inside = self._width or len(values), True
                if len(values) == self._width:
                    tags.add(values[self._tag])
        return tags

    def _is_comment(self, line, values, tags_of_words):
        """Whether the first line of a sentence is a comment, and not the word "#" with a tag."""
        if not line.startswith("#"):
            return False
        if len(values) != self._width:
            return True
        return values[0] == "#" and values[self._tag] not in tags_of_words

    def _word_and_tag(self, values, where):
        if len(values) != self._width or self._width < 2:
            raise DataError(
                f"{where}: {len(values)} columns instead of {max(2, self._width)}: a word and its "
                "tag, separated by a space or a tab, are needed"
            )
        word, tag = values[self._word], values[self._tag]
        if not word.strip() or not tag.strip():
            raise DataError(f"{where}: {'the tag' if word.strip() else 'the word'} is empty")
        if not is_line(tag):
            raise DataError(f"{where}: the tag {tag!a} has control characters")
        return word, normalized(tag)


def _values(line):
    """Returns the values of a line; [] if it is blank."""
    if not line.strip():
        return []
    return line.split("\t") if "\t" in line else [value for value in line.split(" ") if value]


def _index(names, columns, flag, default):
    """Returns the column that a flag names."""
    if not names:
        return default
    name = normalized(names[0])
    if len(names) != 1 or name not in columns:
        raise DataError(f"--{flag}={','.join(names)} must be one of --columns={','.join(columns)}")
    return columns.index(name)


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
