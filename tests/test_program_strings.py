"""Programs in strings, which benchmarks and tools run in child processes, use what exists."""

import ast
import contextlib
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


def programs(path):
    """Yields the syntax trees of the programs in the strings of a file."""
    for node in ast.walk(ast.parse(path.read_text())):
        parts = node.values if isinstance(node, ast.JoinedStr) else [node]
        texts = [part.value if isinstance(part, ast.Constant) else "0" for part in parts]
        text = "".join(text for text in texts if isinstance(text, str))
        with contextlib.suppress(SyntaxError):  # another text
            yield ast.parse(text if "import " in text else "")


@pytest.mark.parametrize("path", PATHS, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_exist(path):
    for module, names in IMPORT.findall(path.read_text()):
        assert set(names.split(", ")) <= names_of(module), module


@pytest.mark.parametrize("path", PATHS, ids=lambda path: str(path.relative_to(ROOT)))
def test_attributes_of_imported_modules_exist(path):
    for program in programs(path):
        nodes, modules = list(ast.walk(program)), {}
        for node in nodes:
            if isinstance(node, ast.ImportFrom) and re.match(rf"({PACKAGES})\b", node.module):
                modules.update({a.asname or a.name: f"{node.module}.{a.name}" for a in node.names})
        for node in nodes:
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                module = modules.get(node.value.id)
                if module and ROOT.joinpath(*module.split(".")).with_suffix(".py").exists():
                    assert node.attr in names_of(module), f"{module}.{node.attr}"
