"""A fake `gcloud`: the commands of tpu/vm on a FakeCloud.

Usage: FAKE_CLOUD=FOLDER python fake_gcloud.py compute tpus tpu-vm create NAME --zone=ZONE ...

Accepts the flags of Google Cloud SDK 528 only, and prints errors in its words.
"""

import json
import os
import shutil
import sys

try:
    from tests.tpu.vm.fake_cloud import CloudError, FakeCloud
except ImportError:  # as a process
    from fake_cloud import CloudError, FakeCloud

# Flags with a value end in "=". From `gcloud COMMAND --help`.
_ALL = ["project=", "quiet", "format="]
_CREATE = [
    *("zone=", "accelerator-type=", "service-account=", "network=", "subnetwork=", "spot"),
    *("reserved", "internal-ips", "metadata-from-file=", "async"),
]
FLAGS = {
    "compute tpus tpu-vm create": [*_CREATE, "version=", "preemptible"],
    "compute tpus tpu-vm describe": ["zone="],
    "compute tpus tpu-vm delete": ["zone=", "async"],
    "compute tpus tpu-vm ssh": ["zone=", "worker=", "command=", "ssh-flag=", "internal-ip"],
    "compute tpus tpu-vm scp": ["zone=", "worker=", "internal-ip", "recurse"],
    "compute tpus queued-resources create": [*_CREATE, "runtime-version=", "node-id="],
    "compute tpus queued-resources describe": ["zone="],
    "compute tpus queued-resources delete": ["zone=", "force", "async"],
    "storage rsync": ["recursive"],
    "config get": [],
}
_CREATED = ("spot", "preemptible", "reserved")


def main(words):
    cloud = FakeCloud(os.environ["FAKE_CLOUD"])
    cloud.record(words)
    command = next((name for name in FLAGS if words[: len(name.split())] == name.split()), None)
    if command is None:
        return fail("gcloud", f"Invalid choice: '{' '.join(words[:4])}'", 2)
    place = command.replace(" ", ".")
    names, flags = [], {}
    for word in words[len(command.split()) :]:
        flag, has_value, value = word[2:].partition("=")
        if not word.startswith("--"):
            names.append(word)
        elif flag + ("=" if has_value else "") in [*FLAGS[command], *_ALL]:
            flags[flag] = value or True
        else:
            return fail(place, f"unrecognized arguments: {word}", 2)
    try:
        return run(cloud, command, names, flags)
    except CloudError as error:
        return fail(place, f"{error.status}: {error}", 1)


def fail(place, message, status):
    print(f"ERROR: (gcloud.{place}) {message}", file=sys.stderr)
    return status


def run(cloud, command, names, flags):
    group, verb = command.split()[-2:]
    if command == "config get":
        print({"compute/zone": "us-central1-a", "core/project": "my-project"}[names[0]])
    elif command == "storage rsync":
        target = cloud.folder / names[1].replace("gs://", "buckets/")
        shutil.copytree(names[0], target, dirs_exist_ok=True)
    elif verb == "create":
        spec = {
            "acceleratorType": flags["accelerator-type"],
            "runtimeVersion": flags.get("version") or flags["runtime-version"],
            "schedulingConfig": {flag: flag in flags for flag in _CREATED},
        }
        create = cloud.create if group == "tpu-vm" else cloud.create_queued
        create(names[0], spec)
    elif verb == "describe":
        describe = cloud.describe if group == "tpu-vm" else cloud.describe_queued
        print(json.dumps(describe(names[0])))
    elif verb == "delete":
        delete = cloud.delete if group == "tpu-vm" else cloud.delete_queued
        delete(names[0])
    elif verb == "scp":
        name, _, path = names[1].partition(":")
        for worker in cloud.workers(name, flags["worker"]):
            shutil.copy(names[0], cloud.home(name, worker) / path)
    elif verb == "ssh":
        for worker in cloud.workers(names[0], flags["worker"]):
            status, out, err = cloud.shell(names[0], flags["command"], worker)
            print(out, end="", flush=True)
            print(err, end="", file=sys.stderr)
            if status:
                message = f"[/usr/bin/ssh] exited with return code [{status}]."
                return fail("compute.tpus.tpu-vm.ssh", message, 1)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
