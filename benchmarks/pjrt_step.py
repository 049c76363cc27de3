"""Carries a training step to a machine that has JAX but no TensorFlow, such as one with a GPU.

    python -m benchmarks.pjrt_step record FILE FLAGS
    python -m benchmarks.pjrt_step describe FILE FLAGS
    python -m benchmarks.pjrt_step replay gpu|tpu|cpu FILE [FILE ...]

`record` trains with run_tpu.py on one CPU device and the FLAGS of run_tpu.py, and writes the first
steps to FILE: the lowered step, its variables, its batches, and the losses of the CPU. `describe`
runs no step, and keeps the ranges of numbers instead of the numbers: a small file of a large model.
`replay` needs jax and numpy only (and tpu/, benchmarks/ of this project): it runs the steps of each
FILE on one device, and prints the largest difference of a loss, relative to the largest loss, and
the time of a step. Where FILE has no numbers it draws them, and prints the losses alone.
"""

from __future__ import annotations

import json
import sys
import time
from typing import NamedTuple

import numpy as np

from tpu.pjrt.client import Devices, Program

_STEPS = 20
_TIMED_STEPS = 50


class Recorder(Devices):
    """Devices that keep the first program, its inputs and its first result, the loss."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.program = self.state = None
        self.arguments, self.batches, self.losses = [], [], []

    def load(self, program):
        """Keeps the first program."""
        self.program = self.program or program
        return super().load(program)

    def begin(self, program_id, arguments, state, *step):
        """Keeps the first inputs."""
        if self.state is None:
            self.arguments = [np.array(value) for value in arguments]
            self.state = [np.array(value) for value in state]
        super().begin(program_id, arguments, state, *step)

    def submit(self, batch):
        """Keeps the first batches and their losses."""
        super().submit(batch)
        if len(self.batches) < _STEPS:
            self.batches.append([np.array(value) for value in batch])
            self.losses.append(float(self.finish([0])[0]))


class Describer(Recorder):
    """Keeps the first program and what describes its inputs; runs nothing."""

    def load(self, program):
        """Keeps the first program."""
        self.program = self.program or program
        return 0

    def begin(self, program_id, arguments, state, *step):
        """Keeps descriptions of the first inputs."""
        self.arguments = [Described.of(value) for value in arguments]
        self.state = [Described.of(value) for value in state]

    def submit(self, batch):
        """Keeps the description of a batch, and ends the training."""
        self.batches = [[Described.of(value) for value in batch]]
        raise InterruptedError("the step is described")


class Described(NamedTuple):
    """An array of random numbers: normal ones, or integers from `low` to `high`."""

    shape: list[int]
    dtype: str
    mean: float = 0
    deviation: float = 0
    low: int = 0
    high: int = 0

    @classmethod
    def of(cls, value):
        """Returns what describes an array."""
        value = np.asarray(value)
        if value.dtype.kind in "iub":
            low, high = (int(value.min()), int(value.max())) if value.size else (0, 0)
            return cls(list(value.shape), value.dtype.name, low=low, high=high)
        numbers = value.astype(np.float64)
        moments = (numbers.mean(), numbers.std()) if value.size else (0, 0)
        return cls(list(value.shape), value.dtype.name, *map(float, moments))

    def draw(self, random):
        """Returns an array, of a `np.random.RandomState`."""
        dtype = _dtype(self.dtype)
        if dtype.kind in "iub":
            return random.randint(self.low, self.high + 1, self.shape, np.int64).astype(dtype)
        if not self.deviation:  # as of the slots of an optimizer, which are most of the numbers
            return np.full(self.shape, self.mean, dtype)
        return (self.mean + self.deviation * random.standard_normal(self.shape)).astype(dtype)


def save(path: str, recorder: Recorder) -> None:
    """Writes what a recorder has seen to an .npz file."""
    arrays = {"hlo": np.frombuffer(recorder.program.hlo, np.uint8)}
    groups = {"arguments": recorder.arguments, "state": recorder.state}
    groups.update({f"batch_{i}": batch for i, batch in enumerate(recorder.batches)})
    kept = {}
    for group, values in groups.items():
        kept[group] = [x if isinstance(x, Described) else x.dtype.name for x in values]
        for i, value in enumerate(values):
            if not isinstance(value, Described):
                arrays[f"{group}/{i}"] = value if value.dtype.kind != "V" else value.view(np.uint8)
    program = recorder.program._asdict()
    del program["hlo"]
    meta = {"program": program, "losses": recorder.losses, "groups": kept}
    np.savez_compressed(path, meta=np.array(json.dumps(meta)), **arrays)


def load(path: str):
    """Returns (program, arguments, state, batches, losses) of a file of `save`."""
    with np.load(path) as file:
        meta = json.loads(str(file["meta"]))
        random = np.random.RandomState(1)
        groups = {
            group: [
                file[f"{group}/{i}"].view(_dtype(one))
                if isinstance(one, str)
                else Described(*one).draw(random)
                for i, one in enumerate(kept)
            ]
            for group, kept in meta["groups"].items()
        }
        program = Program(hlo=file["hlo"].tobytes(), **meta["program"])
    batches = [values for group, values in groups.items() if group.startswith("batch_")]
    return program, groups["arguments"], groups["state"], batches, meta["losses"]


def _dtype(name):
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes  # JAX brings it

        return np.dtype(getattr(ml_dtypes, name))


def record(path: str, *arguments: str) -> None:
    """Trains with run_tpu.py, and writes its first steps."""
    recorder = _train(Recorder, *arguments)
    save(path, recorder)
    print(f"{path}: {len(recorder.batches)} steps, losses {recorder.losses}")


def describe(path: str, *arguments: str) -> None:
    """Writes the step of run_tpu.py with the ranges of its numbers."""
    save(path, _train(Describer, *arguments))


def _train(kind, *arguments):
    """Returns the recorder of a training."""
    from unittest import mock

    from benchmarks import runs
    from tpu.pjrt import client, devices

    recorders = []

    def start(*given, **options):
        recorders.append(kind(*given, **options))
        return recorders[-1]

    steps = [f"--train_steps={_STEPS}", f"--save_checkpoints_steps={_STEPS}"]
    sys.argv = ["run_tpu.py", "--tpu=pjrt", "--devices=cpu:1", "--mode=train", *steps, *arguments]
    with mock.patch.object(client, "Devices", start):
        try:
            runs.run("run_tpu")
        except devices.LostDevicesError:
            if not (kind is Describer and recorders[0].batches):
                raise
    return recorders[0]


def replay(platform: str, *paths: str) -> None:
    """Runs the steps of files on one device, and prints a line per file."""
    with Devices(platform=platform, num_devices=1) as devices:
        print(f"{devices.kind}, JAX {devices.jax_version}")
        for path in paths:
            program, arguments, state, batches, expected = load(path)
            devices.begin(devices.load(program), arguments, state)
            losses = []
            for batch in batches:
                devices.submit(batch)
                if program.outfeed:
                    devices.collect()
                losses.append(float(devices.finish([0])[0]))
            text = f"loss {losses[0]:.5g} to {losses[-1]:.5g} in {len(losses)} steps"
            if expected:
                difference = np.max(np.abs(np.subtract(losses, expected)))
                share = difference / np.max(np.abs(expected))
                text += f", largest difference from the CPU, relative: {share:.2g}"
            seconds = seconds_per_step(devices, program, batches)
            print(f"{path}: {text}; {seconds * 1e3:.2f} ms per step", flush=True)


def seconds_per_step(devices: Devices, program: Program, batches) -> float:
    """Returns the time of a step in a loop that has begun, without waiting between steps."""
    for _ in range(2):  # the first warms up
        started = time.monotonic()
        for i in range(_TIMED_STEPS):
            devices.submit(batches[i % len(batches)])
            if program.outfeed:
                devices.collect()
        devices.finish([0])
        seconds = (time.monotonic() - started) / _TIMED_STEPS
    return seconds


if __name__ == "__main__":
    {"record": record, "describe": describe, "replay": replay}[sys.argv[1]](*sys.argv[2:])
