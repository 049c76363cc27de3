"""Ends a program on an unsupported version of Python, or on Windows, with one line.

Every program imports this module before those that an older version cannot import. So it has no
annotations and needs only the standard library.
"""

import importlib.util
import os
import sys

_OLDEST, _NEWEST = (3, 9), (3, 11)


def find_problem():
    """Returns why this Python is not supported; None if it is."""
    if not _OLDEST <= sys.version_info[:2] <= _NEWEST:
        return (
            "Python {} is not supported: TensorFlow 2.15, the last release with Estimator, runs on "
            "Python 3.9, 3.10 and 3.11"
        ).format(".".join(map(str, sys.version_info[:3])))
    if importlib.util.find_spec("fcntl") is None:  # locks of files
        return (
            "this Python has no fcntl: Windows is not supported. Use WSL 2, or a container "
            "(docs/containers.md)"
        )
    return None


def require():
    """Ends the process with one line and status 2 if the version of Python is not supported."""
    problem = find_problem()
    if problem:
        # With `python -m` the name of the program is not known yet.
        name = os.path.basename(sys.argv[0])
        sys.stderr.write("{}: error: {}\n".format("python" if name == "-m" else name, problem))
        sys.exit(2)
