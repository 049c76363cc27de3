"""Compiles HLO for a TPU with libtpu.so, through the PJRT C API. Needs no TPU.

Usage: python pjrt.py LIBTPU.so TOPOLOGY HLO_FILE OUT_FOLDER --replicas=8 --effort=-1

Writes OUT_FOLDER/result.json and, if the program compiles, OUT_FOLDER/optimized.pb, a
HloModuleProtoWithConfig. `compiler` runs it in a child process, so that a crash or hang of libtpu
does not affect the check. It imports only the standard library: the API is one C struct of function
pointers (`xla/pjrt/c/pjrt_c_api.h`, also in TensorFlow's wheel).
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import signal
import struct
import sys
import time

# API versions for which the slots below were verified.
OLDEST, NEWEST = (0, 55), (0, 116)
# Must be set before the library is loaded.
ENVIRONMENT = {
    "TPU_SKIP_MDS_QUERY": "1",  # do not query the cloud metadata server (takes minutes)
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # do not take the lock file of the first process
    "TPU_LOG_DIR": "disabled",
    "TPU_STDERR_LOG_LEVEL": "3",
    "TPU_MIN_LOG_LEVEL": "3",
    "TPU_ACCELERATOR_TYPE": "v3-8",  # any value: only silences a warning
    "TPU_WORKER_HOSTNAMES": "localhost",
}
# Functions of PJRT_Api: their index after a header of 40 bytes, and the fields of their argument
# struct after struct_size and extension, pointers if no type is given.
_CREATE = "name:bytes name_size:size options num_options:size topology"
_FUNCTIONS = {
    "Error_Message": (1, "error text size:size"),
    "Error_GetCode": (2, "error code:int"),
    "Plugin_Initialize": (3, ""),
    "DeviceDescription_Id": (23, "device id:int"),
    "DeviceDescription_Kind": (26, "owner text size:size"),
    "Executable_GetCostAnalysis": (46, "executable count:size values"),
    "Executable_OptimizedProgram": (48, "executable program"),
    "TopologyDescription_Create": (82, _CREATE),
    "TopologyDescription_GetDeviceDescriptions": (86, "topology devices count:size"),
    "Compile": (89, "topology program options:bytes options_size:size client executable"),
    "Executable_GetCompiledMemoryStats": (96, "executable"),  # and kinds of memory
}
_PROGRAM = "code size:size format:bytes format_size:size"
_HEADER_BYTES = 40
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_CODES = {
    3: "INVALID_ARGUMENT",
    8: "RESOURCE_EXHAUSTED",
    9: "FAILED_PRECONDITION",
    12: "UNIMPLEMENTED",
    13: "INTERNAL",
}
UNSUPPORTED_LIBRARY = "UNSUPPORTED_LIBRARY"  # error code of ours: the library is at fault
_MEMORY = (
    *("code", "argument", "output", "alias", "temp"),
    *("host_code", "host_argument", "host_output", "host_alias", "host_temp"),
)

_pointer, _size, _int64 = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64
_TYPES = {
    "": _pointer,
    "size": _size,
    "int": ctypes.c_int,
    "int64": _int64,
    "bytes": ctypes.c_char_p,
}


class PjrtError(Exception):
    """An error of the PJRT plugin, or an unsupported plugin."""

    def __init__(self, code: int | str, message: str):
        super().__init__(message)
        self.code = _CODES.get(code, str(code))


class NamedValue(ctypes.Structure):
    """PJRT_NamedValue."""

    class Value(ctypes.Union):
        """The value; of its five types, two are used here."""

        _fields_ = (("text", ctypes.c_char_p), ("real", ctypes.c_float))

    _fields_ = (
        ("struct_size", _size),
        ("extension", _pointer),
        ("name", _pointer),
        ("name_size", _size),
        ("type", ctypes.c_int),
        ("value", Value),
        ("value_size", _size),
    )
    TEXT, REAL = 0, 3


def struct_of(fields: str, /, **values):
    """Returns an argument struct of the API: struct_size, extension, and fields "name:type"."""
    pairs = [field.partition(":")[::2] for field in fields.split()]
    named = [(name, _TYPES[kind]) for name, kind in pairs]
    members = (("struct_size", _size), ("extension", _pointer), *named)
    kind = type("Arguments", (ctypes.Structure,), {"_fields_": members})
    last = getattr(kind, members[-1][0])
    return kind(struct_size=last.offset + last.size, **values)


class Plugin:
    """A loaded libtpu.so."""

    def __init__(self, path):
        self._library = ctypes.CDLL(path)
        self._library.GetPjrtApi.restype = _pointer
        self._api = self._library.GetPjrtApi()
        self._api_bytes = ctypes.cast(self._api, ctypes.POINTER(_size))[0]
        major, minor = ctypes.cast(self._api + 32, ctypes.POINTER(ctypes.c_int))[:2]
        self.version = (major, minor)
        if not OLDEST <= self.version <= NEWEST:
            raise PjrtError(
                UNSUPPORTED_LIBRARY,
                f"this libtpu has version {major}.{minor} of the PJRT API; supported are "
                f"{OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}",
            )
        self.call("Plugin_Initialize")

    def call(self, name, more="", /, **values):
        """Calls a function of the API; returns its struct, filled, or raises `PjrtError`.

        `more` are further fields of the struct, `values` those of the fields that it reads.
        """
        struct_ = struct_of(f"{_FUNCTIONS[name][1]} {more}", **values)
        error = self._function(name)(ctypes.addressof(struct_))
        if error:
            message, code = (
                struct_of(_FUNCTIONS[about][1], error=error)
                for about in ("Error_Message", "Error_GetCode")
            )
            self._function("Error_Message")(ctypes.addressof(message))
            self._function("Error_GetCode")(ctypes.addressof(code))
            raise PjrtError(code.code, ctypes.string_at(message.text, message.size).decode())
        return struct_

    def _function(self, name):
        offset = _HEADER_BYTES + 8 * _FUNCTIONS[name][0]
        if offset + 8 > self._api_bytes:
            raise PjrtError(UNSUPPORTED_LIBRARY, f"this libtpu has no PJRT_{name}")
        address = ctypes.cast(self._api + offset, ctypes.POINTER(_pointer))[0]
        return ctypes.CFUNCTYPE(_pointer, _pointer)(address)

    def topology(self, name, megacore):
        """Returns (handle, device ids, device kind) of a topology such as "v3:2x2"."""
        options = (NamedValue * 1)()
        key, value = b"chip_config_name", b"megacore"
        options[0].struct_size = NamedValue.value_size.offset + 8
        options[0].name = ctypes.cast(ctypes.c_char_p(key), _pointer)
        options[0].name_size, options[0].type = len(key), NamedValue.TEXT
        options[0].value.text, options[0].value_size = value, len(value)
        given = {"options": ctypes.addressof(options), "num_options": int(megacore)}
        given.update(name=name.encode(), name_size=len(name))
        made = self.call("TopologyDescription_Create", **given)
        listed = self.call("TopologyDescription_GetDeviceDescriptions", topology=made.topology)
        devices = ctypes.cast(listed.devices, ctypes.POINTER(_pointer))[: listed.count]
        ids = [self.call("DeviceDescription_Id", device=device).id for device in devices]
        kind = self.call("DeviceDescription_Kind", owner=devices[0])
        return made.topology, ids, ctypes.string_at(kind.text, kind.size).decode()

    def compile(self, topology, hlo, options):
        """Returns the handle of an executable."""
        code = ctypes.cast(ctypes.c_char_p(hlo), _pointer)
        program = struct_of(_PROGRAM, code=code, size=len(hlo), format=b"hlo", format_size=3)
        given = {"topology": topology, "program": ctypes.addressof(program)}
        given.update(options=options, options_size=len(options))
        return self.call("Compile", **given).executable

    def memory(self, executable):
        """Returns the memory per core as `{kind: bytes}`."""
        names = _MEMORY + (("peak",) if self.version >= (0, 72) else ())
        more = " ".join(f"{name}:int64" for name in names)
        found = self.call("Executable_GetCompiledMemoryStats", more, executable=executable)
        return {name: getattr(found, name) for name in names if not name.startswith("host")}

    def cost(self, executable):
        """Returns the cost analysis of the compiler: "flops", "bytes accessed", ..."""
        found = self.call("Executable_GetCostAnalysis", executable=executable)
        values = ctypes.cast(found.values, ctypes.POINTER(NamedValue))[: found.count]
        return {
            ctypes.string_at(value.name, value.name_size).decode(): value.value.real
            for value in values
            if value.type == NamedValue.REAL
        }

    def optimized(self, executable):
        """Returns the optimized program, a serialized HloModuleProtoWithConfig."""
        program = struct_of(_PROGRAM)
        call = {"executable": executable, "program": ctypes.addressof(program)}
        self.call("Executable_OptimizedProgram", **call)  # the first call returns the size
        buffer = ctypes.create_string_buffer(program.size)
        program.code = ctypes.addressof(buffer)
        self.call("Executable_OptimizedProgram", **call)
        return buffer.raw


def compile_options(device_ids, effort):
    """Returns a serialized CompileOptionsProto (xla/pjrt/proto/compile_options.proto).

    Args:
      device_ids: one per replica.
      effort: `exec_time_optimization_effort`, -1 (quick) to 1; 0 is the default.
    """
    replicas = len(device_ids)
    computation = _bytes(1, b"".join(_varint(device) for device in device_ids))
    assignment = _integer(1, replicas) + _integer(2, 1) + _bytes(3, computation)
    build_options = _integer(1, -1) + _integer(4, replicas) + _integer(5, 1) + _bytes(9, assignment)
    build_options += _float(20, effort)
    return _bytes(3, build_options)


def _varint(number):
    number &= (1 << 64) - 1
    out = b""
    while number >= 128:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def _integer(field, number):
    return _varint(field << 3) + _varint(number)


def _bytes(field, value):
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _float(field, value):
    return _varint(field << 3 | 5) + struct.pack("<f", value)


def _exit_with_parent():
    """Makes Linux kill this process when its parent ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main():
    """Compiles one program."""
    parser = argparse.ArgumentParser()
    for name in ("library", "topology", "hlo", "out"):
        parser.add_argument(name)
    parser.add_argument("--replicas", type=int, required=True)
    parser.add_argument("--effort", type=float, default=0.0)
    parser.add_argument("--megacore", action="store_true")
    flags = parser.parse_args()
    os.environ.update(ENVIRONMENT)
    _exit_with_parent()
    result = {"ok": False}
    try:
        plugin = Plugin(flags.library)
        topology, ids, result["kind"] = plugin.topology(flags.topology, flags.megacore)
        with open(flags.hlo, "rb") as file:
            hlo = file.read()
        started = time.monotonic()
        options = compile_options(ids[: flags.replicas], flags.effort)
        executable = plugin.compile(topology, hlo, options)
        result["seconds"] = time.monotonic() - started
        result["memory"] = plugin.memory(executable)
        result["cost"] = plugin.cost(executable)
        with open(os.path.join(flags.out, "optimized.pb"), "wb") as file:
            file.write(plugin.optimized(executable))
        result["ok"] = True
    except PjrtError as error:
        result.update(code=error.code, error=str(error))
    with open(os.path.join(flags.out, "result.json"), "w") as file:
        json.dump(result, file)


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # skips the threads and destructors of the library
