"""Checks that a program can run on a TPU, in seconds and without importing TensorFlow.

Each function returns a list of messages: what is wrong, where, and what to do.
"""

from __future__ import annotations

import glob
import importlib.util
import mmap
import os
import re
import socket
from collections.abc import Mapping, Sequence
from concurrent import futures

from tpu.connect import topology
from tpu.connect.address import LOCAL, Address
from tpu.connect.request import Request
from tpu.connect.topology import Topology
from tpu.software import WHEELS, version_of

IMAGE = "tpu-vm-tf-2.15.1-se"
_PROBE_SECONDS = 3.0
_MAX_PROBES = 32
_API_MODULES = ("googleapiclient", "google_auth_httplib2")
_NODE_NAME = re.compile(r"[\w.-]+", re.ASCII)
_PJRT = {
    "NEXT_PLUGGABLE_DEVICE_USE_C_API": ("1", "true"),
    "TF_PLUGGABLE_DEVICE_LIBRARY_PATH": None,  # any value
    "PJRT_DEVICE": ("tpu",),
}


def check_address(address: Address, environ: Mapping[str, str] = os.environ) -> list[str]:
    """Checks the TPU at `address`: runtime, wheel, generation, endpoints, API client."""
    findings, given = [], {name: environ.get(name, "") for name in _PJRT}
    chosen = [
        f"{name}={value}"
        for name, value in given.items()
        if value and (_PJRT[name] is None or value.lower() in _PJRT[name])
    ]
    if chosen:
        findings.append(
            f"{', '.join(chosen)} selects the PJRT runtime, which has no infeed: TPUEstimator "
            f"would crash (tensorflow#90807). Unset it, on a TPU VM with the image {IMAGE}; on "
            "v5e, v5p and v6e use --tpu=pjrt"
        )
    kind = environ.get("TPU_ACCELERATOR_TYPE", "")
    if topology.is_later(kind):
        findings.append(f"this machine has a TPU {kind}: {topology.ONLY_PJRT}")
    if address.text == LOCAL:
        findings += _check_local(environ)
    findings += check_endpoints(address.source, address.endpoints)
    if address.is_named:
        if not _NODE_NAME.fullmatch(address.text):
            findings.append(
                f"{address.source}: '{address.text}' is not the name of a TPU. Use the last "
                "part of its full name; its zone and project are --tpu_zone and --gcp_project"
            )
        missing = [name for name in _API_MODULES if importlib.util.find_spec(name) is None]
        if missing:
            findings.append(
                f"{address.source} is looked up in the Cloud TPU API, but the module "
                f"{' and '.join(missing)} is missing. Run pip install google-api-python-client "
                "'protobuf<5' (in a clone: tools/setup.sh same cloud), or set "
                "--tpu=grpc://IP:8470, or --tpu=local on the TPU VM itself"
            )
    return findings


def check_endpoints(source: str, endpoints: Sequence[tuple[str, int]]) -> list[str]:
    """Checks that each worker accepts connections; `source` names the TPU."""
    if not endpoints:
        return []
    with futures.ThreadPoolExecutor(_MAX_PROBES) as pool:
        errors = list(pool.map(_probe, endpoints))
    return [
        f"{source}: {host}:{port} does not answer ({error}); TPUEstimator would retry for 24 "
        "hours. Check that the TPU is READY (gcloud compute tpus tpu-vm list) and in this network"
        for (host, port), error in zip(endpoints, errors)
        if error
    ]


def _probe(endpoint):
    """Returns why a worker does not accept connections; None if it does."""
    try:
        socket.create_connection(endpoint, _PROBE_SECONDS).close()
    except (OSError, UnicodeError) as error:  # UnicodeError: an invalid host name
        return str(error)
    return None


def check_paths(address: Address, paths: Mapping[str, str]) -> list[str]:
    """Checks that a remote TPU can read every path of `{flag: path}`."""
    if not address.is_remote:
        return []
    local = {flag: path for flag, path in paths.items() if path and "://" not in path}
    return [
        f"--{flag}={path} is a local path, which the TPU hosts cannot read. Use "
        + ("memory or none" if flag == "cache" else "gs://")
        for flag, path in local.items()
    ]


def check_topology(request: Request, tpu_topology: Topology) -> list[str]:
    """Checks the batch sizes and the mode of a request against a slice."""
    mode, batch_sizes = request.mode, request.batch_sizes
    findings = []
    cores = tpu_topology.num_cores
    name = f"{tpu_topology.name} ({cores} cores on {tpu_topology.hosts})"
    if mode == "check" and tpu_topology.num_hosts > 1:  # only training is checked then
        batch_sizes = {"train_batch_size": batch_sizes["train_batch_size"]}
    for flag, size in batch_sizes.items():
        divisor = cores * (request.accumulate_steps if flag == "train_batch_size" else 1)
        if size % divisor:
            steps = f" x --accumulate_steps={request.accumulate_steps}"
            into = f"{cores}{steps if divisor > cores else ''}"
            below = size // divisor * divisor
            valid = f"{below} or {below + divisor}" if below else divisor
            findings.append(
                f"--{flag}={size} cannot be divided over {name}: {size} / {into} = "
                f"{size / divisor:.2f}. Use {valid}"
            )
    if tpu_topology.num_hosts > 1 and request.on_one_host:
        train = "--mode=train here and " if mode == "train_and_eval" else ""
        findings.append(
            f"--mode={mode} runs on one host only, and {name} has more. Use {train}"
            "run_cpu.py --mode="
            f"{'continuous_eval' if mode == 'train_and_eval' else mode} on a CPU or GPU machine"
            + (", or --noexport_check" if mode == "export" else "")
        )
    return findings


def _check_local(environ):
    findings = []
    library = _tensorflow_library()
    if library and not _contains(library, b"TPU_LIBRARY_PATH"):
        wheel = next((f"{n} {v}" for n in WHEELS if (v := version_of(n))), "TensorFlow")
        findings.append(
            f"this {wheel} cannot use a TPU on the same machine: like all PyPI wheels it has no "
            f"loader for libtpu. On a TPU VM use the wheel of its image ({IMAGE}): "
            "make run TENSORFLOW=system. Elsewhere set --use_tpu=false"
        )
    if environ.get("TPU_LOAD_LIBRARY") == "0":
        findings.append("TPU_LOAD_LIBRARY=0 disables libtpu, which --tpu=local needs. Unset it")
    return findings


def _tensorflow_library():
    spec = importlib.util.find_spec("tensorflow")
    folder = os.path.dirname(spec.origin) if spec and spec.origin else ""
    found = sorted(glob.glob(os.path.join(folder, "libtensorflow_cc.so*")))
    return found[0] if found else None


def _contains(path, text):
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(text) >= 0
