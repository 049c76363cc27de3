"""Translates the lines of a file or of a split, longest first, into a file."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Iterable

import numpy as np

from common import files
from engine.checkpoints import find
from engine.hooks import progress
from input_fns import DataError
from input_fns.convert.files import read_lines
from input_fns.text.text_pipeline import TextPipeline, longest_first

_NAMED_LINES = 10


@dataclasses.dataclass(frozen=True)
class TextInput:
    """Source sentences, sorted by length (descending): similar lengths share a batch.

    A batch takes as long as its longest sentence.

    Attributes:
      rows: int32 `[sentences, max_length]`, token ids.
      lines: int64 `[sentences]`, line number of each row, from 0.
      num_lines: number of lines of the input. Lines without a row get an empty translation.
    """

    rows: np.ndarray
    lines: np.ndarray
    num_lines: int

    def in_order(self, translations: Iterable[str]) -> list[str]:
        """Returns the translations in the order of the lines.

        Raises:
          DataError: the number of translations differs from that of the rows.
        """
        translations = list(translations)
        if len(translations) != len(self.rows):
            raise DataError(f"{len(translations)} translations for {len(self.rows)} sentences")
        lines = [""] * self.num_lines
        for line, translation in zip(self.lines, translations):
            lines[line] = translation
        return lines


def from_file(path: str, pipeline: TextPipeline) -> TextInput:
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
            print(f"{path}: {len(numbers)} line(s) are {what} and are skipped: {named}{more}")
    used = np.setdiff1d(np.arange(len(lines)), [*empty, *too_long])
    if not len(used):
        raise DataError(f"{path} has no line that can be translated")
    return _longest_first(pipeline.rows(ids[line] for line in used), used, len(lines))


def from_split(pipeline: TextPipeline, split: str) -> TextInput:
    """Returns the source sentences of a split."""
    rows = pipeline.stored_rows(split)["source"]
    return _longest_first(rows, np.arange(len(rows)), len(rows))


def write_file(estimator, settings, predict_input_fn) -> None:
    """Writes the translation of each line of `settings.prediction.text_input`."""
    text_input = settings.prediction.text_input
    name = f"predictions_{settings.start_step}"
    name = find.add_label(name, settings.model_dir, settings.checkpoint)
    path = settings.prediction.output or os.path.join(settings.model_dir, f"{name}.txt")
    started = time.monotonic()
    batch_size, num_sentences = settings.prediction.batch_size, len(text_input.rows)
    batches = estimator.predict(
        predict_input_fn,
        hooks=[progress.EvalProgressHook("translate", num_sentences, batch_size)],
        checkpoint_path=settings.checkpoint,
        yield_single_examples=False,
    )
    decode = settings.pipeline.vocabulary.decode
    texts = (text for batch in batches for text in decode(batch["target"]))
    # A translation is one line, but the model may generate a newline.
    lines = text_input.in_order(text.replace("\n", " ") for text in texts)
    seconds = time.monotonic() - started
    with files.atomic_write(path, "wb") as file:
        file.write("".join(f"{line}\n" for line in lines).encode())
    print(
        f"{len(lines)} lines by {settings.checkpoint}: {path}; {num_sentences} sentences in "
        f"{seconds:.1f} s"
    )


def _longest_first(rows, lines, num_lines):
    order = longest_first(rows)
    return TextInput(rows[order], lines[order], num_lines)
