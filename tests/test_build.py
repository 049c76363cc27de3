"""BUILD is true: every file is in a target, every import has its dep, the arrows hold."""

import ast
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parents[1]
PACKAGES = ("common", "models", "input_fns", "engine", "tpu")
# What a package may import of ours, besides itself.
ARROWS = {
    "common": set(),
    "models": {"common"},
    "input_fns": {"common"},
    "engine": {"common", "models", "input_fns"},
    "tpu": set(),
}


def glob(patterns, exclude=()):
    del exclude
    return sorted(str(path.relative_to(ROOT)) for p in patterns for path in ROOT.glob(p))


@pytest.fixture(scope="module")
def targets():
    """The targets of BUILD, `{name: attributes}`, by running it: Starlark is a part of Python."""
    found = {}

    def rule(kind):
        def add(name, **attributes):
            assert name not in found
            found[name] = {"kind": kind, **attributes}

        return add

    rules = {kind: rule(kind) for kind in ("py_binary", "py_library", "py_test")}
    names = ("filegroup", "load", "package")
    others = {**dict.fromkeys(names, lambda *args, **attributes: None), "glob": glob}
    exec((ROOT / "BUILD").read_text(), {**rules, **others})
    return found


def python_files():
    folders = (*PACKAGES, "tests", "benchmarks", "tools")
    return sorted(
        str(path.relative_to(ROOT))
        for path in [*ROOT.glob("*.py"), *(p for f in folders for p in ROOT.glob(f"{f}/**/*.py"))]
    )


def imports_of(path):
    """Modules that a file imports, as dotted names."""
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def file_of(module):
    """The file of ours that defines a dotted name, or None for other people's."""
    parts = module.split(".")
    for end in (len(parts), len(parts) - 1):
        base = "/".join(parts[:end])
        for path in (f"{base}.py", f"{base}/__init__.py", f"benchmarks/{base}.py"):
            if base and (ROOT / path).is_file():
                return path
    return None


def test_every_file_is_in_a_target(targets):
    sources = [source for target in targets.values() for source in target["srcs"]]
    assert set(python_files()) == set(sources)


def test_every_test_file_is_a_test_of_its_own(targets):
    tests = [target["args"] for target in targets.values() if target["kind"] == "py_test"]
    assert tests == [[path] for path in python_files() if "/test_" in path]


def test_every_program_is_a_binary(targets):
    programs = {target["srcs"][0] for target in targets.values() if target["kind"] == "py_binary"}
    files = glob(["*.py", "tools/*.py", "benchmarks/*.py"])
    assert programs >= {path for path in files if '"__main__"' in (ROOT / path).read_text()}


def test_every_dep_is_a_target(targets):
    for name, target in targets.items():
        for dep in target.get("deps", []):
            assert dep[1:] in targets, f"{name} needs {dep}"


def test_every_import_has_its_dep(targets):
    for name, target in targets.items():
        reach = set(target["srcs"])
        for dep in target.get("deps", []):
            reach.update(targets[dep[1:]]["srcs"])
        for source in target["srcs"]:
            for module in imports_of(source):
                needed = file_of(module)
                assert needed is None or needed in reach, f"{name}: {source} imports {module}"


@pytest.mark.parametrize("package", PACKAGES)
def test_the_arrows_between_the_packages_run_one_way(package):
    ours = {path.stem for path in ROOT.glob("*.py")} | set(PACKAGES)
    for path in glob([f"{package}/**/*.py"]):
        for module in imports_of(path):
            first = module.split(".")[0]
            allowed = first == package or first in ARROWS[package] or first not in ours
            assert allowed, f"{path} imports {module}"
