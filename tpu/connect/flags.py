"""The flags of a program for a TPU, and their checks. Imports no TensorFlow."""

from __future__ import annotations

from absl import flags

from tpu.connect import topology
from tpu.connect.request import Request, TPUError

FLAGS = flags.FLAGS
# Of one session.run: the most by default, and what is worth a word if there are fewer.
_MOST_ITERATIONS, _FEW_ITERATIONS = 100, 50

flags.DEFINE_string(
    "tpu",
    "",
    "The TPU: local (in this TPU VM), a name, grpc://host:port[,...], or emulator (no TPU at all). "
    "By default the one that the environment names (TPU_NAME), or this machine's own.",
)
flags.DEFINE_string("tpu_zone", "", "Zone of a named TPU; default: this machine's.")
flags.DEFINE_string("gcp_project", "", "Project of a named TPU; default: this machine's.")
flags.DEFINE_string(
    "tpu_topology",
    "",
    "The slice, such as v3-8; checked before anything is built. For the emulator also "
    "HOSTSxCORES, such as 1x2; its default is v3-8.",
)
flags.DEFINE_enum(
    "use_tpu",
    "auto",
    ["auto", "true", "false"],
    "Whether to use a TPU; auto: if one is named or present. Otherwise the same on GPU or CPU.",
)
flags.DEFINE_integer(
    "iterations_per_loop",
    None,
    "Steps that a TPU makes by itself; a divisor of save_checkpoints_steps. Default: the largest "
    "one up to 100.",
    lower_bound=1,
)
flags.DEFINE_boolean(
    "export_to_tpu",
    False,
    "For export: a second graph in the SavedModel, tags serve and tpu, for a server with a TPU. "
    "tf.saved_model.load and other runtimes refuse two.",
)
flags.DEFINE_string("check_report", "", "For check: a .json file for the report.")
flags.DEFINE_integer(
    "check_run_steps",
    0,
    "For check: also train so many steps, with run_cpu.py's Estimator and on emulated cores, and "
    "compare all variables.",
    lower_bound=0,
)
flags.DEFINE_enum(
    "check_compiler",
    "quick",
    ["quick", "full", "off"],
    "For check: the effort of the TPU compiler, if it is installed. full takes five times as long "
    "and gives the step times to compare.",
)


@flags.validator("tpu_topology")
def _check_topology(name):
    if name:
        checks = "mode" in FLAGS and FLAGS["mode"].value == "check"
        try:
            topology.find(name, any_generation=checks)
        except ValueError as error:
            raise flags.ValidationError(str(error)) from error
    return True


def request(mode, paths, batch_sizes, accumulate_steps, on_one_host) -> Request:
    """Returns what the flags ask of a TPU; the arguments are attributes of a `Request`."""
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
    )


def iterations_per_loop(save_checkpoints_steps: int) -> int:
    """Returns the steps of one session.run on a TPU.

    Raises:
      TPUError: checkpoints cannot come when they are wanted.
    """
    divisors = [n for n in range(1, _MOST_ITERATIONS + 1) if save_checkpoints_steps % n == 0]
    wanted = FLAGS.iterations_per_loop
    if wanted and save_checkpoints_steps % wanted:
        raise TPUError(
            f"--iterations_per_loop={wanted} does not divide "
            f"--save_checkpoints_steps={save_checkpoints_steps}, and a TPU can save only between "
            f"loops; {divisors[-1]} would do"
        )
    if not wanted and divisors[-1] < min(_FEW_ITERATIONS, save_checkpoints_steps):
        better = max(1, round(save_checkpoints_steps / _MOST_ITERATIONS)) * _MOST_ITERATIONS
        print(
            f"--save_checkpoints_steps={save_checkpoints_steps} lets a TPU make no more than "
            f"{divisors[-1]} step(s) by itself; with {better} it would make {_MOST_ITERATIONS}, "
            "and wait less for its host"
        )
    return wanted or divisors[-1]
