"""BUILD lists every file and dependency; packages import only what the architecture allows."""

import ast
import functools
import graphlib
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parents[1]
PACKAGES = ("common", "models", "input_fns", "engine", "tpu")
# The packages that each package may import, besides itself.
ALLOWED = {
    "common": set(),
    "models": {"common"},
    "input_fns": {"common"},
    "engine": {"common", "models", "input_fns"},
    "tpu": set(),
}
# The same for the packages and modules in engine/, from the bottom to the top.
LOWER = {"checkpoints", "hooks", "distribute"}
ENGINE_ALLOWED = {
    "checkpoints": set(),
    "hooks": {"checkpoints"},
    "distribute": {"checkpoints"},
    "run_settings": LOWER,
    "train": {*LOWER, "run_settings"},
    "evaluation": {*LOWER, "run_settings"},
    "serving": {*LOWER, "run_settings"},
    "model_fns": {*LOWER, "run_settings", "train", "evaluation", "serving"},
    "cli": {*LOWER, "run_settings", "train", "evaluation", "serving", "model_fns"},
}


def glob(patterns, exclude=()):
    found, excluded = ({path for p in ps for path in ROOT.glob(p)} for ps in (patterns, exclude))
    return sorted(str(path.relative_to(ROOT)) for path in found - excluded)


@pytest.fixture(scope="module")
def targets():
    """The targets of BUILD, `{name: attributes}`, read by running it as Python."""
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
    folders = (*PACKAGES, "tests", "benchmarks", "tools", "examples")
    return sorted(
        str(path.relative_to(ROOT))
        for path in [*ROOT.glob("*.py"), *(p for f in folders for p in ROOT.glob(f"{f}/**/*.py"))]
    )


@functools.cache
def imports(path, types=True):
    """The dotted names that a file imports; `types=False` skips imports for type checking only."""
    return tuple(_imports(path, types))


def _imports(path, types):
    left = [ast.parse((ROOT / path).read_text())]
    while left:
        node = left.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif not types and isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            left += node.orelse
        elif not isinstance(node, ast.expr):  # an expression has no statements
            left += ast.iter_child_nodes(node)


def top_level_imports(path):
    """The dotted names that a file imports when it is imported."""
    for node in ast.parse((ROOT / path).read_text()).body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@functools.cache
def find_file(module):
    """The file of this project that defines a dotted name, or None."""
    parts = module.split(".")
    for end in (len(parts), len(parts) - 1):
        base = "/".join(parts[:end])
        for path in (f"{base}.py", f"{base}/__init__.py"):
            if base and (ROOT / path).is_file():
                return path
    return None


def test_every_file_is_in_a_target(targets):
    sources = [source for target in targets.values() for source in target["srcs"]]
    assert set(python_files()) == set(sources)


def test_every_test_file_has_a_target(targets):
    tests = [target["args"] for target in targets.values() if target["kind"] == "py_test"]
    assert tests == [[path] for path in python_files() if "/test_" in path]


def test_the_binaries_are_the_programs(targets):
    binaries = {target["main"] for target in targets.values() if target["kind"] == "py_binary"}
    files = [path for path in python_files() if path.split("/")[0] not in (*PACKAGES, "tests")]
    assert binaries == {
        path for path in files if '__name__ == "__main__"' in (ROOT / path).read_text()
    }


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
            for module in imports(source):
                needed = find_file(module)
                assert needed is None or needed in reach, f"{name}: {source} imports {module}"


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_import_lower_packages_only(package):
    ours = {path.stem for path in ROOT.glob("*.py")} | {
        *PACKAGES,
        "benchmarks",
        "examples",
        "tests",
        "tools",
    }
    for path in glob([f"{package}/**/*.py"]):
        for module in imports(path):
            first = module.split(".")[0]
            allowed = first == package or first in ALLOWED[package] or first not in ours
            assert allowed, f"{path} imports {module}"


def test_modules_import_each_other_in_one_direction():
    """At their start: a registry imports what it names when it is looked up."""
    files = [path for path in python_files() if path.split("/")[0] in PACKAGES]
    needs = {path: {find_file(name) for name in top_level_imports(path)} for path in files}
    graphlib.TopologicalSorter(needs).prepare()  # raises CycleError


def test_every_package_of_engine_has_a_layer():
    names = {path.relative_to(ROOT / "engine").parts[0] for path in ROOT.glob("engine/**/*.py")}
    assert {name.removesuffix(".py") for name in names} - {"__init__"} == set(ENGINE_ALLOWED)


@pytest.mark.parametrize("package", ENGINE_ALLOWED)
def test_packages_of_engine_import_lower_packages_only(package):
    for path in glob([f"engine/{package}.py", f"engine/{package}/**/*.py"]):
        for module in imports(path, types=False):
            first, _, rest = module.partition(".")
            allowed = {package, *ENGINE_ALLOWED[package]}
            assert first != "engine" or rest.split(".")[0] in allowed, f"{path} imports {module}"
