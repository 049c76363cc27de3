"""Parses the command line; imports TensorFlow only once the arguments are valid.

python -m tpu emulate --topology=v3-8 their_program.py --their_flag=1
python -m tpu run --devices=tpu their_program.py --their_flag=1
python -m tpu check --topology=v3-8 --report=report.json -m their.module --their_flag=1
python -m tpu compare --topology=v2-8 --steps=20 their_program.py --their_flag=1
python -m tpu vm up --name=my-tpu
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import sys
import tempfile
import warnings

from tpu import software
from tpu.connect import topology
from tpu.connect.request import Hosts
from tpu.pjrt import devices
from tpu.programs.program import TENSORFLOW, Program, log

_PROGRAM_HELP = "the program and its arguments, as after `python`; -m MODULE runs a module"


def main(argv=None) -> int:
    """Runs a command; returns its exit status.

    Args:
      argv: arguments without the name of the program; default `sys.argv[1:]`.
    """
    argv = sys.argv[1:] if argv is None else argv
    if argv[:1] == ["vm"]:
        from tpu.vm import command_line

        return command_line.main(argv[1:], "tpu-estimator vm")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # errors are raised as exceptions, too
    # Of Google's API client, which TensorFlow imports if it is installed.
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"google\.")
    parser = _parser()
    arguments = parser.parse_args(argv)
    if arguments.command == "check" and arguments.explain:
        from tpu.check import codes

        try:
            print(codes.explain(arguments.explain))
        except ValueError as error:
            parser.error(str(error))
        return 0
    program = _program(parser, arguments)
    if arguments.command == "run":
        _check_devices(parser, arguments)
    problems = software.find_problems() or _problems_of_folder()
    if problems:
        log(f"error: {problems[0]}")
        return 2
    _check_report_path(parser, arguments)
    with contextlib.ExitStack() as stack:
        if arguments.tf1:
            from tpu import tf1

            # An installed module is a program here, not a library.
            tf1.install((program.target.partition(".")[0],) if program.is_module else ())
        else:
            import tensorflow  # noqa: F401  loads the modules that get names

            from tpu.tf1 import moved_names, suggestions

            stack.enter_context(moved_names.names(_report_moved_name))
            stack.enter_context(suggestions.add_option())
        return _run(program, arguments)


def _run(program, arguments):
    if arguments.command in ("emulate", "run"):
        from tpu.programs import failures, run

        try:
            with failures.print_in_threads(arguments.verbose), failures.explain_specs():
                if arguments.command == "emulate":
                    return run.emulate(program, arguments.topology)
                hosts = _hosts(arguments)
                return run.run(program, arguments.devices, arguments.pjrt_python, hosts)
        except Exception as error:  # as Python does for an error that a program does not catch
            if sys.excepthook is not sys.__excepthook__:
                raise  # the program has its own way to report it
            text = failures.format_error(error, arguments.verbose)
            print(text, end="", file=sys.stderr, flush=True)
            return 1
    if arguments.command == "check":
        from tpu.programs import check

        return check.run(
            program,
            arguments.topology,
            arguments.steps,
            arguments.compiler,
            arguments.report,
            verbose=arguments.verbose,
        )
    from tpu.programs import compare

    return compare.run(
        program,
        arguments.topology,
        arguments.steps,
        arguments.report,
        clipping=not arguments.without_clipping,
        verbose=arguments.verbose,
    )


def _report_moved_name(old, new):
    log(
        f"{old} is {new} in TensorFlow 2.15. It is provided here; import it from there, or the "
        "program fails on a TPU VM with 2.15"
    )


def _parser():
    parser = argparse.ArgumentParser(
        prog="python -m tpu",
        description="Runs and checks TPUEstimator programs, unmodified, without a TPU.",
    )
    # A flag of the program may be the beginning of an option: none is abbreviated.
    commands = parser.add_subparsers(
        dest="command",
        required=True,
        metavar="COMMAND",
        parser_class=functools.partial(argparse.ArgumentParser, allow_abbrev=False),
    )
    emulate = commands.add_parser(
        "emulate",
        help="run a program on emulated TPU cores",
        description="Runs a program; its TPUEstimators train, evaluate and predict on emulated "
        "TPU cores on this CPU.",
    )
    run = commands.add_parser(
        "run",
        help="run a program on TPU v5e, v5p or v6e, GPUs or CPUs, through PJRT",
        description="Runs a program; its TPUEstimators train, evaluate and predict on the PJRT "
        "devices of this machine, which JAX finds and runs, or on those of TensorFlow.",
    )
    check = commands.add_parser(
        "check",
        help="check that a program compiles, fits and is correct on a TPU",
        description="Runs a program, but checks each call of a TPUEstimator (train, evaluate, "
        "predict, export) instead of executing it. Exit status: 0 no errors, 1 errors, 2 a call "
        "or what follows the end of the program was not checked at all.",
    )
    compare = commands.add_parser(
        "compare",
        help="compare training on emulated TPU cores with training on the CPU",
        description="Runs a program up to its first training; trains the same steps on emulated "
        "TPU cores and with use_tpu=False, from the same weights and batches, and compares all "
        "variables. Exit status: 0 if the differences are rounding, 1 if not, 2 if the program "
        "does not train, or fails, 3 if each core only computes something on its own batch, such "
        "as batch norm.",
    )
    commands.add_parser("vm", help="create, use and delete a Cloud TPU VM", add_help=False)
    for command in (emulate, check, compare):
        command.add_argument(
            "--topology",
            type=_topology,
            default="v3-8",
            metavar="SLICE",
            help="TPU slice such as v2-8, v3-32, or HOSTSxCORES such as 1x2 (default: v3-8)",
        )
    for command in (emulate, run, check, compare):
        command.add_argument(
            "--tf1",
            action="store_true",
            help="run a program written for TensorFlow 1.x: `import tensorflow` gives "
            "tf.compat.v1 with the parts of tf.contrib that TPU programs use",
        )
    run.add_argument(
        "--devices",
        type=_devices,
        default="",
        metavar="PLATFORM[:N]",
        help="tpu, gpu or cpu, with a number for a part of them, such as cpu:8 (default: all "
        "devices of the platform that JAX finds); tensorflow: those of TensorFlow, such as TPU v2 "
        "to v4, which --tf1 needs to run programs of 1.x there",
    )
    run.add_argument(
        "--pjrt_python",
        default="",
        metavar="PATH",
        help="the Python interpreter that has JAX, 0.4.30 or later; it needs no TensorFlow "
        "(default: this one)",
    )
    run.add_argument(
        "--pjrt_coordinator",
        default="",
        metavar="HOST:PORT",
        help="several hosts, each with this command: an address of host 0 that all reach. On a TPU "
        "slice JAX finds the hosts (default)",
    )
    run.add_argument(
        "--pjrt_hosts",
        type=_at_least(1),
        metavar="N",
        help="number of hosts; 1: this host alone, also on a slice of several",
    )
    run.add_argument(
        "--pjrt_host_id", type=_at_least(0), metavar="I", help="number of this host, from 0 on"
    )
    check.add_argument(
        "--steps",
        type=_at_least(0),
        default=0,
        metavar="N",
        help="also execute up to N steps of each call on emulated cores (default: 0; the program "
        "gets placeholder results)",
    )
    check.add_argument(
        "--compiler",
        choices=("quick", "full", "off"),
        default="quick",
        help="effort of the TPU compiler, if libtpu is installed (default: quick); full gives "
        "step times that can be compared",
    )
    check.add_argument("--explain", metavar="CODE", help="explain a finding, such as tiles")
    compare.add_argument(
        "--steps", type=_at_least(1), default=10, metavar="N", help="training steps (default: 10)"
    )
    compare.add_argument(
        "--without_clipping",
        action="store_true",
        help="train without clipping gradients by their norm, which differs per core if it comes "
        "before the all-reduce",
    )
    for command in (emulate, run, check, compare):
        command.add_argument(
            "--verbose",
            action="store_true",
            help="print the whole stack of an error, not only the lines of the program",
        )
    for command in (check, compare):
        command.add_argument("--report", metavar="FILE.json", help="also write the results as JSON")
    for command in (emulate, run, check, compare):
        command.add_argument("-m", dest="is_module", action="store_true", help=argparse.SUPPRESS)
        command.add_argument("program", nargs=argparse.REMAINDER, help=_PROGRAM_HELP)
        command.usage = f"{parser.prog} {command.prog.split()[-1]} [options] PROGRAM|-m MODULE ..."
    return parser


def _topology(name):
    try:
        return topology.find(name)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _hosts(arguments):
    return Hosts(arguments.pjrt_coordinator, arguments.pjrt_hosts, arguments.pjrt_host_id)


def _devices(text):
    if text == TENSORFLOW:
        return text
    try:
        devices.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


def _check_devices(parser, arguments):
    hosts = _hosts(arguments)
    if arguments.devices == TENSORFLOW and (arguments.pjrt_python or hosts != Hosts()):
        parser.error("--devices=tensorflow runs without JAX: leave out the options --pjrt_...")
    try:
        hosts.check()
    except ValueError as error:
        parser.error(str(error))


def _at_least(smallest):
    def parse(text):
        if not text.isdecimal() or int(text) < smallest:
            raise argparse.ArgumentTypeError(f"'{text}' is not an integer of at least {smallest}")
        return int(text)

    return parse


def _program(parser, arguments):
    if not arguments.program:
        parser.error("no program: give its file, or -m and its module")
    target, *rest = arguments.program
    if not arguments.is_module and not os.path.exists(target):
        parser.error(f"program '{target}' does not exist (options of this command go before it)")
    return Program(target, arguments.is_module, tuple(rest))


def _problems_of_folder():
    try:
        tempfile.gettempdir()
    except FileNotFoundError as error:
        return [f"{error.strerror}. Set TMPDIR to a folder that can be written"]
    return []


def _check_report_path(parser, arguments):
    path = getattr(arguments, "report", None)
    if path and not path.endswith(".json"):
        parser.error(f"--report={path} must end in .json")
    if not path:
        return
    arguments.report = os.path.abspath(path)  # the program may change the current folder
    if not os.path.isdir(os.path.dirname(arguments.report)):
        parser.error(f"--report={path}: the folder does not exist")
    if os.path.isdir(arguments.report):
        parser.error(f"--report={path} is a folder")
    if os.path.exists(arguments.report):
        os.remove(arguments.report)  # a command that fails must not leave the report of another
