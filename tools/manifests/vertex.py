"""Configuration of a CustomJob of Vertex AI, for `gcloud ai custom-jobs create --config`."""

from __future__ import annotations

from tools.manifests.request import ROLES, Request


def custom_job(request: Request) -> dict:
    """Returns a CustomJobSpec. Its pools are, in this order, chief, workers, ps and evaluator.

    Vertex AI sets TF_CONFIG in the containers of a job with several machines.
    """
    counts = request.roles or {"chief": 1}
    pools = [_worker_pool(request, role, counts[role]) if role in counts else {} for role in ROLES]
    while not pools[-1]:
        pools.pop()
    scheduling = {}
    if request.deadline_secs:
        scheduling["timeout"] = f"{request.deadline_secs}s"
    if request.spot:
        scheduling["strategy"] = "SPOT"
    if request.is_synchronous:
        # A restarted worker cannot rejoin.
        scheduling["restartJobOnWorkerRestart"] = True
    spec = {"workerPoolSpecs": pools}
    if scheduling:
        spec["scheduling"] = scheduling
    if request.service_account:
        spec["serviceAccount"] = request.service_account
    return spec


def _worker_pool(request, role, count):
    machine = {"machineType": request.machine_type}
    if request.has_gpus(role):
        machine.update(acceleratorType=request.gpu_type, acceleratorCount=request.gpus)
    container = {"imageUri": request.image, "args": list(request.command)}
    if request.env:
        container["env"] = [{"name": name, "value": v} for name, v in request.env.items()]
    return {"machineSpec": machine, "replicaCount": count, "containerSpec": container}
