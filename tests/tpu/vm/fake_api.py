"""The Cloud TPU API v2 of a FakeCloud on 127.0.0.1, for the real `gcloud`."""

import contextlib
import http.server
import json
import re
import threading
import urllib.parse

from tests.tpu.vm.fake_cloud import CloudError

_NODE = re.compile(
    r"/v2/projects/[^/]+/locations/[^/]+/(nodes|queuedResources)(?:/([^/:]+))?(:\w+)?"
)


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path, _, query = self.path.partition("?")
        try:
            answer, code = self._call(path, dict(urllib.parse.parse_qsl(query)), body), 200
        except CloudError as error:
            details = {"code": error.code, "status": error.status, "message": str(error)}
            answer, code = {"error": details}, error.code
        text = json.dumps(answer).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = do_DELETE = do_PATCH = _answer  # noqa: N815

    def _call(self, path, query, body):
        cloud, done = (
            self.server.cloud,
            {"name": "projects/p/locations/z/operations/o", "done": True},
        )
        if path.startswith("/compute/"):
            key = {"key": "ssh-keys", "value": self.server.ssh_key}
            return {"name": "my-project", "commonInstanceMetadata": {"items": [key]}}
        match = _NODE.fullmatch(path)
        if not match:
            return {**done, "response": {"name": path.partition("/v2/")[2]}}
        kind, name, verb = match.groups()
        queued = kind == "queuedResources"
        if verb:  # getGuestAttributes
            return {}
        if self.command == "POST" and queued:
            node = json.loads(body)["tpu"]["nodeSpec"][0]["node"]
            cloud.create_queued(query["queuedResourceId"], node)
        elif self.command == "POST":
            cloud.create(query["nodeId"], json.loads(body))
        elif self.command == "DELETE":
            (cloud.delete_queued if queued else cloud.delete)(name)
        elif self.command == "GET":
            answer = (cloud.describe_queued if queued else cloud.describe)(name)
            answer.pop("spec", None)
            return answer
        return {**done, "response": {"name": path.partition("/v2/")[2]}}

    def log_message(self, *arguments):
        pass


@contextlib.contextmanager
def serve(cloud, ssh_key):
    """Yields the URL of an API for `cloud`, in a project with a public ssh key."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.cloud, server.ssh_key = cloud, ssh_key
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
