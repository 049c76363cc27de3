"""An interpreter with a jax of a few lines, which finds no devices that work."""

import sys
import textwrap


def interpreter(folder, devices="pass", version=(0, 4, 30)):
    """Writes an interpreter whose `jax.devices(platform)` is a statement; returns its path."""
    source = f"""
        import os, types

        __version_info__, __version__ = {version}, {".".join(map(str, version))!r}
        config = types.SimpleNamespace(update=lambda *_: None)

        def devices(platform=None):
            {devices}

        def process_count():
            return 1
    """
    for package in ("jax/_src/lib", "jax/_src", "jax"):
        (folder / package).mkdir(parents=True, exist_ok=True)
        (folder / package / "__init__.py").write_text("")
    (folder / "jax/_src/lib/xla_client.py").write_text("")
    (folder / "jax/__init__.py").write_text(textwrap.dedent(source))
    return _script(folder, f'PYTHONPATH={folder} exec {sys.executable} "$@"')


def interpreter_without_jax(folder):
    """Writes an interpreter without any package; returns its path."""
    folder.mkdir(exist_ok=True)
    return _script(folder, f'exec {sys.executable} -I -S "$@"')


def _script(folder, line):
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)
    return str(path)
