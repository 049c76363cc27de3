"""A file of prompts to continue, one per line: `--input`."""

from __future__ import annotations

import numpy as np

from common.names import shown
from input_fns import DataError
from input_fns.convert.files import read_lines
from input_fns.text.prompts import Prompts


def read(path: str, pipeline) -> Prompts:
    """Returns the prompts of a UTF-8 file, one per line; `END_OF_TEXT` alone asks for a new text.

    Raises:
      DataError: the file is missing or not UTF-8, or a line is empty, has a character that is not
        in the vocabulary, or is too long.
    """
    lines = [line.decode() for line in read_lines(path)]
    if not lines:
        raise DataError(f"{path} has no prompt")
    rows, lengths = [], []
    for number, line in enumerate(lines, start=1):
        where = f"{path}, line {number}"
        try:
            (ids,) = pipeline.tokenizer.encode([line])
        except DataError as error:
            raise DataError(f"{where}: {error}") from error
        if not len(ids):
            raise DataError(
                f"{where} is empty. A prompt has a token at least; <|endoftext|> begins a new text"
            )
        rows.append(pipeline.prompt_row(ids, f"{where}, {shown(line)},"))
        lengths.append(len(ids))
    return Prompts(pipeline, np.stack(rows), np.array(lengths, np.int32))
