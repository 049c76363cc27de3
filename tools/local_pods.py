r"""Runs the pods of a manifest of tools/job_manifest.py as processes on this machine.

    python -m tools.local_pods --volume=/data=data --volume=/runs=runs cluster.yaml

A process gets the command and the environment that Kubernetes would give its pod, and is restarted
as its Job would. Host names become 127.0.0.1, and mount paths of volumes local folders.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import sys

from engine.cli import startup

if __name__ == "__main__":
    startup.check(startup.check_environment)

from absl import flags

from tools.local_cluster import ProcessGroup, free_ports

FLAGS = flags.FlagValues()

_HELP = "MOUNT_PATH=FOLDER: a local folder for a volume. May be repeated."
flags.DEFINE_multi_string("volume", [], _HELP, flag_values=FLAGS)
flags.DEFINE_string("logs", "pod_logs", "Folder of the logs.", flag_values=FLAGS)

_ROOT = pathlib.Path(__file__).resolve().parent.parent
_REFERENCE = re.compile(r"\$(?:(\$)|\(([^)]*)\))")
_INDEX_ANNOTATION = "metadata.annotations['batch.kubernetes.io/job-completion-index']"


class LocalPods(ProcessGroup):
    """The pods of a Job, of Indexed Jobs, of a JobSet or of a TFJob, by name."""

    def __init__(self, documents, log_dir, volumes):
        """Initializes without starting processes.

        Args:
          documents: the manifest.
          log_dir: folder of the logs.
          volumes: `{mount path: folder}`.
        """
        jobs = [job for document in documents for job in _jobs(document)]
        pods = {
            f"{job['name']}-{i}" if job["indexed"] else job["name"]: (job, i)
            for job in jobs
            for i in range(job["count"])
        }
        hosts = {_host(name, job): name for name, (job, _) in pods.items()}
        ports = dict(zip(hosts, free_ports(len(hosts))))
        commands = {}
        for name, (job, index) in pods.items():
            container = job["pod"]["containers"][0]
            env = expand_env(container.get("env", []), index)
            if job["tf_config"]:
                env["TF_CONFIG"] = job["tf_config"](index)
            if "TF_CONFIG" in env:
                env["TF_CONFIG"] = self._resolve(env["TF_CONFIG"], ports)
            program, *arguments = (expand(each, env) for each in container["args"])
            arguments = [_to_local(each, volumes) for each in arguments]
            commands[name] = ([sys.executable, program, *arguments], env)
        self._pods = pods
        self._failures = {job["name"]: 0 for job in jobs}
        super().__init__(commands, log_dir, any(job["restarts_all"] for job in jobs), cwd=_ROOT)

    def _resolve(self, config, ports):
        """Returns TF_CONFIG with the address of each pod on this machine."""

        def address(found):
            if found[1] not in ports:
                raise ValueError(f"no pod of the manifest has the host name {found[1]}")
            return f'"127.0.0.1:{ports[found[1]]}"'

        return re.sub(r'"([^":]+):2222"', address, config)

    def host(self, name: str) -> str:
        """Returns the host name of a pod."""
        return _host(name, self._pods[name][0])

    def may_restart(self, name: str, status: int) -> bool:
        """Returns True if the pod's Job replaces it."""
        job, _ = self._pods[name]
        action = _action(job, status)
        if action == "Ignore":
            return True
        self._failures[job["name"]] += 1
        return action == "Count" and self._failures[job["name"]] <= job["max_failures"]


def expand(text: str, env: dict[str, str]) -> str:
    """Returns text with $(NAME) replaced and $$ unescaped, as Kubernetes does.

    https://kubernetes.io/docs/tasks/inject-data-application/define-interdependent-environment-variables/
    """
    return _REFERENCE.sub(lambda found: found[1] or env.get(found[2], found[0]), text)


def expand_env(variables: list[dict], index: int) -> dict[str, str]:
    """Returns the environment variables of a container; a value may refer to earlier ones.

    Args:
      variables: `env` of the container.
      index: completion index of the pod.
    """
    env = {}
    for variable in variables:
        if "value" in variable:
            env[variable["name"]] = expand(variable["value"], env)
        else:
            if variable["valueFrom"]["fieldRef"]["fieldPath"] != _INDEX_ANNOTATION:
                raise ValueError(f"{variable['name']} is not the completion index")
            env[variable["name"]] = str(index)
    return env


