"""Recordings of tensorflow-datasets, with classes or with transcripts. See `convert.tfds`."""

from __future__ import annotations

import io
import wave

import numpy as np

from input_fns import DataError
from input_fns.audio.sources import recordings, speech_manifest
from input_fns.audio.sources.recordings import Recordings
from input_fns.audio.sources.speech_manifest import Manifest
from input_fns.convert import tfds
from input_fns.convert.source import Broken, RawDataset
from input_fns.convert.tfds import Reader, Streamed, of_class
from input_fns.dataset_info import LeftOut

_AUDIO, _LABEL = ("audio", "speech", "voice"), ("label",)
_TEXT = ("text", "sentence", "transcript", "transcription", "normalized_text")
_SPEAKERS = ("speaker_id", "client_id", "speaker")  # who stay in one split
_RANGE = np.iinfo(np.int16)


def _find_classes(features, options):
    audio, label = of_class(features, "Audio", _AUDIO), of_class(features, "ClassLabel", _LABEL)
    return {"audio": audio, "label": label} if audio and label else None


def _find_texts(features, options):
    audio, text = of_class(features, "Audio", _AUDIO), of_class(features, "Text", _TEXT)
    if not (audio and text):
        return None
    speaker = next((name for name in _SPEAKERS if name in features), "")
    return {"audio": audio, "text": text, **({"speaker": speaker} if speaker else {})}


def _read_classes(tables, roles, options) -> RawDataset:
    splits = {}
    for split in tables.splits:
        (labels,) = tables.columns(split, [roles["label"]])
        labels = np.array(labels, np.int64)
        found = Recordings(
            tables.names(split, len(labels)), options, labels if any(labels >= 0) else None
        )
        splits[split] = _streamed(tables, split, roles, found)
    names = tuple(tables.features[roles["label"]].names)
    return RawDataset(options.dataset, names, splits, kind=recordings.metadata(options))


def _read_texts(tables, roles, options) -> RawDataset:
    left_out, manifests = LeftOut(), {}
    for split in tables.splits:
        texts, *speakers = tables.columns(
            split, [name for role, name in roles.items() if role != "audio"]
        )
        paths = tables.names(split, len(texts))
        texts = [text.decode("utf-8", "replace") for text in texts]
        kept, texts = speech_manifest.clean_texts(texts, list(paths), options, left_out)
        groups = np.array(speakers[0])[kept] if speakers else None
        found = Recordings(paths[kept], options, groups=groups)
        manifests[split] = Manifest(list(paths[kept]), texts, found)
    raw = speech_manifest.to_dataset(options, manifests, left_out)
    for split, found in raw.splits.items():
        raw.splits[split] = _streamed(tables, split, roles, found)
    return raw


def _streamed(tables, split, roles, examples):
    rate = tables.features[roles["audio"]].sample_rate
    if not rate:
        raise DataError(
            f"{tables.info.full_name} does not state the sampling rate of "
            f"{roles['audio']}. Write a function that reads it: --dataset=package.module:FUNCTION"
        )
    size = tables.record_bytes(split)
    return Streamed(tables, split, (roles["audio"],), examples, _WithWav(rate), size)


class _WithWav:
    """Gives a recording the content of a WAV; see `Streamed.with_files`."""

    def __init__(self, rate: int):
        """Takes the sampling rate, Hz."""
        self._rate = rate

    def __call__(self, part, values):
        samples = values[0]
        if samples.dtype.kind != "i" or not (
            _RANGE.min <= samples.min(initial=0) and samples.max(initial=0) <= _RANGE.max
        ):
            return Broken(part.paths[0], "its samples are not integers of 16 bits")
        packed = io.BytesIO()
        with wave.open(packed, "wb") as file:
            file.setparams(
                (samples.shape[1] if samples.ndim > 1 else 1, 2, self._rate, 0, "NONE", "")
            )
            file.writeframes(samples.astype("<i2").tobytes())
        return tfds.with_content(part, (packed.getvalue(),))


_OPTIONS = "sample_rate max_seconds"
READERS = (
    Reader(
        *("classification", "recordings with classes", "audio and a label"),
        *(_OPTIONS, _find_classes, _read_classes),
    ),
    Reader(
        *("classification", "recordings with transcripts", "audio and a text"),
        *(f"{_OPTIONS} vocabulary lower_case", _find_texts, _read_texts),
    ),
)
