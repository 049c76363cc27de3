"""Cloud TPU API: resolves the name of a TPU to its workers, and waits until it is READY.

TensorFlow's client (TPUClusterResolver) and Google's API library send all requests. This module
adds a timeout, retries and one line for each failure.
"""

from __future__ import annotations

import contextlib
import functools
import http.client
import logging
import os
import re
import socket
import time
from collections.abc import Callable
from typing import TypeVar

import tensorflow as tf

from tpu.connect.address import Address
from tpu.connect.api_errors import DISCOVERY_VARIABLE, LOGIN, NodeNotFoundError, describe, reason_of
from tpu.connect.node import (
    READY,
    NotReadyError,
    Place,
    ran_out_of_memory,
    text,
    with_valid_symptoms,
)
from tpu.connect.request import TPUError

_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_TIMEOUT_SECONDS, _RETRIES = 10.0, 3
_POLL_SECONDS = 10.0
# States at which TPUEstimator's poller ends programs.
_ENDS = ("PREEMPTED", "TERMINATED")
_LOST = {"state": "TERMINATED"}
# Zones and projects, such as us-central1-b and example.com:my-project.
_NAME = re.compile(r"[\w.:-]+", re.ASCII)
Result = TypeVar("Result")


def wait(attempt: Callable[[], Result], minutes: float, source: str) -> Result:
    """Returns the result of `attempt` as soon as it does not raise NotReadyError.

    Prints the status when waiting begins, and each change of it.

    Args:
      attempt: function to call repeatedly.
      minutes: maximum time to wait; 0 to call `attempt` once.
      source: the flag or variable that names the TPU, for messages.

    Raises:
      NotReadyError: the last one, after `minutes`.
    """
    deadline, shown = time.monotonic() + 60 * minutes, None
    while True:
        try:
            return attempt()
        except NotReadyError as error:
            left = deadline - time.monotonic()
            if left <= 0:
                if not minutes:
                    raise
                waited = f"{error}. Waited {minutes:g} minutes (--tpu_wait_minutes)"
                raise NotReadyError(error.status, waited) from error
            if error.status != shown:
                print(
                    f"{source}: {error.status}; waiting, {left / 60:.0f} minutes left", flush=True
                )
                shown = error.status
        time.sleep(min(_POLL_SECONDS, left))


class NodeClient:
    """Client of the Cloud TPU API for one node.

    Attributes:
      resolver: the TPUClusterResolver of the node.
      place: zone and project of the node.
    """

    def __init__(self, found: Address, zone: str = "", project: str = ""):
        """Finds credentials, and with the GCE metadata server the zone and project if unset.

        Raises:
          TPUError: it cannot find them.
        """
        self._connected = None  # the node when this program connected to it
        self._polled = None
        self._status = ""
        for name in ("google.auth", "googleapiclient"):
            logging.getLogger(name).setLevel(logging.ERROR)  # errors are raised, too
        self._credentials = _find_credentials(found)
        self._service = _build_service(found, self._send)
        self.resolver = _resolve(found, zone, project, self._service)
        self._client = self.resolver._cloud_tpu_client
        self.place = Place(found.source, found.text, self._client._zone, self._client._project)
        for kind, name in (("zone", self.place.zone), ("project", self.place.project)):
            if not _NAME.fullmatch(name):
                raise TPUError(
                    f"{found.source}: '{text(name)}' is not the name of a {kind}. Set --tpu_zone "
                    "and --gcp_project"
                )

    def get(self) -> dict:
        """Returns the node.

        Raises:
          NotReadyError: it does not exist, or the API is unavailable.
          TPUError: it cannot be looked up.
        """
        nodes = self._service.projects().locations().nodes()
        return self._fetch(nodes.get(name=self.place.full_name).execute)

    def follow(self, node: dict) -> None:
        """From now on, answers TPUEstimator's poller of preemptions, and prints each new state.

        The poller ends the program if the node is PREEMPTED or TERMINATED, but stops polling after
        any error. So it gets TERMINATED for a node whose workers this program has lost, because the
        node was deleted, created again or moved, and the last answer if the API is unavailable.
        """
        self._polled, self._status = node, f"the TPU is {text(node.get('state'))}"
        self._connected = node

    def _send(self, execute):
        """Executes a request; every one has a new connection, because threads cannot share one."""
        import google_auth_httplib2
        import httplib2

        connection = google_auth_httplib2.AuthorizedHttp(
            self._credentials, http=httplib2.Http(timeout=_TIMEOUT_SECONDS)
        )
        execute = functools.partial(execute, http=connection, num_retries=_RETRIES)
        return execute() if self._connected is None else self._poll(execute)

    def _fetch(self, execute):
        """Returns the node; converts all errors to TPUError or NotReadyError."""
        try:
            node = execute()
        except Exception as error:  # Google's API clients raise exceptions with no common base
            raise describe(error, self.place) from error
        if not isinstance(node, dict):
            raise TPUError(
                f"{self.place.source}: the Cloud TPU API answered '{text(node)}', not a node"
            )
        return with_valid_symptoms(node)

    def _poll(self, execute):
        """Returns the node for the poller; see `follow`."""
        try:
            node = self._fetch(execute)
            status = f"the TPU is {text(node.get('state'))}"
            lost = _find_loss(self._connected, node)
            if lost:
                status, node = lost, _LOST
            elif ran_out_of_memory(node):
                status = "the TPU ran out of memory"
        except NodeNotFoundError:
            status, node = "the TPU was deleted", _LOST
        except TPUError as error:
            status, node = f"its state is unknown ({error})", self._polled
        if status != self._status:
            ends = node.get("state") in _ENDS or "memory" in status
            advice = ". This program ends; run the same command again to resume" if ends else ""
            with contextlib.suppress(OSError):  # an error would end the poller
                print(f"{self.place.source}: {status}{advice}", flush=True)
        self._polled, self._status = node, status
        return node


