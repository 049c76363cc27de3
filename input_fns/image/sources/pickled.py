"""Reads untrusted pickles of lists, dicts, strings and integer arrays without executing them.

The `pickle` module calls any function that a pickle names; even NumPy's functions can read
arbitrary memory. This stack machine implements the opcodes of plain data and calls no functions.
"""

from __future__ import annotations

import dataclasses
import io
import math
import pickletools
from typing import Any

import numpy as np

_INTEGERS = ("u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8")
_MAX_OPERATIONS = 2_000_000  # CIFAR-100 takes 400,000
_MARK = object()


class PickleError(ValueError):
    """A pickle is invalid, or has unsupported contents."""


@dataclasses.dataclass(frozen=True)
class _Function:
    """Placeholder of a function or class that a pickle names."""

    name: str


_FUNCTIONS = {
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}


class _Dtype:
    """A dtype under construction."""

    def __init__(self, code):
        if code not in _INTEGERS:
            raise PickleError("it holds an array of another type than integers")
        self.code, self.order = code, "|"

    def build(self, state):
        """Sets the state, `(version, byte order, ...)`."""
        order = _text(state[1]) if isinstance(state, tuple) and len(state) > 1 else None
        if order not in ("<", ">", "|", "="):
            raise PickleError("it holds a broken type of an array")
        self.order = order


def _text(value):
    return value.decode("latin-1") if type(value) is bytes else value


class _Array:
    """An array under construction."""

    def __init__(self):
        self.value = None

    def build(self, state):
        """Sets the state, `(version, shape, dtype, is Fortran order, bytes)`."""
        if not isinstance(state, tuple) or len(state) != 5:
            raise PickleError("it holds a broken array")
        _, shape, dtype, is_fortran, content = state
        is_shape = isinstance(shape, tuple) and all(type(n) is int and n >= 0 for n in shape)
        if not (is_shape and isinstance(dtype, _Dtype) and isinstance(content, bytes)):
            raise PickleError("it holds a broken array")
        dtype = np.dtype(dtype.code).newbyteorder(dtype.order)
        if math.prod(shape) * dtype.itemsize != len(content):
            raise PickleError(f"it holds an array of {len(content)} bytes for another shape")
        order = "F" if is_fortran is True else "C"
        self.value = np.frombuffer(content, dtype).reshape(shape, order=order)


def loads(data: bytes) -> Any:
    """Returns the value of a pickle of protocol 1 to 5; strings of Python 2 are bytes.

    Arrays are `_Array`s; see `array`.

    Raises:
      PickleError: it is invalid, or has unsupported contents.
    """
    machine = _Machine(len(data))
    try:
        for number, (operation, argument, _) in enumerate(pickletools.genops(io.BytesIO(data))):
            if operation.name == "STOP":
                return machine.pop()
            if number > _MAX_OPERATIONS:
                raise PickleError("it is not a batch of images: it holds too many values")
            machine.do(operation.name, argument)
    except PickleError:
        raise
    except (ValueError, IndexError, KeyError, TypeError, OverflowError, MemoryError) as error:
        raise PickleError(f"it is broken ({type(error).__name__})") from error
    raise PickleError("it has no end")


def array(value: Any) -> np.ndarray:
    """Returns an array, or a list of integers, as one.

    Raises:
      PickleError: it is neither.
    """
    if isinstance(value, _Array) and value.value is not None:
        return value.value
    if not isinstance(value, list) or any(type(number) is not int for number in value):
        raise PickleError("a list of integers is something else")
    try:
        return np.array(value, np.int64)
    except OverflowError as error:
        raise PickleError("an integer is too large") from error


