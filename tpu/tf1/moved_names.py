"""Finds names that left a module of tensorflow.python, for programs of older releases.

Releases 1.15 to 2.14 had them in modules such as framework.ops, ops.array_ops and
ops.control_flow_ops; 2.15 defines the same functions and classes in other modules of the package.
"""

from __future__ import annotations

import collections
import contextlib
import importlib
import sys
import types
from unittest import mock

_PYTHON = "tensorflow.python"
# {old module: {module of 2.15: "name old=new"}}, where the rule of `find` does not apply: the name
# changed, or several modules define it.
_MOVED = {
    "data.util.nest": {"util.nest": "is_sequence=is_nested"},
    "eager.function": {"eager.def_function": "defun=function"},
    "framework.func_graph": {"eager.def_function": "function"},
    "framework.tensor_util": {"ops.shape_util": "maybe_set_static_shape shape_tensor"},
    "ops.control_flow_ops": {"ops.while_loop": "while_loop"},
    "ops.gradients_util": {"eager.backprop_util": "IsTrainable"},
    "ops.variable_scope": {"ops.variable_v1": "variable=VariableV1"},
    "ops.variables": {"ops.state_ops": "is_variable_initialized"},
    "util.nest": {"util.nest": "is_sequence=is_nested"},
}
# Modules that 2.15 loads at the first use of another, under a name that no package has:
# {module: (its attribute, where the module is)}.
_LAZY = {"layers.normalization": ("normalization", "keras.src.legacy_tf_layers.normalization")}
# Libraries of this release test for names by hasattr: they must find what 2.15 has.
_LIBRARIES = ("tensorflow", "tensorflow_estimator", "keras", "tf_keras", "tensorboard")


@contextlib.contextmanager
def names(report=None):
    """Gives the modules of tensorflow.python the names that they lost, in a `with` block.

    Args:
      report: function of (old name, new name), called once per name that is used; default none.
    """
    added = []
    reported = set()

    def lookup(module_name, name):
        value = None if name.startswith("__") or _is_library() else find(module_name, name)
        if value is None:
            raise AttributeError(f"module {module_name!r} has no attribute {name!r}")
        old = f"{module_name}.{name}"
        if report is not None and old not in reported:
            reported.add(old)
            report(old, f"{value.__module__}.{value.__name__}")
        return value

    for module_name, module in _modules():
        if "__getattr__" not in vars(module):

            def getattr_of_module(name, module_name=module_name):
                return lookup(module_name, name)

            module.__getattr__ = getattr_of_module
            added.append(module)
    try:
        yield
    finally:
        for module in added:
            del module.__getattr__


@contextlib.contextmanager
def lazy_modules():
    """Lets modules of tensorflow.python find those that they load later, in a `with` block.

    tf_slim takes layers.normalization.BatchNormalization, which 2.15 looks for in tf_keras.
    """
    from tensorflow.python.util import lazy_loader

    with contextlib.ExitStack() as stack:
        for module_name, (attribute, target) in _LAZY.items():
            module = importlib.import_module(f"{_PYTHON}.{module_name}")
            loader = lazy_loader.LazyLoader(attribute, vars(module), target)
            stack.enter_context(mock.patch.object(module, attribute, loader))
        yield


def find(module_name: str, name: str):
    """Returns the function or class `name` that moved out of a module, or None.

    If the table has no entry, it is the only definition of that name next to the module, or else
    in the packages below. Generated modules do not count: they wrap ops, with other arguments than
    the functions that use them.
    """
    for source, entries in _MOVED.get(module_name[len(_PYTHON) + 1 :], {}).items():
        for entry in entries.split():
            old, _, new = entry.partition("=")
            if old == name:
                return getattr(importlib.import_module(f"{_PYTHON}.{source}"), new or old)
    package = module_name.rpartition(".")[0]
    if package == _PYTHON:  # Nothing in it is near another.
        return None
    inside = [pair for pair in _definitions().get(name, ()) if pair[0].startswith(f"{package}.")]
    near = [pair for pair in inside if pair[0].rpartition(".")[0] == package]
    found = {id(value): value for _, value in near or inside}
    return next(iter(found.values())) if len(found) == 1 else None


def _is_library():
    """Returns whether a library of this release asks for an attribute of a module."""
    frame = sys._getframe(3)  # that of getattr_of_module's caller
    return frame.f_globals.get("__name__", "").partition(".")[0] in _LIBRARIES


def _modules():
    return [
        (name, module)
        for name, module in list(sys.modules.items())
        if name.startswith(f"{_PYTHON}.") and type(module) is types.ModuleType
    ]


_index = {}


def _definitions():
    """Returns {name: [(module that defines it, value)]} of the loaded modules."""
    modules = _modules()
    if _index.get("size") != len(modules):
        found = collections.defaultdict(list)
        for module_name, module in modules:
            if module_name.rpartition(".")[2].startswith("gen_"):
                continue
            for name, value in list(vars(module).items()):
                is_definition = isinstance(value, (type, types.FunctionType))
                if is_definition and value.__module__ == module_name:
                    found[name].append((module_name, value))
        _index.update(size=len(modules), definitions=found)
    return _index["definitions"]
