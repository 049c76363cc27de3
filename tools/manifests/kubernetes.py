"""Kubernetes manifests: Job, Indexed Jobs with a Service, JobSet, Kubeflow TFJob."""

from __future__ import annotations

from tools.manifests import pod
from tools.manifests.request import Request

# Exit statuses of the programs: invalid flags; terminated by SIGTERM, after saving.
_INVALID_FLAGS, _TERMINATED = 2, 143
_TFJOB_ROLES = {"chief": "Chief", "worker": "Worker", "ps": "PS", "evaluator": "Evaluator"}


def job(request: Request) -> list[dict]:
    """Returns a Job with one pod."""
    return [_object(request, "batch/v1", "Job", request.name, _job_spec(request))]


def indexed_jobs(request: Request) -> list[dict]:
    """Returns one Indexed Job for each role of a cluster, and a Service with their DNS names."""
    names = {role: f"{request.name}-{role}" for role in request.roles}
    # Host names of Indexed Jobs: NAME-INDEX.SUBDOMAIN.
    cluster = _cluster(request, lambda role, i: f"{names[role]}-{i}.{request.name}")
    service = {
        "clusterIP": "None",
        "selector": pod.labels(request),
        "ports": [{"name": pod.PORT_NAME, "port": pod.PORT}],
        # Processes look each other up while they start.
        "publishNotReadyAddresses": True,
    }
    return [_object(request, "v1", "Service", request.name, service)] + [
        _object(
            request,
            "batch/v1",
            "Job",
            names[role],
            _job_spec(request, role, cluster, subdomain=request.name),
            role,
        )
        for role in request.roles
    ]


def jobset(request: Request) -> list[dict]:
    """Returns a JobSet with one Indexed Job for each role of a cluster."""
    # Host names of a JobSet: NAME-ROLE-JOB-INDEX.NAME, with one Job for each role.
    cluster = _cluster(request, lambda role, i: f"{request.name}-{role}-0-{i}.{request.name}")
    spec = {
        # Waits for the evaluator's last result. The parameter servers exit when all others have.
        "successPolicy": {
            "operator": "All",
            "targetReplicatedJobs": [role for role in request.roles if role != "ps"],
        },
        "replicatedJobs": [
            {
                "name": role,
                "replicas": 1,
                "template": {"spec": _without_ttl(_job_spec(request, role, cluster))},
            }
            for role in request.roles
        ],
        "ttlSecondsAfterFinished": request.ttl_secs,
    }
    if request.is_synchronous:
        # A restarted worker cannot rejoin: a failure restarts all. Invalid flags and the deadline
        # end the job.
        spec["failurePolicy"] = {
            "maxRestarts": request.max_restarts,
            "restartStrategy": "BlockingRecreate",
            "rules": [
                {
                    "name": "final",
                    "action": "FailJobSet",
                    "onJobFailureReasons": ["PodFailurePolicy", "DeadlineExceeded"],
                }
            ],
        }
    return [_object(request, "jobset.x-k8s.io/v1alpha2", "JobSet", request.name, spec)]


def tfjob(request: Request) -> list[dict]:
    """Returns a TFJob of Kubeflow's training operator, which sets TF_CONFIG itself."""
    policy = {
        # The job has succeeded when the chief has: the evaluator still evaluates and exports.
        "cleanPodPolicy": "None",
        "backoffLimit": request.max_restarts,
        "ttlSecondsAfterFinished": request.ttl_secs,
    }
    if request.deadline_secs:
        policy["activeDeadlineSeconds"] = request.deadline_secs
    replicas = {
        _TFJOB_ROLES[role]: {
            "replicas": count,
            # Exit statuses from 128 on, such as that of SIGTERM, restart a pod; others do not.
            "restartPolicy": "ExitCode",
            "template": _without_restart_policy(pod.template(request, role)),
        }
        for role, count in request.roles.items()
    }
    spec = {"runPolicy": policy, "tfReplicaSpecs": replicas}
    return [_object(request, "kubeflow.org/v1", "TFJob", request.name, spec)]


def _object(request, api_version, kind, name, spec, role=""):
    metadata = {"name": name, "labels": pod.labels(request, role)}
    if request.namespace:
        metadata["namespace"] = request.namespace
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


def _cluster(request, host):
    """Returns the cluster of TF_CONFIG; `host` is a function of the role and the index."""
    return {
        role: [f"{host(role, i)}:{pod.PORT}" for i in range(count)]
        for role, count in request.roles.items()
        if role != "evaluator"
    }


def _job_spec(request, role="", cluster=None, subdomain=""):
    env = pod.tf_config_env(role, cluster) if cluster else []
    restarts_all = request.is_synchronous
    spec = {
        "backoffLimit": 0 if restarts_all else request.max_restarts,
        "podFailurePolicy": {"rules": _failure_rules(restarts_all)},
        "ttlSecondsAfterFinished": request.ttl_secs,
    }
    if cluster:
        count = request.roles[role]
        spec = {"completionMode": "Indexed", "completions": count, "parallelism": count, **spec}
    if request.deadline_secs:
        spec["activeDeadlineSeconds"] = request.deadline_secs
    return {**spec, "template": pod.template(request, role, env, subdomain)}


def _failure_rules(restarts_all):
    statuses = {"containerName": pod.CONTAINER, "operator": "In"}
    rules = [
        {"action": "FailJob", "onExitCodes": {**statuses, "values": [_INVALID_FLAGS]}},
    ]
    if not restarts_all:
        # Preemption, eviction and drain are no failures: the new pod resumes.
        disrupted = [{"type": "DisruptionTarget", "status": "True"}]
        rules += [
            {"action": "Ignore", "onPodConditions": disrupted},
            {"action": "Ignore", "onExitCodes": {**statuses, "values": [_TERMINATED]}},
        ]
    return rules


def _without_ttl(spec):
    # The TTL of a JobSet deletes its Jobs.
    return {key: value for key, value in spec.items() if key != "ttlSecondsAfterFinished"}


def _without_restart_policy(template):
    # The operator sets it.
    spec = {key: value for key, value in template["spec"].items() if key != "restartPolicy"}
    return {**template, "spec": spec}
