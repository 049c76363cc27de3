"""Lock on a gs:// folder: a lease object that its owner renews with generation preconditions.

An object is written only if its generation is still the one that was read (`ifGenerationMatch`, 0
if there is none; https://cloud.google.com/storage/docs/request-preconditions), so one of two
writers wins. gs:// does not release the lock of a dead process: an owner on this host is dead if
its process is gone, any other owner if it has not renewed the lease for `LEASE_SECONDS`.

TensorFlow's gs:// file system has no preconditions, so this module uses the JSON API through
google-auth and requests, which TensorFlow installs with TensorBoard.
"""

from __future__ import annotations

import contextlib
import datetime
import email.utils
import json
import logging
import os
import secrets
import socket
import threading
import time
import urllib.parse
from typing import Any, Callable

from common import lock_owner

LEASE_SECONDS = 60.0
_RENEW_SECONDS = 15.0
_POLL_SECONDS = 5.0
_HTTP_SECONDS = 30.0
_API = "https://storage.googleapis.com"
_SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"


def acquire(
    folder: str, flag: str, purpose: str, name: str, sleep: Callable[[float], None] = time.sleep
) -> lock_owner.Lock:
    """Acquires the lock of a gs:// folder; see `common.locks.acquire`.

    If the owner may be dead, waits until it renews the lease (raises) or the lease expires.
    """
    try:
        return _acquire(folder, flag, purpose, name, sleep)
    except (OSError, ImportError) as error:
        # A process that cannot write here reports that when it saves.
        print(f"--{flag}={folder} has no lock against a second writer: {error}", flush=True)
        return lock_owner.Lock()


def _acquire(folder, flag, purpose, name, sleep):
    storage_object = _Object(f"{folder.rstrip('/')}/{name}")
    seen = None
    while True:
        state = storage_object.read()
        if state is None or _is_dead(state):
            generation = storage_object.write(purpose, state["generation"] if state else 0)
            if generation is not None:
                return _GcsLock(storage_object, purpose, generation)
            continue  # another process acquired it first
        if seen is not None and state["generation"] != seen:
            raise lock_owner.LockedError(lock_owner.message(folder, flag, state["owner"]))
        if seen is None:
            described = lock_owner.describe(state["owner"])
            print(
                f"--{flag}={folder} is locked by {described}, last renewed {state['age']:.0f} s "
                f"ago; waiting up to {LEASE_SECONDS:.0f} s for a renewal",
                flush=True,
            )
        seen = state["generation"]
        sleep(_POLL_SECONDS)


class _GcsLock(lock_owner.Lock):
    """Renews the lease in a background thread until the lock is released."""

    def __init__(self, storage_object, purpose, generation):
        self._object, self._purpose, self._generation = storage_object, purpose, generation
        self._released, self._lost = threading.Event(), False
        self._thread = threading.Thread(target=self._renew_until_released, daemon=True)
        self._thread.start()

    def release(self):
        """Deletes the object if this process still owns it."""
        if self._released.is_set():
            return
        self._released.set()
        self._thread.join()
        if not self._lost:
            self._object.delete(self._generation)

    def check(self):
        """Raises `LockLostError` if another process has taken the lock."""
        if self._lost:
            raise lock_owner.LockLostError(
                f"{self._object.path} was taken over by another process, because this process "
                f"did not renew it for {LEASE_SECONDS:.0f} s. Earlier checkpoints are kept"
            )

    def _renew_until_released(self):
        while not self._released.wait(_RENEW_SECONDS):
            try:
                generation = self._object.write(self._purpose, self._generation)
            except OSError:
                continue  # retried at the next renewal
            if generation is None:
                # The response to an earlier, successful renewal may have been lost.
                generation = self._object.own_generation()
            if generation is None:
                self._lost = True
                return
            self._generation = generation


