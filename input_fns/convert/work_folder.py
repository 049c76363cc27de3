"""Folders for temporary files of a run, which no run leaves behind for long."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import weakref

_PREFIX = "prepare_data-"
_NEW = f"new-{_PREFIX}"


class WorkFolder:
    """A local folder below $TMPDIR, and the lock that tells other runs that this one is alive.

    It is removed with this object. That of a killed process is removed by the next run.

    Attributes:
      path: the folder.
    """

    def __init__(self):
        """Creates the folder."""
        parent = tempfile.gettempdir()
        _remove_dead(parent)
        new = tempfile.mkdtemp(prefix=_NEW)
        number = os.open(new, os.O_RDONLY)
        # Renamed when it has its lock: another run removes one without.
        fcntl.flock(number, fcntl.LOCK_EX)
        self.path = os.path.join(parent, os.path.basename(new)[len("new-") :])
        os.rename(new, self.path)
        self._remove = weakref.finalize(self, _remove, self.path, number, os.getpid())

    def remove(self) -> None:
        """Removes the folder."""
        self._remove()


def _remove(path, number, process):
    if process == os.getpid():  # not in a child
        shutil.rmtree(path, ignore_errors=True)
        os.close(number)


def _remove_dead(parent):
    for name in os.listdir(parent):
        if not name.startswith(_PREFIX):
            continue
        path = os.path.join(parent, name)
        with contextlib.suppress(OSError):  # of another user, or removed by another run
            number = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(number)
