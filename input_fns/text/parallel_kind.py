"""Parallel text, for translation."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Iterable, Mapping

import numpy as np

from common import names
from common.constants import EOS
from input_fns import DataError, kinds
from input_fns.core.dataset_parts import MAX_EXAMPLE_BYTES, Feature, listed
from input_fns.core.json_fields import field, file_name, integer, integer_in, named, nested, strings
from input_fns.kinds import Kind

_SENTENCE_TOKENS = 16  # of a synthetic sentence


@dataclasses.dataclass(frozen=True)
class TextSplit:
    """Sentences and tokens of a split; the end-of-sentence token counts.

    Attributes:
      pairs: number of sentence pairs.
      source_tokens: number of tokens of all sources.
      target_tokens: number of tokens of all targets.
      left_out: number of skipped pairs, by reason.
    """

    pairs: int = field(integer)
    source_tokens: int = field(integer)
    target_tokens: int = field(integer)
    left_out: dict[str, int] = field(named(integer), default_factory=dict)

    def describe(self, num_rows: int, max_length: int) -> str:
        """Returns one line about the split, stored in `num_rows` rows of `max_length` tokens."""
        full = max(self.source_tokens, self.target_tokens) / max(1, num_rows * max_length)
        return (
            f"{self.pairs} pairs, {self.source_tokens} + {self.target_tokens} tokens, in "
            f"{num_rows} rows of {max_length}, {full:.0%} full{listed(self.left_out)}"
        )


@dataclasses.dataclass(frozen=True)
class Text(Kind):
    """Vocabulary and sizes of a data set of parallel text.

    Its features are "source" and "target", integers `[max_length]`; see `text_pipeline`.

    Attributes:
      languages: languages of source and target.
      vocabulary: name of the SentencePiece file in the folder of the data set.
      vocab_size: number of token ids.
      max_length: tokens per row.
      splits: `{name: TextSplit}`.
    """

    languages: tuple[str, ...] = field(strings)
    vocabulary: str = field(file_name)
    vocab_size: int = field(integer_in(1, 2**31 - 1))
    max_length: int = field(integer_in(1, MAX_EXAMPLE_BYTES))
    splits: dict[str, TextSplit] = field(named(nested(TextSplit)))

    name = "text"
    content = "is text"
    side_names = ("vocabulary.model",)
    side_fields = ("vocabulary",)
    model_fields = ("vocab_size", "max_length")
    flags = ("export_text",)

    def check(self, data):
        """Raises DataError if the features are not rows of tokens of two languages."""
        check_rows(data.features, ("source", "target"), self.max_length)
        if data.labels or data.class_names:
            raise DataError("labels and class_names must be empty for text")
        if len(self.languages) != 2 or names.find_class_name_problem(self.languages):
            raise DataError(f"text.languages are {list(self.languages)!a}, and must be two names")

    def limits(self, data):
        """Returns those of the token ids."""
        return dict.fromkeys(data.features, (0, self.vocab_size))

    def pipeline(self, data, options):
        """Returns a `TextPipeline`."""
        from input_fns.text.text_pipeline import TextPipeline

        if options.export_text:
            importlib.import_module("input_fns.text.text_ops")  # raises what is missing
        return TextPipeline(data, options.cache, options.export_text)

    def split_lines(self, data, split_name, num_examples):
        """Returns a line about the sentences."""
        found = self.splits.get(split_name)
        return [found.describe(num_examples, self.max_length)] if found else []

    def anomalies(self, sample):
        """Yields texts of another script, and pairs of equal texts."""
        from input_fns.text import text_anomalies

        pieces = text_anomalies.of_sentencepieces(sample.content(self.vocabulary))
        for name in ("source", "target"):
            side = f" of the {name}"
            yield from text_anomalies.of_tokens(sample, sample.values(name), pieces, side)
        yield from text_anomalies.of_pairs(sample)

    @classmethod
    def synthetic(cls, shapes):
        """Returns rows of tokens."""
        max_length, vocab_size = shapes.text
        row = Feature("raw", "int32", (max_length,))
        kind = cls((), "", vocab_size, max_length, {})
        return kinds.synthetic_dataset({"source": row, "target": row}, kind=kind)

    def random_examples(self, pipeline, size, seed):
        """Returns full rows of sentences."""
        random = np.random.default_rng(seed)
        rows = random.integers(3, self.vocab_size, [2, size, self.max_length], np.int32)
        rows[..., _SENTENCE_TOKENS - 1 :: _SENTENCE_TOKENS] = rows[..., -1] = EOS
        return {"source": rows[0], "target": rows[1]}, rows[1]


def check_rows(features: Mapping[str, Feature], required: Iterable[str], max_length: int) -> None:
    """Raises DataError if a feature is missing or is not integers `[max_length]`."""
    for name in required:
        feature = features.get(name)
        if feature is None or feature.encoding != "raw" or feature.shape != (max_length,):
            raise DataError(f"features.{name} is not raw [{max_length}], as text is")
        if np.dtype(feature.dtype).kind not in "iu":
            raise DataError(f"features.{name}.dtype is {feature.dtype}, and must be of integers")
