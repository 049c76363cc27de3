"""Reads WAV files: integers of 8 to 32 bits, A-law, mu-law, floats of 32 and 64 bits.

A file is untrusted: every size is compared with the bytes that are there. Imports no TensorFlow: it
runs in worker processes. `wav_ops` reads the same files in a SavedModel.

Format: "Multimedia Programming Interface and Data Specifications 1.0" (Microsoft and IBM 1991),
`WAVEFORMATEXTENSIBLE`, and RF64 (EBU Tech 3306).
"""

from __future__ import annotations

import dataclasses
import struct

import numpy as np

from input_fns.audio.wav_format import (
    EXTENSIBLE,
    FLOAT,
    GUID,
    INTEGER,
    LARGEST_FLOAT,
    MAX_CHANNELS,
    STREAM_SIZE,
    UNPADDED,
)

LOWEST_RATE, HIGHEST_RATE = 1000, 384000
# A header has chunks of any size before the samples, such as a cover picture.
MAX_HEADER_BYTES = 2**20
_A_LAW, _MU_LAW = 6, 7
# Format tag -> bits of a sample -> dtype; 24 bits have none.
_DTYPES = {
    INTEGER: {8: "u1", 16: "<i2", 24: "", 32: "<i4"},
    FLOAT: {32: "<f4", 64: "<f8"},
    _A_LAW: {8: "u1"},
    _MU_LAW: {8: "u1"},
}
_OTHER_FORMATS = {2: "Microsoft ADPCM", 17: "IMA ADPCM", 49: "GSM 6.10", 80: "MPEG", 85: "MP3"}
_SIZE_IN_DS64 = 0xFFFFFFFF  # of RF64


@dataclasses.dataclass(frozen=True)
class Header:
    """The header of a WAV file.

    Attributes:
      tag: format tag, such as 1 for integers and 3 for floats.
      bits: bits of a sample.
      num_channels: number of channels.
      rate: samples of a channel per second, Hz.
      offset: place of the first byte of the samples.
      num_samples: samples of each channel.
    """

    tag: int
    bits: int
    num_channels: int
    rate: int
    offset: int
    num_samples: int

    @property
    def frame_bytes(self) -> int:
        """Bytes of one sample of all channels."""
        return self.num_channels * self.bits // 8

    @property
    def end(self) -> int:
        """Place after the last byte of the samples."""
        return self.offset + self.num_samples * self.frame_bytes


def read_header(start: bytes, num_bytes: int) -> Header:
    """Returns the header of a WAV file.

    A last sample that is incomplete is left out. The samples of a stream reach to the end.

    Args:
      start: the file, or its start.
      num_bytes: size of the file.

    Raises:
      ValueError: it is not a WAV file, its format is unsupported, or a size is wrong.
    """
    if not num_bytes:
        raise ValueError("it is empty")
    if start[:4] == b"RIFX":
        raise ValueError("RIFX is unsupported; write a RIFF WAV file")
    if start[:4] not in (b"RIFF", b"RF64", b"BW64") or start[8:12] != b"WAVE":
        raise ValueError(f"it is not a WAV file: it begins with {start[:12]!a}")
    place, found, size_in_ds64 = 12, None, 0
    while place + 8 <= len(start):
        kind, size = start[place : place + 4], _unsigned(start, place + 4, 4)
        place += 8
        if kind == b"data":
            if found is None:
                raise ValueError("it has samples before their format")
            size = size_in_ds64 if size == _SIZE_IN_DS64 and size_in_ds64 else size
            left = num_bytes - place
            if _is_stream(start, size, left, num_bytes):
                size = left
            return _with_samples(*found, place, size, left)
        if size > num_bytes - place:
            raise ValueError(_wrong_size(kind, size, num_bytes - place))
        if kind == b"fmt ":
            found = _format(start[place : place + size])
        elif kind == b"ds64":
            size_in_ds64 = _unsigned(start, place + 8, 8)
        place += size
        # A chunk of odd size is padded, but not by all programs.
        if size % 2 and start[place : place + 4] not in UNPADDED:
            place += 1
    if place < num_bytes:
        raise ValueError(f"it has more than {MAX_HEADER_BYTES} bytes before its samples")
    raise ValueError("it has no samples")


def _unsigned(data, place, size):
    return int.from_bytes(data[place : place + size], "little")


def _wrong_size(kind, size, left):
    return f"its chunk {kind!a} should have {size} bytes, but {left} are left"


def _is_stream(start, size, left, num_bytes):
    """Whether the writer of the samples did not know their size: they reach to the end."""
    if size == 0:  # an empty file may have chunks behind the samples, and knows its size
        return _unsigned(start, 4, 4) + 8 < num_bytes
    return size >= STREAM_SIZE and size > left


