"""Flags of the sources of recordings. Imports nothing: `--help` waits for it."""


def define(flag) -> None:
    """Defines the flags; `flag` is `convert.flags.define`."""
    flag(
        "audio_column",
        "Column of the file names of recordings; default: the usual names, or the first of "
        "audio_csv.",
    )
    flag(
        "audio_folder",
        "Folder in --source of the recordings of a table; default: that of the table.",
    )
    flag(
        "sample_rate",
        "Samples per second of the stored audio, Hz; recordings of other rates are resampled.",
        lower_bound=8000,
        upper_bound=48000,
    )
    flag(
        "max_seconds",
        "Length of a row of audio; longer recordings are skipped and listed.",
        lower_bound=0.1,
        upper_bound=600.0,
    )
    flag(
        "test_speaker",
        "Speaker of fsdd whose recordings are the split 'test', such as theo.",
    )
