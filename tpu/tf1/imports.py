"""Replaces `import tensorflow` by importer: programs get TensorFlow 1.x names, libraries get 2.15.

builtins.__import__ is the only hook that knows the importing module. A replacement in sys.modules
would reach Keras, tf_slim and TensorBoard too, which break without the names of 2.x; a finder in
sys.meta_path is not told who imports.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib
import sys
import warnings
from unittest import mock

from tpu.tf1 import moved_names, namespace, old_python, old_signatures, program_files

_installed = contextlib.ExitStack()


def install(packages: tuple[str, ...] = ()) -> None:
    """Makes this process run TensorFlow 1.x programs, until it ends.

    Args:
      packages: installed packages that are TensorFlow 1.x programs themselves, such as
        ("tensor2tensor",).
    """
    import tensorflow as tf

    _installed.close()
    _installed.enter_context(old_names(packages))
    tf.compat.v1.disable_v2_behavior()


@contextlib.contextmanager
def old_names(packages: tuple[str, ...] = ()):
    """Provides the names of `install` in a `with` block, without disabling v2 behavior."""
    from tensorflow.python.util import deprecation, module_wrapper

    importer = _Importer(packages)
    with contextlib.ExitStack() as stack:
        # An old program cannot follow the advice to use another name, which fills its log.
        stack.enter_context(mock.patch.object(deprecation, "_PRINT_DEPRECATION_WARNINGS", False))
        stack.enter_context(mock.patch.object(module_wrapper, "_PER_MODULE_WARNING_LIMIT", 0))
        stack.enter_context(warnings.catch_warnings())
        warnings.filterwarnings("ignore", r"`tf\.(layers|nn\.rnn_cell)\..* is deprecated")
        warnings.filterwarnings("ignore", r"`layer\.apply` is deprecated")  # by tf_slim
        stack.enter_context(mock.patch.object(builtins, "__import__", importer.import_statement))
        stack.enter_context(mock.patch.object(importlib, "import_module", importer.import_module))
        stack.enter_context(old_python.names())
        stack.enter_context(old_signatures.accepted())
        stack.enter_context(moved_names.names())
        stack.enter_context(moved_names.lazy_modules())
        yield


class _Importer:
    def __init__(self, packages):
        self._packages = frozenset(packages)
        self._is_program_file = {}
        self._import = builtins.__import__
        self._import_module = importlib.import_module

    # The names of the arguments are those of builtins.__import__.
    def import_statement(self, name, globals=None, locals=None, fromlist=(), level=0):  # noqa: A002
        """builtins.__import__."""
        if level == 0 and self._is_old(name, globals):
            return self._import_old(name, fromlist)
        module = self._import(name, globals, locals, fromlist, level)
        old_python.patch(name)
        return module

    def _import_old(self, name, fromlist):
        module = namespace.import_old(name)
        if not fromlist:
            return namespace.TENSORFLOW
        if module.__name__ in sys.modules:
            # Imports the submodules in fromlist.
            self._import(module.__name__, fromlist=fromlist)
        return namespace.lenient(module, name)

    def import_module(self, name, package=None):
        """importlib.import_module."""
        if self._is_old(name, sys._getframe(1).f_globals):
            return namespace.import_old(name)
        return self._import_module(name, package)

    def _is_old(self, name, importer_globals):
        # The test of the prefix comes first: every import of the process passes here.
        return (
            name.startswith("tensorflow")
            and name.partition(".")[0] == "tensorflow"
            and self._is_program(importer_globals or {})
        )

    def _is_program(self, importer_globals):
        name = importer_globals.get("__name__") or ""
        path = importer_globals.get("__file__")
        if name.partition(".")[0] in self._packages:
            return True
        if path is None:  # A notebook, `python -c`, or code without a module, which is a library's.
            return name == "__main__"
        if path not in self._is_program_file:
            self._is_program_file[path] = program_files.is_program_file(path)
        return self._is_program_file[path]
