"""Cloud TPU slices by name: hosts, devices per host, memory per device."""

from __future__ import annotations

import dataclasses
import re


@dataclasses.dataclass(frozen=True)
class _Generation:
    """A TPU generation.

    Attributes:
      sizes: the slice sizes that Cloud TPU offers, in cores or chips as Cloud counts them.
      hbm_gib: memory per TPU device.
      size_per_host: cores or chips of a host of a slice with several hosts.
      one_host: the largest size on one host.
      size_per_device: cores or chips of a TPU device.
    """

    sizes: tuple[int, ...]
    hbm_gib: int
    size_per_host: int = 8
    one_host: int = 8
    size_per_device: int = 1


# https://cloud.google.com/tpu/docs/supported-tpu-configurations, and its pages on v5e, v5p and v6e.
_CHIPS = (1, 4, 8, 16, 32, 64, 128, 256)
_V5P = (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 12288)
_GENERATIONS = {
    "v2": _Generation((8, 32, 128, 256, 512), 8),
    "v3": _Generation((8, 32, 64, 128, 256, 512, 1024, 2048), 16),
    "v4": _Generation((8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096), 32, size_per_device=2),
    # A host of several has 4 chips.
    "v5e": _Generation(_CHIPS, 16, size_per_host=4),
    "v5p": _Generation(_V5P, 95, size_per_device=2),
    "v6e": _Generation(_CHIPS, 32, size_per_host=4),
}
_WITH_INFEED = ("v2", "v3", "v4")
# What is wrong with a slice of v5 or later for TPUEstimator's own runtime, and what to do.
ONLY_PJRT = (
    "v5 and later have only the PJRT runtime, which TPUEstimator itself cannot use. Run on the TPU "
    "VM itself: run_tpu.py --tpu=pjrt, or python -m tpu run PROGRAM"
)
# Names of a generation in the API of Cloud TPU and in GKE.
_ALIASES = {"v5litepod": "v5e", "v5lite-podslice": "v5e"}
_CUSTOM = re.compile(r"(\d+)x(\d+)")
_LATER_NAME = re.compile(r"v([5-9]|\d\d)\w*(-.*)?")


@dataclasses.dataclass(frozen=True)
class Topology:
    """A TPU slice.

    Attributes:
      name: such as "v3-32".
      num_hosts: machines that feed the slice: the VMs of Cloud TPU.
      cores_per_host: TPU devices per host. A device is one of the two cores of a chip on v2 and v3,
        and a chip on later generations.
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
        """True if TPUEstimator's own runtime runs on it; False if only PJRT does: v5e and later."""
        return self.generation in _WITH_INFEED or not self.hbm_gib

    @property
    def cloud_name(self) -> str:
        """The name of Cloud TPU, such as "v5litepod-8" for "v5e-8"."""
        return self.name.replace("v5e", "v5litepod")


def names() -> list[str]:
    """Returns the names of all slices."""
    return [f"{name}-{size}" for name, found in _GENERATIONS.items() for size in found.sizes]


def is_later(name: str) -> bool:
    """Returns True for the name of a slice of v5 or later, such as "v5litepod-8"."""
    return _LATER_NAME.fullmatch(name) is not None


def find(name: str) -> Topology:
    """Returns a slice by name.

    Args:
      name: such as "v3-32" or "v5litepod-8"; or HOSTSxCORES, such as "1x2", for the emulator.

    Raises:
      ValueError: an unknown slice.
    """
    custom = _CUSTOM.fullmatch(name)
    if custom:
        num_hosts, cores_per_host = map(int, custom.groups())
        if num_hosts and cores_per_host:
            return Topology(name, num_hosts, cores_per_host, 0)
    given, _, size = name.rpartition("-")
    generation = _ALIASES.get(given, given)
    found = _GENERATIONS.get(generation)
    if found is None or size not in map(str, found.sizes):
        valid = [known for known in names() if not found or known.startswith(f"{generation}-")]
        raise ValueError(f"unknown TPU slice '{name}'. Valid: {', '.join(valid)}")
    num_hosts = 1 if int(size) <= found.one_host else int(size) // found.size_per_host
    cores_per_host = int(size) // found.size_per_device // num_hosts
    return Topology(f"{generation}-{size}", num_hosts, cores_per_host, found.hbm_gib)
