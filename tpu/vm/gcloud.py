"""Runs `gcloud` and `git`; turns their errors into one line with what to do."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import shlex
import shutil
import signal
import subprocess

from tpu.vm.settings import VmError

# Kinds of errors, by what gcloud prints: (kind, pattern, advice). The first match counts.
_ERRORS = [
    (  # before "login": a token cannot be refreshed without a network
        "network",
        r"[Nn]ame or service not known|[Nn]ame resolution|NameResolutionError|Max retries exceeded|"
        r"Unable to (find|reach) the server|Network is unreachable|Connection aborted|UNAVAILABLE|"
        r"HTTPError 50\d|\b503\b",
        "Check the network of this machine, and try again",
    ),
    (
        "login",
        r"active account|auth login|refreshing your current auth tokens|Reauthentication|"
        r"UNAUTHENTICATED|invalid_grant|invalid authentication credentials",
        "Run: gcloud auth login",
    ),
    (
        "api",
        r"SERVICE_DISABLED|has not been used in project|API .*is not enabled",
        "Run: gcloud services enable tpu.googleapis.com",
    ),
    (
        "project",
        r"required property \[project\]|project property is set|CONSUMER_INVALID|"
        r"USER_PROJECT_DENIED|project .*(was )?not found",
        "Set --project, or run: gcloud config set project PROJECT",
    ),
    (
        "quota",
        r"[Qq]uota",
        "Request more quota for this TPU type and zone in the console (IAM & Admin > Quotas), or "
        "use another zone or --spot, which have separate quotas",
    ),
    (
        "capacity",
        r"no more capacity|[Ii]nsufficient (reserved )?capacity|stockout|RESOURCE_EXHAUSTED",
        "Wait for capacity with --queued, or use another zone or --spot",
    ),
    (
        "permission",
        r"PERMISSION_DENIED|[Pp]ermission .*denied on|does not have permission|forbidden",
        "Ask for the roles TPU Admin and Service Account User in this project",
    ),
    ("exists", r"ALREADY_EXISTS|already exists", "Use another --name, or delete it: tpu_vm down"),
    (
        "not_found",
        r"NOT_FOUND",  # a VM that does not exist is created: no other "not found" may match
        "Check --name, --zone and --project",
    ),
    (
        "invalid",
        r"INVALID_ARGUMENT|HttpError 400|Invalid value for",
        "Check that the zone offers this type and version: gcloud compute tpus accelerator-types "
        "list --zone=ZONE; gcloud compute tpus tpu-vm versions list --zone=ZONE",
    ),
    (
        "ssh",
        r"\[255\]|Connection (refused|reset|closed)|Connection timed out|Permission denied \(|"
        r"Host key verification failed|Broken pipe|cannot be currently connected|IAP tunneling|"
        r"ssh: connect",
        "Check that the firewall of the network allows tcp:22 (gcloud compute firewall-rules "
        "list), and that you may log in (OS Login)",
    ),
    (
        "usage",
        r"unrecognized arguments|Invalid choice|argument .*: ",
        "Update it: gcloud components update",
    ),
]
# Errors that end without help: a VM that still boots, a network that fails for minutes.
PASSING = ("ssh", "network", "slow")
# Errors that need the user; all others may end while a VM is created again: the quota of a
# preempted VM is released late, and capacity returns.
FINAL = ("login", "api", "project", "permission", "invalid", "usage", "missing")
ATTEMPTS = 20


class GcloudError(VmError):
    """A `gcloud` command failed; `kind` is one of the kinds above, "slow" or "unknown"."""

    def __init__(self, kind, message):
        super().__init__(message)
        self.kind = kind


@dataclasses.dataclass(frozen=True)
class Gcloud:
    """Runs commands for one project and zone.

    Attributes:
      project, zone: added to each command.
      dry_run: print commands instead of running them.
    """

    project: str
    zone: str
    dry_run: bool = False

    def tpu(self, group, verb, *arguments, assume="", timeout=300.0) -> str:
        """Runs `gcloud compute tpus GROUP VERB`; returns its standard output.

        Args:
          group: "tpu-vm" or "queued-resources".
          verb: such as "create".
          *arguments: positional arguments and flags.
          assume: returned in a dry run.
          timeout: in seconds.

        Raises:
          GcloudError: the command failed.
        """
        return self.run(self.command(group, verb, *arguments), assume, timeout)

    def describe(self, group, name, assume="{}") -> dict:
        """Returns a VM or a queued resource as the API describes it."""
        text = self.tpu(group, "describe", name, "--format=json", assume=assume)
        try:
            answer = json.loads(text)
            if isinstance(answer, dict):
                return answer
        except ValueError:
            pass
        raise GcloudError(
            "unknown",
            f"gcloud compute tpus {group} describe {name} printed {text[:100]!r} instead of JSON. "
            "Check the section [core] of: gcloud config list",
        )

    def command(self, group, verb, *arguments) -> list[str]:
        """Returns the command line of `gcloud compute tpus GROUP VERB`."""
        command = ["gcloud", "compute", "tpus", group, verb, *arguments, f"--zone={self.zone}"]
        return [*command, *([f"--project={self.project}"] if self.project else []), "--quiet"]

    def run(self, command, assume="", timeout=300.0) -> str:
        """Runs any command; returns its standard output, or `assume` in a dry run."""
        if self.dry_run:
            print(shlex.join(command), flush=True)
            return assume
        return run(command, timeout)


def run(command, timeout=300.0) -> str:
    """Runs a command without a terminal; returns its standard output.

    Raises:
      GcloudError: it is not installed, failed, or did not end within `timeout` seconds.
    """
    program = command[0]
    if shutil.which(program) is None:
        place = {
            "gcloud": "the Google Cloud CLI: https://cloud.google.com/sdk/docs/install",
            "git": "git: https://git-scm.com/downloads",
        }.get(program, program)
        raise GcloudError("missing", f"{program} is not installed. Install {place}")
    # In its own session: Ctrl-C and a timeout end gcloud with its children, and ssh cannot ask.
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
    )
    try:
        stdout, stderr = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired as error:
        _kill(process)
        raise GcloudError(
            "slow", f"{_shorten(command)} did not end within {timeout:.0f} s. Try again"
        ) from error
    except BaseException:
        _kill(process)
        raise
    if process.returncode:
        raise _error(command, process.returncode, stderr)
    return stdout


def _kill(process):
    """Ends a process with its children, which would keep its pipes open."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=5)
            return


