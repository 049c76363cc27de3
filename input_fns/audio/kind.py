"""Recordings with classes or with transcripts."""

from __future__ import annotations

import dataclasses

import numpy as np

from input_fns import DataError, kinds
from input_fns.core.dataset_parts import MAX_EXAMPLE_BYTES, Feature
from input_fns.core.json_fields import field, file_name_or_empty, integer, integer_in
from input_fns.core.target import FEATURE
from input_fns.kinds import Kind

_MAX_PIECES, _MAX_TOKENS = 2**21, 2**20
_PREVIEW_SECONDS = 10


@dataclasses.dataclass(frozen=True)
class Audio(Kind):
    """Recordings with classes or with transcripts.

    Its features are "waveform", int16 `[max_samples]`, stored unpadded (by earlier versions raw,
    padded with zeros), and "num_samples", an int32 scalar. With transcripts it has the label
    "tokens", int32 `[max_tokens]`, padded with 0; see `audio_pipeline`.

    Attributes:
      sample_rate: samples per second, Hz.
      max_samples: samples of a row.
      vocabulary: name of a file with the characters of the transcripts, one per line, in the order
        of the tokens from 1; "" without transcripts. Token 0 is the blank of CTC.
      vocab_size: number of tokens, with the blank; 0 without transcripts.
      max_tokens: tokens of a row; 0 without transcripts.
    """

    sample_rate: int = field(integer_in(1, 2**20))
    max_samples: int = field(integer_in(1, MAX_EXAMPLE_BYTES))
    vocabulary: str = field(file_name_or_empty, default="")
    vocab_size: int = field(integer, default=0)
    max_tokens: int = field(integer, default=0)

    name = "audio"
    content = "has recordings"
    side_names = ("characters.txt",)
    side_fields = ("vocabulary",)
    noun = "recordings"
    flags = ("augment",)

    def validate(self, where):
        """Raises DataError if the sizes of `where` in dataset.json are not those of transcripts."""
        has_text = bool(self.vocabulary)
        low, high = 2 * has_text, _MAX_PIECES * has_text
        integer(self.vocab_size, f"{where}.vocab_size", low, high)
        integer(self.max_tokens, f"{where}.max_tokens", int(has_text), _MAX_TOKENS * has_text)

    def check(self, data):
        """Raises DataError if the features are not recordings with classes or transcripts."""
        has_text = bool(self.vocabulary)
        needed = stored_features(self.max_samples, self.max_tokens)
        padded = {**needed, "waveform": dataclasses.replace(needed["waveform"], encoding="raw")}
        features, labels = dict(data.features), data.labels
        if data.target and not has_text:
            features.pop(FEATURE)
            labels = ()
        if features not in (needed, padded) or labels != ("tokens",) * has_text:
            raise DataError(
                f"features must be {', '.join(needed)}, as audio needs, and tokens a label"
            )
        if bool(data.class_names or data.target) == has_text:
            raise DataError("audio needs either class_names or a vocabulary, or a target")

    def limits(self, data):
        """Returns those of lengths and tokens."""
        tokens = {"tokens": (0, self.vocab_size)} if self.vocabulary else {}
        return {"num_samples": (1, self.max_samples + 1), **tokens}

    def properties(self):
        """Returns the sampling rate, and the sizes of the transcripts."""
        found = {"sample_rate": self.sample_rate}
        if self.vocabulary:
            found.update(vocab_size=self.vocab_size, max_tokens=self.max_tokens)
        return found

    def describe(self, data):
        """Returns the number of classes, the sampling rate and the longest recording."""
        seconds = self.max_samples / self.sample_rate
        found = [*filter(None, [Kind.describe(self, data)])]
        line = f"{self.sample_rate} Hz, up to {seconds:g} s"
        if self.vocabulary:
            line += f", {self.vocab_size - 1} characters, texts of up to {self.max_tokens}"
        return "; ".join([*found, line])

    def pipeline(self, data, options):
        """Returns an `AudioPipeline`."""
        from input_fns.audio import augment
        from input_fns.audio.audio_pipeline import AudioPipeline

        return AudioPipeline(data, augment.parse(options.augment), options.cache)

    def previews(self, data, features):
        """Returns the first ten seconds of recordings."""
        from input_fns.audio.audio_pipeline import to_wav

        sizes = np.minimum(features["num_samples"], _PREVIEW_SECONDS * self.sample_rate)
        return [
            kinds.Preview(wav=to_wav(waveform[:size], self.sample_rate))
            for waveform, size in zip(features["waveform"], sizes)
        ]

    def anomalies(self, sample):
        """Yields silent, clipped or equal recordings, and texts that are too long for theirs."""
        from input_fns.audio import recording_anomalies

        yield from recording_anomalies.of_waveforms(sample)
        if self.vocabulary:
            yield from recording_anomalies.of_transcripts(sample)

    @classmethod
    def synthetic(cls, shapes):
        """Returns recordings with classes, or with transcripts if there is a vocabulary."""
        _, max_samples, vocab_size, max_tokens = shapes.audio
        features = stored_features(max_samples, max_tokens)
        if not vocab_size:
            kind, names = cls(*shapes.audio[:2]), kinds.class_names(shapes.classes)
            return kinds.synthetic_dataset(features, names, kind=kind)
        kind = cls(*shapes.audio[:2], "none", vocab_size, max_tokens)
        return kinds.synthetic_dataset(features, labels=("tokens",), kind=kind)

    def random_examples(self, pipeline, size, seed):
        """Returns noise of half to all of the samples, with a class or characters."""
        random = np.random.default_rng(seed)
        num_samples = random.integers(self.max_samples // 2, self.max_samples + 1, size)
        is_inside = np.arange(self.max_samples) < num_samples[:, np.newaxis]
        # Windows of one array: millions of random numbers take seconds.
        noise = random.normal(size=self.max_samples + size, scale=0.1).astype(np.float32)
        windows = np.lib.stride_tricks.sliding_window_view(noise, self.max_samples)[:size]
        features = {"waveform": windows * is_inside, "num_samples": num_samples.astype(np.int32)}
        if pipeline.data.target:
            return features, pipeline.data.target.random(random, size)
        if not self.vocab_size:
            labels = random.integers(0, pipeline.data.num_classes, size)
            return features, labels.astype(np.int32)
        tokens = random.integers(1, self.vocab_size, [size, self.max_tokens])
        # Half as many characters as there could be: a text must fit into its recording.
        num_tokens = num_samples * self.max_tokens // (2 * self.max_samples)
        tokens *= np.arange(self.max_tokens) < num_tokens[:, np.newaxis]
        return features, {"tokens": tokens.astype(np.int32)}

    def random_training_examples(self, pipeline, size, seed):
        """Returns noise, and masks where the augmentation has them."""
        features, labels = self.random_examples(pipeline, size, seed)
        for name, count in pipeline.augmentation.masks.items():
            start = np.random.default_rng(seed).random([size, count, 1], np.float32)
            features[name] = np.concatenate([start, start + np.float32(0.1)], axis=2)
        return features, labels


def stored_features(max_samples: int, max_tokens: int) -> dict[str, Feature]:
    """Returns the features of a recording, without a transcript if `max_tokens` is 0."""
    features = {
        "waveform": Feature("unpadded", "int16", (max_samples,)),
        "num_samples": Feature("raw", "int32", ()),
    }
    if max_tokens:
        features["tokens"] = Feature("raw", "int32", (max_tokens,))
    return features
