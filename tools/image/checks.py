"""What a container of each image must do: the checks of tools/image_check.py."""

from __future__ import annotations

import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import uuid

from tools.image.engine import Engine

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Written into files that must not reach an image.
SECRET = f"secret-{uuid.uuid4()}"
SECRET_FILES = (
    ".env",
    ".git/config",
    ".venv/pyvenv.cfg",
    "data/digits/train.tfrecord",
    "key.json",
    "models/.env",
    "models/__pycache__/model.cpython-311.pyc",
    "configs/service_account.json",
    "runs/digits/checkpoint",
    "tools/id_rsa.pem",
    "tpu/build/lib/tpu.py",
)
# An uid without an entry in /etc/passwd.
_UID = 12345
_CONFINED = ("--network=none", "--cap-drop=ALL", "--security-opt=no-new-privileges")
_READ_ONLY = ("--read-only", "--tmpfs=/tmp")
_STEPS = 2000
_TRAIN = ("run_cpu.py", "--flagfile=configs/digits.cfg", "--mode=train", f"--train_steps={_STEPS}")
_TRAIN += (f"--save_checkpoints_steps={_STEPS}",)
_COMPARE = """
import sys, numpy as np, tensorflow as tf
one, other = (tf.train.load_checkpoint(folder) for folder in sys.argv[1:])
names = sorted(one.get_variable_to_shape_map())
assert names == sorted(other.get_variable_to_shape_map())
for name in names:
    assert np.array_equal(one.get_tensor(name), other.get_tensor(name)), name
print(f"{len(names)} variables are bit-identical at step {one.get_tensor('global_step')}")
"""
_LOAD_LIBRARIES = """
import ctypes, glob, os, nvidia
paths = sorted(glob.glob(f"{list(nvidia.__path__)[0]}/*/lib/lib*.so*"))
names = {os.path.basename(path) for path in paths}
assert {"libcudart.so.12", "libcudnn.so.8", "libcublas.so.12"} <= names, names
for path in paths:
    try:
        ctypes.CDLL(path)
    except OSError as error:
        assert "libcuda.so.1" in str(error) or "libnvidia-ml" in str(error), error
import tensorflow as tf
assert tf.sysconfig.get_build_info()["is_cuda_build"]
print(f"{len(paths)} CUDA libraries load (without a GPU and its driver)")
"""
_CLOUD_API = """
from googleapiclient import discovery
import httplib2
discovery.build("tpu", "v1", http=httplib2.Http())
"""
_ARRAYS = """
import numpy as np
random = np.random.default_rng(1)
for name in ("train", "test"):
    image = random.integers(0, 256, [16, 8, 8, 3], dtype=np.uint8)
    np.savez(f"/work/{name}.npz", image=image, classes=image[..., 0] // 86)
"""


