"""Bundles the files of a git repository for a TPU VM."""

from __future__ import annotations

import os
import pathlib

from tpu.vm.gcloud import Gcloud, GcloudError
from tpu.vm.remote import REF
from tpu.vm.settings import VmError

# `git stash create` and `git commit-tree` need a name, which a machine may not have configured.
_GIT = ["git", "-c", "user.name=tpu_vm", "-c", "user.email=tpu_vm@localhost"]
_SETUP_FILE, _SETUP = "tools/setup.sh", "tools/setup.sh system"


def default_setup(folder: str) -> str:
    """Returns the command that installs the dependencies of the code in `folder`; "" if unknown."""
    if os.path.isfile(os.path.join(folder, _SETUP_FILE)):
        return _SETUP
    if os.path.isfile(os.path.join(folder, "requirements.txt")):
        return "python3 -m pip install --user --requirement requirements.txt"
    return ""


def bundle(folder: str, path: pathlib.Path, gcloud: Gcloud) -> tuple[str, list[str]]:
    """Writes the tracked files of `folder`, with uncommitted changes, to a git bundle.

    The bundle holds one commit without history.

    Args:
      folder: of a git repository.
      path: of the bundle.
      gcloud: runs the commands.

    Returns:
      (description of the commit, paths of untracked files, which are not in the bundle).

    Raises:
      VmError: no git repository, or one without a commit.
    """

    def git(*arguments, assume=""):
        return gcloud.run([*_GIT, "-C", folder, *arguments], assume).strip()

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
    return f"commit {head}" + (" with uncommitted changes" if changed else ""), untracked
