"""Numbers of the WAV format that `wav_ops` and `sources.wav` share."""

INTEGER, FLOAT, EXTENSIBLE = 1, 3, 0xFFFE  # format tags
# The last 14 bytes of a GUID whose first 2 bytes are a format tag.
GUID = bytes.fromhex("000000001000800000aa00389b71")
MAX_CHANNELS = 8
# Programs that do not know the size of a stream write 0, all ones (ffmpeg), or nearly 2 GiB (sox,
# arecord) into its header.
STREAM_SIZE = 0x7FFF0000
# An integer is in [-1, 1]; a float may exceed it a little and is clipped.
LARGEST_FLOAT = 4.0
# Chunks that are found directly after one of odd size.
UNPADDED = (b"data", b"fmt ")
