"""Time of an all-reduce over the links between the chips of a slice."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from tpu.connect.topology import Topology

HOP = 1e-6  # seconds from chip to chip, an assumption


class _Links(NamedTuple):
    """Links between the chips of a generation.

    Attributes:
      dimensions: of the torus; a chip has two links in each.
      link: bytes/s of a link in one direction.
      ring: chips of a dimension from which its ends are connected.
      devices: TPU devices of a chip.
    """

    dimensions: int
    link: float
    ring: int
    devices: int = 1


# v2 and v3: Jouppi et al. 2020, "A Domain-Specific Supercomputer for Training Deep Neural
# Networks", table 3. Later ones: https://jax-ml.github.io/scaling-book/tpus, table 1, one-way
# bandwidth of a link; slices of v4 and v5p are made of cubes of 4 x 4 x 4 chips.
_LINKS = {
    "v2": _Links(2, 496e9 / 8, 16, 2),
    "v3": _Links(2, 656e9 / 8, 32, 2),
    "v4": _Links(3, 45e9, 4),
    "v5e": _Links(2, 45e9, 16),
    "v5p": _Links(3, 90e9, 4),
    "v6e": _Links(2, 90e9, 16),
}


def all_reduce_seconds(num_bytes: float, slice_: Topology) -> float:
    """Returns the time of an all-reduce over all chips of a slice.

    Equal parts of the data are reduce-scattered at the same time, each along the dimensions of the
    torus in another order, and then gathered the same way back (Ying et al. 2018,
    arXiv:1811.06992).

    Args:
      num_bytes: bytes that each chip contributes.
      slice_: the slice.
    """
    links = _LINKS[slice_.generation]
    chips = slice_.num_cores // links.devices
    lengths = _sides(chips, links.dimensions)
    seconds = []
    for first in range(links.dimensions):
        rest, time = num_bytes / links.dimensions, 0.0
        for side in (*lengths[first:], *lengths[:first]):
            bandwidth = links.link * (2 if side >= links.ring else 1)
            time += rest * (side - 1) / side / bandwidth
            rest /= side
        seconds.append(2 * (time + HOP * (sum(lengths) - links.dimensions)))
    return max(seconds)


def _sides(chips: int, dimensions: int) -> Sequence[int]:
    """Returns the lengths of a box of `chips` that is nearest to a cube, the longest first."""
    lengths = [1] * dimensions
    for factor in sorted(_prime_factors(chips), reverse=True):
        lengths[lengths.index(min(lengths))] *= factor
    return sorted(lengths, reverse=True)


def _prime_factors(number):
    for factor in range(2, math.isqrt(number) + 1):
        if number % factor == 0:
            return [factor, *_prime_factors(number // factor)]
    return [number] if number > 1 else []
