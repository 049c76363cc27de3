"""Requirements of a program on a TPU. Does not import TensorFlow."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple


class TPUError(ValueError):
    """The TPU is missing, unreachable or unusable with these flags.

    Attributes:
      exit_status: of a program that it ends: 2 for an invalid request, 1 if a run that had begun
        cannot continue.
    """

    exit_status = 2

    def _render_traceback_(self):
        """Returns what a notebook shows, as a terminal does: the message without the frames."""
        return [f"TPUError: {self}"]


class Hosts(NamedTuple):
    """The hosts that train together on PJRT devices; the default is what JAX finds on a TPU slice.

    Attributes:
      coordinator: host:port of host 0, where JAX listens.
      number: of hosts; 1 for this host alone, also on a slice of several.
      id: number of this host, from 0 on.
    """

    coordinator: str = ""
    number: int | None = None
    id: int | None = None

    def check(self) -> None:
        """Raises TPUError if the values are incomplete or invalid."""
        number, host_id = self.number, self.id
        if self in (Hosts(), Hosts(number=1)):
            return
        if not self.coordinator or number is None or host_id is None:
            raise TPUError(
                "several hosts need --pjrt_coordinator, --pjrt_hosts and --pjrt_host_id. On a TPU "
                "slice JAX finds the hosts: set none"
            )
        host, _, port = self.coordinator.rpartition(":")
        if not host or not port.isdecimal():
            raise TPUError(f"--pjrt_coordinator={self.coordinator} must be HOST:PORT of host 0")
        if host_id >= number:
            raise TPUError(f"--pjrt_host_id={host_id} must be in 0 to {number - 1}")


FOUND_BY_JAX = Hosts()


@dataclasses.dataclass(frozen=True)
class Request:
    """The TPU that a program wants, and what it will do there.

    Attributes:
      tpu: see `address.find`.
      zone, project: of a named TPU; "" to use the metadata of this machine.
      topology: name of the slice; "" to accept the one that is found.
      use_tpu: "true", "false", or "auto" (if one is named or present).
      mode: train, eval, train_and_eval, continuous_eval, predict, export or check.
      paths: `{flag: path}` that the TPU hosts must be able to read.
      batch_sizes: `{flag: global batch size}` that the mode uses.
      accumulate_steps: micro-batches per training step.
      on_one_host: True if the mode evaluates or predicts, which TPUEstimator does on one host only.
      wait_minutes: how long to wait for a TPU that is not READY or does not answer.
      devices, python, hosts: of --tpu=pjrt; see `tpu.pjrt.devices.run_on_devices`.
    """

    tpu: str
    zone: str
    project: str
    topology: str
    use_tpu: str
    mode: str
    paths: dict[str, str]
    batch_sizes: dict[str, int]
    accumulate_steps: int = 1
    on_one_host: bool = False
    wait_minutes: float = 0
    devices: str = ""
    python: str = ""
    hosts: Hosts = FOUND_BY_JAX
