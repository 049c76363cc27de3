"""A gs:// server on loopback, for tests and benchmarks of TensorFlow's GCS file system.

TensorFlow connects to Google's hosts only, so a proxy (`https_proxy`) answers for them with a test
certificate (`CURL_CA_BUNDLE`); the gcp-storage-emulator package stores the files. Requests to any
other host fail, so no test can reach the real service.
"""

from __future__ import annotations

import contextlib
import datetime
import http.server
import os
import ssl
import threading
import urllib.parse

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from gcp_storage_emulator import server as emulator
from gcp_storage_emulator.handlers import buckets, objects
from gcp_storage_emulator.storage import Storage

_HOSTS = ("www.googleapis.com", "storage.googleapis.com", "oauth2.googleapis.com")


class Gcs:
    """The storage behind gs://.

    Attributes:
      environment: environment variables of a process whose gs:// is this storage.
    """

    def __init__(self, storage):
        self.environment: dict[str, str] = {}
        self._storage = storage
        self._faults = []
        self._lock = threading.Lock()

    def fail(self, times: int, status: int, text: str) -> None:
        """Makes the next `times` requests whose method and path contain `text` fail."""
        self._faults.append([times, status, text])

    def heal(self) -> None:
        """Removes all faults."""
        self._faults.clear()

    @property
    def num_faults_left(self) -> int:
        """Number of requests that will still fail."""
        return sum(times for times, _, _ in self._faults)

    def names(self, bucket: str) -> list[str]:
        """Returns the names of the files in a bucket."""
        return sorted(self._storage.objects.get(bucket, {}))

    def read(self, bucket: str, name: str) -> bytes:
        """Returns the contents of a file."""
        return self._storage.get_file(bucket, name)

    def write(self, bucket: str, name: str, data: bytes) -> None:
        """Replaces the contents of a file."""
        unknown = {"size": len(data), "crc32c": None, "md5Hash": None}
        described = {**self._storage.get_file_obj(bucket, name), **unknown}
        self._storage.create_file(bucket, name, data, described, None)

    def generation(self, bucket: str, name: str) -> int:
        """Returns the generation of a file; 0 if it is missing."""
        found = self._storage.objects.get(bucket, {}).get(name)
        return int(found["generation"]) if found else 0

    def next_fault(self, request: str) -> int | None:
        """Returns the status that a request must fail with, or None."""
        with self._lock:
            for fault in self._faults:
                if fault[0] and fault[2] in request:
                    fault[0] -= 1
                    return fault[1]
        return None


@contextlib.contextmanager
def serve(folder: str, bucket: str):
    """Serves an empty gs://`bucket`; yields its `Gcs`."""
    _repair_emulator()
    storage = Storage(use_memory_fs=True)
    buckets.create_bucket(bucket, storage)
    gcs = Gcs(storage)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*_write_certificates(folder))
    proxy = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Proxy)
    proxy.daemon_threads = True
    proxy.gcs, proxy.storage, proxy.context = gcs, storage, context
    thread = threading.Thread(target=proxy.serve_forever, daemon=True)
    thread.start()
    gcs.environment = {
        "https_proxy": f"http://127.0.0.1:{proxy.server_port}",
        "no_proxy": "127.0.0.1,localhost",
        "CURL_CA_BUNDLE": os.path.join(folder, "ca.pem"),
        "NO_GCE_CHECK": "true",
        "GOOGLE_AUTH_TOKEN_FOR_TESTING": "any",
        "GCS_RETRY_CONFIG_MAX_RETRIES": "3",
        "GCS_RETRY_CONFIG_INIT_DELAY_TIME_US": "50000",
    }
    try:
        yield gcs
    finally:
        proxy.shutdown()
        proxy.server_close()


class _Proxy(http.server.BaseHTTPRequestHandler):
    """An HTTPS proxy that answers requests to Google's hosts itself."""

    protocol_version = "HTTP/1.1"

    def do_CONNECT(self):
        if self.path.split(":")[0] not in _HOSTS:
            self.send_error(403, "no such host in the tests")
            return
        self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
        self.close_connection = True
        # A client may hang up at any time.
        with (
            contextlib.suppress(OSError),
            self.server.context.wrap_socket(self.connection, server_side=True) as connection,
        ):
            _Storage(self.server.storage, connection, self.client_address, self.server)

    def log_message(self, *_):
        """Logs nothing."""


