"""The mask that TensorFlow puts on the CRC-32C of records and of tensors in checkpoints."""


def masked(crc: int) -> int:
    """Returns a CRC-32C as it is stored (tensorflow/core/lib/hash/crc32c.h)."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
