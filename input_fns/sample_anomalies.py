"""Finds recordings, texts and rankings that a model can hardly learn from; see `anomalies`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from input_fns.dataset_info import Audio, Ratings

# Of 16-bit samples: a lower peak is nearly silent; a share of clipped samples.
_QUIET, _MUCH_CLIPPED = 33, 0.1
# Characters per second that a Conformer can align: frames of 10 ms, of which it keeps a quarter.
_FASTEST_SPEECH = 25
# Candidates of a ranking (the default of ranking_k), and share of the users that are ranked.
_FEW_CANDIDATES, _FEW_USERS = 10, 0.1
# Shares of recordings from which on a finding is an error, or a warning.
_MOST, _MANY, _SOME = 0.9, 0.2, 0.05
_SHOWN = 3


def of_recordings(
    split: str,
    waveforms: Sequence[np.ndarray],
    names: Sequence[str],
    lengths: Sequence[int] | None,
    audio: Audio,
) -> Iterator[tuple[bool, str]]:
    """Yields what is odd about recordings: whether it is an error, and a text.

    Args:
      split: name of the split.
      waveforms: int16 `[samples]` of each recording of a sample of the split.
      names: name of each recording.
      lengths: characters of each transcript, or None.
      audio: metadata of the data set.
    """
    count = len(waveforms)
    absolute = [np.abs(samples.astype(np.int32)) for samples in waveforms]
    quiet = [samples.max() < _QUIET for samples in absolute]
    clipped = [(samples >= 2**15 - 1).mean() > _MUCH_CLIPPED for samples in absolute]
    for found, what in (
        (quiet, "nearly silent (-60 dB): they may be floats or integers of another scale"),
        (clipped, "clipped in over 10 % of their samples: they may be floats of another scale"),
    ):
        if sum(found) > _SOME * count:
            examples = [name for name, is_found in zip(names, found) if is_found][:_SHOWN]
            yield (
                False,
                f"{sum(found)} of {count} recordings of '{split}' in a sample are {what}, such as "
                f"{', '.join(examples)}",
            )
    num_different = len({samples.tobytes() for samples in waveforms})
    if num_different < count / 2:
        yield False, f"only {num_different} of {count} recordings of '{split}' in a sample differ"
    if lengths is None:
        return
    seconds = np.array([len(samples) for samples in waveforms]) / audio.sample_rate
    share = (np.array(lengths) / seconds > _FASTEST_SPEECH).mean()
    if share > _MANY:
        yield (
            split == "train" and share > _MOST,
            f"{share:.0%} of the recordings of '{split}' in a sample are too short for their texts "
            f"(over {_FASTEST_SPEECH} characters per second): a text may be that of a longer "
            "recording, or of another",
        )


def of_ratings(split: str, negatives: np.ndarray, ratings: Ratings) -> Iterator[tuple[bool, str]]:
    """Yields what is odd about rankings: whether it is an error, and a text.

    Args:
      split: name of the split.
      negatives: int32 `[rows, num_negatives]`, -1 if there are fewer.
      ratings: metadata of the data set.
    """
    candidates = 1 + np.median((negatives >= 0).sum(axis=1)) if len(negatives) else 1
    if candidates <= _FEW_CANDIDATES:
        yield (
            False,
            f"rows of '{split}' have {candidates:g} candidates in the median, of "
            f"{ratings.num_items} items: hits among the first {_FEW_CANDIDATES} say nothing",
        )
    if len(negatives) < _FEW_USERS * ratings.num_users:
        yield (
            False,
            f"only {len(negatives)} of {ratings.num_users} users are in '{split}': the others have "
            "fewer than 3 items. --user_column and --item_column name the columns",
        )
