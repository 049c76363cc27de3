"""Tells whether two calls of a program check the same: their functions and values by content.

A loop may make an equal input_fn in each round, and a freed object may give its address to the next
one, so that neither `repr` nor `id` tells calls apart. No method of the program's objects is
called, such as `__eq__`, `__hash__` or `__repr__`, which may raise.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import hashlib
import types

import numpy as np

# Beyond these limits, values are compared by identity.
_MAX_OBJECTS = 20_000
_MAX_ITEMS = 1_000_000
_MAX_ARRAY_BYTES = 2**28
_PLAIN = (bool, int, complex, str, bytes, type(None), type(Ellipsis), type(NotImplemented))
# Objects of these packages, such as tensors and data sets, are compared by identity.
_LIBRARIES = (
    *("tensorflow", "tensorflow_estimator", "keras", "absl", "jax", "torch"),
    *("logging", "threading", "weakref", "multiprocessing", "concurrent"),
)


class _Same:
    """An object that is compared by identity. The reference keeps its address from reuse."""

    def __init__(self, value):
        self._value = value

    def __eq__(self, other):
        return isinstance(other, _Same) and self._value is other._value

    def __hash__(self):
        return id(self._value)


def snapshot(*values):
    """Returns a hashable copy of values as they are now; equal for values of equal content.

    Functions are equal if their code, defaults, closures and the global values they read are;
    objects if their type and attributes are; arrays if their content is.
    """
    return _Snapshot().of(values)


class _Snapshot:
    def __init__(self):
        self._seen = {}  # {id: (number, the value, so that its id is not reused)}

    def of(self, value):
        kind = type(value)
        if kind in _PLAIN:
            return kind, value
        if kind is float:
            return kind, value.hex()  # NaN is equal to itself
        if id(value) in self._seen:  # a cycle, or the same value again
            return "seen", self._seen[id(value)][0]
        if len(self._seen) >= _MAX_OBJECTS:
            return _Same(value)
        self._seen[id(value)] = len(self._seen), value
        try:
            return self._type(kind), self._content(value)
        except Exception:  # too deep, or an object that cannot be read
            return _Same(value)

    def _content(self, value):
        kind = type(value)
        if issubclass(kind, type):
            return self._type(value)
        base = next((base for base in kind.__mro__ if base in _CONTENTS), None)
        if base is kind or base is np.generic:
            return _CONTENTS[base](self, value)
        if any(_is_opaque(other) for other in kind.__mro__ if other not in (object, base)):
            return _Same(value)
        attributes = self._attributes(value)
        call = getattr(kind, "__call__", None)  # noqa: B004
        code = self.of(call) if isinstance(call, types.FunctionType) else None
        if base is not None:
            return _CONTENTS[base](self, value), attributes, code
        return _Same(value) if attributes is None else (attributes, code)

    def _type(self, kind):
        """Returns the content of a class that a function defines at each call, else the class."""
        if "<locals>" not in kind.__qualname__:
            return _Same(kind)
        members = {
            name: member
            for name, member in vars(kind).items()
            if type(member) in (*_PLAIN, float, tuple, list, dict, types.FunctionType)
        }
        bases = tuple(map(_Same, kind.__bases__))
        return kind.__module__, kind.__qualname__, bases, self._mapping(members)

    def _attributes(self, value):
        """Returns the attributes of an object of a Python class; None for those without any."""
        try:
            found = dict(object.__getattribute__(value, "__dict__"))
        except AttributeError:
            found = None
        for base in type(value).__mro__:
            for name, member in vars(base).items():
                if isinstance(member, types.MemberDescriptorType):  # of __slots__
                    found = {} if found is None else found
                    with contextlib.suppress(AttributeError):  # not set
                        found[name] = member.__get__(value)
        return None if found is None else self._mapping(found)

    def _items(self, items, size, value):
        return _Same(value) if size > _MAX_ITEMS else tuple(map(self.of, items))

    def _set(self, value):
        base = set if isinstance(value, set) else frozenset
        return frozenset(_Snapshot().of(item) for item in base.__iter__(value))

    def _mapping(self, value):
        if dict.__len__(value) > _MAX_ITEMS:
            return _Same(value)
        return tuple((self.of(key), self.of(item)) for key, item in dict.items(value))

    def _array(self, value):
        if value.dtype.hasobject:
            return value.shape, tuple(map(self.of, value.ravel().tolist()))
        if value.nbytes > _MAX_ARRAY_BYTES:
            return _Same(value)
        return str(value.dtype), value.shape, hashlib.sha1(value.tobytes()).digest()

    def _function(self, value):
        cells = []
        for cell in value.__closure__ or ():
            try:
                cells.append(self.of(cell.cell_contents))
            except ValueError:  # empty: a name without a value yet
                cells.append(None)
        names = [name for name in _global_names(value.__code__) if name in value.__globals__]
        read = tuple((name, self.of(value.__globals__[name])) for name in names)
        defaults = self.of(value.__defaults__), self.of(value.__kwdefaults__)
        # TensorFlow adds an object to each function that it decorates.
        attributes = {name: item for name, item in vars(value).items() if name != "_tf_decorator"}
        return value.__code__, defaults, tuple(cells), read, self._mapping(attributes)


_CONTENTS = {
    int: lambda snapshot, value: int.__int__(value),
    float: lambda snapshot, value: float.hex(value),
    str: lambda snapshot, value: str.__str__(value),
    bytes: lambda snapshot, value: bytes.__add__(value, b""),
    list: lambda snapshot, value: snapshot._items(list.__iter__(value), list.__len__(value), value),
    tuple: lambda snapshot, v: snapshot._items(tuple.__iter__(v), tuple.__len__(v), v),
    set: _Snapshot._set,
    frozenset: _Snapshot._set,
    dict: _Snapshot._mapping,
    collections.OrderedDict: _Snapshot._mapping,
    collections.defaultdict: _Snapshot._mapping,
    collections.deque: lambda snapshot, value: tuple(map(snapshot.of, value)),
    np.ndarray: _Snapshot._array,
    np.generic: lambda snapshot, value: value.tobytes(),
    types.SimpleNamespace: lambda snapshot, value: snapshot._mapping(vars(value)),
    functools.partial: lambda snapshot, v: tuple(map(snapshot.of, (v.func, v.args, v.keywords))),
    types.MethodType: lambda snapshot, v: (snapshot.of(v.__func__), snapshot.of(v.__self__)),
    types.FunctionType: _Snapshot._function,
    types.ModuleType: lambda snapshot, value: _Same(value),
}


def _is_opaque(kind):
    """Returns True for a class of a library, or one that may keep more than attributes."""
    module = vars(kind).get("__module__")
    if not isinstance(module, str) or module.partition(".")[0] in _LIBRARIES:
        return True
    new = vars(kind).get("__new__")  # a function of C makes the objects of a class of C
    return isinstance(new, types.BuiltinFunctionType) and kind not in _CONTENTS


@functools.lru_cache(maxsize=1024)
def _global_names(code):
    """Returns the names that a code and the functions in it may read as globals."""
    names = dict.fromkeys(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names.update(dict.fromkeys(_global_names(constant)))
    return tuple(names)
