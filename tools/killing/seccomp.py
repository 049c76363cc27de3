"""Runs a function in a forked process, with a callback before each system call that changes a file.

Uses seccomp user notification (Linux 5.5, x86-64; seccomp_unotify(2)): the kernel stops a thread at
such a call and notifies this process. This gives the calls of all threads one order, unlike `strace
-e inject=...:when=N`, which counts per thread.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import dataclasses
import fcntl
import os
import platform
import select
import signal
import socket
import struct
import sys
import time
import traceback
from collections.abc import Callable

# x86-64 system calls by number: (name, index of the path argument); descriptors are argument 0.
_BY_DESCRIPTOR = {
    1: "write",
    18: "pwrite64",
    20: "writev",
    296: "pwritev",
    74: "fsync",
    75: "fdatasync",
    77: "ftruncate",
    285: "fallocate",
    40: "sendfile",
}
_BY_PATH = {
    82: ("rename", 0),
    87: ("unlink", 0),
    84: ("rmdir", 0),
    83: ("mkdir", 0),
    76: ("truncate", 0),
    86: ("link", 0),
    264: ("renameat", 1),
    316: ("renameat2", 1),
    263: ("unlinkat", 1),
    258: ("mkdirat", 1),
    257: ("openat", 1),
    326: ("copy_file_range", None),
}
_OPENAT, _CREATES = 257, os.O_CREAT | os.O_TRUNC
_AUDIT_ARCH_X86_64 = 0xC000003E
_ALLOW, _NOTIFY = 0x7FFF0000, 0x7FC00000
_RECEIVE, _SEND, _CONTINUE = 0xC0502100, 0xC0182101, 1
_NOTIFICATION = struct.Struct("=QIIiIQ6Q")
_AT_FDCWD = -100


class UnsupportedError(Exception):
    """This machine has no seccomp user notification."""


@dataclasses.dataclass(frozen=True)
class Call:
    """A system call before it happens.

    Attributes:
      name: name of the call.
      path: absolute path of the file that it changes.
    """

    name: str
    path: str


def check_supported() -> None:
    """Raises `UnsupportedError` if this machine does not support user notification."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise UnsupportedError(f"{sys.platform} on {platform.machine()} is not Linux on x86_64")
    run(lambda: None, lambda call: True)


def run(main: Callable[[], None], decide: Callable[[Call], bool], seconds: float = 300.0) -> int:
    """Runs `main` in a forked process; returns its exit status, negative for a signal.

    Args:
      main: the program; an exception prints a traceback and gives status 1.
      decide: called before each call that changes a file; if it returns False, the process and its
        children are killed before the call happens.
      seconds: time limit.

    Raises:
      TimeoutError: the time limit was exceeded.
      UnsupportedError: the kernel or the container does not allow user notification.
    """
    here, there = socket.socketpair()
    sys.stdout.flush()
    pid = os.fork()
    if not pid:
        here.close()
        _child(main, there)
    there.close()
    with here:
        _, descriptors, *_ = socket.recv_fds(here, 1, 1)
    if not descriptors:
        os.waitpid(pid, 0)
        raise UnsupportedError("seccomp user notification is not allowed here")
    end = time.monotonic() + seconds
    try:
        while True:
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                return os.waitstatus_to_exitcode(status)
            if time.monotonic() > end:
                _kill(pid)
                raise TimeoutError(f"no end after {seconds:.0f} s")
            _answer(descriptors[0], decide, pid)
    finally:
        os.close(descriptors[0])


def _child(main, connection):
    status = 1
    atexit._clear()  # handlers of the parent would remove its temporary files
    try:
        os.setsid()
        descriptor = _install_filter()
        socket.send_fds(connection, [b"x"], [descriptor] if descriptor >= 0 else [])
        connection.close()
        if descriptor >= 0:
            os.close(descriptor)
            main()
        status = 0
    except SystemExit as end:
        status = end.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
            atexit._run_exitfuncs()
        os._exit(status)


def _install_filter():
    """Returns the descriptor of the notifications; negative if not allowed."""

    def statement(code, value, jump_true=0, jump_false=0):
        return struct.pack("=HBBI", code, jump_true, jump_false, value)

    load, equal, any_bit, leave = 0x20, 0x15, 0x45, 0x06
    numbers = sorted({*_BY_DESCRIPTOR, *_BY_PATH} - {_OPENAT})
    # seccomp_data: number at 0, architecture at 4, arguments at 16, eight bytes each.
    program = [
        statement(load, 4),
        statement(equal, _AUDIT_ARCH_X86_64, 1),
        statement(leave, _ALLOW),
    ]
    program.append(statement(load, 0))
    program += [statement(equal, n, len(numbers) - i + 3) for i, n in enumerate(numbers)]
    program.append(statement(equal, _OPENAT, 0, 2))
    program.append(statement(load, 32))
    program.append(statement(any_bit, _CREATES, 1))
    program.append(statement(leave, _ALLOW))
    # Target of the jumps above, which count from the following statement.
    program.append(statement(leave, _NOTIFY))
    code = b"".join(program)
    buffer = ctypes.create_string_buffer(code, len(code))
    filter_program = struct.pack("=HxxxxxxQ", len(program), ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(38, 1, 0, 0, 0)  # no new privileges
    return libc.syscall(317, 1, 8, ctypes.create_string_buffer(filter_program))


def _answer(descriptor, decide, pid):
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    if not any(event & select.POLLIN for _, event in poll.poll(50)):
        return
    buffer = bytearray(_NOTIFICATION.size)
    try:
        fcntl.ioctl(descriptor, _RECEIVE, buffer)
    except OSError:
        return  # the thread is gone
    number, thread, _, call, _, _, *arguments = _NOTIFICATION.unpack(buffer)
    found = _describe(thread, call, arguments)
    if found is not None and not decide(found):
        _kill(pid)
        return
    with contextlib.suppress(OSError):  # the thread may be gone meanwhile
        fcntl.ioctl(descriptor, _SEND, struct.pack("=QqiI", number, 0, 0, _CONTINUE))


def _describe(thread, number, arguments):
    """Returns the call; None if its file is unknown."""
    try:
        if number in _BY_DESCRIPTOR:
            path = os.readlink(f"/proc/{thread}/fd/{arguments[0]}")
            return Call(_BY_DESCRIPTOR[number], path)
        name, place = _BY_PATH[number]
        if place is None:
            return Call(name, os.readlink(f"/proc/{thread}/fd/{arguments[2]}"))
        path = _text(thread, arguments[place])
        folder = ctypes.c_int(arguments[0] & 0xFFFFFFFF).value if place else _AT_FDCWD
        where = "cwd" if folder == _AT_FDCWD else f"fd/{folder}"
        return Call(name, os.path.join(os.readlink(f"/proc/{thread}/{where}"), path))
    except OSError:
        return None


def _text(thread, address):
    with open(f"/proc/{thread}/mem", "rb", buffering=0) as memory:
        memory.seek(address)
        found = b""
        while b"\0" not in found:
            # Do not read beyond the page: the next one may not be mapped.
            part = memory.read(min(256, 4096 - (address + len(found)) % 4096))
            if not part:
                break
            found += part
    return os.fsdecode(found.partition(b"\0")[0])


def _kill(pid):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
