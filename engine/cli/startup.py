"""Start and end of every program: version checks, flag parsing, one-line error messages.

Imports only the standard library at module level. So a wrong Python version and a missing
environment are reported, too, and `--help` or a mistyped flag need not wait for the import of
TensorFlow, which takes seconds.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import importlib.util
import os
import re
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from typing import Callable

from common import flagfiles, names, python_version, standard_streams
from common.errors import RunError, UsageError
from engine.cli import cpu_kernels, io_errors, other_names
from input_fns import DataError

# Every program imports this module first, so this is the start of the process.
STARTED = time.monotonic()

TENSORFLOW = "2.15"
# Path flags of `tpu.connect.flags`, a package that cannot import `common.strict_flags`.
_TPU_PATH_FLAGS = ("check_report",)
# A secret in a signed URL or in the response of a server.
_SECRET = re.compile(
    r"(?i)\b([\w-]*(?:signature|token|credential|secret|password))[=:]\s*[^\s&,;]+"
)
# Length of a line of an error message, which may have a name or a value from a file.
_MAX_LINE = 2000
# absl puts the flags of a validator, with their values, before its message, which may name them.
_FLAGS_PREFIX = re.compile(r"^flags? .*?: (?=--|Flag )")
# Names of the distributions that contain TensorFlow.
_WHEELS = (
    *("tensorflow", "tensorflow-cpu", "tensorflow-tpu", "tf-nightly", "tensorflow-rocm"),
    *("tensorflow-macos", "tensorflow-intel", "tensorflow-cpu-aws", "intel-tensorflow"),
)


def start(argv: list[str], doc: str, *flags_modules: str):
    """Checks versions, parses flags, selects CPU kernels and sets the log level of TensorFlow.

    An unsupported version, an unknown flag or an invalid value exits with one line and status 2.
    `--help` prints `doc` and the flags.

    Args:
      argv: the command line with the name of the program.
      doc: docstring of the program.
      flags_modules: names of the modules that define the flags.

    Returns:
      The parsed `absl.flags.FlagValues`.
    """
    standard_streams.protect()
    _use_utf8()
    set_environment()
    try:
        check_environment()
        flag_values = define_flags(*flags_modules)
        if {"--help", "-h", "-help", "--helpfull", "--helpshort"} & set(argv):
            print(doc.strip(), flag_values.get_help(include_special_flags=False), sep="\n\n")
            sys.exit(0)
        flag_values.unparse_flags()  # `%run` of a notebook starts programs again
        parse(flag_values, argv)
    except UsageError as error:
        _exit(error)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Ctrl-C while TensorFlow is imported exits without a traceback.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    return flag_values


@contextlib.contextmanager
def started_now():
    """Counts the start-up of a run from here: a call is not the start of the process."""
    global STARTED
    before, STARTED = STARTED, time.monotonic()
    try:
        yield
    finally:
        STARTED = before


def set_environment() -> None:
    """Sets the environment of TensorFlow, before its import: log level, kernels, gs:// blocks."""
    hide_logs()
    # Blocks of gs://. The default of 64 MB can be more than the share of a host.
    os.environ.setdefault("GCS_READ_CACHE_BLOCK_SIZE_MB", "4")
    cpu_kernels.prefer_onednn()


def hide_logs() -> None:
    """Hides what TensorFlow and what it imports print, before its import."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # errors are raised as exceptions, too
    # Google's API client warns about older Python versions.
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"google\.")
    # TensorFlow Text imports TensorFlow Hub.
    warnings.filterwarnings("ignore", "pkg_resources is deprecated", module="tensorflow_hub")


def define_flags(*modules: str):
    """Imports modules that define flags; returns the `FLAGS` of the last, which holds all.

    Raises:
      UsageError: the program that imports them has a flag with the name of one.
    """
    from absl import flags

    from common import strict_flags

    for name in modules:
        try:
            flag_values = importlib.import_module(name).FLAGS
        except flags.DuplicateFlagError as error:
            raise UsageError(f"this program has a flag of the same name: {error}") from error
        strict_flags.harden(flag_values, name, _TPU_PATH_FLAGS)
    return flag_values


def parse(flag_values, argv: list[str]) -> None:
    """Parses a command line, `argv[0]` is the name of the program.

    Raises:
      UsageError: an unknown flag, an invalid value, or a flagfile that cannot be read.
    """
    from absl import flags

    _check_encoding(argv)
    flagfiles.check(argv[1:])
    try:
        mark_own(flag_values, argv[1:])
        unknown = flag_values([argv[0], *flagfiles.move_first(argv[1:])])[1:]
    except flags.UnrecognizedFlagError as error:
        raise UsageError(_unknown_flag(error, flag_values)) from error
    except flags.Error as error:
        # absl writes one line per flag.
        lines = (_FLAGS_PREFIX.sub("", line) for line in str(error).splitlines())
        raise UsageError("; ".join(lines)) from error
    except ValueError as error:  # --noFLAG=value
        raise UsageError(str(error)) from error
    if unknown:
        raise UsageError(f"unexpected argument '{unknown[0]}'. Flags are written --name=value")


def require_parsed(flag_values) -> None:
    """Raises `UsageError` if a notebook or another program calls the main of this one."""
    if not flag_values.is_parsed():
        raise UsageError(
            "main() reads the flags of the command line, which was not parsed. In a notebook or a "
            "script call estimator_models.train, evaluate, predict or export (docs/python.md)"
        )


def check(function: Callable[[], None]) -> None:
    """Runs a check before the import of TensorFlow; its error exits as one of `run` does."""
    with _one_line_errors():
        function()


def run(main: Callable[[], None], *multiline_errors: type[Exception]) -> None:
    """Runs `main`; prints expected errors as one line and exits.

    Exit statuses: 2 for invalid input (`UsageError`, `DataError`, `ModelError`), 1 for `RunError`
    and for I/O errors of a disk or bucket, 130 for Ctrl-C. Other exceptions are raised.

    Args:
      main: the program.
      multiline_errors: exceptions whose message may have several lines, with an `exit_status`.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    with _one_line_errors(*multiline_errors):
        main()
        standard_streams.finish()