class _Object:
    """The object of one lock, accessed through the JSON API."""

    def __init__(self, path: str):
        """Raises OSError if there are no credentials."""
        self.path = path
        bucket, _, name = path[len("gs://") :].partition("/")
        bucket, self._name = (urllib.parse.quote(part, safe="") for part in (bucket, name))
        self._objects = f"storage/v1/b/{bucket}/o"
        self._token = secrets.token_hex(8)  # identifies this owner
        self._http = _session()

    def read(self) -> dict[str, Any] | None:
        """Returns the generation, owner and age in seconds of the lock; None if it is free."""
        found = self._request("GET", f"{self._objects}/{self._name}")
        if found.status_code == 404:
            return None
        described = found.json()
        updated = datetime.datetime.fromisoformat(described["updated"].replace("Z", "+00:00"))
        now = email.utils.parsedate_to_datetime(found.headers["Date"])  # the server's clock
        generation = int(described["generation"])
        query = {"alt": "media", "generation": generation}
        content = self._request("GET", f"{self._objects}/{self._name}", query)
        if content.status_code == 404:
            return None  # released between the two requests
        return {
            "generation": generation,
            "owner": lock_owner.parse_owner(content.text),
            "age": (now - updated).total_seconds(),
        }

    def write(self, purpose: str, generation: int) -> int | None:
        """Writes the object if it still has `generation`; returns the new one, or None if not."""
        query = {"uploadType": "media", "name": self._name, "ifGenerationMatch": generation}
        body = json.dumps({**lock_owner.owner(purpose), "token": self._token})
        done = self._request("POST", f"upload/{self._objects}", query, body)
        return None if done.status_code == 412 else int(done.json()["generation"])

    def own_generation(self) -> int | None:
        """Returns the current generation if this process wrote it, else None."""
        with contextlib.suppress(OSError):
            state = self.read()
            if state and state["owner"].get("token") == self._token:
                return state["generation"]
        return None

    def delete(self, generation: int) -> None:
        """Deletes the object if it still has `generation`. If this fails, the lease expires."""
        with contextlib.suppress(OSError):
            query = {"ifGenerationMatch": generation}
            self._request("DELETE", f"{self._objects}/{self._name}", query)

    def _request(self, method, path, query=None, body=None):
        """Returns the response if it is a success, 404 or 412; raises OSError otherwise."""
        from google.auth import exceptions

        text = "&".join(f"{key}={value}" for key, value in (query or {}).items())
        url = f"{_API}/{path}?{text}"
        try:
            answer = self._http.request(
                method,
                url,
                data=body,
                timeout=_HTTP_SECONDS,
                verify=os.environ.get("CURL_CA_BUNDLE") or True,  # as TensorFlow does
            )
        except exceptions.GoogleAuthError as error:
            raise OSError(str(error)) from error
        if answer.status_code >= 400 and answer.status_code not in (404, 412):
            raise OSError(f"{method} {self.path} gives {answer.status_code} {answer.reason}")
        if answer.status_code == 404 and method == "POST":
            raise OSError(f"the bucket of {self.path} does not exist")
        return answer


def _session():
    """Returns a `requests.Session` with the user's credentials that retries failed requests."""
    import google.auth
    import requests
    from google.auth import exceptions
    from google.auth.transport.requests import AuthorizedSession
    from requests.adapters import HTTPAdapter, Retry

    token = os.environ.get("GOOGLE_AUTH_TOKEN_FOR_TESTING")  # as in TensorFlow
    if token:
        session = requests.Session()
        session.headers["Authorization"] = f"Bearer {token}"
    else:
        try:
            credentials, _ = google.auth.default(scopes=[_SCOPE])
        except exceptions.GoogleAuthError as error:
            raise OSError(str(error)) from error
        session = AuthorizedSession(credentials)
    logging.getLogger("urllib3").setLevel(logging.ERROR)  # a failed retry is reported as OSError
    retries = Retry(4, backoff_factor=0.5, status_forcelist=[408, 429, 500, 502, 503, 504])
    retries.allowed_methods = None  # all methods: preconditions make retries safe
    session.mount("https://", HTTPAdapter(max_retries=retries))
    return session


def _is_dead(state):
    """Returns True if the owner of a lock is dead or has not renewed its lease."""
    owner = state["owner"]
    place = (owner.get("host"), owner.get("pid_namespace"))
    is_visible = place == (socket.gethostname(), lock_owner.pid_namespace())
    if is_visible and isinstance(owner.get("pid"), int):
        return lock_owner.start_time(owner["pid"]) != owner.get("started")
    return state["age"] > LEASE_SECONDS
