"""Rows of tokens for language models, and prompts."""

from __future__ import annotations

import dataclasses
import functools
import os

import numpy as np
import tensorflow as tf

from input_fns import DataError
from input_fns.core import caching, serving
from input_fns.core.records import no_autograph
from input_fns.dataset_info import DatasetInfo, Feature
from input_fns.record_pipeline import RecordPipeline
from input_fns.text import prompts

# Signatures besides the raw one, which has all controls of a generation.
GENERATE, SCORE = "generate", "score"
_MAX_INT = np.iinfo(np.int32).max


@dataclasses.dataclass(frozen=True)
class TokensPipeline(RecordPipeline):
    """Feeds rows of tokens; see `tokens_kind.Tokens` for the features of training and evaluation.

    Features of a prediction, which continues a prompt:

        prompt         int32 [batch, max_length]  token ids from the left
        prompt_length  int32 [batch]              number of tokens of the prompt, 1 at least
        max_tokens     int32 [batch]              most tokens of prompt and continuation together
        seed           int32 [batch]              seed of the samples

    A row of a split, which is predicted without --input, is a prompt of half of its tokens.
    """

    data: DatasetInfo
    cache: str = caching.AUTO
    file_examples = "input_fns.text.sources.prompt_file:read"
    outside = "a token id in the shards is outside the vocabulary of dataset.json"

    @property
    def features(self) -> dict[str, Feature]:
        """Features of an example in prediction, as the model gets them."""
        number = Feature("raw", "int32", ())
        row = Feature("raw", "int32", (self.data.kind.max_length,))
        return {"prompt": row, "prompt_length": number, "max_tokens": number, "seed": number}

    @property
    def input_limits(self) -> dict[str, tuple]:
        """Limits of the values of a request; see `serving.checked`."""
        kind = self.data.kind
        length = (1, kind.max_length + 1)
        lengths = {"prompt_length": length, "max_tokens": length}
        return {"prompt": (0, kind.vocab_size), "seed": (0, _MAX_INT), **lengths}

    @functools.cached_property
    def tokenizer(self):
        """The `tokenizer.Tokenizer` of the data set."""
        from input_fns.text import tokenizer  # Hugging Face tokenizers are an optional dependency

        return tokenizer.load(self.vocabulary_path)

    @property
    def vocabulary_path(self) -> str:
        """Path of the tokenizer.json."""
        return os.path.join(self.data.data_dir, self.data.kind.vocabulary)

    @property
    def assets(self) -> tuple[str, ...]:
        """Paths of files that a SavedModel must hold."""
        return (self.vocabulary_path,)

    @no_autograph
    def batch_transform(self, features, labels, random):
        """Returns int32 features, without labels: a row has the tokens to predict."""
        del labels, random
        return {name: tf.cast(value, tf.int32) for name, value in features.items()}, ()

    def features_in_order(self, split: str) -> tf.data.Dataset:
        """Returns the first half of each row as a prompt."""
        return self.in_order(split).map(self._prompts_of_rows)

    @no_autograph
    def _prompts_of_rows(self, features, labels):
        del labels
        return self._prompts(features["tokens"][:, :-1], (features["num_tokens"] + 1) // 2)

    def _prompts(self, tokens, length):
        """Returns features of the first tokens of rows, whose seeds are a function of these."""
        kind = self.data.kind
        is_prompt = tf.range(kind.max_length) < length[:, tf.newaxis]
        prompt = tf.where(is_prompt, tokens, kind.end_of_text)
        return self._requests(prompt, length, tf.reduce_sum(prompt, axis=1) % _MAX_INT)

    def _requests(self, prompt, length, seed):
        most = tf.fill(tf.shape(length), self.data.kind.max_length)
        return {"prompt": prompt, "prompt_length": length, "max_tokens": most, "seed": seed}

    def prompts_input_fn(self, rows: np.ndarray, lengths: np.ndarray, seeds: np.ndarray):
        """Returns an input_fn for prediction of prompts, in order.

        Args:
          rows: int32 `[prompts, max_length]`.
          lengths: int32 `[prompts]`, tokens of each.
          seeds: int32 `[prompts]`.
        """

        def input_fn(params):
            dataset = tf.data.Dataset.from_tensor_slices((rows, lengths, seeds))
            return dataset.batch(params["batch_size"]).map(self._requests)

        return input_fn

    def prompt_row(self, ids: np.ndarray, where: str) -> np.ndarray:
        """Returns the row of a prompt, int32 `[max_length]`.

        Raises:
          DataError: it leaves no room for a token; `where` it is, for the message.
        """
        kind = self.data.kind
        if len(ids) >= kind.max_length:
            raise DataError(
                f"{where} has {len(ids)} tokens, but the rows of {self.data.name} have "
                f"{kind.max_length}, with the continuation: shorten it, or prepare the data with "
                "a larger --max_length"
            )
        row = np.full(kind.max_length, kind.end_of_text, np.int32)
        row[: len(ids)] = ids
        return row

    def prediction_writer(self, examples):
        """Returns the writer of continuations."""
        return prompts.ContinuationWriter(self.tokenizer, examples)

    def split_examples(self, split: str) -> prompts.SplitPrompts:
        """Returns the prompts of a split."""
        return prompts.SplitPrompts(self, split)

    def receivers(self, top_k: int = 0) -> dict[str, serving.Receiver]:
        """Returns the serving input receivers by signature: `RAW`, `GENERATE` and `SCORE`.

        `GENERATE` and `SCORE` take `tokens`, int32 `[batch, max_length]`, and `length`, int32
        `[batch]`. `SCORE` returns the log probability of each token after the first.
        """
        del top_k
        row, number = self.features["prompt"], self.features["prompt_length"]
        inputs = serving.raw_inputs({"tokens": row, "length": number})

        def requests(split, count):
            features = self._first_features(split, count)
            return {"tokens": features["prompt"], "length": features["prompt_length"]}

        return {
            serving.RAW: serving.Receiver(
                serving.raw_inputs(self.features),
                dict,
                lambda predictions, features: predictions,
                self._first_features,
                self.input_limits,
            ),
            GENERATE: serving.Receiver(
                inputs, self._to_generate, _generated, requests, self.input_limits
            ),
            SCORE: serving.Receiver(inputs, self._to_score, _scores, requests, self.input_limits),
        }

    def _to_generate(self, inputs):
        return self._prompts(inputs["tokens"], inputs["length"])

    def _to_score(self, inputs):
        # Without room for a token nothing is generated.
        return {**self._to_generate(inputs), "max_tokens": inputs["length"]}


def _generated(predictions, features):
    del features
    return {name: predictions[name] for name in ("tokens", "length")}


def _scores(predictions, features):
    del features
    log_probs = predictions["log_probs"]
    return {"token_log_probs": log_probs, "log_prob": tf.reduce_sum(log_probs, axis=1)}
