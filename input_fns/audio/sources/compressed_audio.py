"""Reads FLAC, OGG (Vorbis, Opus) and MP3 with `soundfile`, an optional dependency.

A file is untrusted: its length is checked before it is decoded, and what was decoded afterwards.
Imports no TensorFlow: worker processes run it.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import BinaryIO

import numpy as np

from input_fns.audio.sources import wav
from input_fns.audio.wav_format import MAX_CHANNELS

EXTENSIONS = (".flac", ".ogg", ".oga", ".opus", ".mp3")
HOW_TO_READ = "pip install '.[audio]' to read it"
_UNKNOWN_LENGTH = 2**62  # from this number of samples on, by libsndfile
_READABLE = ("FLAC", "OGG", "MP3")
# First bytes -> kind of the file.
_MAGIC = {
    b"fLaC": "FLAC",
    b"OggS": "OGG",
    b"ID3": "MP3",
    b"FORM": "AIFF",
    b"NIST_1A": "NIST SPHERE",
    b".snd": "AU",
    b"wvpk": "WavPack",
    b"\x30\x26\xb2\x75": "WMA",
    b"#!AMR": "AMR",
    b"caff": "CAF",
    b"\x1aE\xdf\xa3": "Matroska or WebM",
}
_LONGEST_OGG_PAGE = 2**16
_MAX_TAG_BYTES = 2**24  # such as a cover picture
_MAX_MPEG_BYTES = 448000 // 8  # of a second
# Of MPEG audio, layers 1 to 3: kbit/s by the number in the header, of versions 1 and 2.
_BIT_RATES = {
    (1, 1): (32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448),
    (1, 2): (32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384),
    (1, 3): (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    (2, 1): (32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256),
    (2, 2): (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
    (2, 3): (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}
_MPEG_RATES = (44100, 48000, 32000)
# A decoder removes the delay of the encoder and its padding: up to this many frames.
_PADDING_FRAMES = 4


def is_available() -> bool:
    """Whether `soundfile` is installed."""
    return importlib.util.find_spec("soundfile") is not None


def kind_of(start: bytes) -> str:
    """Returns the kind of a recording by its first bytes; "" for WAV and what is no recording."""
    for magic, kind in _MAGIC.items():
        if start.startswith(magic):
            return kind
    if start[4:8] == b"ftyp":
        return "M4A or MP4"
    if start[:2] in (b"\xff\xf1", b"\xff\xf9"):
        return "AAC"
    return "MP3" if _mpeg_frame(start, 0) else ""


def read(
    file: BinaryIO,
    num_bytes: int,
    kind: str,
    choose: Callable[[int, int], tuple[int, int]],
) -> tuple[np.ndarray, int]:
    """Returns the mean of the channels, as `wav.decode`, and the sampling rate.

    Args:
      file: the file.
      num_bytes: its size.
      kind: see `kind_of`.
      choose: function of the number of samples and of the rate that returns the first sample to
        read and how many; raises ValueError if there are too many.

    Raises:
      ValueError: the kind is unsupported, `soundfile` is missing, or the file is invalid.
    """
    if kind not in _READABLE:
        raise ValueError(
            f"it is {kind}, which is unsupported; write WAV or FLAC, such as with "
            "ffmpeg -i OLD NEW.wav"
        )
    try:
        import soundfile
    except (ImportError, OSError) as error:  # OSError: its library is missing
        raise ValueError(f"it is {kind}: {HOW_TO_READ}") from error
    file.seek(0)
    try:
        with soundfile.SoundFile(file) as sound:
            if sound.format not in _READABLE:
                raise ValueError(f"it is {sound.format}, which is unsupported")
            if sound.channels > MAX_CHANNELS:
                raise ValueError(f"{sound.channels} channels are not 1 to {MAX_CHANNELS}")
            wav.check_rate(sound.samplerate)
            if not sound.frames:
                raise ValueError("it has no samples, or is truncated")
            if sound.frames >= _UNKNOWN_LENGTH:
                raise ValueError(
                    "its header does not say its length, as of a stream to a pipe; write it again, "
                    "such as with ffmpeg -i OLD.flac NEW.flac"
                )
            first, count = choose(sound.frames, sound.samplerate)
            _check_end(file, num_bytes, sound)
            sound.seek(first)
            is_stored = sound.format == "FLAC" and sound.subtype == "PCM_16" and sound.channels == 1
            dtype = "int16" if is_stored else "float64"
            samples = sound.read(count, dtype=dtype, always_2d=True)
            rate = sound.samplerate
    except soundfile.SoundFileError as error:
        # The message of libsndfile, without the file object that soundfile names.
        reason = str(getattr(error, "error_string", error)).rstrip(".")
        raise ValueError(f"it is not a valid {kind} file: {reason}") from error
    if len(samples) != count:
        raise ValueError(f"it is truncated: {len(samples)} of {count} samples can be decoded")
    if is_stored:
        return samples[:, 0], rate
    wav.check_floats(samples)
    return wav.to_mono(samples), rate


def _check_end(file, num_bytes, sound):
    """Checks that the file is as long as its decoder assumes: it would drop the rest."""
    place = file.tell()
    if sound.format == "OGG":
        file.seek(max(0, num_bytes - _LONGEST_OGG_PAGE))
        if not _ends_ogg(file.read(_LONGEST_OGG_PAGE)):
            raise ValueError("it is truncated: its last page does not end the stream")
    elif sound.format == "MP3":
        file.seek(0)
        limit = _MAX_TAG_BYTES + _MAX_MPEG_BYTES * (1 + sound.frames // sound.samplerate)
        num_frames, samples = _count_mpeg_frames(file.read(min(num_bytes, limit)))
        if num_frames * samples - sound.frames > _PADDING_FRAMES * samples:
            raise ValueError(
                f"it has {num_frames} MPEG frames of {samples} samples, but its header states "
                f"{sound.frames} samples; write it again, such as with ffmpeg -i OLD.mp3 NEW.wav"
            )
    file.seek(place)


def _ends_ogg(data):
    """Whether data has a whole last page of a stream (RFC 3533, section 6)."""
    page = data.rfind(b"OggS")
    head = data[page : page + 27] if page >= 0 else b""
    if len(head) < 27 or not head[5] & 4:
        return False
    sizes = data[page + 27 : page + 27 + head[26]]
    return len(sizes) == head[26] and page + 27 + len(sizes) + sum(sizes) <= len(data)


def _count_mpeg_frames(data):
    """Returns the number of MPEG frames of a file, and the samples of each."""
    place, count, samples = 0, 0, 0
    while data[place : place + 3] == b"ID3":
        size = 0
        for byte in data[place + 6 : place + 10]:
            size = size << 7 | byte & 127
        place += 10 + size
    while frame := _mpeg_frame(data, place):
        place, count, samples = place + frame[0], count + 1, frame[1]
    return count, samples


def _mpeg_frame(data, place):
    """Returns bytes and samples of the MPEG frame at a place, or None if there is none."""
    head = data[place : place + 4]
    if len(head) < 4 or head[0] != 0xFF or head[1] & 0xE0 != 0xE0:
        return None
    version, layer = head[1] >> 3 & 3, 4 - (head[1] >> 1 & 3)
    bit_rate, rate = head[2] >> 4, head[2] >> 2 & 3
    if version == 1 or layer == 4 or bit_rate in (0, 15) or rate == 3:
        return None
    family = 1 if version == 3 else 2
    bits = 1000 * _BIT_RATES[family, layer][bit_rate - 1]
    hertz = _MPEG_RATES[rate] // {3: 1, 2: 2, 0: 4}[version]
    padding = head[2] >> 1 & 1
    if layer == 1:
        return (12 * bits // hertz + padding) * 4, 384
    samples = 576 if layer == 3 and family == 2 else 1152
    return samples // 8 * bits // hertz + padding, samples