_STRINGS = ("STRING", "BINSTRING", "SHORT_BINSTRING")
_VALUES = (
    *("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"),
    *("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
)
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_EMPTY = {"EMPTY_LIST": list, "EMPTY_TUPLE": tuple, "EMPTY_DICT": dict}
_NOTHING = ("PROTO", "FRAME")


class _Machine:
    """The stack and the memo of a pickle."""

    def __init__(self, size):
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        self._left_to_encode = size  # bytes; each is in the pickle once

    def pop(self):
        value = self._stack.pop()
        if value is _MARK:
            raise PickleError("it is broken (mark)")
        return value

    def do(self, name, argument):
        """Executes one opcode."""
        push = self._stack.append
        if name in _STRINGS:
            push(argument.encode("latin-1"))
        elif name in _VALUES:
            push(argument)
        elif name in _CONSTANTS:
            push(_CONSTANTS[name])
        elif name in _EMPTY:
            push(_EMPTY[name]())
        elif name == "MARK":
            push(_MARK)
        elif name in ("LIST", "TUPLE"):
            push(_EMPTY[f"EMPTY_{name}"](self._since_mark()))
        elif name in ("TUPLE1", "TUPLE2", "TUPLE3"):
            push(tuple([self.pop() for _ in range(int(name[-1]))][::-1]))
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            push(self._memo[argument])
        elif name in ("PUT", "BINPUT", "LONG_BINPUT"):
            self._memo[argument] = self._stack[-1]
        elif name == "MEMOIZE":
            self._memo[len(self._memo)] = self._stack[-1]
        elif name not in _NOTHING:
            operation = getattr(self, f"_{name.lower()}", None)
            if operation is None:
                raise PickleError(f"it has the operation {name}, which data do not need")
            operation(argument)

    def _since_mark(self):
        values = []
        while self._stack[-1] is not _MARK:
            values.append(self._stack.pop())
        self._stack.pop()
        return values[::-1]

    def _append(self, argument):
        self._extend([self.pop()])

    def _appends(self, argument):
        self._extend(self._since_mark())

    def _extend(self, values):
        if type(self._stack[-1]) is not list:
            raise PickleError("it appends to what is not a list")
        self._stack[-1].extend(values)

    def _dict(self, argument):
        values = self._since_mark()
        self._stack.append({})
        self._update(values)

    def _setitem(self, argument):
        value, key = self.pop(), self.pop()
        self._update([key, value])

    def _setitems(self, argument):
        self._update(self._since_mark())

    def _update(self, values):
        keys = values[::2]
        if type(self._stack[-1]) is not dict or len(values) % 2:
            raise PickleError("it sets an item of what is not a dict")
        # Hashing a deeply nested tuple overflows the stack.
        if not all(type(key) in (str, bytes, int) for key in keys):
            raise PickleError("it has a key that is not a string")
        self._stack[-1].update(zip(keys, values[1::2]))

    def _global(self, argument):
        module, _, name = argument.partition(" ")
        self._push_function(module, name)

    def _stack_global(self, argument):
        name, module = self.pop(), self.pop()
        self._push_function(module, name)

    def _push_function(self, module, name):
        if type(module) is not str or type(name) is not str:
            raise PickleError("it asks for what has no name")
        if (module, name) not in _FUNCTIONS:
            raise PickleError(f"it asks for {module[:60]}.{name[:60]}")
        self._stack.append(_Function(name))

    def _reduce(self, argument):
        arguments, function = self.pop(), self.pop()
        if not isinstance(function, _Function) or not isinstance(arguments, tuple):
            raise PickleError("it calls what is not a function")
        if function.name == "_reconstruct":
            self._stack.append(_Array())
        elif function.name == "dtype" and arguments:
            self._stack.append(_Dtype(_text(arguments[0])))
        elif function.name == "encode" and len(arguments) == 2 and arguments[1] == "latin1":
            self._stack.append(self._encoded(arguments[0]))
        else:
            raise PickleError(f"it calls {function.name}")

    def _encoded(self, text):
        if type(text) is not str or len(text) > self._left_to_encode:
            raise PickleError("it encodes more text than it holds")
        self._left_to_encode -= len(text)
        return text.encode("latin-1")

    def _build(self, argument):
        state = self.pop()
        if not isinstance(self._stack[-1], (_Array, _Dtype)):
            raise PickleError("it changes what is not an array")
        self._stack[-1].build(state)
