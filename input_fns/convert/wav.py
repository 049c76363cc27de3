"""Reads WAV files: integers of 8, 16, 24 and 32 bits, floats of 32 and 64 bits, 1 to 8 channels.

A file is untrusted: every size is compared with the bytes that are there. Imports no TensorFlow: it
runs in worker processes.

Format: "Multimedia Programming Interface and Data Specifications 1.0" (Microsoft and IBM 1991) and
`WAVEFORMATEXTENSIBLE`.
"""

from __future__ import annotations

import dataclasses
import struct

import numpy as np

LOWEST_RATE, HIGHEST_RATE = 8000, 48000
MAX_CHANNELS = 8
# A header has chunks of any size before the samples, such as a cover picture.
MAX_HEADER_BYTES = 2**20
_INTEGER, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
# Format tag -> bits of a sample -> dtype; 24 bits have none.
_DTYPES = {_INTEGER: {8: "u1", 16: "<i2", 24: "", 32: "<i4"}, _FLOAT: {32: "<f4", 64: "<f8"}}
# The last 14 bytes of a GUID whose first 2 bytes are a format tag.
_GUID = bytes.fromhex("000000001000800000aa00389b71")
# An integer is in [-1, 1]; a float may exceed it a little and is clipped.
_LARGEST_FLOAT = 4.0


@dataclasses.dataclass(frozen=True)
class Header:
    """The header of a WAV file.

    Attributes:
      tag: format tag, 1 for integers and 3 for floats.
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
    def end(self) -> int:
        """Place after the last byte of the samples."""
        return self.offset + self.num_samples * self.num_channels * self.bits // 8


def read_header(start: bytes, num_bytes: int) -> Header:
    """Returns the header of a WAV file.

    Args:
      start: the file, or its start.
      num_bytes: size of the file.

    Raises:
      ValueError: it is not a WAV file, its format is unsupported, or a size is wrong.
    """
    if not num_bytes:
        raise ValueError("it is empty")
    if start[:4] in (b"RF64", b"BW64", b"RIFX"):
        raise ValueError(f"{start[:4].decode()} is unsupported; write a RIFF WAV file")
    if start[:4] != b"RIFF" or start[8:12] != b"WAVE":
        raise ValueError("it is not a WAV file")
    place, found = 12, None
    while place + 8 <= len(start):
        kind, size = start[place : place + 4], _unsigned(start, place + 4, 4)
        place += 8
        if size > num_bytes - place:
            raise ValueError(
                f"its chunk {kind!a} should have {size} bytes, but {num_bytes - place} are left"
            )
        if kind == b"data":
            if found is None:
                raise ValueError("it has samples before their format")
            return _with_samples(*found, place, size)
        if kind == b"fmt ":
            found = _format(start[place : place + size])
        place += size + size % 2  # a chunk of odd size is padded
    if place < num_bytes:
        raise ValueError(f"it has more than {MAX_HEADER_BYTES} bytes before its samples")
    raise ValueError("it has no samples")


def _unsigned(data, place, size):
    return int.from_bytes(data[place : place + size], "little")


def _format(chunk):
    """Returns tag, bits, channels and rate."""
    if len(chunk) < 16:
        raise ValueError(f"its format has {len(chunk)} bytes, not 16")
    tag, num_channels, rate, _, frame_bytes, bits = struct.unpack("<HHIIHH", chunk[:16])
    if tag == _EXTENSIBLE:
        if len(chunk) < 40 or chunk[26:40] != _GUID:
            raise ValueError("its extensible format is unsupported")
        tag = _unsigned(chunk, 24, 2)
    if bits not in _DTYPES.get(tag, ()):
        raise ValueError(
            f"format {tag} with {bits} bits is unsupported; write integers of 8, 16, 24 or 32 bits "
            "or floats of 32 or 64"
        )
    if not 1 <= num_channels <= MAX_CHANNELS:
        raise ValueError(f"{num_channels} channels are not 1 to {MAX_CHANNELS}")
    if not LOWEST_RATE <= rate <= HIGHEST_RATE:
        raise ValueError(f"its rate of {rate} Hz is not {LOWEST_RATE} to {HIGHEST_RATE}")
    if frame_bytes != num_channels * bits // 8:
        raise ValueError(f"{num_channels} channels of {bits} bits are not {frame_bytes} bytes")
    return tag, bits, num_channels, rate


def _with_samples(tag, bits, num_channels, rate, offset, num_bytes):
    num_samples, rest = divmod(num_bytes, num_channels * bits // 8)
    if rest:
        raise ValueError(f"{num_bytes} bytes are not whole samples of {bits * num_channels} bits")
    if not num_samples:
        raise ValueError("it has no samples")
    return Header(tag, bits, num_channels, rate, offset, num_samples)


def decode(data: bytes, header: Header) -> np.ndarray:
    """Returns the mean of the channels, float64 `[num_samples]` in [-1, 1].

    Args:
      data: the file, at least up to `header.end`.
      header: its header.

    Raises:
      ValueError: a sample is NaN, infinite or far outside of [-1, 1].
    """
    data = memoryview(data)[header.offset : header.end]
    if header.bits == 24:  # as the upper bytes of 32 bits
        wide = np.zeros([len(data) // 3, 4], np.uint8)
        wide[:, 1:] = np.frombuffer(data, np.uint8).reshape(-1, 3)
        samples = wide.view("<i4")[:, 0]
    else:
        samples = np.frombuffer(data, _DTYPES[header.tag][header.bits])
    if header.tag == _INTEGER:
        zero, scale = (128, 128) if header.bits == 8 else (0, 2.0 ** (samples.itemsize * 8 - 1))
        samples = (samples.astype(np.float64) - zero) / scale
    else:
        samples = samples.astype(np.float64)
        largest = np.abs(samples).max()  # NaN if one is
        if not np.isfinite(largest):
            raise ValueError("a sample is NaN or infinite")
        if largest > _LARGEST_FLOAT:
            raise ValueError(f"a sample is {largest:.4g}, and floats should be in [-1, 1]")
    return samples.reshape(-1, header.num_channels).mean(axis=1)