class Checks:
    """The checks of one image.

    Attributes:
      image: its name.
      work: folder of this machine that containers see as /work.
    """

    def __init__(self, engine: Engine, image: str, work: pathlib.Path):
        self.engine = engine
        self.image = image
        self.work = work
        # Every uid may write into it.
        work.mkdir(exist_ok=True)
        work.chmod(0o777)

    def run(self, *arguments, options=_READ_ONLY, user=_UID, image="", status=0):
        """Runs a container, confined and on a read-only root file system; returns its stdout."""
        command = ("run", "--rm", *self.confined(user), *options, image or self.image, *arguments)
        return self.engine.call(*command, status=status)

    def confined(self, user):
        """Returns the options of a container without network and capabilities."""
        return (*_CONFINED, f"--user={user}:{user}", f"--volume={self.work}:/work:z")

    def help(self):
        """The entry point runs programs and Python; a mistyped flag has status 2."""
        shown = self.run("run_cpu.py", "--help")
        require("--model_dir" in shown, f"run_cpu.py --help printed {shown!r}")
        require(self.run() == shown, "an image without arguments must print run_cpu.py --help")
        self.run("run_cpu.py", "--no_such_flag", status=2)
        self.run("python", "-m", "tpu", "--help")
        return "run_cpu.py --help, no arguments, python -m tpu --help"

    def make_run(self):
        """The commands of `make run` run as the user of the image and as a uid without a name."""
        places = ("DATA=/work/data", "RUNS=/work/runs")
        command = ["make", "--dry-run", "--silent", "run", *places]
        done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
        lines = done.stdout.replace("\\\n", " ").splitlines()
        programs = [shlex.split(line)[1:] for line in lines if line.startswith(".venv/bin/python ")]
        require(len(programs) == 3, f"make --dry-run run printed {lines}, not three programs")
        for user in (1000, _UID):
            self.empty_work()
            for program in programs:
                last = self.run(*program, user=user).splitlines()[-1]
        return f"uid 1000 and {_UID}, read-only root: {last.replace('/work/', '')}"

    def secrets(self):
        """No planted file, pip.conf or build secret is in the image."""
        places = "/app /opt /home /root /tmp /var /etc /usr/local"
        found = self.shell(f"grep -rl {SECRET} {places} 2>/dev/null; true")
        found += self.shell("grep -rl . /etc/pip.conf /run/secrets 2>/dev/null; true")
        require(not found, f"the image has files that it must not have: {found}")
        return f"{len(SECRET_FILES)} planted files (data, .git, keys) are not in it"

    def code(self):
        """Programs cannot change the code and the packages."""
        writable = self.run(
            "find", "/app", "/opt", "/usr", "-writable", "-not", "-type", "l", options=()
        )
        require(not writable, f"uid {_UID} may write {writable}")
        return f"uid {_UID} may not write to /app, /opt, /usr"

    def stop(self):
        """SIGTERM saves and ends with status 143; the resumed training is bit-identical."""
        train = (*_TRAIN, "--data_dir=/work/data/digits")
        self.run(*train, "--model_dir=/work/runs/undisturbed")
        train = (*train, "--model_dir=/work/runs/stopped")
        folder = self.work / "runs" / "stopped"
        # Without a signal, this training saves at its end only.
        seconds = self.terminate(*train, until=lambda log: "\nstep " in log)
        after = newest_step(folder)
        require(0 < after < _STEPS, f"newest checkpoint {after} after SIGTERM")
        self.run(*train)
        equal = self.run("-c", _COMPARE, "/work/runs/undisturbed", "/work/runs/stopped").strip()
        return (
            f"SIGTERM saved step {after} and ended with status 143 in {seconds:.1f} s; "
            f"resumed: {equal}"
        )

    def stop_other_programs(self):
        """SIGTERM ends a program without a signal handler, which PID 1 would ignore."""
        sleep = ("-c", "import time; print('started'); time.sleep(300)")
        self.terminate(*sleep, until=lambda log: "started" in log)
        return "SIGTERM ends a program without a handler with status 143"

    def terminate(self, *arguments, until):
        """Sends SIGTERM to a container once `until(its output)` is true.

        Returns:
          The seconds until it ended.

        Raises:
          SystemExit: it does not end with status 143.
        """
        name = f"image-check-{os.getpid()}"
        options = (*self.confined(_UID), *_READ_ONLY, f"--name={name}")
        self.engine.call("run", "--detach", *options, self.image, *arguments)
        try:
            deadline = time.monotonic() + 300
            while not until(self.engine.call("logs", name)):
                require(time.monotonic() < deadline, f"{arguments} made no progress in 300 s")
                time.sleep(0.05)
            started = time.monotonic()
            self.engine.call("kill", "--signal=TERM", name)
            status = self.engine.call("wait", name).strip()
            seconds = time.monotonic() - started
            log = self.engine.call("logs", name)
        finally:
            self.engine.call("rm", "--force", name)
        require(status == "143", f"status {status} after SIGTERM\n{log[-2000:]}")
        return seconds

    def tpu(self):
        """The TPU emulator and the check run; the client of the Cloud TPU API has what it reads."""
        self.run("-c", _CLOUD_API)
        flags = ("--data_dir=/work/data/digits", "--train_steps=4", "--iterations_per_loop=2")
        flags += ("--save_checkpoints_steps=4", "--train_batch_size=16", "--mode=train")
        train = ("run_tpu.py", "--flagfile=configs/digits.cfg", *flags)
        self.run(*train, "--tpu=emulator", "--tpu_topology=v2-8", "--model_dir=/work/runs/tpu")
        step = newest_step(self.work / "runs" / "tpu")
        require(step == 4, f"the TPU emulator stopped at step {step} of 4")
        check = ("--mode=check", "--tpu_topology=v2-8", "--model_dir=/work/runs/check")
        self.run("run_tpu.py", "--flagfile=configs/digits.cfg", *flags[:1], *check)
        program = shutil.copy(ROOT / "tests/tpu/programs/linear_program.py", self.work)
        name = f"/work/{pathlib.Path(program).name}"
        for command in ("emulate", "check"):
            last = self.run("python", "-m", "tpu", command, "--topology=v2-8", name).splitlines()
        return f"run_tpu.py --tpu=emulator, --mode=check; python -m tpu emulate, check: {last[-1]}"

    def own_model(self):
        """The example of docs/own_model.md runs in an image that is built on top."""
        page = (ROOT / "docs" / "own_model.md").read_text()
        data, model = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)[:2]
        with tempfile.TemporaryDirectory() as folder:
            project = pathlib.Path(folder)
            (project / "segmentation").mkdir()
            (project / "segmentation" / "data.py").write_text(data)
            (project / "segmentation" / "model.py").write_text(model)
            steps = f"FROM {self.image}\nCOPY segmentation segmentation\n"
            (project / "Dockerfile").write_text(steps)
            subprocess.run(["chmod", "-R", "go+rX", folder], check=True)
            own = f"{self.image}-own"
            self.engine.call("build", "--tag", own, folder)
        self.run("-c", _ARRAYS)
        flags = ("--model=segmentation.model:MODEL", "--dataset=segmentation.data:make_pipeline")
        flags += ("--data_dir=/work", "--model_dir=/work/runs/own", "--train_steps=4")
        flags += ("--train_batch_size=8", "--eval_batch_size=8")
        self.run("run_cpu.py", *flags, image=own)
        self.engine.call("rmi", own)
        return "FROM this image, COPY of a model and its data pipeline: trained and evaluated"

    def gpu(self):
        """The CUDA libraries of the image load."""
        return self.run("-c", _LOAD_LIBRARIES).strip()

    def dev(self):
        """`make lint` and some tests run without a network."""
        self.run("make", "lint", options=("--tmpfs=/tmp",), user=1000)
        tests = ("python", "-m", "pytest", "-p", "no:cacheprovider", "tests/common")
        return self.run(*tests, options=("--tmpfs=/tmp",), user=1000).strip().splitlines()[-1]

    def shell(self, command, options=_READ_ONLY):
        """Runs a shell command as root without capabilities; returns its stdout."""
        return self.run("sh", "-c", command, options=options, user=0).strip()

    def empty_work(self):
        """Empties the folder: files of other uids are removed by a container."""
        options = (f"--volume={self.work}:/work:z", "--user=0", "--rm", "--network=none")
        self.engine.call("run", *options, self.image, "find", "/work", "-mindepth", "1", "-delete")


_ALL = ("help", "secrets", "code", "make_run")
CHECKS = {
    "cpu": (*_ALL, "stop", "stop_other_programs", "tpu", "own_model"),
    "gpu": (*_ALL, "gpu"),
    "dev": ("secrets", "dev"),
}


def newest_step(folder: pathlib.Path) -> int:
    """Returns the step of the newest checkpoint of a folder; -1 if there is none."""
    names = (path.name for path in folder.glob("model.ckpt-*.index"))
    return max((int(re.sub(r"\D", "", name)) for name in names), default=-1)


def require(condition: object, message: str) -> None:
    """Exits with a message unless the condition is true."""
    if not condition:
        sys.exit(f"image_check: {message}")