def _format(chunk):
    """Returns tag, bits, channels and rate."""
    if len(chunk) < 16:
        raise ValueError(f"its format has {len(chunk)} bytes, not 16")
    tag, num_channels, rate, _, frame_bytes, bits = struct.unpack("<HHIIHH", chunk[:16])
    if tag == EXTENSIBLE:
        if len(chunk) < 40 or chunk[26:40] != GUID:
            raise ValueError("its extensible format is unsupported")
        tag = _unsigned(chunk, 24, 2)
    if bits not in _DTYPES.get(tag, ()):
        name = f" ({_OTHER_FORMATS[tag]})" if tag in _OTHER_FORMATS else ""
        raise ValueError(
            f"format {tag}{name} with {bits} bits is unsupported; write integers of 8, 16, 24 or "
            "32 bits or floats of 32 or 64, such as with ffmpeg -i OLD.wav NEW.wav"
        )
    if not 1 <= num_channels <= MAX_CHANNELS:
        raise ValueError(f"{num_channels} channels are not 1 to {MAX_CHANNELS}")
    check_rate(rate)
    if frame_bytes != num_channels * bits // 8:
        raise ValueError(f"{num_channels} channels of {bits} bits are not {frame_bytes} bytes")
    return tag, bits, num_channels, rate


def check_rate(rate: int) -> None:
    """Raises `ValueError` for a sampling rate that is not that of a recording."""
    if not LOWEST_RATE <= rate <= HIGHEST_RATE:
        raise ValueError(f"its rate of {rate} Hz is not {LOWEST_RATE} to {HIGHEST_RATE}")


def _with_samples(tag, bits, num_channels, rate, offset, size, left):
    num_samples = min(size, left) // (num_channels * bits // 8)
    # Less than a sample of all channels may be missing at the end; more is a truncated file.
    if size - left >= num_channels * bits // 8:
        raise ValueError(_wrong_size(b"data", size, left))
    if not num_samples:
        raise ValueError("it has no samples")
    return Header(tag, bits, num_channels, rate, offset, num_samples)


def decode(data: bytes | memoryview, header: Header) -> np.ndarray:
    """Decodes samples and mixes them to mono.

    Args:
      data: bytes of whole samples, such as those from `header.offset` to `header.end`.
      header: the header of the file.

    Returns:
      int16 `[n]` of a mono file of 16 bits, as they are; of others the mean of the channels,
      float64 `[n]` in [-1, 1].

    Raises:
      ValueError: a sample is NaN, infinite or far outside of [-1, 1].
    """
    if header.tag == INTEGER and header.bits == 16 and header.num_channels == 1:
        return np.frombuffer(data, "<i2").astype(np.int16, copy=False)
    if header.bits == 24:  # as the upper bytes of 32 bits
        wide = np.zeros([len(data) // 3, 4], np.uint8)
        wide[:, 1:] = np.frombuffer(data, np.uint8).reshape(-1, 3)
        samples = wide.view("<i4")[:, 0]
    else:
        samples = np.frombuffer(data, _DTYPES[header.tag][header.bits])
    if header.tag in (_A_LAW, _MU_LAW):
        samples = (_a_law() if header.tag == _A_LAW else _mu_law())[samples] / 2.0**15
    elif header.tag == INTEGER:
        zero, scale = (128, 128) if header.bits == 8 else (0, 2.0 ** (samples.itemsize * 8 - 1))
        samples = (samples.astype(np.float64) - zero) / scale
    else:
        samples = samples.astype(np.float64)
        check_floats(samples)
    return to_mono(samples.reshape(-1, header.num_channels))


def to_mono(samples: np.ndarray) -> np.ndarray:
    """Returns the mean of the channels, float64 `[n]`, of float64 `[n, channels]`."""
    # NumPy's mean over few columns takes 20 times as long.
    return sum(samples.T[1:], samples[:, 0]) / samples.shape[1]


def check_floats(samples: np.ndarray) -> None:
    """Raises `ValueError` if a float sample is NaN, infinite or far outside of [-1, 1]."""
    largest = np.abs(samples).max(initial=0)  # NaN if one is
    if not np.isfinite(largest):
        raise ValueError("a sample is NaN or infinite")
    if largest > LARGEST_FLOAT:
        raise ValueError(f"a sample is {largest:.4g}, and floats should be in [-1, 1]")


def _mu_law():
    """Returns the 16-bit value of each byte (ITU-T G.711), int64 `[256]`."""
    code = ~np.arange(256) & 0xFF
    size = (((code & 15) << 3) + 132 << (code >> 4 & 7)) - 132
    return np.where(code & 128, -size, size)


def _a_law():
    """Returns the 16-bit value of each byte (ITU-T G.711), int64 `[256]`."""
    code = np.arange(256) ^ 0x55
    exponent, mantissa = code >> 4 & 7, (code & 15) << 4
    size = np.where(exponent, (mantissa + 264) << np.maximum(exponent - 1, 0), mantissa + 8)
    return np.where(code & 128, size, -size)
