"""Vocabularies and rows of WordPiece text for tests."""

import numpy as np

from input_fns import convert
from input_fns.convert.options import Options
from input_fns.text import wordpiece

PIECES = [
    *wordpiece.SPECIAL,
    *"abcdefghijklmnopqrstuvwxyz0123456789.,!?-",
    *(f"##{c}" for c in "abcdefghijklmnopqrstuvwxyz0123456789"),
    *("the", "good", "bad", "film", "is", "dog", "##s"),
]
VOCAB = "".join(f"{piece}\n" for piece in dict.fromkeys(PIECES)).encode()
TOKENIZER = wordpiece.WordPieceTokenizer(VOCAB, lower_case=True)


def vocab_file(folder):
    """Writes `VOCAB` and returns its path."""
    path = folder / "vocab.txt"
    path.write_bytes(VOCAB)
    return str(path)


def read(dataset, source, vocabulary, runner=None, **options):
    """Returns the `RawDataset` of text with a vocabulary, and the lines that it printed."""
    lines = []
    options = {"max_length": 12, **options}
    options = Options(dataset, source=str(source), vocabulary=str(vocabulary), **options)
    return convert.read(options, lines.append, runner=runner), lines


def decoded(row):
    """Returns `{feature: array}` of a `Row`."""
    return {
        name: np.frombuffer(row.values[name], np.dtype(feature.dtype).newbyteorder("<"))
        for name, feature in row.features.items()
    }


def texts(split):
    """Returns the tokens of each row as text."""
    return [TOKENIZER.decode(decoded(row)["input_ids"].tolist()) for row in split]
