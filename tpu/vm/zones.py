"""Zones that offer the TPU types.

From https://cloud.google.com/tpu/docs/regions-zones in September 2025, without those for a single
customer. Google may change them, so other zones are accepted.
"""

from __future__ import annotations

# Slices whose zones differ from those of their generation, then generations.
_ZONES = {
    "v2-8": ("us-central1-b", "us-central1-c", "europe-west4-a", "asia-east1-c"),
    "v3-8": ("us-central1-a", "us-central1-b", "europe-west4-a"),
    "v2": ("us-central1-a", "europe-west4-a"),
    "v3": ("europe-west4-a",),
    "v4": ("us-central2-b",),
    "v5litepod": ("us-central1-a", "us-south1-a", "us-west1-c", "us-west4-a", "europe-west4-b"),
    "v5p": ("us-central1-a", "us-east5-a", "europe-west4-b"),
    "v6e": ("us-central1-b", "us-east1-d", "us-east5-a", "us-east5-b", "europe-west4-a"),
}


def find(tpu_type: str) -> tuple[str, ...]:
    """Returns the zones that offer a type, such as "v3-8"; the first is the default."""
    return _ZONES.get(tpu_type) or _ZONES.get(tpu_type.partition("-")[0], ())


def choose(tpu_type: str, configured: str) -> tuple[str, str]:
    """Chooses the zone of a new VM.

    Args:
      tpu_type: such as "v3-8".
      configured: zone of gcloud's configuration; "" if unset.

    Returns:
      (zone, reason in one line; "" if it is the configured one).
    """
    zones = find(tpu_type)
    if configured in zones or not zones:
        return configured, ""
    why = (
        f"gcloud's zone {configured} does not offer {tpu_type}" if configured else "--zone is unset"
    )
    return zones[0], f"{why}; using {zones[0]} (others: {', '.join(zones[1:]) or 'none'})"
