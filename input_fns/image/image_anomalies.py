"""Images, with labels of any kind or without."""

from __future__ import annotations

from collections.abc import Iterator

from input_fns.anomalies.sample import SOME, Anomaly, Sample

# The largest difference of levels in an image of nearly one color.
_MOST_DIFFERENCE = 7


def of_pixels(sample: Sample) -> Iterator[Anomaly]:
    """Yields images of one color, such as of floats in 0 to 1 that became integers."""
    image = sample.data.features.get("image")
    if not image or len(image.shape) < 2:  # a custom data set may have other values of this name
        return
    # The range of other dtypes is unknown, such as 0 to 1 of floats.
    most = _MOST_DIFFERENCE if image.dtype == "uint8" else 0
    sample = sample.few()
    flat = [
        f"{name} of {pixels.min()} to {pixels.max()}"
        for name, pixels in zip(sample.names(), sample.pixels("image"))
        if pixels is not None and float(pixels.max()) - float(pixels.min()) <= most
    ]
    if flat and len(flat) > SOME * len(sample.examples):
        yield Anomaly(
            f"{len(flat)} of {len(sample.examples)} images of {sample.where} have nearly one "
            f"color, such as {', '.join(flat[:3])}",
        )
