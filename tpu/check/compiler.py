"""Compiles a step with Google's TPU compiler, without a TPU.

The compiler is libtpu: `pip install libtpu==0.0.34` (Linux, x86-64, Python 3.11 or later; the last
release under Apache-2.0). Results hold for this version of the compiler and one step of one core,
without infeed and host. They were not compared with a real TPU.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import math
import os
import re
import signal
import subprocess
import sys
import tempfile

from tpu import software
from tpu.check import pjrt
from tpu.connect.topology import Topology

VERSION = "0.0.34"
QUICK, FULL = -1.0, 0.0  # compilation efforts; quick takes a fifth of the time
_TIMEOUT_SECONDS = 900
_CHIPS_PER_HOST = 4  # of the smallest topology that libtpu accepts; smaller slices are parts of it


class CompilerUnavailableError(Exception):
    """The compiler is missing, unsupported, crashed or timed out."""


@dataclasses.dataclass(frozen=True)
class Target:
    """A slice in the terms of the compiler.

    Attributes:
      name: such as "v3:2x2".
      replicas: number of cores.
      megacore: True if the two cores of a chip are one device.
    """

    name: str
    replicas: int
    megacore: bool = False


@dataclasses.dataclass(frozen=True)
class Compiled:
    """Result of a compilation, per core and step.

    Attributes:
      fits: True if it compiled.
      compiler: name and version of the compiler.
      seconds: compilation time.
      memory: bytes by kind: "argument", "temp", "output", "alias", "code", "peak".
      flops: floating-point operations.
      bytes_accessed: bytes read and written in memory.
      optimized: the optimized program, a serialized HloModuleProtoWithConfig.
      error: the compiler's error; "" if it compiled.
      out_of_memory: True if it failed for lack of memory.
      hbm_limit: bytes available, if the error states them.
      hbm_needed: bytes needed, if the error states them.
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
        """Peak memory in bytes."""
        return self.memory.get("peak") or sum(self.memory.values())


def get_target(topology: Topology) -> Target:
    """Returns the compilation target of a slice."""
    generation, cores = topology.generation, topology.num_cores
    chips = cores // 2 if generation in ("v2", "v3") else cores
    box = _box(max(chips, _CHIPS_PER_HOST), 3 if generation in ("v4", "v5p") else 2)
    return Target(f"{generation}:{box}", cores, megacore=generation == "v4")


def find_library() -> str:
    """Returns the path of libtpu.so.

    Raises:
      CompilerUnavailableError: libtpu is not installed.
    """
    spec = importlib.util.find_spec("libtpu")
    if spec is None or not spec.submodule_search_locations:
        raise CompilerUnavailableError(
            f"libtpu is not installed: pip install libtpu=={VERSION} (Linux, x86-64, Python 3.11)"
        )
    path = os.path.join(spec.submodule_search_locations[0], "libtpu.so")
    if not os.path.exists(path):
        raise CompilerUnavailableError(f"{path} is missing. Reinstall libtpu=={VERSION}")
    return path


def compile_hlo(hlo: bytes, target: Target, effort: float = QUICK, timeout=_TIMEOUT_SECONDS):
    """Compiles the program of one core for a slice, in a child process.

    Args:
      hlo: a serialized HloModuleProto.
      target: the slice.
      effort: `QUICK` or `FULL`.
      timeout: seconds after which the child process is killed.

    Returns:
      A `Compiled`.

    Raises:
      CompilerUnavailableError: libtpu is missing or of an unsupported version, crashed or timed
        out.
    """
    path = find_library()
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
            raise CompilerUnavailableError(f"the compiler was killed after {timeout} s") from None
        result_path = os.path.join(folder, "result.json")
        if not os.path.exists(result_path):
            last = (child.stderr.strip().splitlines() or ["no error message"])[-1]
            raise CompilerUnavailableError(f"the compiler {_how_ended(child.returncode)}: {last}")
        with open(result_path) as file:
            result = json.load(file)
        if not result["ok"]:
            return _compile_error(result)
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


def _how_ended(status):
    """Returns how a child process ended: "was killed by SIGBUS", or "exited with status 1"."""
    if status >= 0:
        return f"exited with status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:  # a real-time signal
        return f"was killed by signal {-status}"


def _compile_error(result):
    if result["code"] == pjrt.UNSUPPORTED_LIBRARY:
        raise CompilerUnavailableError(result["error"])
    error, pattern = result["error"], r"([\d.]+)([KMG]) of ([\d.]+)([KMG]) hbm"
    is_full, needed, limit = result["code"] == "RESOURCE_EXHAUSTED", None, None
    if found := re.search(pattern, error):
        needed, limit = _bytes(*found.groups()[:2]), _bytes(*found.groups()[2:])
    sizes = {"hbm_limit": limit, "hbm_needed": needed}
    return Compiled(False, _name(result), error=error, out_of_memory=is_full, **sizes)


def _name(result):
    version = software.version_of("libtpu")
    return f"libtpu{f' {version}' if version else ''} for {result.get('kind', '?')}"


def _bytes(number, unit):
    return int(float(number) * {"K": 2**10, "M": 2**20, "G": 2**30}[unit])


def _box(chips, dimensions):
    """Returns the shape of a slice, such as "2x2x4": of at least one host, 2 ** n or 3 * 2 ** n."""
    sides, factor = [2, 2, 1][:dimensions], 1 if chips % 3 else 3
    while math.prod(sides) * factor < chips:
        # The last of the smallest: 2x2x1, 2x2x2, 2x2x4, 2x4x4, ...
        sides[max(i for i, side in enumerate(sides) if side == min(sides))] *= 2
    if factor > 1:
        sides = sorted([min(sides) * factor, *sorted(sides)[1:]])
    return "x".join(map(str, sides))
