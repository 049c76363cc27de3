"""A fake Google Cloud: the Cloud TPU API, the token server and the GCE metadata server.

Usage: python fake_cloud.py. Prints its port, then serves on 127.0.0.1 until its input ends.

TensorFlow's client and Google's libraries use it without patches, because of the environment
variables that `environment` returns. A test changes what it answers with `FakeCloud`.
"""

from __future__ import annotations

import http.server
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import threading
import time
import urllib.request

NAME, ZONE, PROJECT = "mine", "us-central1-b", "my-project"
FULL_NAME = f"projects/{PROJECT}/locations/{ZONE}/nodes/{NAME}"
TOKEN = {"access_token": "valid", "expires_in": 3600, "token_type": "Bearer"}
READY = {
    "name": FULL_NAME,
    "state": "READY",
    "health": "HEALTHY",
    "apiVersion": "V2_ALPHA1",
    "tensorflowVersion": "tpu-vm-tf-2.15.1-se",
    "createTime": "2026-11-23T10:00:00.123456789Z",
}


class FakeCloud:
    """The server in a separate process; a context manager.

    Args:
      folder: where to write the key file of the service account.
    """

    def __init__(self, folder: os.PathLike):
        self._folder = pathlib.Path(folder)

    def __enter__(self) -> FakeCloud:
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,  # it ends with this process
            stdout=subprocess.PIPE,
            text=True,
        )
        self.port = int(self._process.stdout.readline())
        self._write_key()
        return self

    def __exit__(self, *_) -> None:
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables of a program that uses this cloud."""
        return {
            "TPU_API_DISCOVERY_URL": f"http://127.0.0.1:{self.port}/discovery/{{api}}/{{apiVersion}}",
            "GCE_METADATA_HOST": f"127.0.0.1:{self.port}",
            "GCE_METADATA_IP": f"127.0.0.1:{self.port}",
            "GOOGLE_APPLICATION_CREDENTIALS": str(self._folder / "key.json"),
            "no_proxy": "127.0.0.1,localhost",
        }

    def set(self, node: dict | None = None, **answers) -> None:
        """Changes what the server answers until the next call.

        Args:
          node: fields of the node that differ from READY; None values are left out.
          **answers: fields of `State`.
        """
        if node is not None:
            answers["node"] = {k: v for k, v in {**READY, **node}.items() if v is not None}
        body = json.dumps(answers).encode()
        url = f"http://127.0.0.1:{self.port}/set"
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        opener.open(urllib.request.Request(url, body)).close()

    def count(self, text: str) -> int:
        """Returns the number of requests whose path contains `text`."""
        url = f"http://127.0.0.1:{self.port}/requests"
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(url) as answer:
            return sum(text in path for path in json.load(answer))

    def _write_key(self):
        """Writes the key file of a service account that exists here only."""
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import rsa

        key = rsa.generate_private_key(65537, 2048).private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        account = {
            "type": "service_account",
            "project_id": PROJECT,
            "private_key_id": "1",
            "private_key": key.decode(),
            "client_email": f"tests@{PROJECT}.iam.gserviceaccount.com",
            "token_uri": f"http://127.0.0.1:{self.port}/token",
        }
        (self._folder / "key.json").write_text(json.dumps(account))


class State:
    """What the server answers.

    Attributes:
      node: the fields of the node.
      text: what the API answers instead of a node, if not None.
      status: HTTP status of the API; other than 200 with `error`.
      error: the error object, or its text.
      times: number of requests that get `status`; -1 for all.
      token_status: HTTP status of the token server.
      metadata_status: HTTP status of the metadata server.
      hang_seconds: how long the API waits before it answers.
    """

    node = READY
    text: str | None = None
    status = 200
    error: object = ""
    times = -1
    token_status = 200
    metadata_status = 200
    hang_seconds = 0.0
    requests: list


def discovery_document(port):
    """Returns the API's public description, from Google's library, with this server's address."""
    library = importlib.util.find_spec("googleapiclient").submodule_search_locations[0]
    path = pathlib.Path(library, "discovery_cache", "documents", "tpu.v1.json")
    url = f"http://127.0.0.1:{port}/"
    return {**json.loads(path.read_text()), "rootUrl": url, "baseUrl": url}


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers requests from `server.state`."""

    def do_GET(self):
        state, path = self.server.state, self.path.partition("?")[0].strip("/")
        if path == "requests":
            return self._answer(200, state.requests)
        state.requests.append(f"GET {path}")
        if path == "discovery/tpu/v1":
            return self._answer(200, discovery_document(self.server.server_port))
        if not path.startswith("v1/"):
            return self._answer_metadata(path)
        time.sleep(state.hang_seconds)
        if state.status != 200 and state.times:
            state.times -= 1
            return self._answer(state.status, state.error)
        if state.text is not None:
            return self._answer(200, state.text)
        if self.headers.get("Authorization") != "Bearer valid":
            return self._answer(401, {"error": {"message": "invalid authentication credentials"}})
        if path != f"v1/{FULL_NAME}":
            return self._answer(404, {"error": {"message": f"Resource '{path[3:]}' was not found"}})
        return self._answer(200, state.node)

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/set":
            state = State()
            vars(state).update(requests=self.server.state.requests, node=self.server.state.node)
            vars(state).update(json.loads(body))
            self.server.state = state
            return self._answer(200, {})
        self.server.state.requests.append(f"POST {self.path}")
        status = self.server.state.token_status
        denied = {"error": "invalid_grant", "error_description": "Invalid JWT Signature."}
        return self._answer(status, TOKEN if status == 200 else denied)

    def _answer_metadata(self, path):
        values = {
            "": "",
            "computeMetadata/v1/project/project-id": PROJECT,
            "computeMetadata/v1/instance/zone": f"projects/123/zones/{ZONE}",
            "computeMetadata/v1/instance/service-accounts/default": {"email": "vm", "scopes": []},
            "computeMetadata/v1/instance/service-accounts/default/token": TOKEN,
        }
        found = path in values and self.headers.get("Metadata-Flavor") == "Google"
        status = self.server.state.metadata_status
        if status == 200 and not found:
            status = 404
        self._answer(status, values.get(path, ""))

    def _answer(self, status, content):
        """Sends text as it is, and other objects as JSON."""
        body = (content if isinstance(content, str) else json.dumps(content)).encode()
        kind = "text/plain" if isinstance(content, str) else "application/json"
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Metadata-Flavor", "Google")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Logs nothing."""


def main():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.state = State()
    server.state.requests = []
    print(server.server_port, flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main()
