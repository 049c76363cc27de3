"""Servers on this or another machine."""

from __future__ import annotations

import socket


def accepts_connections(address: str, seconds: float = 1.0) -> bool:
    """Returns True if a process listens at "host:port" or "grpc://host:port" within `seconds`."""
    host, _, port = address.rpartition("/")[2].rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), seconds).close()
    except (OSError, ValueError):
        return False
    return True
