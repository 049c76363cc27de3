"""tools/job_manifest.py: manifests for Kubernetes and Vertex AI, and its error messages."""

import json
import pathlib
import re
import shlex
import subprocess
import sys

import pytest
from absl import flags

from engine.cli import startup
from engine.distribute import tf_config
from tests import schemas
from tools import job_manifest, local_pods
from tools.manifests.flags import FLAGS, KINDS

yaml = pytest.importorskip("yaml")

ROOT = pathlib.Path(__file__).parents[2]
IMAGE = "us-docker.pkg.dev/project/images/models:1"
PROGRAM = ["--flagfile=configs/digits.cfg", "--data_dir=gs://b/digits", "--model_dir=gs://b/runs"]
CLUSTER = ["--workers=2", "--ps=1"]
SYNCHRONOUS = "--strategy=multi_worker_mirrored"
NEEDS = {
    "job": [],
    "indexed_jobs": CLUSTER,
    "jobset": CLUSTER,
    "tfjob": CLUSTER,
    "tpu_job": ["--tpu_topology=v4-8"],
    "vertex": ["--machine_type=n1-standard-8"],
}
# Every option that a pod can have.
OPTIONS = [
    "--namespace=trainings",
    "--spot",
    "--node_selector=disktype=ssd",
    "--toleration=dedicated=ml:NoSchedule",
    "--toleration=nvidia.com/gpu:NoSchedule",
    "--volume=claim:/data",
    "--env=TF_CPP_MIN_LOG_LEVEL=1",
    "--service_account=trainer",
    "--deadline_secs=3600",
]


@pytest.fixture
def run(monkeypatch, capsys):
    """Runs the program: `run("--kind=job", ..., program=[...])`; returns status, output, errors."""
    monkeypatch.chdir(ROOT)

    def run(*arguments, program=()):
        monkeypatch.setattr(sys, "argv", ["job_manifest.py", *arguments, "--", *program])
        FLAGS.unparse_flags()
        flags.FLAGS.unparse_flags()
        try:
            startup.start(["job_manifest.py", *arguments], "", "tools.manifests.flags")
            startup.run(job_manifest.main)
        except SystemExit as end:
            return (end.code, *capsys.readouterr())
        return (0, *capsys.readouterr())

    return run


@pytest.fixture
def manifest(run):
    """Returns the documents of a kind of manifest: `manifest("job", "--gpus=1")`."""

    def make(kind, *options, program=PROGRAM):
        name = [] if any("--name=" in option for option in options) else ["--name=digits"]
        arguments = [f"--kind={kind}", f"--image={IMAGE}", *name, *NEEDS[kind], *options]
        status, output, errors = run(*arguments, program=program)
        assert status == 0, errors
        return list(yaml.safe_load_all(output))

    return make


def pods(documents):
    """Returns `{role: pod spec}` of a manifest; the role of a job of one pod is ""."""
    found = {}
    for document in documents:
        spec = document["spec"]
        templates = [
            each["template"]["spec"]["template"] for each in spec.get("replicatedJobs", [])
        ]
        templates += [each["template"] for each in spec.get("tfReplicaSpecs", {}).values()]
        templates += [spec["template"]] if document["kind"] == "Job" else []
        for template in templates:
            role = template["metadata"]["labels"].get("app.kubernetes.io/component", "")
            found[role] = template["spec"]
    return found


@pytest.mark.parametrize("options", [[], OPTIONS], ids=["defaults", "options"])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "vertex"])
def test_manifests_match_the_schemas_of_kubernetes(manifest, kind, options):
    documents = manifest(kind, *options)
    for document in schemas.kubernetes_objects(documents):
        schemas.validate(document)


@pytest.mark.parametrize("place", ["spec", "spec.template.spec", "spec.podFailurePolicy"])
def test_the_schemas_reject_unknown_fields(manifest, place):
    (job,) = manifest("job")
    schemas.nested(job, place)["unknown"] = 1
    with pytest.raises(schemas.invalid()):
        schemas.validate(job)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["jobset", "tfjob"])
