"""Reads words with tags: a word per line, and an empty line between sentences."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np

from common.names import is_line, normalized
from input_fns import DataError
from input_fns.convert.files import iterate_lines, split_packed
from input_fns.convert.options import Options
from input_fns.convert.tables import Places
from input_fns.dataset_info import LeftOut

CONLLU = ".conllu"  # extension of files with the columns of CoNLL-U
_DOCUMENT = "-DOCSTART-"
_CONLLU_COLUMNS = (
    *("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc"),
)
# Numbers of words that are in no sentence as it is written, in CoNLL-U.
_EXTRA_NUMBER = re.compile(r"\d+[-.]\d+")
_COMMENTS, _HEADERS = "comment lines", "header lines"
# Names of the columns of words and of tags, in lower case.
_WORD_NAMES = {"word", "words", "token", "tokens", "form", "text"}
_TAG_NAMES = {"tag", "tags", "label", "labels", "ner", "pos", "upos", "entity", "ner_tag"}
_EXTRA_WORDS = "multiword ranges (1-2) and empty nodes (1.1)"


class Reader:
    """Reads the sentences of a file."""

    def __init__(self, path: str, options: Options, left_out: LeftOut):
        """Takes the path, `columns` and the flags that choose of them, and where to count."""
        columns = tuple(map(normalized, options.columns))
        word, tag = 0, -1
        if not columns and split_packed(path)[0].lower().endswith(CONLLU):
            columns, word, tag = _CONLLU_COLUMNS, 1, 3
        self._word = _index(options.text_columns, columns, "text_columns", word)
        self._tag = _index(options.label_columns, columns, "label_columns", tag)
        self._path, self._encoding, self._left_out = path, options.encoding, left_out
        self._width = len(columns)
        self._has_columns = bool(columns)

    def read(self) -> tuple[list[list[str]], list[list[str]], Places]:
        """Returns the words and the tags of each sentence, and its place.

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
            if not lines and not words[-1] and _is_header(word, tag, tags_of_words):
                self._left_out.add(_HEADERS, where)
                continue
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
        return words, tags, Places(f"{self._path}, line ", np.array(lines))

    def _look_at_words(self):
        """Sets the number of columns; returns and counts the tags of lines except comments."""
        tags, is_inside = Counter(), False
        for line in iterate_lines(self._path, self._encoding):
            values = _values(line)
            if not values or values[0] == _DOCUMENT:
                is_inside = False
            elif is_inside or not line.startswith("#"):
                self._width, is_inside = self._width or len(values), True
                if len(values) == self._width:
                    tags[values[self._tag]] += 1
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


def _is_header(word, tag, tags_of_words):
    """Whether the first line of a file names its columns."""
    is_named = word.strip().lower() in _WORD_NAMES and tag.lower() in _TAG_NAMES
    return is_named and tags_of_words[tag] <= 1


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
