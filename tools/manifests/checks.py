"""Checks of a request: whether its name, platform, cluster and program fit together."""

from __future__ import annotations

import re

from common.errors import UsageError
from tools.manifests import gke_tpu
from tools.manifests.program import ProgramFlags

# RFC 1035 labels: names of Services, which host names contain.
LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_MAX_LABEL = 63
# RFC 1123 subdomains: names of service accounts and of volume claims.
SUBDOMAIN = re.compile(r"(?!.{254})[a-z0-9]([-.a-z0-9]*[a-z0-9])?")
_ACCELERATOR = re.compile(r"[A-Z][A-Z0-9_]*")
_EMAIL = re.compile(r"[a-z0-9][-a-z0-9.]*@[a-z0-9][-a-z0-9.]*")

_READ_ONLY = ("data_dir", "warm_start_from")  # an image may hold them

_VERTEX_ONLY, _TPU_ONLY = ("machine_type",), ("tpu_topology",)
_UNUSED = {
    **dict.fromkeys(("job", "indexed_jobs", "jobset", "tfjob"), _VERTEX_ONLY + _TPU_ONLY),
    "tpu_job": (*_VERTEX_ONLY, "gpus", "gpu_type", "user_id"),
    "vertex": (
        *_TPU_ONLY,
        *("namespace", "node_selector", "toleration", "volume", "cpu", "memory", "user_id"),
        *("max_restarts", "grace_period_secs", "ttl_secs"),
    ),
}


def match(flag: str, text: str, pattern: re.Pattern, valid: str) -> str:
    """Returns the value of a flag; raises UsageError unless it is empty or matches."""
    if text and not pattern.fullmatch(text):
        raise UsageError(f"--{flag}={text} is invalid: it must be {valid}")
    return text


def check(request, values, program_flags: ProgramFlags) -> None:
    """Raises UsageError if flags contradict each other.

    Args:
      request: a `tools.manifests.request.Request`.
      values: parsed flags of tools/job_manifest.py.
      program_flags: parsed flags of the program.
    """
    _check_name(request)
    _check_platform(request, values)
    _check_cluster(request, program_flags)
    _check_program(request, program_flags)


def _check_name(request):
    longest = request.name
    if request.roles:
        # JobSet has the longest pod names: NAME-ROLE-JOB-POD-RANDOM.
        longest = max(
            (f"{request.name}-{r}-0-{n}-12345" for r, n in request.roles.items()), key=len
        )
    excess = len(longest) - _MAX_LABEL
    if not LABEL.fullmatch(request.name):
        raise UsageError(
            f"--name={request.name} is invalid: it must consist of a-z, 0-9 and '-', begin with a "
            "letter and not end with '-'"
        )
    if excess > 0:
        limit = len(request.name) - excess
        raise UsageError(
            f"--name={request.name} is too long: names of its pods would have more than "
            f"{_MAX_LABEL} characters. Use at most {limit}"
        )


def _check_platform(request, values):
    kind = f"--kind={request.kind}"
    unused = list(_UNUSED[request.kind]) + ([] if request.roles else ["evaluator"])
    for flag in unused:
        if values[flag].present and values[flag].value != values[flag].default:
            raise UsageError(f"--{flag} cannot be used with {kind}. Remove it")
    if request.is_vertex:
        match("service_account", request.service_account, _EMAIL, "an e-mail address")
        match("gpu_type", request.gpu_type, _ACCELERATOR, "an accelerator type such as NVIDIA_L4")
        if not request.machine_type:
            raise UsageError(f"{kind} needs --machine_type, such as --machine_type=n1-standard-8")
        if request.gpus and not request.gpu_type:
            raise UsageError(f"--gpus={request.gpus} with {kind} needs --gpu_type=NVIDIA_...")
        if any("$(" in text for text in (*request.command, *request.env.values())):
            raise UsageError(f"'$(' in a flag or variable is not supported by {kind}. Remove it")
    else:
        match("service_account", request.service_account, SUBDOMAIN, "a name such as trainer")
        match("gpu_type", request.gpu_type, LABEL, "a label value such as nvidia-l4")
    if request.gpu_type and not request.gpus:
        raise UsageError(f"--gpu_type={request.gpu_type} needs --gpus")
    if request.kind == "tpu_job":
        gke_tpu.find_slice(request.tpu_topology)


def _check_cluster(request, program_flags):
    kind, synchronous = f"--kind={request.kind}", "--strategy=multi_worker_mirrored"
    if not request.roles:
        if program_flags.strategy == "multi_worker_mirrored":
            use = "Add --workers=N" if request.is_vertex else "Use --kind=jobset --workers=N"
            raise UsageError(f"{synchronous} needs a cluster, but {kind} has one process. {use}")
        return
    if "worker" not in request.roles:
        raise UsageError(f"{kind} needs --workers=N, the number of workers beside the chief")
    is_mirrored = program_flags.strategy == "multi_worker_mirrored"
    if is_mirrored and "ps" in request.roles:
        raise UsageError(
            f"--ps={request.roles['ps']}: {synchronous} has no parameter servers. Remove --ps"
        )
    if program_flags.strategy == "mirrored":
        raise UsageError(
            f"--strategy=mirrored is for the GPUs of one machine, but {kind} is a cluster. Use "
            f"{synchronous}, which uses all GPUs, or --kind=job"
        )
    if program_flags.is_parsed and not is_mirrored and request.is_synchronous:
        raise UsageError(f"{kind} needs parameter servers: add --ps=N, or {synchronous} after --")
    if is_mirrored and program_flags.is_parsed and program_flags.seed is None:
        raise UsageError(f"{synchronous} needs --seed=N after --, equal on all workers")
    if request.is_synchronous and request.kind in ("indexed_jobs", "tfjob"):
        raise UsageError(
            f"{kind} restarts one process at a time, which a cluster without --ps does not "
            "survive. Use --kind=jobset, which restarts all"
        )
    if not program_flags.is_parsed:
        return
    if program_flags.mode not in ("train", "train_and_eval"):
        raise UsageError(
            f"--mode={program_flags.mode} does not run in a cluster. Use --kind=job or --mode=train"
        )
    if program_flags.early_stop_evals:
        raise UsageError(
            f"--early_stop_evals={program_flags.early_stop_evals} does not work in a cluster: an "
            "evaluator cannot stop the workers. Remove it"
        )


def _check_program(request, program_flags):
    if not program_flags.is_parsed:
        return
    if request.gpus > 1 and request.command[0] == "run_cpu.py" and program_flags.strategy == "none":
        strategy = "multi_worker_mirrored" if request.roles else "mirrored"
        raise UsageError(
            f"--gpus={request.gpus}, but run_cpu.py uses one GPU without a strategy. Use --gpus=1, "
            f"or add --strategy={strategy} after --"
        )
    for flag, path in program_flags.paths.items():
        in_volume = any(f"{path}/".startswith(f"{mount}/") for mount in request.volumes)
        in_image = flag in _READ_ONLY and path.startswith("/")
        if not (path.startswith("gs://") or in_volume or in_image):
            other = "" if request.is_vertex else " or a path in a --volume"
            raise UsageError(
                f"--{flag}={path} is a path of the container, which has no data and is lost when "
                f"it ends. Use gs://BUCKET/...{other}"
            )