class _Storage(emulator.RequestHandler):
    """The emulator's handler, over one connection for many requests."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True
    _one_at_a_time = threading.Lock()

    def _answer(self, method):
        with self._one_at_a_time:
            status = self.server.gcs.next_fault(f"{method} {self.path}")
            if status is None and not self._precondition_holds():
                status = 412
            if status is None:
                getattr(super(), f"do_{method}")()
                return
            emulator._read_raw_data(self)  # so that the next request can be read
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

    def _precondition_holds(self):
        """Checks ifGenerationMatch, which the emulator ignores."""
        url = urllib.parse.urlsplit(self.path)
        query = urllib.parse.parse_qs(url.query)
        if "ifGenerationMatch" not in query:
            return True
        bucket, _, rest = url.path.partition("/b/")[2].partition("/o")
        name = query["name"][0] if "name" in query else urllib.parse.unquote(rest[1:])
        found = self.server.gcs.generation(bucket, name)
        return int(query["ifGenerationMatch"][0]) == found

    def do_GET(self):  # noqa: N802
        self._answer("GET")

    def do_POST(self):  # noqa: N802
        self._answer("POST")

    def do_PUT(self):  # noqa: N802
        self._answer("PUT")

    def do_PATCH(self):  # noqa: N802
        self._answer("PATCH")

    def do_DELETE(self):  # noqa: N802
        self._answer("DELETE")

    def handle_expect_100(self):
        """Flushes "100 Continue": otherwise TensorFlow waits a second before it sends the body."""
        answer = super().handle_expect_100()
        self.wfile.flush()
        return answer


class _Request(emulator.Request):
    """The emulator's request, with https URLs and empty bodies."""

    def __init__(self, handler, method):
        super().__init__(handler, method)
        self._base_url = self._base_url.replace("http:", "https:", 1)
        self._full_url = self._full_url.replace("http:", "https:", 1)

    @property
    def data(self):
        """The body; empty, not None, for the marker object of a folder."""
        data = super().data
        uploads = self.method == "PUT" or self.query.get("uploadType") == ["media"]
        return b"" if data is None and uploads else data


_original_read, _original_incomplete = emulator._read_raw_data, objects._resumable_incomplete


def _read_body(handler):
    # TensorFlow sends Content-Length and chunks; the chunks take precedence (RFC 9112, 6.3).
    if (handler.headers.get("Transfer-Encoding") or "").lower() != "chunked":
        return _original_read(handler)
    body = bytearray()
    while True:
        size = int(handler.rfile.readline().split(b";")[0], 16)
        body += handler.rfile.read(size)
        handler.rfile.readline()
        if not size:
            return bytes(body)


def _answer_incomplete(response, storage, upload_id, fallback_end=0):
    _original_incomplete(response, storage, upload_id, fallback_end)
    if not storage.get_resumable_byte_count(upload_id):
        # No range if nothing is stored; otherwise TensorFlow would continue at byte 1.
        response._headers.pop("Range", None)


def _repair_emulator():
    emulator.Request = _Request
    emulator._read_raw_data = _read_body
    objects._resumable_incomplete = _answer_incomplete


def _write_certificates(folder):
    """Writes ca.pem and a certificate for Google's hosts signed by it; returns the latter."""
    authority, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    now = datetime.datetime.now(datetime.timezone.utc)

    def name(text):
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    def certificate(subject, public_key, *extensions):
        builder = x509.CertificateBuilder(
            name("loopback authority"),
            name(subject),
            public_key,
            x509.random_serial_number(),
            now - datetime.timedelta(days=1),
            now + datetime.timedelta(days=1),
        )
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical)
        return builder.sign(authority, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    hosts = x509.SubjectAlternativeName([x509.DNSName(host) for host in _HOSTS])
    files = {
        "ca.pem": certificate(
            "loopback authority",
            authority.public_key(),
            (x509.BasicConstraints(ca=True, path_length=None), True),
        ),
        "server.pem": certificate("loopback", key.public_key(), (hosts, False)),
        "server.key": key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    }
    for file_name, data in files.items():
        with open(os.path.join(folder, file_name), "wb") as file:
            file.write(data)
    return os.path.join(folder, "server.pem"), os.path.join(folder, "server.key")
