"""Flags of tools/job_manifest.py. Imports no TensorFlow."""

from __future__ import annotations

import functools

from absl import flags

FLAGS = flags.FlagValues()

KINDS = ("job", "indexed_jobs", "jobset", "tfjob", "tpu_job", "vertex")
CLUSTER_KINDS = ("indexed_jobs", "jobset", "tfjob")


_string = functools.partial(flags.DEFINE_string, flag_values=FLAGS)
_integer = functools.partial(flags.DEFINE_integer, lower_bound=0, flag_values=FLAGS)
_bool = functools.partial(flags.DEFINE_bool, flag_values=FLAGS)
_strings = functools.partial(flags.DEFINE_multi_string, flag_values=FLAGS)

flags.DEFINE_enum(
    "kind",
    None,
    KINDS,
    "job: one pod, on CPUs or GPUs. indexed_jobs, jobset, tfjob: a cluster of chief, workers, "
    "parameter servers and evaluator, as plain Jobs, a JobSet or a Kubeflow TFJob. tpu_job: one "
    "pod on a TPU host of GKE. vertex: a CustomJob of Vertex AI.",
    flag_values=FLAGS,
)
_string("name", None, "Name of the job.")
_string("namespace", "", "Kubernetes namespace. Default: the one that kubectl uses.")
_string("image", None, "Image with a tag or digest, such as REGION-docker.pkg.dev/P/R/models:1.")
_string(
    "program",
    "",
    "Program in the image. Default: run_cpu.py, or run_tpu.py for --kind=tpu_job.",
)
_integer("workers", 0, "Workers beside the chief.")
_integer("ps", 0, "Parameter servers.")
_bool("evaluator", True, "Whether a cluster has an evaluator.")
_string("cpu", "4", "CPUs of a pod, such as 4 or 500m.")
_string("memory", "8Gi", "Memory of a pod, such as 8Gi.")
_integer("gpus", 0, "GPUs of the chief and of each worker.")
_string(
    "gpu_type",
    "",
    "GPU: value of the node label cloud.google.com/gke-accelerator, such as nvidia-l4; for vertex "
    "the accelerator type, such as NVIDIA_L4.",
)
_string("machine_type", "", "Machine type of Vertex AI, such as n1-standard-8.")
_string("tpu_topology", "", "TPU slice of --kind=tpu_job: v3-8 or v4-8.")
_bool("spot", False, "Whether to use spot VMs of Google Cloud, which may be preempted.")
_strings("node_selector", [], "Node label KEY=VALUE. May be repeated.")
_strings("toleration", [], "Tolerated node taint KEY=VALUE:EFFECT or KEY:EFFECT. May be repeated.")
_strings("volume", [], "PersistentVolumeClaim CLAIM:/PATH, mounted at /PATH. May be repeated.")
_strings("env", [], "Environment variable NAME=VALUE. May be repeated.")
_string(
    "service_account",
    "",
    "Kubernetes service account, for gs:// bound to one of Google Cloud by Workload Identity; for "
    "vertex the e-mail address of the Google Cloud service account.",
)
_integer("user_id", 1000, "Numeric user and group that the program runs as.", lower_bound=1)
_integer("max_restarts", 10, "Restarts after a failure. Preemptions and evictions do not count.")
_integer(
    "grace_period_secs",
    120,
    "Seconds from SIGTERM to SIGKILL, in which the program saves.",
    lower_bound=1,
)
_integer("deadline_secs", 0, "Ends the job after this many seconds, done or not. 0: never.")
_integer(
    "ttl_secs",
    None,
    "Deletes a finished job, with its pods and logs, after this many seconds. Default: 86400; for "
    "tfjob 3600, because the pods that are left of a failed one run until then.",
)