def test_custom_resources_match_their_definitions(manifest, kind):
    (document,) = manifest(kind, *OPTIONS)
    schemas.validate_custom_resource(document)
    if kind == "jobset":
        (document,) = manifest(kind, "--ps=0", program=[*PROGRAM, SYNCHRONOUS])
        schemas.validate_custom_resource(document)
    document["spec"]["unknown"] = 1
    with pytest.raises(schemas.invalid()):
        schemas.validate_custom_resource(document)


def test_a_gpu_job(manifest):
    (job,) = manifest("job", "--gpus=1", "--gpu_type=nvidia-l4", "--spot", "--cpu=500m")
    pod = pods([job])[""]
    assert pod["containers"][0]["args"] == ["run_cpu.py", *PROGRAM]
    assert pod["containers"][0]["resources"] == {
        "requests": {"cpu": "500m", "memory": "8Gi"},
        "limits": {"memory": "8Gi", "nvidia.com/gpu": 1},
    }
    assert pod["nodeSelector"] == {
        "cloud.google.com/gke-spot": "true",
        "cloud.google.com/gke-accelerator": "nvidia-l4",
    }
    assert [each["key"] for each in pod["tolerations"]] == ["cloud.google.com/gke-spot"]


def test_only_the_processes_that_train_have_gpus(manifest):
    found = pods(manifest("jobset", "--gpus=1"))
    limits = {role: pod["containers"][0]["resources"]["limits"] for role, pod in found.items()}
    assert [role for role in limits if "nvidia.com/gpu" in limits[role]] == ["chief", "worker"]


@pytest.mark.parametrize("kind", ["job", "jobset", "tfjob"])
def test_pods_meet_the_restricted_security_standard(manifest, kind):
    for pod in pods(manifest(kind)).values():
        security, container = pod["securityContext"], pod["containers"][0]["securityContext"]
        assert security["runAsNonRoot"] is True
        assert security["runAsUser"] == 1000
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container["allowPrivilegeEscalation"] is False
        assert container["readOnlyRootFilesystem"] is True
        assert container["capabilities"] == {"drop": ["ALL"]}
        assert {"name": "tmp", "emptyDir": {}} in pod["volumes"]


@pytest.mark.parametrize(
    ("status", "action"), [(1, "Count"), (2, "FailJob"), (137, "Count"), (143, "Ignore")]
)
def test_restarts_depend_on_the_exit_status(manifest, status, action):
    (job,) = manifest("job")
    (job,) = local_pods._jobs(job)
    assert local_pods._action(job, status) == action


def test_disruptions_of_a_node_are_no_failures(manifest):
    (job,) = manifest("job")
    rules = job["spec"]["podFailurePolicy"]["rules"]
    disrupted = [rule for rule in rules if "onPodConditions" in rule]
    assert disrupted == [
        {
            "action": "Ignore",
            "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
        }
    ]


def test_a_synchronous_cluster_restarts_as_a_whole(manifest):
    (jobset,) = manifest("jobset", "--ps=0", "--max_restarts=5", program=[*PROGRAM, SYNCHRONOUS])
    spec = jobset["spec"]
    assert spec["failurePolicy"]["maxRestarts"] == 5
    for job in spec["replicatedJobs"]:
        # Every failure of a pod fails its Job, and so restarts the JobSet; invalid flags end it.
        assert job["template"]["spec"]["backoffLimit"] == 0
        actions = [r["action"] for r in job["template"]["spec"]["podFailurePolicy"]["rules"]]
        assert actions == ["FailJob"]
    assert [
        (rule["action"], rule["onJobFailureReasons"]) for rule in spec["failurePolicy"]["rules"]
    ] == [("FailJobSet", ["PodFailurePolicy", "DeadlineExceeded"])]


def test_a_jobset_waits_for_the_evaluator_but_not_for_the_parameter_servers(manifest):
    (jobset,) = manifest("jobset")
    targets = jobset["spec"]["successPolicy"]["targetReplicatedJobs"]
    assert targets == ["chief", "worker", "evaluator"]


