"""A random order that takes no memory: each place is computed from its number."""

from __future__ import annotations

import numpy as np

_ROUNDS = 6


def permuted(numbers: np.ndarray, size: int, seed: int) -> np.ndarray:
    """Returns the places of numbers in a random permutation of `range(size)`.

    A Feistel network permutes the smallest range of 4**n numbers that has `size`; numbers that it
    maps outside of `size` are mapped again (Black and Rogaway 2002, cycle walking).

    Args:
      numbers: integers below `size`, `[n]`.
      size: size of the permutation.
      seed: seed of the permutation.

    Returns:
      int64 `[n]`.
    """
    half = np.uint64(max(1, ((size - 1).bit_length() + 1) // 2))
    mask = (np.uint64(1) << half) - np.uint64(1)
    keys = np.random.default_rng(seed).integers(2**63, size=_ROUNDS).astype(np.uint64)
    found = numbers.astype(np.uint64)
    left = np.arange(len(found))  # to be mapped, once or again
    while len(left):
        high, low = found[left] >> half, found[left] & mask
        for key in keys:
            high, low = low, high ^ (_hashed(low + key) & mask)
        found[left] = high << half | low
        left = left[found[left] >= size]
    return found.astype(np.int64)


def _hashed(values):
    """Returns 64 random-looking bits of uint64 values: the finalizer of SplitMix64."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
