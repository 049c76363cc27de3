r"""Kills training processes at random times and checks that nothing is lost: `make chaos`.

    python -m tools.chaos [--kills=50] [--seed=1]

Scenarios:

- process: training in one process. After every SIGKILL the newest checkpoint must be valid, and the
  final weights must be bit-identical to those of an uninterrupted training.
- cluster: chief, worker, parameter server and evaluator of a local cluster are killed once each; it
  must reach the accuracy of the recipe.
- in_step: one worker of a MultiWorkerMirroredStrategy is killed; the launcher restarts all.

Takes about ten minutes on two cores.
"""

from __future__ import annotations

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time

from engine.cli import startup

if __name__ == "__main__":
    startup.hide_logs()
    startup.check(startup.check_environment)

import numpy as np
import tensorflow as tf
from absl import app, flags

from engine.checkpoints import verify
from engine.checkpoints.checkpoint_files import newest_step
from tools.local_cluster import LocalCluster

FLAGS = flags.FLAGS
flags.DEFINE_integer("kills", 50, "Number of kills in the scenario process.", lower_bound=1)
flags.DEFINE_integer("seed", 1, "Seed of the times of the kills.")
flags.DEFINE_list("scenarios", ["process", "cluster", "in_step"], "Scenarios to run.")

_ROOT = pathlib.Path(__file__).resolve().parent.parent
_STEPS, _SAVE_STEPS = 2500, 5
# Maximum seconds before a kill during start-up, and after the graph is built.
_START, _WORK = 3.0, 4.0
_CLUSTER_STEPS, _ACCURACY = 4000, 0.97
_IN_STEP_STEPS = 600


def main(_):
    """Runs the scenarios; exits with status 1 at the first failure."""
    with tempfile.TemporaryDirectory() as folder:
        data_dir = os.path.join(folder, "digits")
        _run("prepare_data.py", "--dataset=digits", f"--data_dir={data_dir}")
        recipe = ["--flagfile=configs/digits.cfg", f"--data_dir={data_dir}", "--seed=1"]
        if "process" in FLAGS.scenarios:
            _one_process(recipe, pathlib.Path(folder), random.Random(FLAGS.seed))
        if "cluster" in FLAGS.scenarios:
            _cluster(recipe, pathlib.Path(folder))
        if "in_step" in FLAGS.scenarios:
            _in_step(recipe, pathlib.Path(folder))


def _one_process(recipe, folder, moments):
    arguments = [*recipe, "--mode=train", f"--train_steps={_STEPS}"]
    # The recipe has dropout, batch norm and Adam; add EMA.
    arguments += [f"--save_checkpoints_steps={_SAVE_STEPS}", "--params=ema_decay=0.9"]
    _run("run_cpu.py", *arguments, f"--model_dir={folder}/uninterrupted")
    killed = folder / "killed"
    command = [sys.executable, "run_cpu.py", *arguments, f"--model_dir={killed}"]
    for kill in range(FLAGS.kills):
        process = subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True)
        in_start = moments.random() < 0.2
        if not in_start:
            while not process.stdout.readline().startswith("training "):
                if process.poll() is not None:
                    break
        moment = moments.uniform(0.0, _START if in_start else _WORK)
        time.sleep(moment)
        process.kill()
        status = process.wait()
        process.stdout.close()
        if status != -signal.SIGKILL:
            sys.exit(f"after {kill} kills the training exited with status {status}")
        newest = tf.train.latest_checkpoint(str(killed))
        problem = newest and verify.find_problem(newest)
        phase = "start-up" if in_start else "training"
        print(f"kill {kill + 1} after {moment:.1f} s of {phase}: newest {newest}", flush=True)
        if problem:
            sys.exit(f"the newest checkpoint {newest} is broken: {problem}")
    _run("run_cpu.py", *arguments, f"--model_dir={killed}")
    _require_equal(folder / "uninterrupted", killed)
    broken = killed / "broken"
    num_broken = len(list(broken.glob("*.index"))) if broken.exists() else 0
    print(
        f"{FLAGS.kills} kills: all variables at step {_STEPS} are bit-identical to those of the "
        f"uninterrupted training; {num_broken} broken checkpoints were moved to {broken.name}/"
    )


def _require_equal(uninterrupted, killed):
    readers = [tf.train.load_checkpoint(str(folder)) for folder in (uninterrupted, killed)]
    names = [sorted(reader.get_variable_to_shape_map()) for reader in readers]
    if names[0] != names[1]:
        sys.exit(f"the variables differ: {set(names[0]) ^ set(names[1])}")
    for name in names[0]:
        one, other = (reader.get_tensor(name) for reader in readers)
        if not np.array_equal(one, other):
            sys.exit(f"{name} differs by {np.abs(one - other).max()}")


def _cluster(recipe, folder):
    model_dir = folder / "cluster"
    arguments = [*recipe, f"--model_dir={model_dir}", f"--train_steps={_CLUSTER_STEPS}"]
    arguments += ["--early_stop_evals=0", "--save_checkpoints_steps=200"]
    cluster = LocalCluster(arguments, folder / "logs", workers=2)
    victims = ["worker-0", "evaluator", "chief", "ps-0"]
    for name in cluster.names:
        cluster.start(name)
    try:
        for i, victim in enumerate(victims):
            _await_step(model_dir, 200 + 600 * i)
            cluster.processes[victim].kill()
            cluster.processes[victim].wait()
            print(f"killed {victim} after step {newest_step(str(model_dir))}", flush=True)
            cluster.start(victim)
        for name, process in cluster.processes.items():
            status = process.wait(timeout=300)
            if status:
                sys.exit(f"{name} exited with status {status}:\n{cluster.log(name).read_text()}")
    finally:
        cluster.stop()
    step = newest_step(str(model_dir))
    accuracy = json.loads((model_dir / f"result_{step}.json").read_text())["eval"]["accuracy"]
    print(f"cluster: step {step}, test accuracy {accuracy:.4f}")
    if step < _CLUSTER_STEPS or accuracy < _ACCURACY:
        sys.exit(f"expected step {_CLUSTER_STEPS} and an accuracy of at least {_ACCURACY}")


def _in_step(recipe, folder):
    model_dir = folder / "in_step"
    arguments = [*recipe, f"--model_dir={model_dir}", f"--train_steps={_IN_STEP_STEPS}"]
    arguments += ["--mode=train", "--save_checkpoints_steps=100"]
    arguments += ["--strategy=multi_worker_mirrored"]
    cluster = LocalCluster(arguments, folder / "in_step_logs", workers=1, ps=0, evaluator=False)
    statuses = []
    running = threading.Thread(target=lambda: statuses.append(cluster.run(max_restarts=1)))
    running.start()
    _await_step(model_dir, 200)
    cluster.processes["worker-0"].kill()
    running.join(timeout=300)
    step = newest_step(str(model_dir))
    print(f"in_step: exit status {statuses} at step {step}")
    if statuses != [0] or step != _IN_STEP_STEPS:
        sys.exit(cluster.log("chief").read_text())


def _await_step(model_dir, step):
    deadline = time.monotonic() + 180
    while newest_step(str(model_dir)) < step:
        if time.monotonic() > deadline:
            sys.exit(f"no checkpoint of step {step} within 180 s")
        time.sleep(0.2)


def _run(program, *arguments):
    subprocess.run([sys.executable, program, *arguments], cwd=_ROOT, check=True)


if __name__ == "__main__":
    app.run(main)
