"""Bundles the files of a git repository for a TPU VM."""

from __future__ import annotations

import os
import pathlib

from tpu.vm.gcloud import Gcloud, GcloudError
from tpu.vm.remote import REF
from tpu.vm.settings import VmError

# `git stash create` and `git commit-tree` need a name, which a machine may not have configured.
_GIT = ["git", "-c", "user.name=tpu_vm", "-c", "user.email=tpu_vm@localhost"]
_SETUP_FILES, _SETUP = ("tools/setup.sh", "requirements/system.txt"), "tools/setup.sh system"
# A TensorFlow of PyPI cannot use the TPU of its machine, and would hide the one of the image: pip
# must keep that one, or fail. Named as a requirement, it also limits its dependencies.
_REQUIREMENTS = (
    "python3 -m pip list --format=freeze | grep '^tensorflow==' > ~/tpu_constraints.txt "
    "&& printf '%s==0\\n' tensorflow-cpu tensorflow-gpu tf-nightly >> ~/tpu_constraints.txt "
    "&& python3 -m pip install --user --constraint ~/tpu_constraints.txt "
    "--requirement requirements.txt tensorflow"
)
# On images without TensorFlow: that of PyPI, which leaves the TPU to JAX.
_PJRT_SETUP = "tools/setup.sh cpu"
_PJRT_REQUIREMENTS = "python3 -m pip install --user --requirement requirements.txt"
# An image may lack python3-venv, which the setup of the code may need, too.
JAX_SETUP = (
    "~/pjrt/bin/python -m pip --version > /dev/null 2>&1 || python3 -m venv ~/pjrt || { "
    "sudo apt-get update -q && sudo apt-get install -yq python3-venv && python3 -m venv ~/pjrt; "
    "} && ~/pjrt/bin/python -m pip install --quiet 'jax[tpu]'"
)
# A program runs in ~/tpu_code.
JAX_PYTHON = "../pjrt/bin/python"
_BUNDLE_SECONDS = 3600.0


def default_setup(folder: str, has_infeed: bool = True) -> str:
    """Returns the command that installs the dependencies of the code in `folder`; "" if unknown.

    Args:
      folder: with the code.
      has_infeed: False for an image without TensorFlow: see `Topology.has_infeed`.
    """
    if all(os.path.isfile(os.path.join(folder, name)) for name in _SETUP_FILES):
        return _SETUP if has_infeed else _PJRT_SETUP
    if os.path.isfile(os.path.join(folder, "requirements.txt")):
        return _REQUIREMENTS if has_infeed else _PJRT_REQUIREMENTS
    return ""


def bundle(folder: str, path: pathlib.Path, gcloud: Gcloud) -> tuple[str, dict[str, list[str]]]:
    """Writes the tracked files of `folder`, with uncommitted changes, to a git bundle.

    The bundle holds one commit without history.

    Returns:
      (description of the commit, paths that are not in the bundle by the reason and the remedy).

    Raises:
      VmError: no git repository, or one without a commit.
    """

    def git(*arguments, assume=""):
        return gcloud.run([*_GIT, "-C", folder, *arguments], assume, _BUNDLE_SECONDS).strip()

    try:
        head = git("rev-parse", "--short", "--verify", "HEAD", assume="HEAD")
    except GcloudError as error:
        if error.kind == "missing":
            raise
        raise VmError(
            f"--code={folder} is not a git repository with a commit. Run git init, git add --all "
            f"and git commit there, or set --code"
        ) from error
    # Also refreshes the index, without which `git stash create` fails in a copied repository.
    status = git("status", "--porcelain", "--untracked-files=all", "--", ".").splitlines()
    untracked = [line.split(maxsplit=1)[1] for line in status if line.lstrip().startswith("??")]
    changed = git("stash", "create") if len(untracked) < len(status) else ""
    prefix = git("rev-parse", "--show-prefix")  # `folder` may be a part of a repository
    tree = git("rev-parse", f"{changed or 'HEAD'}:{prefix}", assume="TREE")
    commit = git("commit-tree", tree, "-m", f"Pushed by tpu_vm from {head}", assume="COMMIT")
    git("update-ref", REF, commit)
    try:
        git("bundle", "create", str(path.absolute()), REF)
    finally:
        git("update-ref", "-d", REF)
    entries = [line.split(maxsplit=3) for line in git("ls-tree", "-r", tree).splitlines()]
    left_out = {
        "untracked (git add)": untracked,
        "submodules (push their files with a bucket)": [
            entry[3] for entry in entries if entry[1] == "commit"
        ],
        "Git LFS (only its pointers; use a bucket)": git(
            "ls-files", "--", ":(attr:filter=lfs)"
        ).splitlines(),
    }
    return f"commit {head}" + (" with uncommitted changes" if changed else ""), left_out
