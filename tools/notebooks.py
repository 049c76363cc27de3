"""Runs notebooks from top to bottom and stores their outputs.

    python -m tools.notebooks [examples/notebooks/NAME.ipynb ...]      or: make notebooks

Each runs in an empty folder with the package of this checkout. Paths of this machine and the
standard error of the kernel are not stored.
"""

from __future__ import annotations

import os
import pathlib
import sys
import tempfile

from engine.cli import startup

if __name__ == "__main__":
    startup.check(startup.check_environment)

import nbclient
import nbformat

_ROOT = pathlib.Path(__file__).parents[1]
FOLDER = _ROOT / "examples" / "notebooks"
_SECONDS = 600  # of a cell


def run(path: pathlib.Path, folder: str) -> nbformat.NotebookNode:
    """Returns a notebook with the outputs of its cells.

    Args:
      path: file of the notebook.
      folder: its working directory; should be empty.

    Raises:
      nbclient.exceptions.CellExecutionError: a cell has failed.
    """
    notebook = nbformat.read(path, as_version=4)
    environment = {**os.environ, "PYTHONPATH": str(_ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    resources = {"metadata": {"path": folder}}
    nbclient.NotebookClient(notebook, timeout=_SECONDS, resources=resources).execute(
        env=environment
    )
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # times
        if cell.cell_type == "code":
            cell.outputs = [_clean(each, folder) for each in cell.outputs if not _is_error(each)]
    notebook.metadata.pop("language_info", None)
    return notebook


def _is_error(output):
    return output.output_type == "stream" and output.name == "stderr"


def _clean(output, folder):
    """Replaces paths of this machine."""
    names = {f"{os.path.realpath(folder)}/": "", f"{folder}/": "", sys.executable: "python"}
    names[os.path.relpath(sys.executable, os.path.realpath(folder))] = "python"
    for parts, key in ((output, "text"), (output.get("data", {}), "text/plain")):
        for name, shown in names.items():
            if key in parts:
                parts[key] = parts[key].replace(name, shown)
    return output


def main(*paths: str) -> None:
    """Runs notebooks; all of examples/notebooks without arguments."""
    for path in map(pathlib.Path, paths or sorted(FOLDER.glob("*.ipynb"))):
        with tempfile.TemporaryDirectory() as folder:
            notebook = run(path, folder)
        nbformat.write(notebook, path)
        print(f"{path}: {len(notebook.cells)} cells")


if __name__ == "__main__":
    main(*sys.argv[1:])