def test_a_tfjob_leaves_the_evaluator_running_when_the_chief_ends(manifest):
    (tfjob,) = manifest("tfjob")
    assert tfjob["spec"]["runPolicy"]["cleanPodPolicy"] == "None"
    replicas = tfjob["spec"]["tfReplicaSpecs"]
    assert {role: each["replicas"] for role, each in replicas.items()} == {
        "Chief": 1,
        "Worker": 2,
        "PS": 1,
        "Evaluator": 1,
    }
    assert {each["restartPolicy"] for each in replicas.values()} == {"ExitCode"}
    # The operator adds TF_CONFIG to a container of this name.
    names = {each["template"]["spec"]["containers"][0]["name"] for each in replicas.values()}
    assert names == {"tensorflow"}


@pytest.mark.parametrize("kind", ["indexed_jobs", "jobset", "tfjob"])
def test_every_pod_finds_its_task_in_tf_config(manifest, kind, monkeypatch, tmp_path):
    group = local_pods.LocalPods(manifest(kind), tmp_path, {})
    tasks = []
    for command, env in group._commands.values():
        monkeypatch.setenv("TF_CONFIG", env["TF_CONFIG"])
        tasks.append(tf_config.from_environment())
        assert command[1:] == ["run_cpu.py", *PROGRAM]
    found = [(task.type, task.worker) for task in tasks]
    assert found == [("chief", 0), ("worker", 1), ("worker", 2), ("ps", 0), ("evaluator", 0)]
    assert all(task.in_cluster for task in tasks)


def test_indexed_jobs_have_a_headless_service_for_their_host_names(manifest):
    service, *jobs = manifest("indexed_jobs")
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    for job in jobs:
        labels = job["spec"]["template"]["metadata"]["labels"]
        assert service["spec"]["selector"].items() <= labels.items()
        assert job["spec"]["template"]["spec"]["subdomain"] == service["metadata"]["name"]


@pytest.mark.parametrize(
    ("topology", "accelerator", "shape"),
    [("v3-8", "tpu-v3-device", "2x2"), ("v4-8", "tpu-v4-podslice", "2x2x1")],
)
def test_a_tpu_job_uses_all_chips_of_one_host(manifest, topology, accelerator, shape):
    pod = pods(manifest("tpu_job", f"--tpu_topology={topology}"))[""]
    assert pod["nodeSelector"] == {
        "cloud.google.com/gke-tpu-accelerator": accelerator,
        "cloud.google.com/gke-tpu-topology": shape,
    }
    container = pod["containers"][0]
    assert container["resources"]["limits"]["google.com/tpu"] == 4
    assert container["args"][0] == "run_tpu.py"
    assert container["args"][-2:] == ["--tpu=local", f"--tpu_topology={topology}"]


def test_the_pools_of_a_custom_job_are_chief_workers_ps_evaluator(manifest):
    options = [*CLUSTER, "--gpus=1", "--gpu_type=NVIDIA_TESLA_T4", "--spot"]
    account = "trainer@project.iam.gserviceaccount.com"
    (job,) = manifest("vertex", *options, "--deadline_secs=60", f"--service_account={account}")
    assert [pool["replicaCount"] for pool in job["workerPoolSpecs"]] == [1, 2, 1, 1]
    assert job["workerPoolSpecs"][0]["containerSpec"] == {
        "imageUri": IMAGE,
        "args": ["run_cpu.py", *PROGRAM],
    }
    gpus = [pool["machineSpec"].get("acceleratorCount") for pool in job["workerPoolSpecs"]]
    assert gpus == [1, 1, None, None]
    assert job["scheduling"] == {"timeout": "60s", "strategy": "SPOT"}
    assert job["serviceAccount"] == account


def test_a_custom_job_without_parameter_servers_skips_their_pool(manifest):
    (job,) = manifest("vertex", "--workers=1", program=[*PROGRAM, SYNCHRONOUS])
    assert [bool(pool) for pool in job["workerPoolSpecs"]] == [True, True, False, True]
    assert job["scheduling"] == {"restartJobOnWorkerRestart": True}


def test_a_warning_that_vertex_ai_stops_the_evaluator(run):
    arguments = ["--kind=vertex", f"--image={IMAGE}", "--name=x", *NEEDS["vertex"], *CLUSTER]
    assert "stops the evaluator" in run(*arguments, program=PROGRAM)[2]