def _error(command, status, stderr):
    """Returns the GcloudError of a command that failed."""
    reason = _reason(stderr) or f"it exited with status {status}"
    if command[0] == "gcloud":
        text = stderr[max(0, stderr.find("ERROR:")) :]  # warnings name quota projects and accounts
        for kind, pattern, advice in _ERRORS:
            if re.search(pattern, text):
                return GcloudError(kind, f"{_shorten(command)} failed: {reason}. {advice}")
    is_ssh = command[3:5] in (["tpu-vm", "ssh"], ["tpu-vm", "scp"])  # may end in any way
    return GcloudError("ssh" if is_ssh else "unknown", f"{_shorten(command)} failed: {reason}")


def _reason(stderr):
    """Returns the message of gcloud's first error in one printable line."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    ssh = [line for line in lines if re.match(r"ssh: |\S+: Permission denied \(", line)]
    errors = [i for i, line in enumerate(lines) if line.startswith("ERROR:")]
    text = " ".join(ssh[:1] or (lines[errors[0] :][:2] if errors else lines[-1:]))
    text = re.sub(r"^ERROR: (\([\w.-]+\) )?", "", text)
    if text.startswith("{"):  # the error of an operation, as JSON
        with contextlib.suppress(ValueError, KeyError):
            start = stderr.index("{", stderr.index("ERROR:"))
            text = str(json.JSONDecoder().raw_decode(stderr, start)[0]["message"])
    text = printable(text)
    return (text[:300] + "..." if len(text) > 300 else text).rstrip(". ")


def printable(text: object) -> str:
    """Returns a text of gcloud or of the API without control characters."""
    return "".join(character for character in str(text) if character.isprintable())


def _shorten(command):
    """Returns the words of a command before its first flag."""
    flags = [i for i, word in enumerate(command) if word.startswith("-")]
    return " ".join(command[: min(flags, default=len(command))])