def _jobs(document):
    """Yields the Jobs that Kubernetes makes of a document."""
    kind, name, spec = document["kind"], document["metadata"]["name"], document["spec"]
    if kind == "Job":
        yield _job(name, spec)
    elif kind == "JobSet":
        policy = spec.get("failurePolicy")
        for job in spec["replicatedJobs"]:
            yield _job(f"{name}-{job['name']}-0", job["template"]["spec"], name, policy)
    elif kind == "TFJob":
        yield from _tfjob(name, spec)


def _job(name, spec, subdomain="", restart_policy=None):
    pod = spec["template"]["spec"]
    limit = spec["backoffLimit"]
    return {
        "name": name,
        "indexed": spec.get("completionMode") == "Indexed",
        "count": spec.get("completions", 1),
        "pod": pod,
        "subdomain": subdomain or pod.get("subdomain", ""),
        "rules": spec["podFailurePolicy"]["rules"],
        "max_failures": restart_policy["maxRestarts"] if restart_policy else limit,
        "restarts_all": bool(restart_policy),
        "tf_config": None,
    }


def _tfjob(name, spec):
    """Yields the roles, with TF_CONFIG as the training operator writes it (release 1.9)."""
    replicas = {role.lower(): value for role, value in spec["tfReplicaSpecs"].items()}
    subdomain = "default.svc"
    cluster = {
        role: [f"{name}-{role}-{i}.{subdomain}:2222" for i in range(value["replicas"])]
        for role, value in sorted(replicas.items())
    }
    permanent = {"operator": "In", "values": list(range(1, 128))}
    for role, value in replicas.items():

        def tf_config(index, role=role):
            task = {"type": role, "index": index}
            return json.dumps({"cluster": cluster, "task": task, "environment": "cloud"})

        yield {
            "name": f"{name}-{role}",
            "indexed": True,
            "count": value["replicas"],
            "pod": value["template"]["spec"],
            "subdomain": subdomain,
            "rules": [{"action": "FailJob", "onExitCodes": permanent}],
            "max_failures": spec["runPolicy"]["backoffLimit"],
            "restarts_all": False,
            "tf_config": tf_config,
        }


def _host(name, job):
    return f"{name}.{job['subdomain']}"


def _action(job, status):
    """Returns the action of the first rule that matches an exit status; "Count" if none does."""
    for rule in job["rules"]:
        if status in rule.get("onExitCodes", {}).get("values", []):
            return rule["action"]
    return "Count"


def _to_local(argument, volumes):
    flag, equals, value = argument.partition("=")
    for mount, folder in volumes.items():
        if equals and f"{value}/".startswith(f"{mount}/"):
            return f"{flag}={os.path.abspath(folder)}{value[len(mount) :]}"
    return argument


def main() -> int:
    """Runs the manifest of the command line; returns the exit status of the pod that failed."""
    try:
        arguments = FLAGS(sys.argv)[1:]
    except flags.Error as error:
        sys.exit(f"{error}\n{FLAGS.get_help()}")
    if len(arguments) != 1:
        sys.exit(f"local_pods.py needs the path of one manifest\n{FLAGS.get_help()}")
    import yaml

    volumes = dict(each.partition("=")[::2] for each in FLAGS.volume)
    try:
        with open(arguments[0], encoding="utf-8") as file:
            documents = list(yaml.safe_load_all(file))
        pods = LocalPods(documents, FLAGS.logs, volumes)
    except (OSError, yaml.YAMLError, ValueError) as error:
        sys.exit(f"local_pods.py: error: {arguments[0]}: {' '.join(str(error).split())}")
    except (AttributeError, IndexError, KeyError, TypeError):
        sys.exit(f"local_pods.py: error: {arguments[0]} is not a manifest of tools/job_manifest.py")
    print(f"logs of {', '.join(pods.names)}: {FLAGS.logs}", flush=True)
    return pods.run()


if __name__ == "__main__":
    sys.exit(main())
