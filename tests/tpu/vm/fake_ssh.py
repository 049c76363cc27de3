"""Fake `ssh` and `scp` for the real `gcloud`: runs commands and copies on the VM my-tpu.

Usage: FAKE_CLOUD=FOLDER python fake_ssh.py [OPTION ...] USER@HOST [OPTION ...] -- COMMAND
       FAKE_CLOUD=FOLDER python fake_ssh.py [OPTION ...] FILE USER@HOST:FILE
"""

import os
import shutil
import sys

from fake_cloud import FakeCloud


def main(words):
    cloud = FakeCloud(os.environ["FAKE_CLOUD"])
    if "--" in words:
        status, out, err = cloud.shell("my-tpu", " ".join(words[words.index("--") + 1 :]))
        print(out, end="", flush=True)
        print(err, end="", file=sys.stderr)
        return status
    shutil.copy(words[-2], cloud.home("my-tpu") / words[-1].partition(":")[2])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
