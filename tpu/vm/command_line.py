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
    vm = Vm(
        arguments.name,
        zone,
        arguments.project or _default("core/project", arguments),
        arguments.type,
        version,
        price_per_hour=arguments.price_per_hour or 0.0,
    )
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
    for command in add.values():
        command.add_argument("--name", default="", help="name of the VM (default: the only one)")
        command.add_argument("--zone", default="", help="zone (default: gcloud's, or by --type)")
        command.add_argument("--project", default="", help="project (default: gcloud's)")
        command.add_argument(
            "--price_per_hour", type=float, help="price of the whole slice, for the cost so far"
        )
        command.add_argument(
            "--poll_seconds", type=float, default=30.0, help="time between queries (default: 30)"
        )
        command.add_argument(
            "--dry_run", action="store_true", help="print the commands instead of running them"
        )
    _add_up(add["up"])
    _add_push(add["push"])
    run = add["run"]
    run.usage = f"{prog} run [options] -- PROGRAM [ARGUMENT ...]"
    run.add_argument("--detach", action="store_true", help="return after the start")
    run.add_argument(
        "--max_restarts", type=int, default=3, help="restarts after a failure (default: 3)"
    )
    run.add_argument(
        "--max_recreations", type=int, default=10, help="VMs after preemptions (default: 10)"
    )
    add["logs"].add_argument("--lines", type=int, default=50, help="lines (default: 50)")
    add["logs"].add_argument("--follow", action="store_true", help="print new lines, too")
    add["tensorboard"].add_argument("--logdir", required=True, help="such as gs://BUCKET/runs")
    add["tensorboard"].add_argument("--port", type=int, default=6006, help="default: 6006")
    add["down"].add_argument("--yes", action="store_true", help="do not ask")
    add["down"].add_argument("--now", action="store_true", help="do not stop the program first")
    return parser


def _add_up(up):
    up.add_argument("--type", default="v3-8", help="TPU slice, v2 to v4 (default: v3-8)")
    up.add_argument("--version", default="", help="software version (default: by --type)")
    up.add_argument("--queued", action="store_true", help="request a queued resource")
    up.add_argument("--spot", action="store_true", help="cheaper; may be preempted")
    up.add_argument(
        "--preemptible", action="store_true", help="cheaper; may be preempted, at most 24 hours"
    )
    up.add_argument("--reserved", action="store_true", help="use a reservation")
    up.add_argument("--internal_ips", action="store_true", help="no external IP addresses")
    up.add_argument("--service_account", default="", help="e-mail (default: Compute Engine's)")
    up.add_argument("--network", default="", help="network (default: default)")
    up.add_argument("--subnetwork", default="", help="subnetwork")
    up.add_argument("--startup_script", default="", help="file to run at each start of the VM")


def _add_push(push):
    push.add_argument(
        "--code", default=".", help="folder of a git repository (default: .); tracked files only"
    )
    push.add_argument("--nocode", action="store_true", help="copy only data")
    push.add_argument(
        "--setup",
        help="command that installs dependencies (default: tools/setup.sh system or "
        "requirements.txt, if the code has it; '' for none)",
    )
    push.add_argument("--data", default="", help="folder to copy to --bucket")
    push.add_argument("--bucket", default="", help="gs://BUCKET/FOLDER for --data")
