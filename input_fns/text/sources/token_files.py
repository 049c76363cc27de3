"""Words with tags, as in CoNLL 2003: a word per line, and an empty line between sentences.

One file for each split: SOURCE/train.txt, SOURCE/dev.conll.gz, ..., or eng.train, eng.testa and
eng.testb, as CoNLL 2002 and 2003 name train, validation and test. Columns are separated by tabs,
or by spaces; lines that start with -DOCSTART- are skipped, and so are comments, `# ...` before the
first word of a sentence. A .conllu has the columns of CoNLL-U. The first token of a word has its
tag, its other tokens, [CLS], [SEP] and padding -1.

With --truncate=windows a longer sentence, such as a whole document, is several rows, which start
every `doc_stride` tokens. Each token counts in the window in which it has the most context; in the
others its tag is -1, so that each word is tagged once.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Iterator

import numpy as np

from common import folders
from common.constants import DOCUMENT_INDEX, MAX_CONTEXT, WINDOWS
from input_fns import DataError
from input_fns.convert.options import Options
from input_fns.convert.runners import Runner
from input_fns.convert.shared_array import SharedArray, SharedRows
from input_fns.convert.source import BlockSplit, RawDataset, RawSplit, Rows, numbered
from input_fns.convert.split_names import find_files, split_in, stem_of
from input_fns.convert.tables import Places
from input_fns.dataset_info import Feature, LeftOut
from input_fns.text.sources import bert_vocabulary, token_rows
from input_fns.text.sources.conll import CONLLU, Reader
from input_fns.text.sources.squad_windows import Windows
from input_fns.text.sources.token_rows import StoredTokens
from input_fns.text.wordpiece_kind import WordPieceSplit

_EXTENSIONS = (".txt", ".conll", ".tsv", ".bio", ".iob", ".iob2", ".annotated", CONLLU)
_CONLL = {".train": "train", ".testa": "dev", ".testb": "test"}
_NO_TAG = -1
_BLOCK_ROWS = 2**12
_PART_SENTENCES = 2**14


@dataclasses.dataclass(frozen=True)
class RawSentences(RawSplit):
    """A split of sentences; `encode` turns it into a `RawSplit`.

    Attributes:
      words: words of each sentence.
      tags: tags of the words of each sentence.
      places: place of each sentence, for errors; can be indexed by arrays.
    """

    KEYS = ("words", "tags", "places")

    words: list[list[str]]
    tags: list[list[str]]
    places: Places

    @property
    def groups(self) -> np.ndarray:
        """Groups of equal sentences, which must stay in one split."""
        return numbered(map(tuple, self.words), len(self))


@dataclasses.dataclass(frozen=True)
class RawTaggedRows(BlockSplit):
    """A split of rows of ids and tags.

    Attributes:
      ids: token ids of each row, truncated, the tag of each token, and whether the token has the
        most context in this row: int32 `[tokens, 3]`.
      tokens: of the vocabulary.
      max_length: tokens per row.
      documents: number of the sentence of each row, int32 `[size]`, of windows; or None.
    """

    KEYS = ("ids", "documents")

    ids: SharedRows
    tokens: StoredTokens
    max_length: int
    documents: np.ndarray | None = None

    @property
    def num_bytes(self) -> int:
        """Bytes of ids, mask, segments and tags."""
        return len(self) * self.max_length * (np.dtype(self.tokens.dtype).itemsize + 6)

    def blocks(self) -> Iterator[Rows]:
        """Yields all rows."""
        features = token_rows.row_features(self.tokens, self.max_length)
        features["tag_ids"] = Feature("raw", "int32", (self.max_length,))
        if self.documents is not None:
            features[DOCUMENT_INDEX] = Feature("raw", "int32", ())
            features[MAX_CONTEXT] = Feature("raw", "uint8", (self.max_length,))
        for begin in range(0, len(self), _BLOCK_ROWS):
            some = self.part(begin, begin + _BLOCK_ROWS)
            ids, tags, is_max = some.ids.joined().T
            lengths = some.ids.lengths[:, None]
            values = token_rows.block_values(ids, lengths, self.tokens, self.max_length)
            place = np.arange(self.max_length)
            is_token = (place > 0) & (place <= lengths)
            found = np.full(is_token.shape, _NO_TAG)
            found[is_token] = np.where(is_max > 0, tags, _NO_TAG)
            values["tag_ids"] = found.astype("<i4")
            if self.documents is not None:
                values[DOCUMENT_INDEX] = some.documents.astype("<i4")
                values[MAX_CONTEXT] = np.zeros(is_token.shape, np.uint8)
                values[MAX_CONTEXT][is_token] = is_max
            yield Rows(values, features)


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
        split: RawSentences(*Reader(path, options, left_out).read())
        for split, path in _files(options).items()
    }
    return to_dataset(options, splits, left_out)


def to_dataset(options: Options, splits: dict[str, RawSentences], left_out: LeftOut) -> RawDataset:
    """Returns the data set of sentences; its tags are those of "train", sorted."""
    first = splits.get("train") or next(iter(splits.values()))
    tags = tuple(sorted({tag for sentence in first.tags for tag in sentence}))
    if len(tags) < 2:
        raise DataError(
            f"all words from {first.places[0]} on have the tag '{tags[0][:60]}': a classifier "
            "needs two tags at least. --columns and --label_columns name the column of the tags"
        )
    return RawDataset(
        options.dataset,
        (),
        splits,
        labels=("tag_ids",),
        properties={"num_tags": len(tags), "tag_names": list(tags)},
        kind=bert_vocabulary.draft("token_classification", False, {}),
        encoder="text.sources.token_files",
        left_out=left_out,
    )


def _files(options):
    """Returns `{split: path}`."""
    if folders.is_file(options.source):  # of any extension
        name = os.path.basename(options.source)
        return {split_in(stem_of(name, _EXTENSIONS, _CONLL)[0]) or "train": options.source}
    return find_files(options, _EXTENSIONS, _CONLL)


def encode(
    raw: RawDataset, options: Options, progress: Callable[[str], None], runner: Runner
) -> RawDataset:
    """Returns the data set with rows of ids and tags.

    Args:
      raw: splits of `RawSentences`.
      options: see `bert_vocabulary.tokenizer_from_options`; `max_length`; `truncate`; `doc_stride`.
      progress: function that prints a line.
      runner: runs functions on parts of the texts.

    Raises:
      DataError: the vocabulary is invalid, or a tag is not one of the training split; or tokens
        are to be removed from the middle.
    """
    if options.truncate == "middle":
        raise DataError(
            "--truncate=middle is not valid for words with tags. Use --truncate=end or windows"
        )
    if options.truncate == WINDOWS:
        properties = {**raw.properties, "doc_stride": options.doc_stride}
        raw = dataclasses.replace(raw, properties=properties)
    train = raw.splits.get("train")
    texts = train and bert_vocabulary.parts(map(" ".join, train.words))
    tokenizer = bert_vocabulary.tokenizer_from_options(options, texts, progress, runner)
    numbers = {tag: number for number, tag in enumerate(raw.properties["tag_names"])}
    splits, described = {}, {}
    for name, split in raw.splits.items():
        rows, num_truncated, num_lost = _encode_split(split, tokenizer, numbers, options, runner)
        splits[name] = rows
        num_tokens = int(rows.ids.lengths.sum()) + 2 * len(rows)
        described[name] = WordPieceSplit(len(split), num_tokens, num_truncated)
        progress(f"{name}: {described[name].describe(len(rows), options.max_length)}")
        if num_truncated:
            progress(f"{name}: {num_lost} words at the ends of truncated sentences have no tag")
    raw = dataclasses.replace(raw, splits=splits)
    return bert_vocabulary.with_vocabulary(raw, raw.kind, tokenizer, options, described)


def _encode_split(split, tokenizer, numbers, options, runner):
    """Returns the rows, how many sentences are truncated, and the words that these lose."""
    parts = (split.part(i, i + _PART_SENTENCES) for i in range(0, len(split), _PART_SENTENCES))
    lengths, counts, lost = [], [], []
    stride = options.doc_stride if options.truncate == WINDOWS else None
    encode_part = functools.partial(
        _encode_part, tokenizer, numbers, options.max_length - 2, stride
    )

    def tokens():
        for of_part, lengths_of_part, counts_of_part, lost_in_part in runner.apply(
            encode_part, parts
        ):
            lengths.extend(lengths_of_part)
            counts.extend(counts_of_part)
            lost.extend(lost_in_part)
            yield of_part

    ids = SharedRows.of(SharedArray.write(runner.folder, tokens()), np.array(lengths))
    documents = np.repeat(np.arange(len(split), dtype=np.int32), counts) if stride else None
    rows = RawTaggedRows(ids, StoredTokens.of(tokenizer), options.max_length, documents)
    return rows, sum(count > 0 for count in lost), sum(lost)


def _encode_part(tokenizer, numbers, room, stride, split):
    """Encodes some sentences.

    Returns:
      Of each token its id, its tag, and whether it has the most context: int32 `[tokens, 3]`; the
      length of each row; the rows of each sentence; the words that each loses.
    """
    rows, counts, lost = [], [], []
    words = list(dict.fromkeys(word for words in split.words for word in words))
    known = dict(zip(words, tokenizer.encode_ids(words)))
    for words, tags, place in zip(split.words, split.tags, split.places):
        sentence, labels, dropped = [], [], 0
        for word, tag in zip(words, tags):
            if tag not in numbers:
                raise DataError(
                    f"the sentence from {place} on: unknown tag '{tag[:60]}' of {word[:60]!a}; "
                    f"those of 'train' are {', '.join(numbers)}"
                )
            # A word of control characters alone still has a tag.
            of_word = known[word] or [tokenizer.unk_id]
            dropped += len(sentence) >= room
            sentence += of_word
            labels += [numbers[tag]] + [_NO_TAG] * (len(of_word) - 1)
        of_sentence = _rows_of(np.array([sentence, labels], np.int32).T, room, stride)
        rows += of_sentence
        counts.append(len(of_sentence))
        lost.append(0 if stride else dropped)
    return np.concatenate(rows), list(map(len, rows)), counts, lost


def _rows_of(tokens, room, stride):
    """Returns the rows of a sentence, int32 `[tokens, 3]`: one without a stride, else windows."""
    if stride is None:
        kept = tokens[:room]
        return [np.column_stack([kept, np.ones(len(kept), np.int32)])]
    windows = Windows(room, min(room, stride), len(tokens))
    return [
        np.column_stack(
            [tokens[start : start + room], windows.has_most_context(number).astype(np.int32)]
        )
        for number, start in enumerate(windows.starts)
    ]