@contextlib.contextmanager
def _one_line_errors(*multiline_errors):
    try:
        yield
    except multiline_errors as error:
        _exit(error, str(error).splitlines(), error.exit_status)
    except (UsageError, DataError) as error:
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
    """Raises `UsageError` unless Python, TensorFlow and NumPy have versions with Estimator."""
    problem = python_version.find_problem()
    if problem:
        raise UsageError(problem)
    tensorflow = [version for version in map(_version, _WHEELS) if version]
    if not tensorflow:
        raise UsageError(
            f"TensorFlow is not installed in {sys.prefix}. Create the environment with 'make run' "
            "and activate it with '. .venv/bin/activate'"
        )
    estimator = _version("tensorflow-estimator")
    for name, version in (("tensorflow", tensorflow[0]), ("tensorflow-estimator", estimator)):
        if not (version or "").startswith(f"{TENSORFLOW}."):
            raise UsageError(
                f"{name} {version or 'is missing'}: this package needs {name} {TENSORFLOW}.x, the "
                "last release with Estimator"
            )
    keras = _version("keras")
    if keras and not keras.startswith(f"{TENSORFLOW}."):
        raise UsageError(
            f"Keras {keras} is not supported: TensorFlow {TENSORFLOW} has Keras {TENSORFLOW}. Run "
            f"{_install()} 'keras~={TENSORFLOW}.0'"
        )
    numpy = _version("numpy")
    if numpy and not numpy.startswith(("0.", "1.")):
        # pandas 3 is compiled for NumPy 2, and is often what has installed it.
        pandas = " 'pandas<3'" if _version("pandas") else ""
        raise UsageError(
            f"NumPy {numpy} is not supported: TensorFlow {TENSORFLOW} is compiled for NumPy 1. Run "
            f"{_install()} 'numpy<2'{pandas}"
        )


def _install() -> str:
    """Returns the command that installs into this environment; one of uv has no pip."""
    if importlib.util.find_spec("pip"):
        return f"{sys.executable} -m pip install"
    return f"uv pip install -p {sys.executable}"


def check_environment() -> None:
    """Raises `UsageError` for wrong versions, or without a folder for temporary files.

    AutoGraph, exports and checks of the TPU compiler write such files.
    """
    check_versions()
    try:
        tempfile.gettempdir()
    except FileNotFoundError as error:
        raise UsageError(f"{error.strerror}. Set TMPDIR to a folder that can be written") from error


def mark_own(flag_values, arguments: Sequence[str]) -> None:
    """Marks the flags of the command line, unlike those of a flagfile, as `Flag.is_own`.

    `Flag.num_own` of --params is the number of its values there.
    """
    words = [re.match(r"--?(no)?(\w+)", argument) for argument in arguments]
    own = [name for word in words if word for name in (word[2], f"{word[1] or ''}{word[2]}")]
    for name in flag_values:
        flag_values[name].is_own = name in own
    if "params" in flag_values:
        is_params = (re.match(r"--?params(=|$)", argument) for argument in arguments)
        flag_values["params"].num_own = sum(map(bool, is_params))


def _use_utf8() -> None:
    """Restarts Python in UTF-8 mode if file names have a different encoding.

    TensorFlow always encodes file names as UTF-8: both must agree on names with accents.
    """
    if sys.getfilesystemencoding() == "utf-8" or os.environ.get("PYTHONUTF8") == "1":
        return
    os.environ["PYTHONUTF8"] = "1"
    arguments = getattr(sys, "orig_argv", [sys.executable, *sys.argv])[1:]  # not in Python 3.9
    os.execv(sys.executable, [sys.executable, *arguments])


def _check_encoding(argv):
    for argument in argv:
        try:
            argument.encode()
        except UnicodeEncodeError as error:
            raise UsageError(f"argument {argument!a} is not UTF-8") from error


def _unknown_flag(error, flag_values):
    """Returns the message of absl, and a hint: the flag of another program, or a hyperparameter."""
    message, _, suggested = str(error).partition(". Did you mean")
    if suggested and error.flagname not in other_names.HERE:
        return str(error)
    value = str(error.flagvalue).partition("=")[2]
    hint = other_names.hint(error.flagname, value, flag_values)
    if hint.startswith(f"--{error.flagname} "):
        return hint
    return f"{message}. {hint or '--help lists the flags'}"


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _exit(error: Exception, lines: Sequence[str] = (), status: int = 2) -> None:
    lines = [names.shown(line) for line in lines] or [names.shown(" ".join(str(error).split()))]
    lines = [line if len(line) <= _MAX_LINE else f"{line[:_MAX_LINE]}..." for line in lines]
    message = _SECRET.sub(r"\1=...", "\n".join(lines))
    print(f"{os.path.basename(sys.argv[0])}: error: {message}", file=sys.stderr)
    sys.exit(status)
