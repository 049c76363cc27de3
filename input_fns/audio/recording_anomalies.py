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
    waveforms = _waveforms(sample)
    count = len(waveforms)
    absolute = [np.abs(samples.astype(np.int32)) for samples in waveforms]
    quiet = [samples.max() < _QUIET for samples in absolute]
    clipped = [(samples >= 2**15 - 1).mean() > _MUCH_CLIPPED for samples in absolute]
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
    num_different = len({samples.tobytes() for samples in waveforms})
    if num_different < count / 2:
        yield Anomaly(f"only {num_different} of {count} recordings of {sample.where} differ")


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
    feature, sizes = sample.data.features["waveform"], sample.values("num_samples").tolist()
    rows = zip(sample.examples, sizes)
    return [feature.to_array(example["waveform"])[:size] for example, size in rows]
