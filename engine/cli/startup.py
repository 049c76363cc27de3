"""How a program of this package starts and ends: versions, flags, and errors in one line.

At the top this imports nothing that must be installed: a wrong Python and a missing environment are
answered in one line too, and `--help` or a mistyped flag without the seconds that TensorFlow takes.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import re
import signal
import sys
import time
from collections.abc import Sequence
from typing import Callable

from common import flagfiles, names, standard_streams
from common.errors import RunError, UsageError
from engine.cli import cpu_kernels, io_errors
from input_fns import DataError
from models.model import ModelError

# Every program imports this module first.
STARTED = time.monotonic()

PYTHONS = ((3, 9), (3, 11))
TENSORFLOW = "2.15"
# The package tpu imports nothing of ours: its flags are made strict here.
_PATHS_OF_TPU = ("check_report",)
# Of a signed address, or of what a server answers.
_SECRET = re.compile(
    r"(?i)\b([\w-]*(?:signature|token|credential|secret|password))[=:]\s*[^\s&,;]+"
)
# How absl begins what a check of several flags says: all of them, with their values.
_ALL_FLAGS = re.compile(r"^flags .*?: (?=--|Flag )")
# The names under which a TensorFlow wheel may be installed.
_WHEELS = ("tensorflow", "tensorflow-cpu", "tensorflow-tpu", "tf-nightly")


def start(argv: list[str], doc: str, *flags_modules: str):
    """Checks the versions, parses `argv`, chooses the CPU kernels and makes TensorFlow quiet.

    A wrong version, an unknown flag or a wrong value ends the program with one line and status 2;
    `--help` prints `doc` and the flags.

    Args:
      argv: the command line, the program's name first.
      doc: the program's docstring.
      flags_modules: names of the modules that define the flags.

    Returns:
      The flags.
    """
    standard_streams.protect()
    _use_utf8()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # its errors also come as exceptions
    cpu_kernels.prefer_onednn()
    try:
        check_versions()
        _check_encoding(argv)
        flagfiles.check(argv[1:])
    except UsageError as error:
        _exit(error)
    from absl import flags

    from common import strict_flags

    try:
        for name in flags_modules:
            flag_values = importlib.import_module(name).FLAGS
            strict_flags.harden(flag_values, name, _PATHS_OF_TPU)
        if {"--help", "-h", "-help", "--helpfull", "--helpshort"} & set(argv):
            print(doc.strip(), flag_values.get_help(include_special_flags=False), sep="\n\n")
            sys.exit(0)
        unknown = flag_values(argv)[1:]
        if unknown:
            raise UsageError(f"'{unknown[0]}' is no flag; flags are written --name=value")
    except flags.UnrecognizedFlagError as error:
        _exit(error, [f"{error}{_hint(error, flag_values)}"])
    except (flags.Error, UsageError) as error:
        # absl has a line for each flag.
        _exit(error, ["; ".join(_ALL_FLAGS.sub("", line) for line in str(error).splitlines())])
    except ValueError as error:  # a value for --noFLAG
        _exit(error)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # During the seconds of TensorFlow's import Ctrl-C ends the process without a traceback.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    return flag_values


def run(main: Callable[[], None], *errors_in_lines: type[Exception]) -> None:
    """Runs `main`; an error of the user's input ends the program with its message and status 2.

    The message is one line; that of `errors_in_lines` may be a list. A `RunError` ends it with its
    message and status 1, and so does a disk or a bucket that fails; Ctrl-C with 130.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        main()
        standard_streams.finish()
    except errors_in_lines as error:
        _exit(error, str(error).splitlines())
    except (UsageError, DataError, ModelError) as error:
        _exit(error)
    except RunError as error:
        _exit(error, status=1)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    except Exception as error:
        problem = io_errors.describe(error)
        if problem is None:
            raise
        _exit(error, [problem], status=1)


def check_versions() -> None:
    """Raises `UsageError` unless this is a Python and a TensorFlow that Estimators run on."""
    python = ".".join(map(str, sys.version_info[:3]))
    if not PYTHONS[0] <= sys.version_info[:2] <= PYTHONS[1]:
        raise UsageError(
            f"Python {python} will not do: TensorFlow {TENSORFLOW}, the last with Estimator, "
            "runs on Python 3.9, 3.10 and 3.11"
        )
    tensorflow = [version for version in map(_version, _WHEELS) if version]
    if not tensorflow:
        raise UsageError(
            f"no TensorFlow in {sys.prefix}: 'make run' sets up .venv, and "
            "'. .venv/bin/activate' enters it"
        )
    estimator = _version("tensorflow-estimator")
    for name, version in (("tensorflow", tensorflow[0]), ("tensorflow-estimator", estimator)):
        if not (version or "").startswith(f"{TENSORFLOW}."):
            raise UsageError(
                f"{name} {version or 'is missing'}: this package needs {name} {TENSORFLOW}.x, the "
                "last with Estimator"
            )


def _use_utf8() -> None:
    """Starts Python again in its UTF-8 mode if it has another encoding for the names of files.

    TensorFlow has UTF-8 alone, so with another one no name with an accent would be the same.
    """
    if sys.getfilesystemencoding() == "utf-8" or os.environ.get("PYTHONUTF8") == "1":
        return
    os.environ["PYTHONUTF8"] = "1"
    arguments = getattr(sys, "orig_argv", [sys.executable, *sys.argv])[1:]  # Python 3.9 has none
    os.execv(sys.executable, [sys.executable, *arguments])


def _check_encoding(argv):
    for argument in argv:
        try:
            argument.encode()
        except UnicodeEncodeError as error:
            raise UsageError(f"the argument {argument!a} is not UTF-8") from error


def _hint(error, flag_values):
    """Returns what to do about an unknown flag that is like none there is."""
    if "Did you mean" in str(error) or "params" not in flag_values:
        return ""
    value = str(error.flagvalue).partition("=")[2] or "VALUE"
    return f"; if it is a hyperparameter, write --params={error.flagname}={value}"


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _exit(error: Exception, lines: Sequence[str] = (), status: int = 2) -> None:
    lines = [names.shown(line) for line in lines] or [names.shown(" ".join(str(error).split()))]
    message = _SECRET.sub(r"\1=...", "\n".join(lines))
    print(f"{os.path.basename(sys.argv[0])}: error: {message}", file=sys.stderr)
    sys.exit(status)
