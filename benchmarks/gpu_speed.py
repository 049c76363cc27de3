"""Training steps on a GPU through JAX beside PyTorch and Flax, interleaved, without TensorFlow.

    python -m benchmarks.gpu_speed describe FOLDER [--networks=resnet50,gpt2]
    python -m benchmarks.gpu_speed compare FOLDER [--networks=resnet50,gpt2] [--rounds=5]

`describe` writes our steps to FOLDER/NETWORK.npz by `pjrt_step`, on any machine with TensorFlow.
`compare` runs where the GPU is; it needs jax and flax, torch, torchvision and transformers. The
time of our step contains the transfer of its batch; the peers (`peers/torch_gpu`,
`peers/flax_gpu`) have their data on the GPU.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from benchmarks import pjrt_step
from tpu.pjrt.client import Devices

PEERS = {
    "bert_base": ("torch_gpu",),
    "efficientnet_b0": ("torch_gpu",),
    "gpt2": ("torch_gpu",),
    "resnet50": ("torch_gpu", "flax_gpu"),
}
# The step and the program of `tpu_programs`, and the batch size.
_DESCRIBED = {
    "bert_base": ("bert_128", "ours, bfloat16", 128),
    "efficientnet_b0": ("efficientnet_b0", "ours", 256),
    "gpt2": ("gpt2", "ours", 16),
    "resnet50": ("resnet_v1.5", "ours", 256),
}


class _Ours:
    """Our step, of a file."""

    def __init__(self, path):
        self._program, self._arguments, self._state, self._batches, _ = pjrt_step.load(path)
        self.batch_size = self._batches[0][0].shape[1]  # after the number of devices

    def start(self):
        """Compiles the step, and puts its variables on the devices."""
        self._devices = Devices(num_devices=1)
        program_id = self._devices.load(self._program)
        self._devices.begin(program_id, self._arguments, self._state)
        self.description = f"{self._devices.kind}, JAX {self._devices.jax_version}"

    def seconds(self):
        """Returns the time of a step."""
        return pjrt_step.seconds_per_step(self._devices, self._program, self._batches)

    def close(self):
        """Ends the worker."""
        self._devices.close()


class _Peer:
    """A program that times its steps when it gets a line."""

    def __init__(self, module, network, batch_size):
        command = [sys.executable, "-m", f"benchmarks.peers.{module}", network, str(batch_size)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, bufsize=1)

    def wait(self):
        """Returns its first line, after the compilation; "" if it has failed."""
        return self._process.stdout.readline().strip()

    def seconds(self):
        """Returns the time of a step."""
        self._process.stdin.write("go\n")
        return float(self._process.stdout.readline())

    def close(self):
        """Ends the program."""
        self._process.stdin.close()
        self._process.wait()


def main():
    """Writes the steps, or compares them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("command", choices=["describe", "compare"])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--networks", default=",".join(PEERS))
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    names = given.networks.split(",")
    if given.command == "describe":
        _describe(names, given.folder)
    else:
        _compare_all(names, given.folder, given.rounds)


def _describe(names, folder):
    """Writes our steps."""
    from benchmarks import tpu_programs  # needs the packages of this project
    from benchmarks.subprocesses import run_module

    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        step, program, batch_size = _DESCRIBED[name]
        flags = tpu_programs.STEPS[step].programs[program].arguments
        data = ("--dataset=synthetic", "--eval_split=test", "--best_metric=")
        with tempfile.TemporaryDirectory() as model_dir:
            run = (f"--train_batch_size={batch_size}", f"--model_dir={model_dir}")
            run_module("pjrt_step", "describe", folder / f"{name}.npz", *flags, *data, *run)


def _compare_all(names, folder, rounds):
    """Prints a row per network and peer."""
    # JAX would take most of the memory, and leave too little for the other programs.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    ours, peers = {}, {}
    for name in names:
        ours[name] = _Ours(folder / f"{name}.npz")
        size = ours[name].batch_size
        peers[name] = {module: _Peer(module, name, size) for module in PEERS[name]}
    for program in ours.values():
        program.start()
    for name in names:  # all compile at the same time; then one runs at a time
        lines = {module: peer.wait() for module, peer in peers[name].items()}
        print(f"{name}: {ours[name].description}; {lines}", flush=True)
        peers[name] = {module: peers[name][module] for module, line in lines.items() if line}
    for name in names:
        _compare(name, {"ours": ours[name], **peers[name]}, rounds)


def _compare(name, sides, rounds):
    """Times the sides by turns, prints examples/s and the ratios of the rounds, and ends them."""
    seconds = {side: [] for side in sides}
    for _ in range(rounds):
        for side, program in sides.items():
            seconds[side].append(program.seconds())
    size = sides["ours"].batch_size
    rates = {side: size / statistics.median(values) for side, values in seconds.items()}
    for side in list(sides)[1:]:
        ratios = sorted(peer / ours for ours, peer in zip(seconds["ours"], seconds[side]))
        print(
            f"| {name}, {size} | {rates['ours']:,.0f} | {side} | {rates[side]:,.0f} | "
            f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}) |",
            flush=True,
        )
    for program in sides.values():
        program.close()


if __name__ == "__main__":
    main()
