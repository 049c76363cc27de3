"""Images with classes or annotations."""

from __future__ import annotations

from collections.abc import Iterator

from input_fns.anomalies.sample import SOME, Anomaly, Sample

# An image with fewer different levels is nearly of one color.
_LEVELS = 8


def of_pixels(sample: Sample) -> Iterator[Anomaly]:
    """Yields images of one color, such as of floats in 0 to 1 that became integers."""
    image = sample.data.features.get("image")
    if not image or image.dtype != "uint8" or not sample.data.all_class_names:
        return
    sample = sample.few()
    flat = [
        f"{name} of {pixels.min()} to {pixels.max()}"
        for name, pixels in zip(sample.names(), sample.pixels("image"))
        if pixels is not None and int(pixels.max()) - int(pixels.min()) < _LEVELS
    ]
    if flat and len(flat) > SOME * len(sample.examples):
        yield Anomaly(
            f"{len(flat)} of {len(sample.examples)} images of {sample.where} have nearly one "
            f"color, such as {', '.join(flat[:3])}",
        )
