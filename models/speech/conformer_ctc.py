"""Speech recognition: log-mel spectrograms, a Conformer encoder and a CTC head."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from models.model import Loss, Model, ModelError
from models.speech import conformer, ctc, ctc_decoding, log_mel


def default_params():
    """Returns the hyperparameters."""
    return {
        **log_mel.default_params(),
        **conformer.default_params(),
        "vocab_size": 0,  # set by the data set, with the blank
        "max_tokens": 0,  # set by the data set: tokens of a row
        "beam_width": 1,  # of the prefix beam search; 1: greedy decoding
        "precision": "float32",  # or bfloat16, of the encoder
    }


def check_params(params):
    """Raises `ModelError` for a value out of range."""
    log_mel.check_params(params)
    conformer.check_params(params)
    for name, lowest in (("vocab_size", 2), ("max_tokens", 1), ("beam_width", 1)):
        if params[name] < lowest:
            raise ModelError(f"{name}={params[name]} must be at least {lowest}")


def inference(features, params, training):
    """Computes logits of the tokens of each frame.

    Args:
      features: `{"waveform": float32 [batch, max_samples], "num_samples": int32 [batch]}`, and the
        masks of SpecAugment; see `log_mel`.
      params: see `default_params`.
      training: True turns dropout on.

    Returns:
      `{"logits": [batch, frames, vocab_size] of params["precision"], "num_frames": int32 [batch]}`.
    """
    x, num_frames = log_mel.log_mel(features, params)
    x = tf.cast(x, params["precision"])
    x, num_frames = conformer.encode(x, num_frames, params, training)
    logits = tf.compat.v1.layers.dense(x, params["vocab_size"], name="logits")
    return {"logits": logits, "num_frames": num_frames}


def losses(features, labels, outputs, params):
    """CTC loss per token; recordings that are too short for their text have no weight."""
    num_frames = log_mel.num_frames_of(features["num_samples"], params)
    num_frames = conformer.num_frames_after(num_frames)
    tokens = labels["tokens"]
    values = ctc.loss(tokens, outputs["logits"], num_frames)
    num_tokens = tf.math.count_nonzero(tokens, axis=1, dtype=tf.float32)
    is_possible = tf.cast(ctc.num_required_frames(tokens) <= num_frames, tf.float32)
    # The mean over all tokens of the global batch: long texts count more than short ones.
    weights = num_tokens * is_possible
    return {"ctc": Loss(tf.math.divide_no_nan(values, num_tokens), weights)}


def predictions(features, outputs, params):
    """Returns `{"tokens": int32 [batch, max_tokens], "score": float32 [batch]}`.

    The score is the log probability of the text, with greedy decoding of its best alignment.
    """
    del features
    arguments = outputs["logits"], outputs["num_frames"], params["max_tokens"]
    if params["beam_width"] == 1:
        tokens, score = ctc_decoding.greedy(*arguments)
    else:
        tokens, score = ctc_decoding.beam_search(*arguments, params["beam_width"])
    return {"tokens": tokens, "score": score}


class ErrorRates:
    """Errors of all texts, divided by the words or characters of all references.

    Errors are the substitutions, deletions and insertions of the least edit distance. Words are
    separated by spaces.
    """

    names = ("word_error_rate", "character_error_rate")
    directions = dict.fromkeys(names, "min")

    def __init__(self, decode: Callable[[np.ndarray], Sequence[str]]):
        """Takes the function from tokens, int `[n, max_tokens]`, to n texts."""
        self._decode = decode
        self._errors, self._sizes = np.zeros(2, np.int64), np.zeros(2, np.int64)

    def update(self, features, labels, predictions):
        """Adds the texts of `predictions["tokens"]` and of the labels."""
        del features
        texts = self._decode(labels["tokens"]), self._decode(predictions["tokens"])
        for reference, hypothesis in zip(*texts):
            self.add(reference, hypothesis)

    def add(self, reference: str, hypothesis: str) -> None:
        """Adds one text."""
        pairs = (reference.split(), hypothesis.split()), (reference.strip(), hypothesis.strip())
        for i, (wanted, found) in enumerate(pairs):
            self._errors[i] += edit_distance(wanted, found)
            self._sizes[i] += len(wanted)

    def result(self):
        """Returns the error rates; NaN without a word in any reference."""
        with np.errstate(divide="ignore", invalid="ignore"):
            rates = self._errors / np.where(self._sizes, self._sizes, np.nan)
        return dict(zip(self.names, rates.tolist()))


def edit_distance(reference: Sequence, hypothesis: Sequence) -> int:
    """Returns the Levenshtein distance: substitutions, deletions and insertions."""
    # Hashable items as numbers, so that NumPy compares them.
    numbers = {item: number for number, item in enumerate({*reference, *hypothesis})}
    wanted, found = (np.array([numbers[item] for item in x], int) for x in (reference, hypothesis))
    places = np.arange(len(found) + 1)
    row = places
    for number, item in enumerate(wanted, start=1):
        # Without insertions: a deletion, or a substitution unless the items are equal.
        best = np.minimum(row[1:] + 1, row[:-1] + (found != item))
        best = np.concatenate([[number], best])
        # With them: each costs one, so the least of `best - place` so far counts.
        row = np.minimum.accumulate(best - places) + places
    return int(row[-1])


def host_metrics(params, pipeline):
    """Word and character error rate of the whole split."""
    del params
    if not hasattr(pipeline, "to_text"):  # synthetic data has no vocabulary
        return []
    return [ErrorRates(pipeline.to_text)]


MODEL = Model(
    "conformer_ctc",
    default_params,
    inference,
    losses,
    predictions,
    # One small tensor: host metrics predict the split.
    eval_outputs=lambda features, labels, outputs, params: {"num_frames": outputs["num_frames"]},
    host_metrics=host_metrics,
    check_params=check_params,
    presets={"size": conformer.SIZES},
    features=("waveform", "num_samples"),
    labels=("tokens",),
    dataset_properties=("vocab_size", "max_tokens", "sample_rate"),
)
