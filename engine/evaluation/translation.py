"""Text in, text out: what is translated, in which order, and how good it is."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Iterable, Sequence

import numpy as np
import sacrebleu

from common import files
from engine.checkpoints import find
from engine.hooks import progress
from input_fns import DataError
from input_fns.convert.files import read_lines
from input_fns.text_pipeline import TextPipeline

_NAMED_LINES = 10


@dataclasses.dataclass(frozen=True)
class TextInput:
    """Sources to be translated, long ones first: a batch is done when its longest sentence is.

    Attributes:
      rows: int32 `[sentences, max_length]`, what the model is fed with.
      places: int64 `[sentences]`, the line that each came from, counted from 0.
      num_lines: of the input; those that are no row are answered by an empty line.
      targets: int32 `[num_lines, max_length]`, what a split has for them; None of a file.
    """

    rows: np.ndarray
    places: np.ndarray
    num_lines: int
    targets: np.ndarray | None = None

    def in_order(self, translations: Iterable[str]) -> list[str]:
        """Returns the translation of each line, given those of the rows.

        Raises:
          DataError: there are not as many as rows.
        """
        translations = list(translations)
        if len(translations) != len(self.rows):
            raise DataError(f"{len(translations)} translations of {len(self.rows)} sentences")
        lines = [""] * self.num_lines
        for place, translation in zip(self.places, translations):
            lines[place] = translation
        return lines


def of_file(path: str, pipeline: TextPipeline) -> TextInput:
    """Returns the lines of a UTF-8 file, and says which cannot be translated.

    Raises:
      DataError: it is missing, not UTF-8, or has no line that can be translated.
    """
    lines = [line.decode() for line in read_lines(path)]
    max_length = pipeline.data.text.max_length
    ids = pipeline.vocabulary.encode(lines)
    empty = [number for number, line in enumerate(lines) if not line.strip()]
    too_long = [number for number, tokens in enumerate(ids) if len(tokens) > max_length]
    for what, numbers in (
        ("empty", empty),
        (f"longer than the {max_length} tokens that the model was trained with", too_long),
    ):
        if numbers:
            named = ", ".join(str(number + 1) for number in numbers[:_NAMED_LINES])
            more = ", ..." if numbers[_NAMED_LINES:] else ""
            print(
                f"{path}: {len(numbers)} line(s) are {what} and stay without a translation: "
                f"{named}{more}"
            )
    places = np.setdiff1d(np.arange(len(lines)), [*empty, *too_long])
    if not len(places):
        raise DataError(f"{path} has no line that can be translated")
    return _long_first(pipeline.rows(ids[place] for place in places), places, len(lines))


def of_split(pipeline: TextPipeline, split: str) -> TextInput:
    """Returns the sources of a split, and its targets."""
    stored = pipeline.stored_rows(split)
    rows = stored["source"]
    return _long_first(rows, np.arange(len(rows)), len(rows), stored["target"])


def write_file(estimator, job, predict_input_fn) -> None:
    """Writes the translation of each line of `job.text_input` by `job.checkpoint`."""
    name = f"predictions_{job.start_step}"
    name = find.add_label(name, job.model_dir, job.checkpoint)
    path = job.predict_output or os.path.join(job.model_dir, f"{name}.txt")
    started = time.monotonic()
    lines = _translate(estimator, job, predict_input_fn, job.checkpoint)
    seconds = time.monotonic() - started
    with files.atomic_write(path, "wb") as file:
        file.write("".join(f"{line}\n" for line in lines).encode())
    print(
        f"{len(lines)} lines by {job.checkpoint}: {path}; {len(job.text_input.rows)} sentences in "
        f"{seconds:.1f} s"
    )


def bleu_of_split(estimator, job, predict_input_fn, checkpoint) -> float:
    """Returns BLEU of `job.eval_split`, whose sources are `job.text_input`; prints it."""
    translations = _translate(estimator, job, predict_input_fn, checkpoint)
    references = job.pipeline.vocabulary.decode(job.text_input.targets)
    score, signature = bleu(translations, references)
    print(f"BLEU {score:.2f} {signature}")
    return score


def bleu(translations: Sequence[str], references: Sequence[str]) -> tuple[float, str]:
    """Returns corpus BLEU in percent by sacreBLEU (Post 2018, arXiv:1804.08771), its signature."""
    metric = sacrebleu.BLEU()
    score = metric.corpus_score(translations, [references]).score
    return score, str(metric.get_signature())


def _translate(estimator, job, predict_input_fn, checkpoint):
    """Returns a line of text for each line of the job's input."""
    size = len(job.text_input.rows)
    batches = estimator.predict(
        predict_input_fn,
        hooks=[progress.PassHook("translate", size, job.predict_batch_size)],
        checkpoint_path=checkpoint,
        yield_single_examples=False,
    )
    decode = job.pipeline.vocabulary.decode
    texts = (text for batch in batches for text in decode(batch["target"]))
    # A translation is one line, though the model may spell any byte.
    return job.text_input.in_order(text.replace("\n", " ") for text in texts)


def _long_first(rows, places, num_lines, targets=None):
    order = np.argsort(-np.count_nonzero(rows, axis=1), kind="stable")
    return TextInput(rows[order], places[order], num_lines, targets)
