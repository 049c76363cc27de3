"""What keeps a program from running on a TPU, found in seconds and without TensorFlow.

Each function returns findings: sentences that say what is wrong, where, and what to do.
"""

from __future__ import annotations

import glob
import importlib.metadata
import importlib.util
import mmap
import os
import re
import socket
import sys
from collections.abc import Mapping

from tpu.connect.address import LOCAL, Address
from tpu.connect.topology import Topology

IMAGE = "tpu-vm-tf-2.15.1-se"
_PROBE_SECONDS = 3.0
_WHEELS = ("tensorflow", "tensorflow-cpu", "tensorflow-tpu")
_PJRT = {
    "NEXT_PLUGGABLE_DEVICE_USE_C_API": ("1", "true"),
    "TF_PLUGGABLE_DEVICE_LIBRARY_PATH": None,  # any value
    "PJRT_DEVICE": ("tpu",),
}


def of_software() -> list[str]:
    """Python and TensorFlow with Estimator."""
    findings = []
    python = ".".join(map(str, sys.version_info[:3]))
    if not (3, 9) <= sys.version_info[:2] <= (3, 11):
        findings.append(f"Python {python}: TensorFlow 2.15 has wheels for 3.9, 3.10 and 3.11 only")
    versions = {name: _version(name) for name in _WHEELS}
    found = {name: version for name, version in versions.items() if version}
    for name, version in found.items():
        if not version.startswith("2.15."):
            findings.append(f"{name} {version}: TPUEstimator needs 2.15, the last that has it")
    if not found:
        findings.append(f"no TensorFlow in {sys.prefix}")
    return findings


def of_address(address: Address, environ: Mapping[str, str] = os.environ) -> list[str]:
    """The TPU at `address`: runtime, wheel, generation, endpoints, API client."""
    findings = [*_of_runtime(environ), *_of_generation(environ)]
    if address.text == LOCAL:
        findings += _of_local(environ)
    for host, port in address.endpoints:
        try:
            socket.create_connection((host, port), _PROBE_SECONDS).close()
        except (OSError, UnicodeError) as error:  # a name that no host can have is the second
            findings.append(
                f"{address.source}: {host}:{port} does not answer ({error}). TPUEstimator would "
                "try for 24 hours. Is the TPU READY (gcloud compute tpus tpu-vm list), and in this "
                "network?"
            )
    if address.is_named:
        missing = [name for name in ("googleapiclient", "oauth2client") if not _is_there(name)]
        if missing:
            findings.append(
                f"{address.source} is looked up in the Cloud TPU API, but the module "
                f"{' and '.join(missing)} is missing: pip install cloud-tpu-client, or give "
                "--tpu=grpc://IP:8470, or --tpu=local on the TPU VM itself"
            )
    return findings


def of_paths(address: Address, paths: Mapping[str, str]) -> list[str]:
    """`{flag: path}` that a remote TPU cannot see."""
    if not address.is_remote:
        return []
    local = {flag: path for flag, path in paths.items() if path and "://" not in path}
    return [
        f"--{flag}={path} is on this machine, where the TPU's hosts cannot see it: use "
        + ("memory or none" if flag == "cache" else "gs://")
        for flag, path in local.items()
    ]


def of_topology(
    tpu_topology: Topology,
    mode: str,
    batch_sizes: Mapping[str, int],
    accumulate_steps: int = 1,
    on_one_host: bool = False,
) -> list[str]:
    """What a slice asks of a run.

    Args:
      tpu_topology: the slice.
      mode: `--mode`.
      batch_sizes: `{flag: global batch size}` of the flags that the mode uses.
      accumulate_steps: parts of a core's training batch.
      on_one_host: whether the mode evaluates or predicts.
    """
    findings = []
    cores = tpu_topology.num_cores
    hosts = "1 host" if tpu_topology.num_hosts == 1 else f"{tpu_topology.num_hosts} hosts"
    name = f"{tpu_topology.name} ({cores} cores on {hosts})"
    if mode == "check" and tpu_topology.num_hosts > 1:  # which checks training alone
        batch_sizes = {"train_batch_size": batch_sizes["train_batch_size"]}
    for flag, size in batch_sizes.items():
        parts = cores * (accumulate_steps if flag == "train_batch_size" else 1)
        if size % parts:
            into = f"{cores} x --accumulate_steps={accumulate_steps}" if parts > cores else cores
            below = size // parts * parts
            valid = f"{below} or {below + parts}" if below else parts
            findings.append(
                f"--{flag}={size} cannot be cut over {name}: {size} / {into} = {size / parts:.2f}; "
                f"{valid} can"
            )
    if tpu_topology.num_hosts > 1 and on_one_host:
        train = "--mode=train here, and beside it " if mode == "train_and_eval" else ""
        findings.append(
            f"--mode={mode} runs on one host only, and {name} has more. Use {train}"
            "run_cpu.py --mode="
            f"{'continuous_eval' if mode == 'train_and_eval' else mode} on a CPU or GPU machine"
            + (", or --noexport_check" if mode == "export" else "")
        )
    return findings


def _of_runtime(environ):
    chosen = []
    for name, values in _PJRT.items():
        value = environ.get(name, "")
        if value and (values is None or value.lower() in values):
            chosen.append(f"{name}={value}")
    if not chosen:
        return []
    return [
        f"{', '.join(chosen)} selects the PJRT runtime, which has no infeed: TPUEstimator would "
        f"crash (tensorflow#90807). Unset it, on a TPU VM of the image {IMAGE}"
    ]


def _of_generation(environ):
    kind = environ.get("TPU_ACCELERATOR_TYPE", "")
    if not re.fullmatch(r"v([5-9]|\d\d).*", kind):
        return []
    return [
        f"TPU_ACCELERATOR_TYPE={kind}: from v5 on only the PJRT runtime drives a TPU, and "
        "TPUEstimator cannot use it. Take a v2, v3 or v4"
    ]


def _of_local(environ):
    findings = []
    library = _library()
    if library and not _contains(library, b"TPU_LIBRARY_PATH"):
        wheel = next((f"{n} {_version(n)}" for n in _WHEELS if _version(n)), "TensorFlow")
        findings.append(
            f"this {wheel} cannot drive a TPU in the same machine: it has no loader for libtpu, as "
            f"all of PyPI's. On a TPU VM use the wheel of its image ({IMAGE}): "
            "make run TENSORFLOW=system. Elsewhere give --use_tpu=false"
        )
    if environ.get("TPU_LOAD_LIBRARY") == "0":
        findings.append("TPU_LOAD_LIBRARY=0 forbids to load libtpu, which --tpu=local needs")
    return findings


def _library():
    spec = importlib.util.find_spec("tensorflow")
    folder = os.path.dirname(spec.origin) if spec and spec.origin else ""
    found = sorted(glob.glob(os.path.join(folder, "libtensorflow_cc.so*")))
    return found[0] if found else None


def _contains(path, text):
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(text) >= 0


def _version(distribution):
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _is_there(module):
    return importlib.util.find_spec(module) is not None
