"""Errors that `gcloud` prints, and processes that do not end."""

import os
import time

import pytest

from tpu.vm import gcloud
from tpu.vm.gcloud import GcloudError

OPERATION = """Create request issued for: [my-tpu]
.............failed.
ERROR: (gcloud.compute.tpus.tpu-vm.create) {
  "code": 8,
  "message": "There is no more capacity in the zone \\"us-central1-a\\"; try another [EID: 0x1]"
}
"""
WARNING = """WARNING: Your active project does not match the quota project in your local Application
Default Credentials file. To update it: $ gcloud auth application-default login
ERROR: (gcloud.compute.tpus.tpu-vm.create) PERMISSION_DENIED: Permission 'a' denied on 'b'
"""
OFFLINE = """ERROR: (gcloud.compute.tpus.tpu-vm.describe) There was a problem refreshing your
current auth tokens: HTTPSConnectionPool(host='oauth2.googleapis.com', port=443):
Max retries exceeded with url
Please run:
  $ gcloud auth login
"""
NO_KEY = """SSH: Attempting to connect to worker 0...
me@10.0.0.2: Permission denied (publickey).
ERROR: (gcloud.compute.tpus.tpu-vm.ssh) [/usr/bin/ssh] exited with return code [255].
"""


@pytest.mark.parametrize(
    ("printed", "kind", "message"),
    [
        (OPERATION, "capacity", 'no more capacity in the zone "us-central1-a"; try another'),
        (WARNING, "permission", "failed: PERMISSION_DENIED: Permission 'a' denied on 'b'. Ask"),
        (OFFLINE, "network", "Check the network of this machine"),
        (NO_KEY, "ssh", "me@10.0.0.2: Permission denied (publickey). Check that the firewall"),
        ("ERROR: (gcloud.x) The file [key.json] does not exist", "unknown", "key.json"),
    ],
    ids=["operation", "warning", "offline", "key", "file"],
)
def test_kind_and_message_of_an_error(tmp_path, monkeypatch, printed, kind, message):
    (tmp_path / "printed").write_text(printed)
    (tmp_path / "gcloud").write_text(f"#!/bin/sh\ncat {tmp_path}/printed >&2\nexit 1\n")
    (tmp_path / "gcloud").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(GcloudError) as caught:
        gcloud.run(["gcloud", "compute", "tpus", "tpu-vm", "x"])
    assert caught.value.kind == kind
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_command_that_does_not_end_is_killed_with_its_children():
    start = time.monotonic()
    with pytest.raises(GcloudError, match="did not end within 0 s"):
        gcloud.run(["sh", "-c", "sleep 60 & sleep 60"], timeout=0.1)
    assert time.monotonic() - start < 30


def test_answer_that_is_not_json(monkeypatch):
    monkeypatch.setattr(gcloud, "run", lambda command, timeout: "")
    with pytest.raises(GcloudError, match="printed '' instead of JSON"):
        gcloud.Gcloud("p", "z").describe("tpu-vm", "my-tpu")
