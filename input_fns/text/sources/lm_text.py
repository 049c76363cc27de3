"""Plain text for language models: documents of any length, which stay as they are.

SOURCE/train.txt and SOURCE/val.txt are splits, and so are folders of texts, SOURCE/train/*.txt.
Texts of any other names are all of "train". A .txt file is a document; `END_OF_TEXT`,
"<|endoftext|>", in it separates documents. A .jsonl file, or a file of WikiExtractor with --json,
has a document on each line, {"text": "..."}. Files may end in .gz or .xz.

Without a split "validation" or "test" in the source, a tenth is held out as "validation": whole
documents at random, at most 2,000, or, of fewer than 20 documents, the end of the text.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator

from common.constants import END_OF_TEXT
from input_fns import DataError
from input_fns.convert import holdout
from input_fns.convert.files import iterate_lines, note, read_text, split_packed
from input_fns.convert.options import Options
from input_fns.convert.source import RawDataset, RawSplit
from input_fns.text.sources.pretraining_text import split_files

_EXTENSIONS = (".txt", ".jsonl")
_DEFAULT_VALIDATION = 0.1
_FEW_DOCUMENTS = 20


@dataclasses.dataclass(frozen=True)
class RawDocuments(RawSplit):
    """A split of documents; `lm_rows.encode` turns it into a `RawSplit`.

    Attributes:
      texts: the documents.
      paths: the files of the split.
      num_empty: number of documents without a text, which are left out.
    """

    KEYS = ("texts",)

    texts: list[str]
    paths: frozenset[str]
    num_empty: int = 0

    @property
    def num_bytes(self) -> int:
        """Characters of the texts."""
        return sum(map(len, self.texts))


def read(options: Options) -> RawDataset:
    """Returns the documents of each split.

    Args:
      options: `source` is a folder or a file.

    Raises:
      DataError: a split has no text, or a file is not UTF-8 or not JSON.
    """
    splits = {}
    for name, paths in split_files(options, _EXTENSIONS).items():
        found = [text for path in paths for text in _documents(path, options)]
        texts = [text for text in found if text.strip()]
        if not texts:
            raise DataError(f"split '{name}' of --source={options.source} has no text")
        splits[name] = RawDocuments(texts, frozenset(paths), len(found) - len(texts))
    if "train" in splits and len(splits["train"]) < _FEW_DOCUMENTS:
        splits = _cut(splits, options)
    else:
        held_out = holdout.hold_out(splits, options)
        splits = {
            name: split if name in splits else dataclasses.replace(split, num_empty=0)
            for name, split in held_out.items()
        }
    return RawDataset(options.dataset, (), splits, encoder="text.sources.lm_rows")


def _documents(path, options) -> Iterator[str]:
    name, is_json = split_packed(path)[0], None
    if name.lower().endswith(".txt"):
        yield from read_text(path, options.encoding).split(END_OF_TEXT)
        return
    for number, line in enumerate(iterate_lines(path, options.encoding), start=1):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict) or not isinstance(found.get("text"), str):
            what = "" if is_json else ". Texts that are no JSON must end in .txt"
            raise DataError(f'{path}, line {number}: it is no JSON object with a "text"{what}')
        is_json = True
        try:
            found["text"].encode()
        except UnicodeEncodeError as error:
            raise DataError(f"{path}, line {number}: its text has a lone surrogate") from error
        yield from found["text"].split(END_OF_TEXT)


def _cut(splits, options):
    """Holds out the end of the text of "train", whose last documents may be cut in two."""
    fractions = {"validation": options.validation_fraction, "test": options.test_fraction}
    if fractions == {"validation": None, "test": None} and splits.keys() == {"train"}:
        fractions["validation"] = _DEFAULT_VALIDATION
    fractions = {name: fraction for name, fraction in fractions.items() if fraction}
    for name in fractions:
        if name in splits:
            raise DataError(f"--{name}_fraction: {options.source} already has a split '{name}'")
    train = splits["train"]
    total, held_out, end = train.num_bytes, {}, train.num_bytes
    begin = 1.0
    for name in reversed(fractions):
        begin -= fractions[name]
        start = int(total * begin)
        texts = _between(train.texts, start, end)
        if not texts:
            raise DataError(
                f"split '{name}' would have no text of {total} characters. Set --{name}_fraction"
            )
        held_out[name], end = dataclasses.replace(train, texts=texts, num_empty=0), start
        note(f"'{name}' is the end of the text of 'train': {sum(map(len, texts))} characters")
    texts = _between(train.texts, 0, end)
    return {**splits, "train": dataclasses.replace(train, texts=texts), **held_out}


def _between(texts, begin, end):
    """Returns the parts of texts between two places of their sequence, without blank ones."""
    found, place = [], 0
    for text in texts:
        part = text[max(0, begin - place) : max(0, end - place)]
        if part.strip():
            found.append(part)
        place += len(text)
    return found
