"""Questions about texts: windows of tokens for the model, questions for the host.

The model gets the features and labels of `token_pipeline`. Host metrics also get, int32:

    question_index            [n]          number of the question in the data set
    token_starts, token_ends  [n, length]  place of each token in the context, in code points; 0
                                           for a token that is not of the context
    is_max_context            [n, length]  1 where the token has the most context of all windows
"""

from __future__ import annotations

import dataclasses
import functools
import os

import numpy as np
import tensorflow as tf

from common import files
from input_fns import DataError
from input_fns.core import serving
from input_fns.record_pipeline import RecordPipeline
from input_fns.text import squad_json
from input_fns.text.token_pipeline import TokenPipeline

_MAX_BYTES = 2**31  # of the questions of a split
HOST_FEATURES = ("question_index", "token_starts", "token_ends", "is_max_context")


@dataclasses.dataclass(frozen=True)
class SquadPipeline(TokenPipeline):
    """Feeds windows of contexts; see the module."""

    host_features = HOST_FEATURES

    def predict_input_fn(self, split: str):
        """Returns an input_fn for prediction; the model pads its predictions to max_length."""
        return self._dynamically_padded(RecordPipeline.predict_input_fn(self, split))

    def questions(self, split: str) -> list[squad_json.Question]:
        """Returns all questions of a split, in the order of their source.

        Raises:
          DataError: the file of the questions is invalid.
        """
        if split not in self._questions:
            described = self.data.kind.splits[split]
            path = os.path.join(self.data.data_dir, described.side_file)
            try:
                text = files.read_text(path, _MAX_BYTES)
            except (OSError, tf.errors.OpError, ValueError) as error:
                raise DataError(f"{path} cannot be read: {error}") from error
            found = squad_json.parse(text, path)
            if len(found) != described.num_texts:
                raise DataError(
                    f"{path} has {len(found)} questions, and dataset.json {described.num_texts}: "
                    "prepare the data set again with prepare_data.py --overwrite"
                )
            self._questions[split] = found
        return self._questions[split]

    def questions_around(self, index: int) -> tuple[int, list[squad_json.Question]]:
        """Returns the questions of the split that holds a question, and the index of the first.

        Raises:
          DataError: no split holds it.
        """
        first = 0
        for name, split in self.data.kind.splits.items():
            if first <= index < first + split.num_texts:
                return first, self.questions(name)
            first += split.num_texts
        raise DataError(
            f"the question {index} in the shards is not among the {first} of dataset.json"
        )

    def receivers(self, top_k: int = 0) -> dict[str, serving.Receiver]:
        """Returns the serving input receivers, with one for text if `serves_text`."""
        receivers = {**RecordPipeline.receivers(self, top_k), **self._embedding_receivers()}
        if self.serves_text:
            receivers[serving.TEXT] = serving.Receiver(
                serving.string_inputs("question", "context"),
                self._windows_of_text,
                self._answers,
                self._first_texts,
            )
        return receivers

    @functools.cached_property
    def _questions(self):
        return {}

    def _windows_of_text(self, inputs):
        from input_fns.text import squad_text_ops  # TensorFlow Text is an optional dependency

        return squad_text_ops.windows(inputs["question"], inputs["context"], self)

    def _answers(self, predictions, features):
        from input_fns.text import squad_text_ops

        if "answer_score" not in predictions:
            raise DataError(
                "--export_text: other predictions than answers need no signature for questions. "
                "Remove --export_text"
            )
        has_impossible = bool(self.data.properties.get("has_impossible"))
        return squad_text_ops.answers(predictions, features, has_impossible)

    def _first_texts(self, split, count):
        first = self.questions(split)[:count]
        texts = {"question": [one.text for one in first], "context": [one.context for one in first]}
        return {
            name: np.array([text.encode() for text in column], object)
            for name, column in texts.items()
        }
