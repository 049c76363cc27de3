"""Programs in strings, which benchmarks and tools run in child processes, import what exists."""

import ast
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[1]
PATHS = [*ROOT.glob("benchmarks/**/*.py"), *ROOT.glob("tools/**/*.py")]
PACKAGES = "benchmarks|common|engine|input_fns|models|tools|tpu"
IMPORT = re.compile(rf"^\s*from ((?:{PACKAGES})[\w.]*) import (\w+(?:, \w+)*)", re.MULTILINE)


def names_of(module):
    """Returns the names that a module or package has, without importing it."""
    path = ROOT.joinpath(*module.split("."))
    found = {entry.stem for entry in path.iterdir()} if path.is_dir() else set()
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    for node in ast.walk(ast.parse(source.read_text() if source.exists() else "")):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.alias):
            found.add(node.asname or node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return found


@pytest.mark.parametrize("path", PATHS, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_exist(path):
    for module, names in IMPORT.findall(path.read_text()):
        assert set(names.split(", ")) <= names_of(module), module
