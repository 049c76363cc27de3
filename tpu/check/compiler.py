"""The real TPU compiler, without a TPU: does a step compile, fit, and how fast will it be?

libtpu is Google's compiler and runtime; `pip install libtpu==0.0.34` (Linux, x86-64, Python 3.11 or
later; the last release under Apache-2.0) brings it. What it says is of this version of the compiler
and of one step of one core: no infeed, no host. Nothing of it was compared with a TPU here.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import importlib.util
import json
import math
import os
import re
import subprocess
import sys
import tempfile

from tpu.check import pjrt
from tpu.connect.topology import Topology

VERSION = "0.0.34"
QUICK, FULL = -1.0, 0.0  # efforts; the quick one needs a fifth of the time and not less memory
_TIMEOUT_SECONDS = 900


class NotChecked(Exception):  # noqa: N818 - it is no error of the program that was to be checked
    """The compiler could not be asked; says why, and what to do."""


@dataclasses.dataclass(frozen=True)
class Target:
    """A slice as the compiler knows it.

    Attributes:
      name: such as "v3:2x2".
      replicas: cores that a program is compiled for.
      megacore: whether two cores of a chip are one device.
    """

    name: str
    replicas: int
    megacore: bool = False


@dataclasses.dataclass(frozen=True)
class Compiled:
    """What the compiler says.

    Attributes:
      fits: whether it compiled.
      compiler: its name and version.
      seconds: that it took.
      memory: bytes a core: "argument", "temp", "output", "alias", "code", "peak".
      flops: floating-point operations of a step of a core.
      bytes_accessed: bytes that a step of a core reads and writes in memory.
      optimized: the program, a serialised HloModuleProtoWithConfig.
      error: why it did not compile; "" if it did.
      out_of_memory: whether that was for lack of memory.
      hbm_limit: bytes a core may use, if the error says so.
      hbm_needed: bytes a core would have needed, if the error says so.
    """

    fits: bool
    compiler: str
    seconds: float = 0.0
    memory: dict[str, int] = dataclasses.field(default_factory=dict)
    flops: float = 0.0
    bytes_accessed: float = 0.0
    optimized: bytes = b""
    error: str = ""
    out_of_memory: bool = False
    hbm_limit: int | None = None
    hbm_needed: int | None = None

    @property
    def peak_bytes(self) -> int:
        """The most memory that a step of a core takes."""
        return self.memory.get("peak") or sum(self.memory.values())


def target_of(topology: Topology) -> Target:
    """Returns the compiler's name of a slice."""
    generation = topology.generation
    if not topology.has_infeed:
        box = {("v5p", 4): "2x2x1"}.get((generation, topology.num_cores))
        return Target(f"{generation}:{box or _box(topology.num_cores, 2)}", topology.num_cores)
    if generation == "v4":
        return Target(f"v4:{_box(topology.num_cores, 3)}", topology.num_cores, megacore=True)
    return Target(f"{generation}:{_box(topology.num_cores // 2, 2)}", topology.num_cores)


def library() -> str:
    """Returns the path of libtpu.so.

    Raises:
      NotChecked: it is not installed.
    """
    spec = importlib.util.find_spec("libtpu")
    if spec is None or not spec.submodule_search_locations:
        raise NotChecked(
            f"libtpu is not installed: pip install libtpu=={VERSION} (Linux, x86-64, Python 3.11)"
        )
    path = os.path.join(spec.submodule_search_locations[0], "libtpu.so")
    if not os.path.exists(path):
        raise NotChecked(f"{path} is missing: install libtpu=={VERSION} anew")
    return path


def library_version() -> str:
    """Returns the version of libtpu, "" if unknown."""
    try:
        return importlib.metadata.version("libtpu")
    except importlib.metadata.PackageNotFoundError:
        return ""


def compile_hlo(hlo: bytes, target: Target, effort: float = QUICK, timeout=_TIMEOUT_SECONDS):
    """Compiles the program of one core for a slice, in a child process.

    Args:
      hlo: a serialised HloModuleProto.
      target: the slice.
      effort: `QUICK` or `FULL`.
      timeout: seconds after which the child is killed.

    Returns:
      A `Compiled`.

    Raises:
      NotChecked: no libtpu, one that is too old or unknown, a crash, or the time is up.
    """
    path = library()
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "program.pb")
        with open(program, "wb") as file:
            file.write(hlo)
        command = [sys.executable, pjrt.__file__, path, target.name, program, folder]
        command += [f"--replicas={target.replicas}", f"--effort={effort}"]
        command += ["--megacore"] if target.megacore else []
        try:
            child = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
        except subprocess.TimeoutExpired:
            raise NotChecked(f"the compiler was killed after {timeout} s") from None
        answer = os.path.join(folder, "result.json")
        if not os.path.exists(answer):
            last = (child.stderr.strip().splitlines() or ["it printed nothing"])[-1]
            raise NotChecked(f"the compiler ended with status {child.returncode}: {last}")
        with open(answer) as file:
            result = json.load(file)
        if not result["ok"]:
            return _refused(result)
        with open(os.path.join(folder, "optimized.pb"), "rb") as file:
            optimized = file.read()
    return Compiled(
        fits=True,
        compiler=f"{_name(result)}, {'quick' if effort == QUICK else 'full'} effort",
        seconds=result["seconds"],
        memory=result["memory"],
        flops=result["cost"].get("flops", 0.0),
        bytes_accessed=result["cost"].get("bytes accessed", 0.0),
        optimized=optimized,
    )


def _refused(result):
    if result["code"] == pjrt.UNSUITABLE:
        raise NotChecked(result["error"])
    error, sizes = result["error"], re.compile(r"([\d.]+)([KMG]) of ([\d.]+)([KMG]) hbm")
    out_of_memory = result["code"] == "RESOURCE_EXHAUSTED"
    needed = limit = None
    if found := sizes.search(error):
        needed, limit = _bytes(*found.groups()[:2]), _bytes(*found.groups()[2:])
    return Compiled(
        fits=False,
        compiler=_name(result),
        error=error,
        out_of_memory=out_of_memory,
        hbm_limit=limit,
        hbm_needed=needed,
    )


def _name(result):
    return f"libtpu {library_version()} for {result.get('kind', '?')}".replace("  ", " ")


def _bytes(number, unit):
    return int(float(number) * {"K": 2**10, "M": 2**20, "G": 2**30}[unit])


def _box(chips, dimensions):
    """Returns `chips`, a power of two, as the sides of a box of 2x2 chips a host or more."""
    sides = [2, 2, 1][:dimensions]
    while math.prod(sides) < chips:
        # The last of the smallest: 2x2x1, 2x2x2, 2x2x4, 2x4x4, ...
        sides[max(i for i, side in enumerate(sides) if side == min(sides))] *= 2
    return "x".join(map(str, sides))
