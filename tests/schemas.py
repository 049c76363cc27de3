"""Validates manifests: published schemas of Kubernetes, custom resources, kubectl, gcloud."""

import http.server
import json
import os
import pathlib
import shutil
import subprocess
import threading

import pytest

OLDEST_KUBERNETES = "1.29"
# A folder with the CustomResourceDefinitions of JobSet and TFJob, *.yaml.
CRDS = "JOB_CRDS"


def require_command(name):
    """Skips the test if a command is not installed."""
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")


def kubernetes_objects(documents):
    """Yields the objects of a manifest, those that a custom resource contains as their own kind."""
    for document in documents:
        spec = document["spec"]
        for job in spec.get("replicatedJobs", []):
            yield {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {"name": job["name"]},
                "spec": job["template"]["spec"],
            }
        for role, replica in spec.get("tfReplicaSpecs", {}).items():
            yield {
                "apiVersion": "v1",
                "kind": "PodTemplate",
                "metadata": {"name": role.lower()},
                "template": replica["template"],
            }
        if document["apiVersion"] in ("v1", "batch/v1"):
            yield document


def validate(document):
    """Raises unless an object matches the schemas of Kubernetes, without unknown fields."""
    package = pytest.importorskip("kubernetes_validate")
    for version in (OLDEST_KUBERNETES, package.latest_version()):
        package.validate(document, version, strict=True)


def invalid():
    """Returns the exception of a document that does not match its schema."""
    return pytest.importorskip("jsonschema").ValidationError


def nested(document, place):
    """Returns a part of a document, such as that at "spec.template"."""
    for name in place.split("."):
        document = document[name]
    return document


def validate_custom_resource(document):
    """Raises if a custom resource does not match its definition, or has unknown fields."""
    if CRDS not in os.environ:
        pytest.skip(f"{CRDS} does not name a folder with CustomResourceDefinitions")
    jsonschema, yaml = pytest.importorskip("jsonschema"), pytest.importorskip("yaml")
    group, _, version = document["apiVersion"].partition("/")
    for path in pathlib.Path(os.environ[CRDS]).glob("*.yaml"):
        definition = yaml.load(path.read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        definition = definition["spec"]
        if (definition["group"], definition["names"]["kind"]) == (group, document["kind"]):
            (schema,) = (
                each["schema"]["openAPIV3Schema"]
                for each in definition["versions"]
                if each["name"] == version
            )
            jsonschema.validate(document, _strict(schema, is_root=True))
            return
    pytest.skip(f"no definition of {document['kind']} in {os.environ[CRDS]}")


def _strict(schema, is_root=False):
    """Returns a schema that forbids unknown fields, which the API server would drop."""
    if isinstance(schema, list):
        return [_strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    schema = {key: _strict(value) for key, value in schema.items()}
    is_object = isinstance(schema.get("properties"), dict) and schema.get("type") == "object"
    if is_object and not is_root and "x-kubernetes-preserve-unknown-fields" not in schema:
        schema.setdefault("additionalProperties", False)
    return schema


def kubectl_read(text):
    """Returns an object as kubectl decodes it from YAML into its Go types."""
    command = ["kubectl", "set", "image", "--local", "-f", "-", "tensorflow=image:2", "-o", "json"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def gcloud_request(config, folder):
    """Returns the body that `gcloud ai custom-jobs create` sends to a server on this machine."""
    bodies = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            answer = b'{"name": "projects/1/locations/us-central1/customJobs/2"}'
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_):
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    (folder / "token").write_text("none")
    env = {
        **os.environ,
        "CLOUDSDK_CONFIG": str(folder / "gcloud"),
        "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
        "CLOUDSDK_AUTH_ACCESS_TOKEN_FILE": str(folder / "token"),
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_AIPLATFORM": f"http://127.0.0.1:{server.server_port}/",
    }
    command = ["gcloud", "ai", "custom-jobs", "create", f"--config={config}", "--display-name=x"]
    command += ["--project=project", "--region=us-central1", "--quiet"]
    try:
        subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    finally:
        server.shutdown()
        server.server_close()
    (body,) = bodies
    return body
