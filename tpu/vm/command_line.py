"""Parses the command line of tpu_vm."""

from __future__ import annotations

import argparse
import math
import os
import sys

from tpu.connect import topology
from tpu.vm import settings, zones
from tpu.vm.commands import Launcher
from tpu.vm.gcloud import Gcloud, GcloudError
from tpu.vm.nodes import NotReadyError
from tpu.vm.settings import Vm, VmError
from tpu.vm.training import Training

_PLACE = ("name", "zone", "project")
_PROVISIONING = ("queued", "spot", "preemptible", "reserved", "internal_ips")
_TEXTS = ("service_account", "network", "subnetwork", "startup_script")


def _slice(name):
    """Returns Cloud's name of a slice, such as "v5litepod-8" for "v5e-8"; others as they are."""
    try:
        return topology.find(name).cloud_name
    except ValueError:  # reported with the other settings
        return name


# Flags of all commands ("") and of one: (name, type, default or ... if required, help).
_FLAGS = {
    "": (
        ("name", str, "", "name of the VM (default: the only one)"),
        ("zone", str, "", "zone (default: gcloud's, or by --type)"),
        ("project", str, "", "project (default: gcloud's)"),
        ("price_per_hour", float, None, "price of the whole slice, for the cost so far"),
        ("poll_seconds", float, 30.0, "time between queries (default: 30)"),
        ("dry_run", bool, False, "print the commands instead of running them"),
    ),
    "up": (
        ("type", _slice, "v3-8", "TPU slice, v2 to v6e (default: v3-8)"),
        ("version", str, "", "software version (default: by --type)"),
        ("queued", bool, False, "request a queued resource"),
        ("spot", bool, False, "cheaper; may be preempted"),
        ("preemptible", bool, False, "cheaper; may be preempted, at most 24 hours"),
        ("reserved", bool, False, "use a reservation"),
        ("internal_ips", bool, False, "no external IP addresses"),
        ("service_account", str, "", "e-mail (default: Compute Engine's)"),
        ("network", str, "", "network (default: default)"),
        ("subnetwork", str, "", "subnetwork"),
        ("startup_script", str, "", "file to run at each start of the VM"),
    ),
    "push": (
        ("code", str, ".", "folder of a git repository (default: .); tracked files only"),
        ("nocode", bool, False, "copy only data"),
        (
            "setup",
            str,
            None,
            "command that installs dependencies (default: tools/setup.sh system or "
            "requirements.txt, if the code has it; '' for none)",
        ),
        ("data", str, "", "folder to copy to --bucket"),
        ("bucket", str, "", "gs://BUCKET/FOLDER for --data"),
    ),
    "run": (
        ("detach", bool, False, "return after the start"),
        ("max_restarts", int, 3, "restarts after a failure (default: 3)"),
        ("max_recreations", int, 10, "VMs after preemptions (default: 10)"),
    ),
    "logs": (
        ("lines", int, 50, "lines (default: 50)"),
        ("follow", bool, False, "print new lines, too"),
    ),
    "tensorboard": (
        ("logdir", str, ..., "such as gs://BUCKET/runs"),
        ("port", int, 6006, "default: 6006"),
    ),
    "down": (
        ("yes", bool, False, "do not ask"),
        ("now", bool, False, "do not stop the program first"),
    ),
}


