"""tpu_vm with the real `gcloud`, pointed at a fake API on 127.0.0.1 by its own settings."""

import os
import pathlib
import shutil
import sys

import pytest

from tests.tpu.vm import fake_api
from tests.tpu.vm.fake_cloud import QUOTA

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("gcloud") is None, reason="the Google Cloud CLI is missing"),
]
FOLDER = pathlib.Path(__file__).parent
KEY = "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAQQ me@localhost"


@pytest.fixture
def real_gcloud(cloud, tmp_path, monkeypatch):
    """Replaces the fake `gcloud` on the PATH by fakes of the `ssh` and `scp` that gcloud calls."""
    monkeypatch.setattr("tpu.vm.commands._ATTEMPTS", 2)
    (tmp_path / "bin/gcloud").unlink()
    for name in ("ssh", "scp"):
        script = tmp_path / "bin" / name
        script.write_text(f'#!/bin/sh\nexec {sys.executable} -S {FOLDER / "fake_ssh.py"} "$@"\n')
        script.chmod(0o755)
    keys = tmp_path / "home/.ssh"
    keys.mkdir(parents=True)
    (keys / "google_compute_engine").write_text("not used")
    (keys / "google_compute_engine.pub").write_text(KEY + "\n")
    (tmp_path / "token").write_text("token")
    with fake_api.serve(cloud, f"me:{KEY}") as url:
        for name, value in {
            "HOME": str(tmp_path / "home"),
            "CLOUDSDK_CONFIG": str(tmp_path / "config"),
            "CLOUDSDK_AUTH_ACCESS_TOKEN_FILE": str(tmp_path / "token"),
            "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "true",
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU": f"{url}/",
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE": f"{url}/compute/v1/",
            "CLOUDSDK_COMPUTE_ZONE": "us-central1-a",
            "CLOUDSDK_CORE_PROJECT": "my-project",
        }.items():
            monkeypatch.setenv(name, value)
        yield


@pytest.mark.parametrize("options", [["--spot"], ["--queued", "--spot"], ["--preemptible"]])
def test_life_with_the_real_gcloud(real_gcloud, tpu_vm, cloud, options, tmp_path):
    path = tmp_path / "steps"
    status, out, err = tpu_vm("up", "--name=my-tpu", *options)
    assert status == 0, err
    assert "my-tpu: READY: v3-8 in us-central1-a" in out
    with cloud.state() as state:
        node = state["nodes"]["my-tpu"]
        assert node["acceleratorType"] == "v3-8"
        assert node["runtimeVersion"] == "tpu-vm-tf-2.15.1-se"
    status, _, err = tpu_vm("push")
    assert status == 0, err
    status, out, err = tpu_vm("run", "--", sys.executable, "program.py", str(path), "20")
    assert (status, path.read_text()) == (0, "20"), err
    assert tpu_vm("status")[0] == 0
    status, _, err = tpu_vm("down", "--yes")
    assert status == 0, err
    with cloud.state() as state:
        assert not state["nodes"]
        assert not state["queue"]


def test_errors_of_the_real_gcloud(real_gcloud, tpu_vm, cloud, monkeypatch):
    cloud.plan("create", QUOTA)
    _, _, err = tpu_vm("up", "--name=my-tpu")
    assert "Quota limit 'TPUV3sPerProjectPerZoneForTPUAPI' has been exceeded" in err
    assert "Request more quota" in err
    _, _, err = tpu_vm("status", "--name=other", "--zone=us-central1-a")
    assert "Check --name, --zone and --project" in err
    monkeypatch.delenv("CLOUDSDK_AUTH_ACCESS_TOKEN_FILE")
    _, _, err = tpu_vm("up", "--name=my-tpu")
    assert "Run: gcloud auth login" in err
    monkeypatch.setenv("CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU", "http://127.0.0.1:1/")
    monkeypatch.setenv("CLOUDSDK_AUTH_ACCESS_TOKEN_FILE", os.devnull)
    _, _, err = tpu_vm("up", "--name=my-tpu")
    assert err.count("\n") == 1