def test_a_program_of_your_own(manifest):
    (jobset,) = manifest("jobset", "--program=train.py", program=["--steps=3", "x y"])
    pod = pods([jobset])["worker"]
    assert pod["containers"][0]["args"] == ["train.py", "--steps=3", "x y"]


NASTY = ["y", "1e3", "0o17", "1_0", "1:30", "=", "null", "~", "*a", "{a: b}", "- b", "a: b", "# c"]
NASTY += ["$(HOME)", "$$", "$", "'", '"', "\\", "über", "%x", "!!str", "2026-01-01", "0x1F", ".inf"]


def test_strings_reach_the_program_unchanged(manifest, tmp_path):
    options = ["--program=p.py", *(f"--env=V{i}={text}" for i, text in enumerate(NASTY))]
    documents = manifest("job", *options, program=NASTY)
    group = local_pods.LocalPods(documents, tmp_path, {})
    ((command, env),) = group._commands.values()
    assert command[1:] == ["p.py", *NASTY]
    assert list(env.values()) == NASTY


@pytest.mark.parametrize("text", ["y", "off", "NO", "1e3", "0o17", "null", "~", "2026-01-01"])
def test_strings_that_yaml_reads_as_other_values_are_quoted(text):
    assert job_manifest.to_yaml([[text, "run", "a/b.c"]]) == f"- '{text}'\n- run\n- a/b.c\n"


def test_pyyaml_is_missing(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "yaml", None)
    status, _, errors = run("--kind=job", "--name=x", f"--image={IMAGE}", program=PROGRAM)
    assert (status, "pip install pyyaml" in errors) == (2, True)


def test_kubectl_reads_the_same_strings(run):
    schemas.require_command("kubectl")
    options = ["--kind=job", "--name=x", f"--image={IMAGE}", "--program=p.py", "--env=A=y"]
    _, output, _ = run(*options, program=NASTY)
    (written,) = yaml.safe_load_all(output)
    read = schemas.kubectl_read(output)
    container = read["spec"]["template"]["spec"]["containers"][0]
    assert container["args"] == written["spec"]["template"]["spec"]["containers"][0]["args"]
    assert container["env"] == [{"name": "A", "value": "y"}]
    # A number instead of a string is an error.
    with pytest.raises(subprocess.CalledProcessError):
        schemas.kubectl_read(output.replace("value: 'y'", "value: y"))