def _find_loss(before, after):
    """Returns why a node that is READY again has other workers; "" if it has the same."""
    if before.get("createTime") and after.get("createTime") not in (None, before["createTime"]):
        return "the TPU was created again"
    # TPUEstimator keeps the addresses that it had at the start.
    moved = after.get("networkEndpoints") not in (None, before.get("networkEndpoints"))
    return "the TPU has new addresses" if moved and after.get("state") == READY else ""


def _find_credentials(found):
    import google.auth
    from google.auth.exceptions import GoogleAuthError

    try:
        credentials, _ = google.auth.default(scopes=[_SCOPE])
    except (GoogleAuthError, OSError, ValueError) as error:  # ValueError: a file of another kind
        raise TPUError(
            f"{found.source}: no Google credentials: {reason_of(error)}. {LOGIN}"
        ) from error
    return credentials


def _build_service(found, send):
    """Returns Google's API service; `send` executes its requests."""
    import httplib2
    from googleapiclient import discovery
    from googleapiclient.http import HttpRequest

    class Request(HttpRequest):
        def execute(self, **_):
            return send(super().execute)

    url = os.environ.get(DISCOVERY_VARIABLE)
    options = {"discoveryServiceUrl": url} if url else {}
    connection = httplib2.Http(timeout=_TIMEOUT_SECONDS)
    try:
        return discovery.build(
            "tpu",
            "v1",
            http=connection,
            requestBuilder=Request,
            cache_discovery=False,
            num_retries=_RETRIES,
            **options,
        )
    except Exception as error:
        where = f"{DISCOVERY_VARIABLE}={text(url)}" if url else found.source
        raise TPUError(
            f"{where}: no description of the Cloud TPU API: {reason_of(error)}"
            + (". Unset it" if url else ". Update google-api-python-client")
        ) from error


def _resolve(found, zone, project, service):
    """Returns TensorFlow's resolver, which reads unset places from the GCE metadata server."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_TIMEOUT_SECONDS)  # TensorFlow's request has no timeout
    try:
        return tf.distribute.cluster_resolver.TPUClusterResolver(
            found.text, zone or None, project or None, service=service
        )
    except (OSError, http.client.HTTPException, ValueError) as error:
        flags = {"--tpu_zone": zone, "--gcp_project": project}
        unset = " and ".join(flag for flag, value in flags.items() if not value)
        raise TPUError(
            f"{found.source}: the GCE metadata server does not give the place of the TPU: "
            f"{reason_of(error)}. Set {unset}"
        ) from error
    finally:
        socket.setdefaulttimeout(before)
