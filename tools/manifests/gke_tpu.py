"""TPU slices that GKE offers and TPUEstimator can use: those of one host.

https://cloud.google.com/kubernetes-engine/docs/concepts/plan-tpus
"""

from __future__ import annotations

import dataclasses

from common.errors import UsageError
from tpu.connect import topology


@dataclasses.dataclass(frozen=True)
class Slice:
    """A TPU node of GKE.

    Attributes:
      machine_type: of the node pool.
      node_labels: labels of its node.
      chips: google.com/tpu resources of the node; a pod must use all of them.
    """

    machine_type: str
    node_labels: dict[str, str]
    chips: int = 4


def _slice(machine_type, accelerator, shape):
    labels = {"accelerator": accelerator, "topology": shape}
    labels = {f"cloud.google.com/gke-tpu-{key}": value for key, value in labels.items()}
    return Slice(machine_type, labels)


_SLICES = {
    "v3-8": _slice("ct3-hightpu-4t", "tpu-v3-device", "2x2"),
    "v4-8": _slice("ct4p-hightpu-4t", "tpu-v4-podslice", "2x2x1"),
}


def find_slice(name: str) -> Slice:
    """Returns the slice with the name of Cloud TPU, such as "v3-8".

    Raises:
      UsageError: TPUEstimator cannot run on that slice in GKE.
    """
    found = _SLICES.get(name)
    if found is not None:
        return found
    valid = f"Use {' or '.join(_SLICES)}"
    if not name:
        raise UsageError(f"--tpu_topology is missing. {valid}")
    try:
        known = topology.find(name)
    except ValueError as error:
        raise UsageError(f"--tpu_topology={name}: {error}") from error
    if not known.hbm_gib:
        reason = "it is a slice of the emulator"
    elif not known.has_infeed:
        reason = "v5 and later have only the PJRT runtime: --tpu=pjrt needs JAX in the image"
        valid += ", or a TPU VM (docs/which_tpu.md)"
    elif known.generation == "v2":
        reason = "GKE has no nodes with a TPU v2"
        valid += ", or a TPU VM (docs/cloud_tpu_vm.md)"
    else:
        reason = (
            f"TPUEstimator needs a TensorFlow server on each of its {known.num_hosts} hosts, which "
            "GKE does not run"
        )
        valid += ", or a TPU VM (docs/cloud_tpu_vm.md)"
    raise UsageError(f"--tpu_topology={name} is not supported in GKE: {reason}. {valid}")