INVALID = [
    ("job", ["--name=Digits"], "--name=Digits is invalid: it must consist of a-z, 0-9 and '-'"),
    ("job", ["--name=1digit"], "begin with a letter"),
    ("job", ["--name=x\n"], "character 2 is a control character"),
    ("job", [f"--name={'x' * 64}"], "Use at most 63"),
    ("jobset", [f"--name={'x' * 45}"], "too long: names of its pods would have"),
    ("job", ["--image=models"], "--image=models has no version"),
    ("job", ["--image=r/models:latest"], "Add a tag"),
    ("job", ["--image=a b:1"], "is not an image name"),
    ("job", ["--image="], "--image is missing"),
    ("job", ["--cpu=two"], "--cpu=two is invalid: it must be a quantity"),
    ("job", ["--memory=8GB"], "--memory=8GB is invalid"),
    ("job", ["--memory=0Gi"], "--memory=0Gi is invalid"),
    ("job", ["--memory=16"], "--memory=16 is invalid: it must be a quantity with a unit"),
    ("job", ["--cpu=4Gi"], "--cpu=4Gi is invalid"),
    ("job", ["--workers=2"], "--workers=2 --ps=0: --kind=job has one process. Use --kind=jobset"),
    ("job", ["--gpu_type=nvidia-l4"], "needs --gpus"),
    ("job", ["--gpus=2"], "Use --gpus=1, or add --strategy=mirrored after --"),
    ("jobset", ["--gpus=2"], "Use --gpus=1, or add --strategy=multi_worker_mirrored after --"),
    ("job", ["--node_selector=x"], "it must be KEY=VALUE"),
    ("job", ["--toleration=a=b"], "it must be KEY=VALUE:EFFECT or KEY:EFFECT"),
    ("job", ["--volume=claim"], "it must be CLAIM:/PATH"),
    ("job", ["--volume=claim:/a/../b"], "it must be CLAIM:/PATH"),
    ("job", ["--volume=claim:/tmp"], "a folder other than"),
    ("job", ["--node_selector=a=1", "--node_selector=a=2"], "--node_selector=a=2: another --node_"),
    ("job", ["--volume=x:/d", "--volume=y:/d"], "--volume=y:/d: another --volume sets /d. Remove"),
    ("job", ["--env=A=1", "--env=A=2"], "--env=A=2: another --env sets A. Remove one of them"),
    ("job", ["--env=TF_CONFIG={}"], "TF_CONFIG is set by the manifest"),
    ("job", ["--service_account=a@b.c"], "it must be a name such as trainer"),
    ("job", ["--gpus=1", "--gpu_type=NVIDIA_L4"], "it must be a label value such as nvidia-l4"),
    ("job", ["--noevaluator"], "--evaluator cannot be used with --kind=job"),
    ("job", ["--machine_type=n1-standard-8"], "--machine_type cannot be used with --kind=job"),
    ("job", ["--tpu_topology=v3-8"], "--tpu_topology cannot be used with --kind=job"),
    ("jobset", ["--workers=0"], "--kind=jobset needs --workers=N"),
    ("jobset", ["--ps=0"], "add --ps=N, or --strategy=multi_worker_mirrored after --"),
    ("vertex", ["--ps=1"], "--kind=vertex has one process. Add --workers=N"),
    ("vertex", ["--machine_type="], "--kind=vertex needs --machine_type"),
    ("vertex", ["--gpus=1"], "needs --gpu_type"),
    ("vertex", ["--gpus=1", "--gpu_type=nvidia-l4"], "an accelerator type such as NVIDIA_L4"),
    ("vertex", ["--cpu=8"], "--cpu cannot be used with --kind=vertex"),
    ("vertex", ["--max_restarts=3"], "--max_restarts cannot be used with --kind=vertex"),
    ("vertex", ["--volume=claim:/data"], "--volume cannot be used with --kind=vertex"),
    ("vertex", ["--service_account=trainer"], "it must be an e-mail address"),
    ("vertex", ["--env=A=$(B)"], "'$(' in a flag or variable is not supported"),
    ("tpu_job", ["--tpu_topology="], "--tpu_topology is missing. Use v3-8 or v4-8"),
    ("tpu_job", ["--tpu_topology=v2-8"], "GKE has no nodes with a TPU v2"),
    ("tpu_job", ["--tpu_topology=v4-32"], "on each of its 4 hosts, which GKE does not run"),
    ("tpu_job", ["--tpu_topology=v5e-8"], "only the PJRT runtime"),
    ("tpu_job", ["--tpu_topology=v7-8"], "unknown TPU slice 'v7-8'"),
    ("tpu_job", ["--tpu_topology=1x2"], "it is a slice of the emulator"),
    ("tpu_job", ["--gpus=1"], "--gpus cannot be used with --kind=tpu_job"),
    ("pod", [], "value should be one of <job|"),
]


@pytest.mark.parametrize(("kind", "options", "message"), INVALID)
def test_invalid_flags(run, kind, options, message):
    arguments = [f"--kind={kind}", "--name=digits", f"--image={IMAGE}", *NEEDS.get(kind, [])]
    status, output, errors = run(*arguments, *options, program=PROGRAM)
    assert (status, output) == (2, "")
    assert errors.startswith("job_manifest.py: error: ")
    assert errors.count("\n") == 1
    assert message in errors


