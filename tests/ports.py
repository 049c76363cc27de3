"""A port of this machine for a server that needs two."""

import contextlib
import socket

from tools.local_cluster import free_ports


def first_of_two() -> int:
    """Returns a port that is unused now, as is the next one."""
    while True:
        (port,) = free_ports(1)
        with contextlib.suppress(OSError, OverflowError):
            socket.create_server(("", port + 1)).close()
            return port
