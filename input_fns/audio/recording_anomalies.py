"""Recordings and their transcripts."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from input_fns.anomalies.sample import MANY, MOST, SOME, Anomaly, Sample

# Of 16-bit samples: a lower peak is nearly silent (-60 dB); a share of clipped samples.
_QUIET, _MUCH_CLIPPED = 33, 0.1
# Characters per second that a Conformer can align: frames of 10 ms, of which it keeps a quarter.
_FASTEST_SPEECH = 25
_SHOWN = 3


def of_waveforms(sample: Sample) -> Iterator[Anomaly]:
    """Yields recordings that are silent, clipped, or equal."""
    sample = sample.few()
    quiet, clipped, different = [], [], set()
    for samples in _waveforms(sample):
        absolute = np.abs(samples.astype(np.int32))
        quiet.append(absolute.max() < _QUIET)
        clipped.append((absolute >= 2**15 - 1).mean() > _MUCH_CLIPPED)
        different.add(samples.tobytes())
    count = len(quiet)
    for found, what in (
        (quiet, "nearly silent (-60 dB): they may be floats or integers of another scale"),
        (clipped, "clipped in over 10 % of their samples: they may be floats of another scale"),
    ):
        if sum(found) > SOME * count:
            examples = [name for name, is_found in zip(sample.names(), found) if is_found]
            yield Anomaly(
                f"{sum(found)} of {count} recordings of {sample.where} are {what}, such as "
                f"{', '.join(examples[:_SHOWN])}",
            )
    if len(different) < count / 2:
        yield Anomaly(f"only {len(different)} of {count} recordings of {sample.where} differ")


def of_transcripts(sample: Sample) -> Iterator[Anomaly]:
    """Yields texts that are too long for their recordings."""
    audio = sample.data.kind
    lengths = (sample.values("tokens") > 0).sum(axis=1)
    speeds = lengths * audio.sample_rate / sample.values("num_samples")
    share = (speeds > _FASTEST_SPEECH).mean()
    if share > MANY:
        yield Anomaly(
            f"{share:.0%} of the recordings of {sample.where} are too short for their texts (over "
            f"{_FASTEST_SPEECH} characters per second): a text may be that of a longer recording, "
            "or of another",
            is_error=sample.is_train and share > MOST,
        )


def _waveforms(sample):
    """Yields the samples of each recording, int16 `[n]`, whether it is stored padded or not."""
    for example, size in zip(sample.examples, sample.values("num_samples").tolist()):
        yield np.frombuffer(example["waveform"], "<i2")[:size]
