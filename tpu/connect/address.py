"""TPU address: resolves `--tpu` and the environment to a TPUClusterResolver argument."""

from __future__ import annotations

import dataclasses
import glob
import json
import re
from collections.abc import Mapping

EMULATOR = "emulator"
LOCAL = "local"
PJRT = "pjrt"
DEFAULT_PORT = 8470

# In the order in which TPUClusterResolver reads them.
_NAME_VARIABLES = ("KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "TPU_NAME")
_CONFIG_VARIABLE = "TPU_CONFIG"
_IP = r"\d+\.\d+\.\d+\.\d+"
_BARE_ENDPOINT = re.compile(rf"{_IP}(:\d+)?|[\w.-]+:\d+")
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
    accepts `TPU_NAME=local` (it would query the Cloud TPU API).

    Args:
      tpu: "local", "pjrt", "emulator", a name or endpoints; "" to use the environment.
      environ: environment variables.

    Raises:
      ValueError: an invalid endpoint or TPU_CONFIG.
    """
    candidates = [(tpu, f"--tpu={tpu}")]
    candidates += [(environ.get(name, ""), name) for name in _NAME_VARIABLES]
    for text, source in candidates:
        if text.strip():
            return Address(_normalize(text.strip(), source), source)
    config = _config(environ)
    if config["tpu_node_name"]:
        name = _normalize(config["tpu_node_name"], _CONFIG_VARIABLE)
        return Address(name, _CONFIG_VARIABLE, config["zone"], config["project"])
    devices = local_devices()
    return Address(LOCAL, devices[0]) if devices else None


def local_devices() -> list[str]:
    """Returns the device files of TPUs v2 to v4 in this machine."""
    return sorted(glob.glob("/dev/accel[0-9]*"))


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
