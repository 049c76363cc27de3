"""Runs a container engine: Docker or Podman, whose command lines agree."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys


class Engine:
    """The command line of Docker or Podman.

    Attributes:
      name: "docker" or "podman".
    """

    def __init__(self, name: str = ""):
        """Uses the engine `name`, or the first one whose daemon answers."""
        names = (name,) if name else ("docker", "podman")
        found = [n for n in names if shutil.which(n) and self._answers(n)]
        if not found:
            sys.exit(f"image_check: no container engine answers ({', '.join(names)})")
        self.name = found[0]

    @staticmethod
    def _answers(name):
        return subprocess.run([name, "info"], capture_output=True).returncode == 0

    def call(self, *arguments: str, status: int = 0, **options) -> str:
        """Runs a command of the engine.

        Args:
          *arguments: the command.
          status: expected exit status.
          **options: of `subprocess.run`.

        Returns:
          What it writes to stdout.

        Raises:
          SystemExit: it ends with another status; the message has the end of its output.
        """
        # Docker 20 to 22 have BuildKit, but not as the default.
        environment = {**os.environ, "DOCKER_BUILDKIT": "1"}
        command = [self.name, *map(str, arguments)]
        done = subprocess.run(
            command, env=environment, text=True, capture_output=True, check=False, **options
        )
        if done.returncode != status:
            end = (done.stdout + done.stderr)[-3000:]
            shown = " ".join(command)
            sys.exit(f"image_check: status {done.returncode} instead of {status}: {shown}\n{end}")
        return done.stdout

    def layers(self, image: str) -> list[str]:
        """Returns the digests of the layers of an image, the lowest first."""
        return json.loads(self.call("inspect", "--format={{json .RootFS.Layers}}", image))

    def size(self, image: str) -> int:
        """Returns the bytes of an image, uncompressed."""
        return int(self.call("inspect", "--format={{.Size}}", image))

    def history(self, image: str) -> list[tuple[str, str]]:
        """Returns (size, instruction) of each layer that is not empty, the lowest first."""
        form = "--format={{.Size}}\t{{.CreatedBy}}"
        lines = self.call("history", "--no-trunc", form, image).splitlines()
        found = [tuple(line.split("\t", 1)) for line in reversed(lines)]
        return [(size, made) for size, made in found if not re.fullmatch(r"0 ?B", size)]
