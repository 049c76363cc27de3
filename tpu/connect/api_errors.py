"""Converts the errors of the Cloud TPU API to one line: what is wrong, where, what to do."""

from __future__ import annotations

import http.client
import re

from tpu.connect.node import NotReadyError, Place, text
from tpu.connect.request import TPUError

DISCOVERY_VARIABLE = "TPU_API_DISCOVERY_URL"  # of TensorFlow's client
LOGIN = (
    "Run gcloud auth application-default login, or set GOOGLE_APPLICATION_CREDENTIALS to the key "
    "file of a service account"
)
# Codes and reasons that the API gives for a disabled API, an unknown zone, an unknown project.
_DISABLED = re.compile(r"SERVICE_DISABLED|accessNotConfigured|API has not been used")
_LOCATION = re.compile(r"(?i)^location\b|'locations/[^/']*'")
_PROJECT = re.compile(r"(?i)^project\b|resource project|access to project")


class NodeNotFoundError(NotReadyError):
    """There is no node of this name."""


def describe(error: Exception, place: Place) -> TPUError:
    """Returns the TPUError for an exception of Google's API client; NotReadyError if it may pass.

    These exceptions have no common base.
    """
    import google.auth.exceptions
    import httplib2
    from googleapiclient.errors import HttpError

    if isinstance(error, HttpError):
        return _describe_status(error, place)
    reason = reason_of(error)
    is_final = isinstance(error, google.auth.exceptions.RefreshError) and not error.retryable
    if is_final:
        return TPUError(f"{place.source}: the Google credentials are invalid: {reason}. {LOGIN}")
    network = (google.auth.exceptions.GoogleAuthError, httplib2.HttpLib2Error)
    if isinstance(error, (OSError, http.client.HTTPException, *network)):
        return _unavailable(place, reason)
    if isinstance(error, ValueError):
        reason = "its answer is not JSON"
    return TPUError(
        f"{place.source} cannot be looked up in the Cloud TPU API: {reason}. Check the proxy and "
        f"{DISCOVERY_VARIABLE}"
    )


def reason_of(error: Exception) -> str:
    """Returns the message of an exception without the objects beside it, or its name."""
    has_message = error.args and isinstance(error.args[0], str)
    reason = text(error.args[0] if has_message else error).rstrip(".")
    return reason or type(error).__name__


def _describe_status(error, place):
    """Returns the NotReadyError or TPUError for an HTTP status."""
    status, reason = error.resp.status, text(error.reason).rstrip(".")
    codes = str(error.error_details)
    if status == 429 or status >= 500 or re.search("(?i)rate_?limit_?exceeded", codes):
        return _unavailable(place, f"HTTP status {status}: {reason}")
    project = f"project {place.project}"
    if status == 401:
        problem = f"the Cloud TPU API rejects the Google credentials ({reason}). {LOGIN}"
    elif _DISABLED.search(codes) or _DISABLED.search(reason):
        problem = (
            f"the Cloud TPU API is disabled in {project} ({reason}). Run gcloud services enable "
            f"tpu.googleapis.com --project={place.project}, and wait some minutes"
        )
    elif _LOCATION.search(reason):
        problem = (
            f"zone {place.zone} is unknown or has no TPUs for {project} ({reason}). Set --tpu_zone "
            f"to one of gcloud compute tpus locations list --project={place.project}"
        )
    elif _PROJECT.search(reason):
        problem = (
            f"{project} is unknown, or the Google account has no access ({reason}). Set "
            "--gcp_project to one of gcloud projects list"
        )
    elif status == 403:
        problem = (
            f"permission denied ({reason}). Give the Google account the role TPU Viewer "
            f"(roles/tpu.viewer) in {project}; a VM also needs the scope cloud-platform"
        )
    elif status == 404:
        what = f"there is no TPU {place.name} in zone {place.zone} of {project}"
        hint = f"See {place.gcloud_list()}, and set --tpu, --tpu_zone and --gcp_project"
        return NodeNotFoundError(what, f"{place.source}: {what}. {hint}")
    else:
        problem = (
            f"the Cloud TPU API answered with HTTP status {status}: {reason}. Check --tpu, "
            "--tpu_zone and --gcp_project"
        )
    return TPUError(f"{place.source}: {problem}")


def _unavailable(place, reason):
    status = f"the Cloud TPU API is unavailable ({reason})"
    return NotReadyError(
        status, f"{place.source}: {status}. Try again later, or use --tpu=grpc://IP:8470"
    )
