"""Cloud TPU slices by name: hosts, cores per host, memory per core."""

from __future__ import annotations

import dataclasses
import re

# Generations that TPUEstimator supports, and the slice sizes that Cloud TPU offers.
# https://cloud.google.com/tpu/docs/supported-tpu-configurations
_SIZES = {
    "v2": (8, 32, 128, 256, 512),
    "v3": (8, 32, 64, 128, 256, 512, 1024, 2048),
    "v4": (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096),
}
_HBM_GIB = {"v2": 8, "v3": 16, "v4": 32, "v5e": 16, "v5p": 95, "v6e": 32}
# Later generations, for `--mode=check` only: `{size: devices}`, all on one host.
_LATER = {"v5e": {4: 4, 8: 8}, "v5p": {8: 4}, "v6e": {4: 4, 8: 8}}
_CUSTOM = re.compile(r"(\d+)x(\d+)")
_LATER_NAME = re.compile(r"v([5-9]|\d\d)\w*(-.*)?")


@dataclasses.dataclass(frozen=True)
class Topology:
    """A TPU slice.

    Attributes:
      name: such as "v3-32".
      num_hosts: machines that feed the slice.
      cores_per_host: TPU devices per host. A device is one of the two cores of a chip on v2 and v3,
        and a chip (megacore) on v4.
      hbm_gib: memory per device in GiB; 0 for a custom slice of the emulator.
    """

    name: str
    num_hosts: int
    cores_per_host: int
    hbm_gib: int

    @property
    def num_cores(self) -> int:
        """Number of TPU devices, which is the number of replicas."""
        return self.num_hosts * self.cores_per_host

    @property
    def hosts(self) -> str:
        """The number of hosts in words, such as "1 host"."""
        return f"{self.num_hosts} host{'s' if self.num_hosts > 1 else ''}"

    @property
    def generation(self) -> str:
        """The TPU generation, such as "v3"."""
        return self.name.partition("-")[0]

    @property
    def has_infeed(self) -> bool:
        """True if TPUEstimator can run on it."""
        return self.generation not in _LATER


def names() -> list[str]:
    """Returns the names of all slices that TPUEstimator supports."""
    return [f"{generation}-{size}" for generation, sizes in _SIZES.items() for size in sizes]


def is_later(name: str) -> bool:
    """Returns True for the name of a slice of v5 or later, such as "v5litepod-8"."""
    return _LATER_NAME.fullmatch(name) is not None


def find(name: str, any_generation: bool = False) -> Topology:
    """Returns a slice by name.

    Args:
      name: such as "v3-32"; or HOSTSxCORES, such as "1x2", for the emulator.
      any_generation: also accept v5e, v5p and v6e, on which TPUEstimator cannot run.

    Raises:
      ValueError: an unknown slice, or one on which TPUEstimator cannot run.
    """
    custom = _CUSTOM.fullmatch(name)
    if custom:
        num_hosts, cores_per_host = map(int, custom.groups())
        if num_hosts and cores_per_host:
            return Topology(name, num_hosts, cores_per_host, 0)
    generation, _, size = name.partition("-")
    devices = {str(later): count for later, count in _LATER.get(generation, {}).items()}
    if any_generation and size in devices:
        return Topology(name, 1, devices[size], _HBM_GIB[generation])
    if is_later(name):
        raise ValueError(
            f"TPU slice '{name}' is unsupported: v5 and later have only the PJRT runtime, which "
            "TPUEstimator cannot use. Use v2, v3 or v4"
        )
    if generation not in _SIZES or size not in map(str, _SIZES[generation]):
        raise ValueError(f"unknown TPU slice '{name}'. Valid: {', '.join(names())}")
    cores_per_host = 4 if generation == "v4" else 8
    return Topology(name, max(1, int(size) // 8), cores_per_host, _HBM_GIB[generation])
