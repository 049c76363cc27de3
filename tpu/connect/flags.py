"""Flags of run_tpu.py and their validation. Does not import TensorFlow."""

from __future__ import annotations

from absl import flags

from tpu.connect import topology
from tpu.connect.request import Hosts, Request, TPUError
from tpu.pjrt import devices

FLAGS = flags.FLAGS
# Steps per session.run: the largest default, and the number below which a hint is printed.
_MAX_ITERATIONS, _MIN_ITERATIONS = 100, 50
_RESTART_MINUTES = 60

flags.DEFINE_string(
    "tpu",
    "",
    "TPU address: local (this TPU VM), a TPU name, grpc://host:port[,...], pjrt (the devices of "
    "this machine through JAX: TPU v5e, v5p, v6e, GPU, CPU), or emulator (cores emulated on the "
    "CPU). Default: TPU_NAME and the like, else a TPU of this machine.",
)
flags.DEFINE_string(
    "devices",
    "",
    "--tpu=pjrt: tpu, gpu or cpu, with a number for a part of them, such as cpu:8. Default: all "
    "devices of the TPU or the GPUs that JAX finds; without one it is an error.",
)
flags.DEFINE_string(
    "pjrt_python",
    "",
    "--tpu=pjrt: the Python interpreter that has JAX, 0.4.30 or later; it needs no TensorFlow. "
    "Default: this one.",
)
flags.DEFINE_string(
    "pjrt_coordinator",
    "",
    "--tpu=pjrt on several hosts, each with this command: HOST:PORT of host 0, with a free port. "
    "Default: JAX finds the hosts of a TPU slice.",
)
flags.DEFINE_integer(
    "pjrt_hosts",
    None,
    "--tpu=pjrt: number of hosts. 1: this host alone, also on a slice of several.",
    lower_bound=1,
)
flags.DEFINE_integer(
    "pjrt_host_id", None, "--tpu=pjrt: number of this host, from 0 on.", lower_bound=0
)
flags.DEFINE_string("tpu_zone", "", "Zone of a named TPU. Default: the zone of this machine.")
flags.DEFINE_string(
    "gcp_project", "", "Project of a named TPU. Default: the project of this machine."
)
flags.DEFINE_float(
    "tpu_wait_minutes",
    None,
    "How long to wait for a TPU that is not READY, does not exist yet or does not answer. Default: "
    f"0, and {_RESTART_MINUTES} at a restart by --max_restarts.",
    lower_bound=0,
)
flags.DEFINE_string(
    "tpu_topology",
    "",
    "TPU slice, such as v3-8; checked before anything is built. The emulator also accepts "
    "HOSTSxCORES, such as 1x2 (default v3-8).",
)
flags.DEFINE_enum(
    "use_tpu",
    "auto",
    ["auto", "true", "false"],
    "Whether to use a TPU. auto: if one is named or present, else GPU or CPU.",
)
flags.DEFINE_integer(
    "iterations_per_loop",
    None,
    "Training steps per session.run on a TPU; must divide save_checkpoints_steps. Default: its "
    "largest divisor up to 100.",
    lower_bound=1,
)
flags.DEFINE_boolean(
    "export_to_tpu",
    False,
    "export: add a second graph (tags serve, tpu) to the SavedModel, for a server with a TPU. "
    "tf.saved_model.load and other runtimes do not load such a SavedModel.",
)
flags.DEFINE_string("check_report", "", "check: write the report to this .json file.")
flags.DEFINE_integer(
    "check_run_steps",
    0,
    "check: also train this number of steps with run_cpu.py's Estimator and on emulated cores, "
    "and compare all variables.",
    lower_bound=0,
)
flags.DEFINE_enum(
    "check_compiler",
    "quick",
    ["quick", "full", "off"],
    "check: effort of the TPU compiler, if it is installed. full takes five times as long and "
    "gives step times that can be compared.",
)


@flags.validator("devices")
def _check_devices(text):
    try:
        devices.parse(text)
    except ValueError as error:
        raise flags.ValidationError(str(error)) from error
    return True


@flags.validator("tpu_topology")
def _check_topology(name):
    is_check = "mode" in FLAGS and FLAGS["mode"].value == "check"
    if is_check and not name:
        raise flags.ValidationError("--mode=check needs --tpu_topology, such as v3-8")
    if name:
        try:
            topology.find(name)
        except ValueError as error:
            raise flags.ValidationError(str(error)) from error
    return True


def request(mode, paths, batch_sizes, accumulate_steps, on_one_host) -> Request:
    """Returns the `Request` of the flags; the arguments are attributes of `Request`."""
    return Request(
        tpu=FLAGS.tpu,
        zone=FLAGS.tpu_zone,
        project=FLAGS.gcp_project,
        topology=FLAGS.tpu_topology,
        use_tpu=FLAGS.use_tpu,
        mode=mode,
        paths=paths,
        batch_sizes=batch_sizes,
        accumulate_steps=accumulate_steps,
        on_one_host=on_one_host,
        wait_minutes=FLAGS.tpu_wait_minutes or 0,
        devices=FLAGS.devices,
        python=FLAGS.pjrt_python,
        hosts=_hosts(FLAGS.pjrt_coordinator, FLAGS.pjrt_hosts, FLAGS.pjrt_host_id),
    )


def _hosts(*values):
    hosts = Hosts(*values)
    hosts.check()
    return hosts


def restart_flags() -> list[str]:
    """Returns the additional flags of a restarted training: it waits for a preempted TPU."""
    return [] if FLAGS.tpu_wait_minutes is not None else [f"--tpu_wait_minutes={_RESTART_MINUTES}"]


def iterations_per_loop(save_checkpoints_steps: int) -> int:
    """Returns the number of training steps per session.run on a TPU.

    Raises:
      TPUError: --iterations_per_loop does not divide save_checkpoints_steps.
    """
    divisors = [n for n in range(1, _MAX_ITERATIONS + 1) if save_checkpoints_steps % n == 0]
    wanted = FLAGS.iterations_per_loop
    if wanted and save_checkpoints_steps % wanted:
        raise TPUError(
            f"--iterations_per_loop={wanted} does not divide "
            f"--save_checkpoints_steps={save_checkpoints_steps}; a TPU saves only between loops. "
            f"Use {divisors[-1]}"
        )
    if not wanted and divisors[-1] < min(_MIN_ITERATIONS, save_checkpoints_steps):
        better = max(1, round(save_checkpoints_steps / _MAX_ITERATIONS)) * _MAX_ITERATIONS
        steps = f"{divisors[-1]} step{'s' if divisors[-1] > 1 else ''}"
        print(
            f"--save_checkpoints_steps={save_checkpoints_steps} limits a TPU to {steps} per "
            f"loop; --save_checkpoints_steps={better} allows {_MAX_ITERATIONS}, with less waiting "
            "for the host"
        )
    return wanted or divisors[-1]
