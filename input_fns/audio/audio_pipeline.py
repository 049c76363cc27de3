"""Recordings with classes or transcripts.

The model gets, for training, evaluation and prediction:

    waveform     float32 [batch, max_samples], in [-1, 1], 0 after the end of the recording
    num_samples  int32 [batch], samples of the recording
    label        class, int32 [batch]; or with transcripts:
    tokens       label, int32 [batch, max_tokens], characters from 1, padded with 0

Training may add "time_masks", "mel_masks" and "mel_shift"; see `audio.augment`.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import os
import wave

import numpy as np
import tensorflow as tf

from input_fns.audio import characters, wav_ops
from input_fns.audio.augment import AudioAugmentation
from input_fns.audio.characters import Characters
from input_fns.core import caching, records, serving
from input_fns.core.predictions import RowWriter
from input_fns.core.records import no_autograph
from input_fns.dataset_info import DatasetInfo, Feature
from input_fns.record_pipeline import RecordPipeline

_SCALE = 2.0**-15  # of 16-bit samples


@dataclasses.dataclass(frozen=True)
class AudioPipeline(RecordPipeline):
    """Feeds recordings; see the module.

    Attributes:
      augmentation: augmentation of training examples.
    """

    data: DatasetInfo
    augmentation: AudioAugmentation = dataclasses.field(default_factory=AudioAugmentation)
    cache: str = caching.AUTO

    @property
    def features(self) -> dict[str, Feature]:
        """Features of an example in prediction, as the model gets them."""
        return {
            "waveform": Feature("raw", "float32", (self.data.kind.max_samples,)),
            "num_samples": Feature("raw", "int32", ()),
        }

    @property
    def input_limits(self) -> dict[str, tuple]:
        """`{feature: (lowest, limit)}` of the values of a request; see `serving.checked`."""
        return {**RecordPipeline.input_limits.fget(self), "waveform": serving.FINITE}

    # Stages.

    def draw(self, count, seed):
        """Returns float32 `[count, numbers]`, the random numbers of the augmentation."""
        return self.augmentation.draw(count, seed)

    @no_autograph
    def batch_transform(self, features, labels, random):
        """Returns floats instead of 16-bit samples, augmented in training."""
        # One pass over the samples, of the same values as a cast and a product with _SCALE.
        samples = tf.bitcast(features["waveform"], tf.qint16)
        waveform = tf.quantization.dequantize(samples, -1.0, 1.0 - _SCALE, mode="SCALED")
        features = {**features, "waveform": waveform}
        if random is not None:
            features = self.augmentation.apply(features, random, self.data.kind.sample_rate)
        return features, labels

    # Recordings that are not in a split, and what is predicted.

    file_examples = "input_fns.convert.file_input:AudioInput"

    def prediction_writer(self, examples):
        """Returns the writer of classes, or of transcripts with their text."""
        del examples
        if not self.data.kind.vocabulary:
            return RowWriter(self.data.all_class_names)
        return TranscriptWriter(self.to_text)

    def files_input_fn(self, files):
        """Returns an input_fn for prediction of recordings.

        Args:
          files: function that returns an iterator of bytes: little-endian int16, 1 to `max_samples`
            samples at the sampling rate of the data set.

        Returns:
          `input_fn(params) -> tf.data.Dataset` like that of `predict_input_fn`.
        """
        max_samples = self.data.kind.max_samples

        def features(file):
            samples = tf.cast(tf.io.decode_raw(file, tf.int16), tf.float32) * _SCALE
            count = tf.shape(samples)[0]
            waveform = tf.pad(samples, [[0, max_samples - count]])
            return {"waveform": tf.ensure_shape(waveform, [max_samples]), "num_samples": count}

        return lambda params: records.from_files(files, features, params["batch_size"])

    # Serving.

    @functools.cached_property
    def characters(self) -> Characters:
        """The vocabulary of the transcripts."""
        return characters.load(os.path.join(self.data.data_dir, self.data.kind.vocabulary))

    def to_text(self, tokens: np.ndarray) -> list[str]:
        """Returns the texts of int32 `[n, max_tokens]`."""
        return self.characters.decode(tokens)

    def receivers(self, top_k: int = 0) -> dict[str, serving.Receiver]:
        """Returns the serving input receivers by signature.

        Besides those of `RecordPipeline`, `audio_bytes` takes WAV files, string `[batch]`. It and
        `tf_example` return transcripts as text; the raw signature has no strings.
        """
        receivers = RecordPipeline.receivers(self, top_k)
        receivers[serving.AUDIO_BYTES] = serving.Receiver(
            serving.string_inputs(serving.AUDIO_BYTES),
            lambda inputs: self._decode_files(inputs[serving.AUDIO_BYTES]),
            receivers[serving.RAW].outputs,
            self._first_files,
        )
        if not self.data.kind.vocabulary:
            return receivers
        return {
            name: receiver
            if name == serving.RAW
            else dataclasses.replace(receiver, outputs=self._with_text)
            for name, receiver in receivers.items()
        }

    def _with_text(self, predictions, features):
        del features
        pieces = tf.gather(tf.constant(self.characters.pieces), predictions["tokens"])
        return {**predictions, "text": tf.strings.reduce_join(pieces, axis=-1)}

    def _decode_files(self, files):
        """Returns features of WAV files, string `[batch]`; see `wav_ops`."""
        audio = self.data.kind

        @no_autograph
        def decode(content):
            mono, count = wav_ops.decode(content, audio.sample_rate, audio.max_samples)
            mono = tf.pad(mono, [[0, audio.max_samples - count]])
            return tf.ensure_shape(mono, [audio.max_samples]), count

        output = (tf.TensorSpec([audio.max_samples]), tf.TensorSpec([], tf.int32))
        waveform, num_samples = tf.map_fn(decode, files, fn_output_signature=output)
        return {"waveform": waveform, "num_samples": num_samples}

    def _first_files(self, split, count):
        features = self._first_features(split, count)
        rows = zip(features["waveform"], features["num_samples"])
        files = [to_wav(row[:size], self.data.kind.sample_rate) for row, size in rows]
        return {serving.AUDIO_BYTES: np.array(files, object)}


class TranscriptWriter(RowWriter):
    """Writes the predictions of transcripts, with `text` if they have `tokens`."""

    def __init__(self, to_text):
        """Takes the function from token ids `[n, max_tokens]` to texts."""
        super().__init__()
        self._to_text = to_text

    def columns(self, batch):
        """Returns the columns of a batch with the texts."""
        if "tokens" not in batch:
            return batch
        return {**batch, "text": np.array(self._to_text(batch["tokens"]))}


def to_wav(waveform: np.ndarray, sample_rate: int) -> bytes:
    """Returns a mono WAV file of 16-bit integers from float32 `[n]` in [-1, 1)."""
    content = io.BytesIO()
    with wave.open(content, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(sample_rate)
        file.writeframes(np.round(waveform / _SCALE).astype("<i2").tobytes())
    return content.getvalue()
