"""TPU address: resolves `--tpu` and the environment to a TPUClusterResolver argument."""

from __future__ import annotations

import dataclasses
import glob
import json
import pathlib
import re
from collections.abc import Mapping

from tpu.connect import topology

EMULATOR = "emulator"
LOCAL = "local"
PJRT = "pjrt"
DEFAULT_PORT = 8470

# In the order in which TPUClusterResolver reads them.
_NAME_VARIABLES = ("KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "TPU_NAME")
_CONFIG_VARIABLE = "TPU_CONFIG"
_IP = r"\d+\.\d+\.\d+\.\d+"
_BARE_ENDPOINT = re.compile(rf"{_IP}(:\d+)?|[\w.-]+:\d+")
# Devices of Google on the PCI bus that have only the PJRT runtime; as in jax._src.hardware_utils.
_PCI_VENDOR = "0x1ae0"
_PCI_DEVICES = {"0x0062": "v5p", "0x0063": "v5e", "0x006f": "v6e"}
_LOOPBACK = re.compile(r"localhost|127\.\d+\.\d+\.\d+")


@dataclasses.dataclass(frozen=True)
class Address:
    """Address of a TPU.

    Attributes:
      text: "local", "pjrt", "emulator", a TPU name, or `grpc://host:port[,grpc://host:port...]`.
      source: the flag, variable or device it comes from, for messages.
      zone, project: of a name in TPU_CONFIG; else "".
    """

    text: str
    source: str
    zone: str = ""
    project: str = ""

    @property
    def is_grpc(self) -> bool:
        """True for endpoints, False for a name."""
        return self.text.startswith("grpc://")

    @property
    def has_infeed(self) -> bool:
        """True for the cores of TensorFlow's own TPU runtime."""
        return self.text not in (PJRT, EMULATOR)

    @property
    def endpoints(self) -> list[tuple[str, int]]:
        """(host, port) of every worker; empty unless `is_grpc`."""
        if not self.is_grpc:
            return []
        pairs = [part.strip()[len("grpc://") :].partition(":") for part in self.text.split(",")]
        return [(host, int(port or DEFAULT_PORT)) for host, _, port in pairs]

    @property
    def is_named(self) -> bool:
        """True if the address is looked up in the Cloud TPU API."""
        return self.text not in (LOCAL, PJRT, EMULATOR) and not self.is_grpc

    @property
    def is_remote(self) -> bool:
        """True if the TPU hosts cannot read the files of this machine."""
        is_loopback = all(_LOOPBACK.fullmatch(host) for host, _ in self.endpoints)
        return self.is_named or (self.is_grpc and not is_loopback)


def find(tpu: str, environ: Mapping[str, str]) -> Address | None:
    """Returns the TPU of `tpu`, else of the environment, else of this machine, else None.

    Adds `grpc://` to endpoints without it (TPUClusterResolver would take them for names), and
    accepts `TPU_NAME=local` (it would query the Cloud TPU API). A local TPU of v5 or later is
    "pjrt".

    Args:
      tpu: "local", "pjrt", "emulator", a name or endpoints; "" to use the environment.
      environ: environment variables.

    Raises:
      ValueError: an invalid endpoint or TPU_CONFIG.
    """
    candidates = [(tpu, f"--tpu={tpu}")]
    candidates += [(environ.get(name, ""), name) for name in _NAME_VARIABLES]
    for text, source in candidates:
        if text.strip() == LOCAL and later_tpu(environ):
            return Address(PJRT, source)
        if text.strip():
            return Address(_normalize(text.strip(), source), source)
    config = _config(environ)
    if config["tpu_node_name"]:
        name = _normalize(config["tpu_node_name"], _CONFIG_VARIABLE)
        return Address(name, _CONFIG_VARIABLE, config["zone"], config["project"])
    if later_tpu(environ):
        return Address(PJRT, "this machine")
    devices = local_devices()
    return Address(LOCAL, devices[0]) if devices else None


def local_devices() -> list[str]:
    """Returns the device files of TPUs v2 to v4 in this machine."""
    return sorted(glob.glob("/dev/accel[0-9]*"))


def later_tpu(environ: Mapping[str, str]) -> str:
    """Returns the kind of this machine's TPU, such as "v6e", if it is of v5 or later; else ""."""
    kind = environ.get("TPU_ACCELERATOR_TYPE", "")
    if topology.is_later(kind):
        return kind
    for path in glob.glob("/sys/bus/pci/devices/*/vendor"):
        folder = pathlib.Path(path).parent
        vendor, device = ((folder / name).read_text().strip() for name in ("vendor", "device"))
        if vendor == _PCI_VENDOR and device in _PCI_DEVICES:
            return _PCI_DEVICES[device]
    return ""


def _config(environ):
    """Returns the values of TPU_CONFIG that TPUClusterResolver reads; "" if unset."""
    try:
        config = json.loads(environ.get(_CONFIG_VARIABLE) or "{}")
    except json.JSONDecodeError as error:
        raise ValueError(f"{_CONFIG_VARIABLE} is not valid JSON: {error}") from error
    if not isinstance(config, dict):
        raise ValueError(f"{_CONFIG_VARIABLE} is not a JSON object: {config}")
    fields = {name: config.get(name) or "" for name in ("tpu_node_name", "zone", "project")}
    for name, value in fields.items():
        if not isinstance(value, str):
            raise ValueError(f"{_CONFIG_VARIABLE}: {name} is not a string: {value}")
    return {name: value.strip() for name, value in fields.items()}


def _normalize(text, source):
    parts = [part.strip() for part in text.split(",")]
    if any(part.startswith("grpc://") or _BARE_ENDPOINT.fullmatch(part) for part in parts):
        return ",".join(_endpoint(part, source) for part in parts)
    return text


def _endpoint(part, source):
    bare = part[len("grpc://") :] if part.startswith("grpc://") else part
    host, _, port = bare.partition(":")
    if not re.fullmatch(r"[\w.-]+", host) or not re.fullmatch(r"\d*", port):
        raise ValueError(f"{source}: invalid endpoint '{part}'. Use grpc://HOST:{DEFAULT_PORT}")
    return f"grpc://{host}:{port or DEFAULT_PORT}"
