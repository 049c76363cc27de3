"""The modules of TensorFlow 1.15 that a program sees: `tensorflow`, tf.contrib, moved modules."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import types

from tpu.tf1 import areas, program_files

_VERSION = "1.15.5"


class OldModule(types.ModuleType):
    """A module of TensorFlow 1.15 that 2.15 lacks; its attributes are looked up in replacements.

    Unknown names raise when they are used. A program imports a whole contrib area, or a name for a
    mode that this run does not reach, and must start.
    """

    __path__ = ()

    def __init__(self, name: str, is_missing: bool = False):
        super().__init__(name)
        self.__dict__["_is_missing"] = is_missing

    def __getattr__(self, attribute):
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        if self._is_missing:
            raise unavailable(f"{self.__name__}.{attribute}")
        return find_attribute(self.__name__, attribute)

    def __call__(self, *args, **kwargs):
        """Raises: this is the placeholder of a missing function or class."""
        raise unavailable(self.__name__)

    def __mro_entries__(self, bases):
        raise unavailable(self.__name__)


class _Lenient:
    """The module of `from module import names`: a missing name raises at its first use only."""

    def __init__(self, module):
        self._module = module
        self.__name__ = module.__name__

    def __getattr__(self, attribute):
        try:
            return getattr(self._module, attribute)
        except AttributeError:
            if attribute.startswith("__") or not isinstance(self._module, OldModule):
                raise
            return OldModule(f"{self.__name__}.{attribute}", is_missing=True)


class _PrivateApi:
    """A package that lost modules, for `from tensorflow.python import estimator`, which moved."""

    def __init__(self, module, old_name):
        self._module, self._old_name = module, old_name
        self.__name__ = module.__name__

    def __getattr__(self, attribute):
        moved = (
            None if attribute.startswith("__") else _moved_module(f"{self._old_name}.{attribute}")
        )
        return getattr(self._module, attribute) if moved is None else moved


class _TensorFlow(types.ModuleType):
    """tf.compat.v1 with `contrib`; the only parts of 2.x are `python`, `core` and compat.v2."""

    __version__ = VERSION = _VERSION

    def __getattr__(self, attribute):
        if attribute == "contrib":
            return import_old("tensorflow.contrib")
        if attribute in _PARTS:
            return _PARTS[attribute]
        try:
            return getattr(_compat_v1(), attribute)
        except AttributeError:
            pass
        if attribute == "pywrap_tensorflow":
            return importlib.import_module("tpu.tf1.pywrap_tensorflow")
        if attribute in ("python", "core"):
            name = f"tensorflow.{attribute}"
            return lenient(importlib.import_module(name), name)
        if attribute.startswith("__"):
            return getattr(importlib.import_module("tensorflow"), attribute)
        raise unavailable(f"tensorflow.{attribute}")

    def __dir__(self):
        return [*dir(_compat_v1()), "contrib"]


class _Compat(types.ModuleType):
    """tf.compat, whose v1 has `contrib` too, as that of TensorFlow 1.15."""

    def __getattr__(self, attribute):
        if attribute == "v1":
            return TENSORFLOW
        return getattr(importlib.import_module("tensorflow").compat, attribute)


class _App(types.ModuleType):
    """tf.app, with `flags`."""

    def __getattr__(self, attribute):
        v1 = _compat_v1()
        return v1.flags if attribute == "flags" else getattr(v1.app, attribute)


TENSORFLOW = _TensorFlow("tensorflow")
_PARTS = {"app": _App("tensorflow.app"), "compat": _Compat("tensorflow.compat")}


def import_old(name: str) -> types.ModuleType:
    """Returns the module for a module name of TensorFlow 1.15.

    Raises:
      ImportError: TensorFlow 1.15 has no such module.
    """
    if name == "tensorflow":
        return TENSORFLOW
    public = _public_module(name)
    if public is not None:
        return public
    moved = _moved_module(name)
    if moved is not None:
        return moved
    if name.split(".")[1] in ("contrib", "examples"):
        return _old_module(name)
    return importlib.import_module(name)


def _public_module(name):
    """Returns a module of the public API, such as tensorflow.train, or None."""
    found = TENSORFLOW
    for part in name.split(".")[1:]:
        if part in ("contrib", "python", "core", "examples", "keras"):
            return None
        found = getattr(found, part, None)
        if not isinstance(found, types.ModuleType):
            return None
    return found


def lenient(module, old_name: str):
    """Returns the module that `from old_name import names` reads."""
    if isinstance(module, OldModule):
        return _Lenient(module)
    prefix = f"{old_name.partition('.')[2]}."
    if any(moved.startswith(prefix) for moved in areas.MOVED):
        return _PrivateApi(module, old_name)
    return module


@functools.cache
def _old_module(name):
    parts = name.split(".")
    if parts[1] == "contrib" and len(parts) > 2 and parts[2] not in areas.NAMES:
        raise ModuleNotFoundError(
            f"No module named {name!r}: unknown in TensorFlow 1.15", name=name
        )
    return OldModule(name)


def _moved_module(name):
    """Returns the module that a module was moved to, or None."""
    parts = name.split(".")
    for length in range(len(parts), 1, -1):
        targets = areas.MOVED.get(".".join(parts[1:length]), "").split()
        if length == len(parts) and len(targets) > 1:  # Its modules are in several packages today.
            return _old_module(name)
        for target in targets:
            target = ".".join([target, *parts[length:]])
            if _exists(target):
                module = importlib.import_module(target)
                _bind(name, module)
                return module
    return None


@functools.cache
def _exists(name):
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:  # A parent is not a package, or not installed.
        return False


def _bind(name, module):
    """Makes `import tensorflow.python.old.name as x` find the module; it reads attributes."""
    parent_name, _, child = name.rpartition(".")
    if parent_name == "tensorflow":
        return
    parent = _moved_module(parent_name)
    if parent is None and _exists(parent_name):
        parent = importlib.import_module(parent_name)
    # An OldModule looks its attributes up.
    if parent is None or isinstance(parent, OldModule) or hasattr(parent, child):
        return
    setattr(parent, child, module)


def find_attribute(module_name: str, attribute: str):
    """Returns an attribute of an `OldModule`.

    Raises:
      AttributeError: it has no replacement.
    """
    name = f"{module_name}.{attribute}"
    parts = name.split(".")
    moved = _moved_module(name)
    if moved is not None:
        return moved
    if parts[1] != "contrib":
        for target in areas.MOVED.get(".".join(parts[1:-1]), "").split():
            if hasattr(importlib.import_module(target), attribute):
                return getattr(importlib.import_module(target), attribute)
        raise unavailable(name)
    if len(parts) == 3:  # tensorflow.contrib.area
        if attribute in areas.NAMES:
            return _old_module(name)
        raise unavailable(name)
    try:
        return _area_attribute(parts[2], attribute)
    except LookupError:
        # contrib.layers.python.layers.initializers: the area has the names of its modules.
        if "python" in parts or attribute in areas.MODULES.get(parts[2], ()):
            return _old_module(name)
        raise unavailable(name) from None


def _area_attribute(area, attribute):
    module_name = f"tpu.tf1.contrib.{area}"
    module = importlib.import_module(module_name) if _exists(module_name) else None
    if attribute in getattr(module, "__all__", ()):
        return getattr(module, attribute)
    for source, names in areas.ALIASES.get(area, {}).items():
        for entry in names.split():
            old, _, new = entry.partition("=")
            if old == attribute:
                return _source_attribute(source, new or old)
    for source in areas.SOURCES.get(area, "").split():
        try:
            found = _source_attribute(source, attribute)
        except (ImportError, AttributeError):
            continue
        # Not a module that the source imports for itself, such as `variables` of tf_slim.
        if not isinstance(found, types.ModuleType) or found.__name__.startswith(f"{source}."):
            return found
    raise LookupError(attribute)


def _source_attribute(source, attribute):
    """Returns an attribute of an importable module, or of a part of tf.compat.v1, as "v1.data"."""
    if source == "v1" or source.startswith("v1."):
        owner = functools.reduce(getattr, source.split(".")[1:], _compat_v1())
    else:
        owner = importlib.import_module(source)
    return getattr(owner, attribute)


def _compat_v1():
    import tensorflow as tf

    return tf.compat.v1


def unavailable(name: str) -> AttributeError:
    """Returns the error of a name that TensorFlow 1.15 had and this package lacks."""
    name = name.replace("tensorflow.", "tf.", 1)
    path, line = program_files.running_line()
    return AttributeError(
        f"{name} is not available with --tf1; used at {path}:{line}. {areas.advice(name)}"
    )
