"""Available memory of this host."""

from __future__ import annotations

import os
import pathlib
import resource

_CGROUP = pathlib.Path("/sys/fs/cgroup")


def available_bytes() -> int:
    """Returns the memory available on the machine, in the container and to this process."""
    return min([_machine_bytes(), *_container_bytes(), *_process_bytes()])


def _machine_bytes():
    try:
        lines = pathlib.Path("/proc/meminfo").read_text().splitlines()
        fields = dict(line.split(":") for line in lines)
        return int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError):  # not Linux: the installed memory
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _process_bytes():
    """Yields what is left of the address space that `ulimit -v` allows."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return
    try:
        used = int(pathlib.Path("/proc/self/statm").read_text().split()[0])
    except OSError:  # not Linux
        used = 0
    yield max(0, limit - used * os.sysconf("SC_PAGE_SIZE"))


def _container_bytes():
    # cgroups version 2, then version 1.
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
            # The page cache is reclaimable.
            yield left + int(counts.get(idle, 0))
        except (OSError, ValueError):  # missing, or "max"
            continue
