"""Forms of text files with documents: their lines, and where a file may be cut.

    a sentence on each line, an empty line or the end of the file after a document
    <doc id="12" ... title="Anarchism">, paragraphs, </doc>     WikiExtractor
    {"title": "Anarchism", "text": "paragraphs"} on each line   WikiExtractor --json

Paragraphs are cut into sentences by a few rules of punctuation, which miss some ends; a toolkit's
sentences can be given as lines. Imports no TensorFlow.
"""

from __future__ import annotations

import html
import itertools
import json
import re
from collections.abc import Iterable, Iterator

from input_fns import DataError
from input_fns.convert.files import note

LINES, DOC, JSON = "lines", "doc", "json"
# Ends of documents in bytes. `str.strip` removes more, but a line of these is surely empty.
ENDS = {
    LINES: re.compile(rb"\n[ \t\r\x0b\x0c]*\n"),
    DOC: re.compile(rb"\n</doc>[ \t\r]*\n"),
    JSON: re.compile(rb"\n"),
}
_NOTE = "the text is of WikiExtractor: its paragraphs are cut into sentences after '.', '!' and '?'"
_TITLE = re.compile(r'<doc .*\btitle="(.*?)">?$')
# The end of a sentence before a letter or a quote, or that of Chinese and Japanese.
_BREAK = re.compile(
    r"""([.!?\u2026]["'\u201d\u2019\xbb)\]]*)\s+(?=["'\u201c\u2018\xab(\[]*[^\W\d_])"""
    r"""|[\u3002\uff01\uff1f]["\u201d\u2019\u300d\u300f\uff09]*\s*"""
)
_FIRST_LETTER = re.compile(r"[^\W\d_]")
_LAST_WORD = re.compile(r"[^\W\d_]+$")
_WORD_LETTERS = 8  # more than an abbreviation has
_ABBREVIATIONS = {
    *("mr", "mrs", "ms", "dr", "prof", "st", "sr", "jr", "vs", "gen", "col", "lt", "sgt", "capt"),
    *("rev", "hon", "gov", "sen", "rep", "mt", "ft", "fig", "approx", "hl", "bzw", "sog"),
}


def form_of(line: str) -> str:
    """Returns the form of a file whose first line with text this is."""
    if line.startswith("<doc "):
        return DOC
    return JSON if line.startswith("{") and _parsed(line) else LINES


def documents(lines: Iterable[str], form: str = "", path: str = "") -> Iterator[list[str]]:
    """Yields the sentences of each document.

    Args:
      lines: the lines of a file, or of a part of it between documents.
      form: the form; "" to see it from the first line with text.
      path: the file, for errors.

    Raises:
      DataError: a line is not JSON as the first one.
    """
    if not form:
        lines = iter(lines)
        first = next(filter(str.strip, lines), "")
        lines, form = itertools.chain([first], lines), form_of(first)
    if form != LINES:
        note(_NOTE)
    yield from filter(None, {LINES: _by_line, DOC: _by_doc, JSON: _by_json}[form](lines, path))


def _by_line(lines, path):
    del path
    document = []
    for line in lines:
        sentence = line.strip()
        if sentence:
            document.append(sentence)
        elif document:
            yield document
            document = []
    yield document


def _by_doc(lines, path):
    del path
    document, title = [], ""
    for line in lines:
        is_start = line.startswith("<doc ")
        if is_start or line.strip() == "</doc>":
            yield _sentences(document, title)
            match = _TITLE.match(line.rstrip()) if is_start else None
            document, title = [], match[1] if match else ""
        else:
            document.append(line)
    yield _sentences(document, title)


def _by_json(lines, path):
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        found = _parsed(line)
        if not found:
            raise DataError(f'{path}, line {number}: it is no JSON object with a "text"')
        yield _sentences(found["text"].split("\n"), found.get("title"))


def _parsed(line):
    """Returns the object of a line of JSON with a text, or None."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("text"), str) else None


def _sentences(paragraphs, title):
    """Returns the sentences of paragraphs, without the title before them."""
    paragraphs = [text for text in (html.unescape(line).strip() for line in paragraphs) if text]
    if paragraphs and title and paragraphs[0] == html.unescape(str(title)).strip():
        del paragraphs[0]
    return [sentence for paragraph in paragraphs for sentence in split(paragraph)]


def split(paragraph: str) -> list[str]:
    """Returns the sentences of a paragraph."""
    found, begin = [], 0
    for match in _BREAK.finditer(paragraph):
        if match[1]:
            if _FIRST_LETTER.search(paragraph, match.end())[0].islower():
                continue
            end = match.start()
            word = _LAST_WORD.search(paragraph, max(begin, end - _WORD_LETTERS), end)
            is_name = word and (len(word[0]) == 1 or word[0].lower() in _ABBREVIATIONS)
            if match[1].startswith(".") and is_name:
                continue
        found.append(paragraph[begin : match.end()].rstrip())
        begin = match.end()
    return [*found, *filter(None, [paragraph[begin:]])]
