"""The pod template that all Kubernetes manifests share."""

from __future__ import annotations

import json

from tools.manifests import gke_tpu
from tools.manifests.request import Request

# Kubeflow's training operator requires these two names.
CONTAINER, PORT_NAME = "tensorflow", "tfjob-port"
PORT = 2222
_INDEX_ANNOTATION = "metadata.annotations['batch.kubernetes.io/job-completion-index']"


def labels(request: Request, role: str = "") -> dict:
    """Returns the labels of an object; role is "" for a job of one process."""
    return {
        "app.kubernetes.io/instance": request.name,
        **({"app.kubernetes.io/component": role} if role else {}),
    }


def tf_config_env(role: str, cluster: dict[str, list[str]]) -> list[dict]:
    """Returns environment variables that set TF_CONFIG in the pods of an Indexed Job.

    Kubernetes replaces $(TASK_INDEX) by the value of a variable that precedes it in the list.

    Args:
      role: of the pods.
      cluster: `{role: addresses}` without the evaluator.
    """
    task = f'{{"type": "{role}", "index": $(TASK_INDEX)}}'
    config = f'{{"cluster": {json.dumps(cluster)}, "task": {task}}}'
    return [
        {"name": "TASK_INDEX", "valueFrom": {"fieldRef": {"fieldPath": _INDEX_ANNOTATION}}},
        {"name": "TF_CONFIG", "value": config},
    ]


def template(request: Request, role: str = "", env=(), subdomain: str = "") -> dict:
    """Returns a PodTemplateSpec.

    Args:
      request: the request.
      role: role in the cluster; "" for a job of one process.
      env: environment variables before those of the request.
      subdomain: name of the headless Service that gives the pods DNS names; "" for none.
    """
    container = {
        "name": CONTAINER,
        "image": request.image,
        "args": [escape(argument) for argument in request.command],
        "env": [*env, *({"name": k, "value": escape(v)} for k, v in request.env.items())],
        "ports": [{"name": PORT_NAME, "containerPort": PORT}] if role else [],
        "resources": _resources(request, role),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        # `kubectl describe pod` shows the program's error message.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            {"name": "tmp", "mountPath": "/tmp"},
            *({"name": f"volume-{i}", "mountPath": path} for i, path in enumerate(request.volumes)),
        ],
    }
    selector, tolerations = _placement(request, role)
    spec = {
        # A failed pod is replaced by a new one, perhaps on another node.
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": request.grace_period_secs,
        "subdomain": subdomain,
        "serviceAccountName": request.service_account,
        # Workload Identity needs no token in the pod, and the program does not call Kubernetes.
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": _security_context(request),
        "nodeSelector": selector,
        "tolerations": tolerations,
        "containers": [_without_empty(container)],
        "volumes": [
            {"name": "tmp", "emptyDir": {}},
            *(
                {"name": f"volume-{i}", "persistentVolumeClaim": {"claimName": claim}}
                for i, claim in enumerate(request.volumes.values())
            ),
        ],
    }
    return {"metadata": {"labels": labels(request, role)}, "spec": _without_empty(spec)}


def escape(text: str) -> str:
    """Returns text that Kubernetes, which replaces $(NAME) and $$, passes on as it was."""
    return text.replace("$", "$$")


def _resources(request, role):
    requests = {"cpu": request.cpu, "memory": request.memory}
    limits = {"memory": request.memory}
    if request.has_gpus(role):
        limits["nvidia.com/gpu"] = request.gpus
    if request.tpu_topology:
        limits["google.com/tpu"] = gke_tpu.find_slice(request.tpu_topology).chips
    return {"requests": requests, "limits": limits}


def _placement(request, role):
    """Returns the node selector and the tolerations."""
    selector, tolerations = {}, []
    if request.spot:
        selector["cloud.google.com/gke-spot"] = "true"
        tolerations.append(
            {
                "key": "cloud.google.com/gke-spot",
                "operator": "Equal",
                "value": "true",
                "effect": "NoSchedule",
            }
        )
    if request.has_gpus(role) and request.gpu_type:
        selector["cloud.google.com/gke-accelerator"] = request.gpu_type
    if request.tpu_topology:
        selector.update(gke_tpu.find_slice(request.tpu_topology).node_labels)
    return {**selector, **request.node_selector}, [*tolerations, *request.tolerations]


def _security_context(request):
    # The TPU's device files belong to root.
    user = 0 if request.tpu_topology else request.user_id
    return {
        "runAsNonRoot": bool(user),
        "runAsUser": user,
        "runAsGroup": user,
        # Volumes are writable for the group.
        "fsGroup": user,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def _without_empty(fields):
    return {key: value for key, value in fields.items() if value not in ("", [], {}, None)}