def main(argv: list[str] | None = None, prog: str = "tpu_vm") -> int:
    """Runs a command; returns its exit status: 2 for an error, else the one of the program.

    Args:
      argv: arguments without the name of the program; default `sys.argv[1:]`.
      prog: name of the program, for its help.
    """
    argv = sys.argv[1:] if argv is None else argv
    # argparse would take flags of the user's program for its own.
    split = argv.index("--") if "--" in argv else len(argv)
    parser = _parser(prog)
    arguments = parser.parse_args(argv[:split])
    arguments.program = argv[split + 1 :]
    if arguments.program and arguments.command != "run":
        parser.error("unexpected arguments after --: only run takes a program")
    if not (math.isfinite(arguments.poll_seconds) and arguments.poll_seconds > 0):
        parser.error(f"--poll_seconds={arguments.poll_seconds} is not a number above 0")
    try:
        return _COMMANDS[arguments.command](arguments) or 0
    except VmError as error:
        print(f"{prog} {arguments.command}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        advice = f"A VM that was requested costs money until: {prog} down"
        if arguments.command in ("run", "watch", "stop"):
            advice = f"The program continues: {prog} watch follows it again. {advice}"
        print(f"\ninterrupted. {advice}", file=sys.stderr)
        return 130


def _up(arguments):
    _launcher(arguments, _recorded(arguments) or _new(arguments)).up()


def _push(arguments):
    folder = "" if arguments.nocode else arguments.code
    _launcher(arguments).push(folder, arguments.setup, arguments.data, arguments.bucket)


def _run(arguments):
    training = _training(arguments)
    try:
        training.run(arguments.program, arguments.max_restarts, arguments.max_recreations)
    except NotReadyError:
        if arguments.detach:
            raise
    return 0 if arguments.detach else training.watch()


def _down(arguments):
    vm = _known(arguments)
    if not (arguments.yes or arguments.dry_run):
        if not sys.stdin.isatty():
            raise VmError(f"this deletes {vm.name}. Confirm it with --yes")
        try:
            answer = input(f"Delete {vm.name} ({vm.type} in {vm.zone}) with its disk? [y/N] ")
        except EOFError:  # Ctrl-D
            answer = ""
        if answer.strip().lower() not in ("y", "yes"):
            print("not deleted")
            return 1
    _launcher(arguments, vm).down(arguments.now)
    return 0


_COMMANDS = {
    "up": _up,
    "push": _push,
    "run": _run,
    "watch": lambda given: _training(given).watch(),
    "logs": lambda given: _launcher(given).logs(given.lines, given.follow),
    "tensorboard": lambda given: _launcher(given).tensorboard(given.logdir, given.port),
    "status": lambda given: _launcher(given).status(),
    "stop": lambda given: _launcher(given).stop(),
    "down": _down,
}


def _launcher(arguments, vm=None):
    return Launcher(vm or _known(arguments), arguments.dry_run, arguments.poll_seconds)


def _training(arguments):
    return Training(_known(arguments), arguments.dry_run, arguments.poll_seconds)


def _recorded(arguments):
    """Returns the recorded VM of --name, or of the only record; None if it is not recorded.

    Raises:
      VmError: another flag contradicts the record.
    """
    vm = settings.load(arguments.name or settings.only_name())
    if vm is None:
        return None
    if arguments.price_per_hour is not None:
        vm.price_per_hour = arguments.price_per_hour
    for flag in (*_PLACE, "type", "version", *_PROVISIONING, *_TEXTS):
        value = getattr(arguments, flag, None)
        if flag == "startup_script" and value:
            value = os.path.abspath(value)
        if value and value != getattr(vm, flag):
            recorded = getattr(vm, flag)
            raise VmError(
                f"--{flag}={value} contradicts the record of {vm.name}: {recorded}. Use another "
                "--name, or delete this VM first: tpu_vm down"
            )
    settings.validate(vm)
    if arguments.price_per_hour is not None and not arguments.dry_run:
        settings.update(vm, "price_per_hour")
    return vm


def _new(arguments):
    """Returns the VM that the flags of `up` describe."""
    try:
        version = arguments.version or settings.default_version(topology.find(arguments.type))
    except ValueError as error:
        raise VmError(f"--type={arguments.type}: {error}") from error
    settings.check_name(arguments.name)
    zone, note = arguments.zone, ""
    if not zone:
        zone, note = zones.choose(arguments.type, _default("compute/zone", arguments))
    elif zone not in zones.find(arguments.type):
        others = ", ".join(zones.find(arguments.type))
        note = f"zone {zone} may not offer {arguments.type}, as these do: {others}"
    project = arguments.project or _default("core/project", arguments)
    vm = Vm(arguments.name, zone, project, arguments.type, version)
    vm.price_per_hour = arguments.price_per_hour or 0.0
    for flag in (*_PROVISIONING, *_TEXTS):
        setattr(vm, flag, getattr(arguments, flag))
    if vm.startup_script:
        vm.startup_script = os.path.abspath(vm.startup_script)
        if not os.path.isfile(vm.startup_script) or "," in vm.startup_script:  # splits the flag
            raise VmError(
                f"--startup_script={vm.startup_script} is not a file, or has a comma in its path. "
                "Use a file of this machine without a comma in its path"
            )
    settings.validate(vm)
    if note:
        print(f"{vm.name}: {note}", file=sys.stderr)
    return vm


def _known(arguments):
    """Returns the recorded VM, or the one that --name, --zone and --project name.

    Raises:
      VmError: there is no such VM.
    """
    vm = _recorded(arguments)
    if vm is not None:
        return vm
    zone = arguments.zone or _default("compute/zone", arguments)
    project = arguments.project or _default("core/project", arguments)
    vm = Vm(arguments.name, zone, project, "v3-8", settings.default_version(topology.find("v3-8")))
    settings.validate(vm)
    gcloud = Gcloud(project, zone, arguments.dry_run)
    try:
        node = gcloud.describe("tpu-vm", vm.name)
    except GcloudError as error:
        if error.kind != "not_found":
            raise
        try:
            gcloud.describe("queued-resources", vm.name)
        except GcloudError:
            raise error from None
        node = {"queuedResource": vm.name}  # it waits for capacity
    vm.type = str(node.get("acceleratorType", vm.type))
    vm.version = str(node.get("runtimeVersion", vm.version))
    for flag in ("spot", "preemptible", "reserved"):
        setattr(vm, flag, bool(node.get("schedulingConfig", {}).get(flag)))
    for flag in ("network", "subnetwork"):
        setattr(vm, flag, str(node.get("networkConfig", {}).get(flag, "")))
    vm.service_account = str(node.get("serviceAccount", {}).get("email", ""))
    vm.queued = "queuedResource" in node
    vm.price_per_hour = arguments.price_per_hour or 0.0
    if arguments.command != "down":  # deletes any VM
        settings.validate(vm)
    return vm


def _default(name, arguments):
    """Returns a property of gcloud's configuration, which a dry run reads, too; "" if unset."""
    try:
        return Gcloud("", "").run(["gcloud", "config", "get", name, "--quiet"]).strip()
    except GcloudError as error:
        if arguments.dry_run and error.kind == "missing":
            return ""
        raise


def _parser(prog):
    parser = argparse.ArgumentParser(
        prog=prog, description="Trains on a Cloud TPU VM: creates, uses and deletes it."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    add = {
        name: commands.add_parser(name, help=text[0].lower() + text[1:-1], description=text)
        for name, text in {
            "up": "Create a TPU VM and wait until it is READY.",
            "push": "Copy code to the VM, data to a bucket, and install dependencies.",
            "run": "Start a program on the VM and follow it; create the VM again when preempted.",
            "watch": "Follow a program that was started.",
            "logs": "Print the end of the program's log.",
            "tensorboard": "Run TensorBoard on the VM and forward its port.",
            "status": "Print state, cost so far, and the state of the program.",
            "stop": "Stop the program with SIGTERM, which saves a checkpoint.",
            "down": "Stop the program and delete the VM.",
        }.items()
    }
    for name, command in add.items():
        for flag, kind, default, text in (*_FLAGS[""], *_FLAGS.get(name, ())):
            options = {"type": kind, "default": default, "required": default is ...}
            options = {"action": "store_true"} if kind is bool else options
            command.add_argument(f"--{flag}", help=text, **options)
    add["run"].usage = f"{prog} run [options] -- PROGRAM [ARGUMENT ...]"
    return parser
