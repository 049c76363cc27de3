"""Documents as rows of tokens, for language models."""

from __future__ import annotations

import dataclasses
import os

import numpy as np

from common import names
from input_fns import DataError, kinds
from input_fns.core.dataset_parts import MAX_EXAMPLE_BYTES, Feature, listed
from input_fns.core.json_fields import field, file_name, integer, integer_in, named, nested
from input_fns.kinds import Kind

_SHOWN_TOKENS = 64


@dataclasses.dataclass(frozen=True)
class TokensSplit:
    """Documents and tokens of a split.

    Attributes:
      num_documents: number of documents.
      num_tokens: tokens that rows predict: those of the documents, each with its end of text.
      num_bytes: bytes of the documents in UTF-8.
      left_out: number of documents that are not stored, by reason.
    """

    num_documents: int = field(integer)
    num_tokens: int = field(integer)
    num_bytes: int = field(integer)
    left_out: dict[str, int] = field(named(integer), default_factory=dict)

    def describe(self, num_rows: int, max_length: int) -> str:
        """Returns one line about the split, stored in `num_rows` rows of `max_length` tokens."""
        return (
            f"{self.num_documents} documents, {self.num_bytes} bytes, {self.num_tokens} tokens, in "
            f"{num_rows} rows of {max_length}{listed(self.left_out)}"
        )


@dataclasses.dataclass(frozen=True)
class Tokens(Kind):
    """Vocabulary and sizes of documents as rows of tokens.

    The documents of a split are one sequence, `END_OF_TEXT` before, between and after them, which
    is cut into rows; see `tokens_pipeline`. Features of a row:

        tokens      integers [max_length + 1], the last token of the row before, and max_length more
        num_tokens  integer, how many of them the row predicts: max_length but in the last row
        num_bytes   integer, bytes of the text of the predicted tokens

    Attributes:
      vocabulary: name of the tokenizer.json in the folder of the data set.
      vocab_size: number of token ids.
      end_of_text: id of `END_OF_TEXT`.
      max_length: predicted tokens per row.
      splits: `{name: TokensSplit}`.
    """

    vocabulary: str = field(file_name)
    vocab_size: int = field(integer_in(1, 2**31 - 1))
    end_of_text: int = field(integer)
    max_length: int = field(integer_in(1, MAX_EXAMPLE_BYTES))
    splits: dict[str, TokensSplit] = field(named(nested(TokensSplit)))

    name = "tokens"
    content = "is text for language models"
    noun = "rows"
    side_names = ("tokenizer.json",)
    side_fields = ("vocabulary",)

    def check(self, data):
        """Raises DataError if the features are not rows of tokens."""
        shapes = {"tokens": (self.max_length + 1,), "num_tokens": (), "num_bytes": ()}
        for name, shape in shapes.items():
            feature = data.features.get(name)
            if feature is None or feature.encoding != "raw" or feature.shape != shape:
                raise DataError(f"features.{name} is not raw {list(shape)}, as tokens are")
            if np.dtype(feature.dtype).kind not in "iu":
                raise DataError(f"features.{name}.dtype is {feature.dtype}, and must be integers")
        if data.labels or data.class_names:
            raise DataError("labels and class_names must be empty for tokens")
        if self.end_of_text >= self.vocab_size:
            raise DataError(
                f"tokens.end_of_text is {self.end_of_text}, and must be below vocab_size="
                f"{self.vocab_size}"
            )

    def limits(self, data):
        """Returns those of token ids and numbers of tokens."""
        del data
        return {"tokens": (0, self.vocab_size), "num_tokens": (1, self.max_length + 1)}

    def properties(self):
        """Returns the sizes; rows of the embedding may be padded, so num_tokens is there too."""
        return {
            "vocab_size": self.vocab_size,
            "num_tokens": self.vocab_size,
            "end_of_text": self.end_of_text,
            "max_length": self.max_length,
        }

    def pipeline(self, data, options):
        """Returns a `TokensPipeline`."""
        from input_fns.text.tokens_pipeline import TokensPipeline

        return TokensPipeline(data, options.cache)

    def split_lines(self, data, split_name, num_examples):
        """Returns a line about the documents."""
        found = self.splits.get(split_name)
        return [found.describe(num_examples, self.max_length)] if found else []

    def first_example(self, data, split_name):
        """Returns the text of the first row."""
        import tensorflow as tf

        from input_fns.core import serving
        from input_fns.text import tokenizer  # an optional dependency

        (record,) = serving.first_records(data.files(split_name), 1)
        stored = tf.train.Example.FromString(record).features.feature["tokens"]
        dtype = np.dtype(data.features["tokens"].dtype).newbyteorder("<")
        ids = np.frombuffer(stored.bytes_list.value[0], dtype)[:_SHOWN_TOKENS]
        found = tokenizer.load(os.path.join(data.data_dir, self.vocabulary))
        return [f"  first: {names.shown(found.decode(ids))}"]

    def anomalies(self, sample):
        """Yields nothing: any text is valid."""
        del sample
        return iter(())

    @classmethod
    def synthetic(cls, shapes):
        """Returns rows of tokens."""
        max_length, vocab_size = shapes.text
        number = Feature("raw", "int32", ())
        features = {
            "tokens": Feature("raw", "int32", (max_length + 1,)),
            "num_tokens": number,
            "num_bytes": number,
        }
        kind = cls("", vocab_size, vocab_size - 1, max_length, {})
        return kinds.synthetic_dataset(features, kind=kind)

    def random_training_examples(self, pipeline, size, seed):
        """Returns full rows of a byte per token."""
        del pipeline
        random = np.random.default_rng(seed)
        rows = random.integers(0, self.vocab_size, [size, self.max_length + 1], np.int32)
        full = np.full(size, self.max_length, np.int32)
        return {"tokens": rows, "num_tokens": full, "num_bytes": full}, ()

    def random_examples(self, pipeline, size, seed):
        """Returns those of a training, with the first token of each row as a prompt."""
        features, labels = self.random_training_examples(pipeline, size, seed)
        ones = np.ones(size, np.int32)
        prompt = {"prompt": features["tokens"][:, :-1], "prompt_length": ones, "seed": ones}
        return {**features, **prompt, "max_tokens": features["num_tokens"]}, labels
