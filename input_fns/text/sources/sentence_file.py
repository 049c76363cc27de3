"""A file of sentences to translate, one per line: `--input`."""

from __future__ import annotations

import numpy as np

from common.names import counted
from input_fns import DataError
from input_fns.convert.files import read_lines
from input_fns.text.translations import Sentences

_NAMED_LINES = 10


def read(path: str, pipeline) -> Sentences:
    """Returns the lines of a UTF-8 file; prints the line numbers of skipped lines.

    Raises:
      DataError: it is missing, not UTF-8, or has no line that can be translated.
    """
    lines = [line.decode() for line in read_lines(path)]
    max_length = pipeline.data.kind.max_length
    ids = pipeline.vocabulary.encode(lines)
    empty = [number for number, line in enumerate(lines) if not line.strip()]
    too_long = [number for number, tokens in enumerate(ids) if len(tokens) > max_length]
    for what, numbers in (
        ("empty", empty),
        (f"longer than the {max_length} tokens of the data set", too_long),
    ):
        if numbers:
            named = ", ".join(str(number + 1) for number in numbers[:_NAMED_LINES])
            more = ", ..." if numbers[_NAMED_LINES:] else ""
            print(f"{path}: {counted(len(numbers), 'line')} skipped, {what}: {named}{more}")
    used = np.setdiff1d(np.arange(len(lines)), [*empty, *too_long])
    if not len(used):
        raise DataError(f"{path} has no line that can be translated")
    rows = pipeline.rows(ids[line] for line in used)
    return Sentences(pipeline, rows, used, len(lines))
