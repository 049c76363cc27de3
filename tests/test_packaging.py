"""Two distributions: the whole project, and tpu/ alone, which runs without the rest."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]
FOLDERS = {".": ("common", "engine", "input_fns", "models", "tpu"), "tpu": ("tpu",)}


def pyproject(folder):
    """Returns the contents of a pyproject.toml."""
    reader = pytest.importorskip("setuptools.config.pyprojecttoml")
    return reader.load_file(str(ROOT / folder / "pyproject.toml"))


def sources(folder, suffixes):
    """Returns the relative paths of the files below a folder, without those of a build."""
    paths = (path.relative_to(folder) for path in folder.glob("**/*"))
    return {path for path in paths if path.suffix in suffixes and path.parts[0] != "build"}


def pip(*arguments):
    """Runs pip without a network."""
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    subprocess.run(command, check=True)


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder with the distribution of tpu/, built from a copy and installed there."""
    pytest.importorskip("pip")
    pytest.importorskip("setuptools", minversion="64")
    folder = tmp_path_factory.mktemp("packaging")
    ignored = shutil.ignore_patterns("__pycache__", "build", "*.egg-info")
    source = shutil.copytree(ROOT / "tpu", folder / "source", ignore=ignored)
    options = ("--no-deps", "--no-index")
    pip("wheel", *options, "--no-build-isolation", f"--wheel-dir={folder}", str(source))
    (wheel,) = folder.glob("*.whl")
    pip("install", *options, f"--target={folder / 'installed'}", str(wheel))
    return folder / "installed"


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_package_is_listed(folder):
    setuptools = pytest.importorskip("setuptools")
    packages = {
        ".".join([name, *path.parent.parts])
        for name in FOLDERS[folder]
        for path in sources(ROOT / name, (".py",))
    }
    listed = pyproject(folder)["tool"]["setuptools"]["packages"]
    if isinstance(listed, dict):
        listed = setuptools.find_packages(str(ROOT / folder), **listed["find"])
    assert sorted(listed) == sorted(packages), f"packages of {folder}/pyproject.toml"


def test_both_distributions_have_one_version_and_one_tpu_compiler():
    whole, alone = pyproject(".")["project"], pyproject("tpu")["project"]
    assert alone["version"] == whole["version"]
    assert alone["requires-python"] == whole["requires-python"]
    extras = whole["optional-dependencies"], alone["optional-dependencies"]
    assert extras[0]["check"] == extras[1]["compiler"]


def test_tpu_leaves_the_choice_of_tensorflow_to_the_user():
    assert pyproject("tpu")["project"]["dependencies"] == []


def test_every_file_of_tpu_is_installed(installed):
    assert sources(installed / "tpu", (".py", ".gz")) == sources(ROOT / "tpu", (".py", ".gz"))


@pytest.mark.skipif(not (ROOT / "tpu/__main__.py").exists(), reason="tpu has no command")
@pytest.mark.parametrize("command", ["-m tpu", "{installed}/bin/tpu-estimator"])
def test_the_command_runs_without_the_rest_of_the_project(installed, tmp_path, command):
    helped = subprocess.run(
        [sys.executable, *command.format(installed=installed).split(), "--help"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=True,
    )
    for name in ("emulate", "check", "compare"):
        assert name in helped.stdout
