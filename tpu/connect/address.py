"""Where the TPU is: what `--tpu` and the environment say, in the form TPUClusterResolver wants."""

from __future__ import annotations

import dataclasses
import glob
import json
import re
from collections.abc import Mapping

EMULATOR = "emulator"
LOCAL = "local"
DEFAULT_PORT = 8470

# As TPUClusterResolver looks them up, in its order.
_NAME_VARIABLES = ("KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "TPU_NAME")
_CONFIG_VARIABLE = "TPU_CONFIG"
_IP = r"\d+\.\d+\.\d+\.\d+"
_BARE_ENDPOINT = re.compile(rf"{_IP}(:\d+)?|[\w.-]+:\d+")
_LOOPBACK = re.compile(r"localhost|127\.\d+\.\d+\.\d+")


@dataclasses.dataclass(frozen=True)
class Address:
    """A TPU as TPUClusterResolver takes it.

    Attributes:
      text: "local", "emulator", a name, or `grpc://host:port[,grpc://host:port...]`.
      source: what said so, for messages.
    """

    text: str
    source: str

    @property
    def is_grpc(self) -> bool:
        """Whether these are endpoints and not a name."""
        return self.text.startswith("grpc://")

    @property
    def endpoints(self) -> list[tuple[str, int]]:
        """Host and port of every worker; empty for other kinds."""
        if not self.is_grpc:
            return []
        pairs = [part.strip()[len("grpc://") :].partition(":") for part in self.text.split(",")]
        return [(host, int(port or DEFAULT_PORT)) for host, _, port in pairs]

    @property
    def is_named(self) -> bool:
        """Whether the Cloud TPU API has to be asked."""
        return self.text not in (LOCAL, EMULATOR) and not self.is_grpc

    @property
    def is_remote(self) -> bool:
        """Whether the TPU's hosts cannot see the files of this machine."""
        here = all(_LOOPBACK.fullmatch(host) for host, _ in self.endpoints)
        return self.is_named or (self.is_grpc and not here)


def find(tpu: str, environ: Mapping[str, str]) -> Address | None:
    """Returns the TPU that `tpu` names, else the environment's, else this machine's own, else None.

    Endpoints without `grpc://`, which TPUClusterResolver takes for a name, are put right, and so is
    `TPU_NAME=local`, for which it would ask the Cloud TPU API.

    Args:
      tpu: "local", "emulator", a name, endpoints, or "" for the environment's.
      environ: environment variables.

    Raises:
      ValueError: an endpoint is none.
    """
    candidates = [(tpu, f"--tpu={tpu}")]
    candidates += [(environ.get(name, ""), name) for name in _NAME_VARIABLES]
    candidates.append((_name_of_config(environ), _CONFIG_VARIABLE))
    for text, source in candidates:
        if text.strip():
            return Address(_normalised(text.strip(), source), source)
    devices = own_devices()
    return Address(LOCAL, devices[0]) if devices else None


def own_devices() -> list[str]:
    """Returns the device files of TPUs v2 to v4 in this machine."""
    return sorted(glob.glob("/dev/accel[0-9]*"))


def _name_of_config(environ):
    try:
        config = json.loads(environ.get(_CONFIG_VARIABLE) or "{}")
    except json.JSONDecodeError as error:
        raise ValueError(f"{_CONFIG_VARIABLE} is no JSON: {error}") from error
    if not isinstance(config, dict):
        raise ValueError(f"{_CONFIG_VARIABLE} is no JSON object: {config}")
    return config.get("tpu_node_name") or ""


def _normalised(text, source):
    parts = [part.strip() for part in text.split(",")]
    if any(part.startswith("grpc://") or _BARE_ENDPOINT.fullmatch(part) for part in parts):
        return ",".join(_endpoint(part, source) for part in parts)
    return text


def _endpoint(part, source):
    bare = part[len("grpc://") :] if part.startswith("grpc://") else part
    host, _, port = bare.partition(":")
    if not re.fullmatch(r"[\w.-]+", host) or not re.fullmatch(r"\d*", port):
        raise ValueError(f"{source}: '{part}' is no endpoint; write grpc://HOST:{DEFAULT_PORT}")
    return f"grpc://{host}:{port or DEFAULT_PORT}"
