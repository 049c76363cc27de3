"""Parallel text: for each split two files that are aligned by line, or a table of two columns.

`parallel_corpora` says which names are understood. Lines are those of `files.read_lines`.
"""

from __future__ import annotations

import dataclasses
import html
import re

import numpy as np

from input_fns import DataError
from input_fns.convert.archives import SourceTree
from input_fns.convert.files import read_lines
from input_fns.convert.options import Options
from input_fns.convert.source import RawDataset, RawSplit, numbered
from input_fns.dataset_info import LeftOut
from input_fns.text.sources import parallel_corpora

_SEGMENT = re.compile(rb"<seg\b([^>]*)>(.*?)</seg\s*>", re.IGNORECASE | re.DOTALL)
_IWSLT = re.compile(r"train\.tags\.[^/]*$")  # text with lines such as <url> and <title>
_WIDTH, _MARKUP = "lines without two columns", "lines of markup"


@dataclasses.dataclass(frozen=True)
class RawText(RawSplit):
    """Pairs of sentences; `subwords.encode` turns them into a `RawSplit`.

    Attributes:
      source: source sentences, UTF-8.
      target: target sentences, UTF-8.
      numbers: line numbers, from 1.
    """

    KEYS = ("source", "target", "numbers")

    source: list[bytes]
    target: list[bytes]
    numbers: np.ndarray

    @property
    def groups(self) -> np.ndarray:
        """Groups of equal sources, which must stay in one split."""
        return numbered(self.source, len(self))


def read(options: Options) -> RawDataset:
    """Returns the splits; `languages` are source and target.

    Raises:
      DataError: see `parallel_corpora`, or a file is not UTF-8, or the numbers of lines differ.
    """
    if len(options.languages) != 2:
        raise DataError(f"--languages={','.join(options.languages)}: two are needed, as in en,de")
    left_out = LeftOut()
    tree = SourceTree(options, left_out)
    corpora = parallel_corpora.find(options, tree)
    splits, used = {}, set()
    for split, of_split in parallel_corpora.by_split(corpora, options).items():
        used.update(path for corpus in of_split for path in corpus.paths)
        splits[split] = _joined([_read(corpus, tree, options, left_out) for corpus in of_split])
    tree.add_unused(used, left_out)
    return RawDataset(
        options.dataset, (), splits, left_out=left_out, encoder="text.sources.subwords"
    )


def _joined(texts):
    """Returns the pairs of several corpora as one split."""
    if len(texts) == 1:
        return texts[0]
    sides = ([line for text in texts for line in getattr(text, s)] for s in ("source", "target"))
    return RawText(*sides, np.concatenate([text.numbers for text in texts]))


def _read(corpus, tree, options, left_out):
    """Returns the pairs of a corpus."""
    if corpus.form == parallel_corpora.COLUMNS:
        return _read_columns(corpus, tree.path(corpus.paths[0]), options, left_out)
    source, target = (read_lines(tree.path(path), options.encoding) for path in corpus.paths)
    what = "lines"
    if corpus.form == parallel_corpora.SGML:
        (ids, source), (other_ids, target), what = _segments(source), _segments(target), "segments"
        if len(ids) == len(other_ids) and ids != other_ids:
            raise DataError(
                f"{corpus.paths[0]} and {corpus.paths[1]} have segments of different ids: they "
                "cannot translate each other"
            )
    if len(source) != len(target):
        raise DataError(
            f"{corpus.paths[0]} has {len(source)} {what}, but {corpus.paths[1]} {len(target)}: "
            "they cannot translate each other line by line"
        )
    rows = range(len(source))
    if corpus.form == parallel_corpora.LINES and _IWSLT.search(corpus.paths[0]):
        rows = [i for i in rows if not (source[i].startswith(b"<") or target[i].startswith(b"<"))]
        left_out.add(_MARKUP, corpus.paths[0], len(source) - len(rows))
    return RawText([source[i] for i in rows], [target[i] for i in rows], np.array(rows, int) + 1)


def _segments(lines):
    """Returns the attributes and the text of each <seg>; the files of WMT are no valid XML."""
    found = _SEGMENT.findall(b"\n".join(lines))
    texts = [" ".join(html.unescape(text.decode()).split()).encode() for _, text in found]
    return [attributes.split() for attributes, _ in found], texts


def _read_columns(corpus, path, options, left_out):
    sides, numbers = ([], []), []
    first, second = corpus.columns
    for number, line in enumerate(read_lines(path, options.encoding), start=1):
        cells = line.split(b"\t")
        if len(cells) != 2:
            left_out.add(_WIDTH, f"{path}, line {number}")
            continue
        sides[0].append(cells[first].strip())
        sides[1].append(cells[second].strip())
        numbers.append(number)
    if not numbers:
        raise DataError(f"{path} has no line of two columns, separated by a tab")
    return RawText(*sides, np.array(numbers))
