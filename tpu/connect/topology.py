"""Cloud TPU slices by name: their hosts, their cores and the memory of a core."""

from __future__ import annotations

import dataclasses
import re

# The generations on which TPUEstimator runs, with the sizes in which Cloud TPU offers them.
# https://cloud.google.com/tpu/docs/supported-tpu-configurations
_SIZES = {
    "v2": (8, 32, 128, 256, 512),
    "v3": (8, 32, 64, 128, 256, 512, 1024, 2048),
    "v4": (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096),
}
_HBM_GIB = {"v2": 8, "v3": 16, "v4": 32, "v5e": 16, "v5p": 95, "v6e": 32}
# Later ones, for which a step can be compiled: `{size: devices}`, all on one host.
_LATER = {"v5e": {4: 4, 8: 8}, "v5p": {8: 4}, "v6e": {4: 4, 8: 8}}
_OWN = re.compile(r"(\d+)x(\d+)")


@dataclasses.dataclass(frozen=True)
class Topology:
    """A slice as TensorFlow sees it.

    Attributes:
      name: such as "v3-32".
      num_hosts: machines that feed the slice.
      cores_per_host: TPU devices of a host. On v2 and v3 a device is one of a chip's two cores; on
        v4 it is a chip, whose two cores work as one.
      hbm_gib: memory of a device in GiB; 0 where there is no such slice.
    """

    name: str
    num_hosts: int
    cores_per_host: int
    hbm_gib: int

    @property
    def num_cores(self) -> int:
        """TPU devices of all hosts: the number of replicas."""
        return self.num_hosts * self.cores_per_host

    @property
    def generation(self) -> str:
        """Such as "v3"."""
        return self.name.partition("-")[0]

    @property
    def has_infeed(self) -> bool:
        """Whether TPUEstimator can run on it."""
        return self.generation not in _LATER


def names() -> list[str]:
    """Returns the names of all slices."""
    return [f"{generation}-{size}" for generation, sizes in _SIZES.items() for size in sizes]


def find(name: str, any_generation: bool = False) -> Topology:
    """Returns a slice by its name, or `HOSTSxCORES` (say "1x2"), which only the emulator has.

    Args:
      name: such as "v3-32".
      any_generation: whether to accept some on which TPUEstimator cannot run.

    Raises:
      ValueError: there is no such slice, or TPUEstimator cannot run on it.
    """
    own = _OWN.fullmatch(name)
    if own:
        num_hosts, cores_per_host = map(int, own.groups())
        if num_hosts and cores_per_host:
            return Topology(name, num_hosts, cores_per_host, 0)
    generation, _, size = name.partition("-")
    devices = {str(later): count for later, count in _LATER.get(generation, {}).items()}
    if any_generation and size in devices:
        return Topology(name, 1, devices[size], _HBM_GIB[generation])
    if re.fullmatch(r"v[5-9]\w*|v\d\d\w*", generation):
        raise ValueError(
            f"'{name}': TPUs from v5 on need the PJRT runtime, which has no infeed, so that "
            "TPUEstimator cannot run there; it runs on v2, v3 and v4"
        )
    if generation not in _SIZES or size not in map(str, _SIZES[generation]):
        raise ValueError(f"'{name}' is no TPU slice; there are {', '.join(names())}")
    cores_per_host = 4 if generation == "v4" else 8
    return Topology(name, max(1, int(size) // 8), cores_per_host, _HBM_GIB[generation])
