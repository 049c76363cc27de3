"""Carries a training step to a machine that has JAX but no TensorFlow, such as one with a GPU.

    python -m benchmarks.pjrt_step record FILE FLAGS
    python -m benchmarks.pjrt_step replay FILE [gpu|tpu|cpu]

`record` trains with run_tpu.py on one CPU device and the FLAGS of run_tpu.py, and writes the first
steps to FILE: the lowered step, its variables, its batches, and the losses of the CPU. `replay`
needs jax and numpy only (and tpu/, benchmarks/ of this project): it runs these steps on one device,
prints the largest difference of a loss, relative to the largest loss, and then the rate of the
steps.
"""

from __future__ import annotations

import json
import sys
import time

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


def save(path: str, recorder: Recorder) -> None:
    """Writes what a recorder has seen to an .npz file."""
    arrays = {"hlo": np.frombuffer(recorder.program.hlo, np.uint8)}
    groups = {"arguments": recorder.arguments, "state": recorder.state}
    groups.update({f"batch_{i}": batch for i, batch in enumerate(recorder.batches)})
    dtypes = {}
    for group, values in groups.items():
        for i, value in enumerate(values):
            arrays[f"{group}/{i}"] = value if value.dtype.kind != "V" else value.view(np.uint8)
            dtypes[f"{group}/{i}"] = value.dtype.name
    program = recorder.program._asdict()
    del program["hlo"]
    meta = {"program": program, "losses": recorder.losses, "dtypes": dtypes}
    meta["sizes"] = {group: len(values) for group, values in groups.items()}
    np.savez_compressed(path, meta=np.array(json.dumps(meta)), **arrays)


def load(path: str):
    """Returns (program, arguments, state, batches, losses) of a file of `save`."""
    with np.load(path) as file:
        meta = json.loads(str(file["meta"]))
        groups = {
            group: [_typed(file[f"{group}/{i}"], meta["dtypes"][f"{group}/{i}"]) for i in range(n)]
            for group, n in meta["sizes"].items()
        }
        program = Program(hlo=file["hlo"].tobytes(), **meta["program"])
    batches = [values for group, values in groups.items() if group.startswith("batch_")]
    return program, groups["arguments"], groups["state"], batches, meta["losses"]


def _typed(array, name):
    if array.dtype.name == name:
        return array
    import ml_dtypes  # JAX brings it

    return array.view(getattr(ml_dtypes, name))


def record(path: str, *arguments: str) -> None:
    """Trains with run_tpu.py, and writes its first steps."""
    from unittest import mock

    from benchmarks import runs
    from tpu.pjrt import client

    recorders = []

    def start(*given, **options):
        recorders.append(Recorder(*given, **options))
        return recorders[-1]

    steps = [f"--train_steps={_STEPS}", f"--save_checkpoints_steps={_STEPS}"]
    sys.argv = ["run_tpu.py", "--tpu=pjrt", "--devices=cpu:1", "--mode=train", *steps, *arguments]
    with mock.patch.object(client, "Devices", start):
        runs.run("run_tpu")
    save(path, recorders[0])
    print(f"{path}: {len(recorders[0].batches)} steps, losses {recorders[0].losses}")


def replay(path: str, platform: str = "") -> None:
    """Runs the steps of a file on one device."""
    program, arguments, state, batches, expected = load(path)
    with Devices(platform=platform, num_devices=1) as devices:
        program_id = devices.load(program)
        devices.begin(program_id, arguments, state)
        losses = []
        for batch in batches:
            devices.submit(batch)
            if program.outfeed:
                devices.collect()
            losses.append(float(devices.finish([0])[0]))
        difference = np.max(np.abs(np.subtract(losses, expected))) / np.max(np.abs(expected))
        print(f"{devices.kind}, JAX {devices.jax_version}: losses {losses}")
        print(f"largest difference from the CPU, relative: {difference:.2g}")
        print(f"{seconds_per_step(devices, program, batches) * 1e3:.2f} ms per step")


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
    {"record": record, "replay": replay}[sys.argv[1]](*sys.argv[2:])
