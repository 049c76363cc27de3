"""How much memory this host has left."""

from __future__ import annotations

import os
import pathlib

_CGROUP = pathlib.Path("/sys/fs/cgroup")


def available_bytes() -> int:
    """Returns what the machine, or the container around this process, can still give."""
    return min([_of_machine(), *_of_container()])


def _of_machine():
    try:
        lines = pathlib.Path("/proc/meminfo").read_text().splitlines()
        fields = dict(line.split(":") for line in lines)
        return int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError):  # no Linux: what is installed
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _of_container():
    # Version 2 of cgroups, then version 1.
    for limit, used, stat, idle in (
        ("memory.max", "memory.current", "memory.stat", "inactive_file"),
        (
            "memory/memory.limit_in_bytes",
            "memory/memory.usage_in_bytes",
            "memory/memory.stat",
            "total_inactive_file",
        ),
    ):
        try:
            left = int((_CGROUP / limit).read_text()) - int((_CGROUP / used).read_text())
            counts = dict(line.split() for line in (_CGROUP / stat).read_text().splitlines())
            # Pages of files that were read, the shards among them, make way.
            yield left + int(counts.get(idle, 0))
        except (OSError, ValueError):  # not there, or "max"
            continue
