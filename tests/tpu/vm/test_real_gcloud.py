"""tpu_vm with the real `gcloud`, pointed at a fake API on 127.0.0.1 by its own settings."""

import itertools
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import pytest

from tests.tpu.vm import fake_api
from tests.tpu.vm.fake_cloud import QUOTA
from tests.tpu.vm.fake_gcloud import FLAGS
from tpu.vm import command_line

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("gcloud") is None, reason="the Google Cloud CLI is missing"),
]
FOLDER = pathlib.Path(__file__).parent
KEY = "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAQQ me@localhost"


@pytest.fixture
def real_gcloud(cloud, tmp_path, monkeypatch):
    """Replaces the fake `gcloud` on the PATH by fakes of the `ssh` and `scp` that gcloud calls."""
    monkeypatch.setattr("tpu.vm.session.ATTEMPTS", 2)
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


def documented_commands():
    """Returns the gcloud commands in code blocks and code spans of the pages."""
    found = []
    for page in sorted((FOLDER.parents[2] / "docs").glob("*.md")):
        text = page.read_text().replace("\\\n", " ")
        for line in [*text.splitlines(), *re.findall(r"`(gcloud [^`]* --[^`]*)`", text)]:
            if line.startswith("gcloud "):
                found += [part.strip() for part in line.split("#")[0].split("&&")]
    return found


def lint(commands, folder):
    """Returns the errors of commands by gcloud's own parser."""
    strings = sorted({shlex.join(words) for words in commands})
    text = json.dumps([{"command_string": string} for string in strings])
    (folder / "commands.json").write_text(text)
    command = ["gcloud", "meta", "lint-gcloud-commands", "--commands-file"]
    output = subprocess.check_output([*command, str(folder / "commands.json")], text=True)
    results = json.loads(output)
    assert len(results) == len(strings)
    return [
        f"{result['command_string']}: {result['error_message']}"
        for result in results
        if not result["success"]
    ]


def test_documented_commands_parse(real_gcloud, tmp_path):
    commands = [shlex.split(command) for command in documented_commands()]
    assert len(commands) > 10
    assert not lint(commands, tmp_path)


def test_commands_of_a_dry_run_parse(real_gcloud, tmp_path, capsys, project):
    place = ["--dry_run", "--name=my-tpu", "--zone=us-central1-a", "--project=my-project"]
    options = ["--service_account=a@b.iam", "--network=n", "--subnetwork=s", "--internal_ips"]
    command_line.main(["up", *place, "--reserved", "--startup_script=program.py", *options])
    command_line.main(["up", *place, "--spot", "--queued"])
    command_line.main(["push", *place, "--data=.", "--bucket=gs://b-1/x"])
    command_line.main(["run", *place, "--", "python", "program.py"])
    command_line.main(["tensorboard", *place, "--logdir=gs://b-1/runs"])
    command_line.main(["down", *place])
    printed = shlex.split(capsys.readouterr().out.replace("\ngcloud ", "\n; gcloud "))
    commands = [
        list(words) for is_end, words in itertools.groupby(printed, ";".__eq__) if not is_end
    ]
    commands = [words[: words.index("git")] if "git" in words else words for words in commands]
    assert len([words for words in commands if words[0] == "gcloud"]) > 12
    assert not lint([words for words in commands if words[0] == "gcloud"], tmp_path)


def test_lint_finds_a_wrong_flag(real_gcloud, tmp_path):
    (message,) = lint([["gcloud", "compute", "tpus", "tpu-vm", "list", "--bogus=1"]], tmp_path)
    assert "unrecognized arguments: --bogus=1" in message


def test_fake_gcloud_has_no_other_flags(real_gcloud, tmp_path):
    values = {"worker": "0", "metadata-from-file": "a=b", "format": "json"}
    names = {"scp": ["a", "b:c"], "rsync": ["a", "gs://b"], "get": ["core/project"]}
    exclusive = {"preemptible", "spot", "reserved"}
    commands = []
    for command, flags in FLAGS.items():
        words = ["gcloud", *command.split()]
        given = [
            f"--{flag}{values.get(flag[:-1], 'x')}" if flag.endswith("=") else f"--{flag}"
            for flag in flags
            if flag not in exclusive
        ]
        commands.append([*words, *names.get(words[-1], ["my-tpu"]), *given])
        commands += [[*commands[-1], f"--{flag}"] for flag in flags if flag in exclusive]
    assert not lint(commands, tmp_path)