@pytest.mark.parametrize(
    ("kind", "program", "message"),
    [
        ("job", ["--mode=trian"], "'trian' is unknown. Did you mean 'train'?"),
        ("job", ["--train_step=3"], "Unknown command line flag 'train_step'"),
        ("job", ["--model_dir=runs/x"], "--model_dir=runs/x is a path of the container"),
        ("job", ["--export_dir=/export"], "Use gs://BUCKET/... or a path in a --volume"),
        ("job", ["--data_dir=data/digits"], "--data_dir=data/digits is a path of the container"),
        ("job", ["--warm_start_from=runs/x/best"], "--warm_start_from=runs/x/best is a path of"),
        ("vertex", ["--model_dir=runs/x"], "Use gs://BUCKET/...\n"),
        ("job", [SYNCHRONOUS], "Use --kind=jobset --workers=N"),
        ("jobset", ["--mode=eval"], "--mode=eval does not run in a cluster"),
        ("jobset", ["--early_stop_evals=2"], "an evaluator cannot stop the workers"),
        ("jobset", ["--strategy=mirrored"], "is for the GPUs of one machine"),
        ("jobset", [SYNCHRONOUS], "has no parameter servers. Remove --ps"),
        ("tpu_job", ["--tpu=local"], "--tpu=local after -- is set by --tpu_topology before it"),
    ],
)
def test_invalid_flags_of_the_program(run, kind, program, message):
    arguments = [f"--kind={kind}", "--name=digits", f"--image={IMAGE}", *NEEDS[kind]]
    status, output, errors = run(*arguments, program=[*PROGRAM, *program])
    assert (status, output) == (2, "")
    assert message in errors


def test_a_synchronous_cluster_needs_a_seed(run):
    program = ["--model=mlp", "--dataset=digits", "--train_steps=1", *PROGRAM[1:], SYNCHRONOUS]
    arguments = ["--kind=jobset", "--name=digits", f"--image={IMAGE}", "--workers=1"]
    status, _, errors = run(*arguments, program=program)
    assert (status, "needs --seed=N after --" in errors) == (2, True)


@pytest.mark.parametrize("kind", ["indexed_jobs", "tfjob"])
def test_kinds_that_cannot_restart_all_processes(run, kind):
    arguments = [f"--kind={kind}", "--name=digits", f"--image={IMAGE}", "--workers=1"]
    status, _, errors = run(*arguments, program=[*PROGRAM, SYNCHRONOUS])
    assert status == 2
    assert "Use --kind=jobset, which restarts all" in errors


def test_paths_in_a_volume(manifest):
    program = [PROGRAM[0], "--data_dir=/data/digits", "--model_dir=/data/runs/digits"]
    pod = pods(manifest("job", "--volume=claim:/data", program=program))[""]
    claims = [each.get("persistentVolumeClaim") for each in pod["volumes"]]
    assert claims == [None, {"claimName": "claim"}]
    mounts = [each["mountPath"] for each in pod["containers"][0]["volumeMounts"]]
    assert mounts == ["/tmp", "/data"]


def test_a_flagfile_that_only_the_image_has_is_not_checked(run):
    arguments = ["--kind=job", "--name=digits", f"--image={IMAGE}"]
    status, output, errors = run(*arguments, program=["--flagfile=/recipes/mine.cfg"])
    assert status == 0
    assert "--flagfile=/recipes/mine.cfg" in output
    assert "is not on this machine: the flags after -- are not checked" in errors


def test_the_commands_of_the_page_print_manifests(run):
    page = (ROOT / "docs" / "kubernetes.md").read_text().replace("\\\n", " ")
    commands = re.findall(r"(?m)^python -m tools\.job_manifest (.*?)(?: [|>] .*)?$", page)
    assert len(commands) >= len(KINDS)
    for command in commands:
        words = shlex.split(command)
        end = words.index("--")
        status, output, errors = run(*words[:end], program=words[end + 1 :])
        assert (status, bool(output)) == (0, True), errors


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [[], [*CLUSTER, "--spot", "--deadline_secs=60"]], ids=["one", "cluster"]
)
def test_gcloud_submits_the_custom_job(run, options, tmp_path):
    schemas.require_command("gcloud")
    arguments = ["--kind=vertex", "--name=digits", f"--image={IMAGE}", *NEEDS["vertex"], *options]
    _, output, _ = run(*arguments, program=PROGRAM)
    (tmp_path / "job.yaml").write_text(output)
    sent = schemas.gcloud_request(tmp_path / "job.yaml", tmp_path)
    (written,) = yaml.safe_load_all(output)
    for pool in written["workerPoolSpecs"]:
        pool["replicaCount"] = str(pool["replicaCount"])  # JSON of int64
    assert json.loads(sent)["jobSpec"] == written
