"""The worst predictions of a classifier of images, with their images."""

from __future__ import annotations

import html
import json

from common import pictures
from input_fns import dataset_info
from input_fns.core import records, serving
from input_fns.image import contact_sheet, images
from input_fns.image.image_pipeline import ImagePipeline
from input_fns.image.kind import Images
from tools.reporting.evaluations import image_tag
from tools.reporting.runs import Run, matches, read

_COUNT, _CELL, _MOST_READ = 24, 96, 2000


def draw(run: Run) -> tuple[int, str]:
    """Returns (step, HTML) of the newest file of predictions; (0, "") without one.

    The wrong predictions of the highest probabilities come first, of the first 2,000 examples.
    """
    found = matches(run.folder, r"predictions_(.+)_([0-9]{1,18})\.jsonl")
    data_dir = run.flags.get("data_dir", "")
    if not found or not dataset_info.exists(data_dir):
        return 0, ""
    data = dataset_info.read(data_dir)
    of_splits = [match for match in found if match[1] in data.splits]
    if not isinstance(data.kind, Images) or not data.class_names or not of_splits:
        return 0, ""
    newest = max(of_splits, key=lambda match: int(match[2]))
    split, step = newest[1], int(newest[2])
    lines = read(run.folder, newest[0]).splitlines()[:_MOST_READ]
    rows = [json.loads(line) for line in lines]
    if not rows:
        return 0, ""
    labels = _labels(data, split, len(rows))
    scores = [max(row.get("probabilities", []), default=0) for row in rows]
    is_wrong = [
        row.get("class_names") != data.class_names[label] for row, label in zip(rows, labels)
    ]
    order = sorted(range(len(rows)), key=lambda i: (not is_wrong[i], -scores[i] * is_wrong[i], i))
    chosen = order[:_COUNT]
    is_resized = data.features["image"].dtype == "uint8"
    pipeline = ImagePipeline(data, (_CELL, _CELL) if is_resized else None)
    last = max(chosen) + 1
    shown = serving.first_of(lambda: pipeline.features_in_order(split), last)["image"]
    brightest = max(1, shown[chosen].max())
    cells = []
    for i in chosen:
        label, caption = data.class_names[labels[i]], f"{rows[i].get('class_names', '')}"
        picture = contact_sheet.to_picture(shown[i], brightest).resize((_CELL, _CELL))
        name = rows[i].get("name", f"example {i}")
        mark = ' class="wrong"' if is_wrong[i] else ""
        caption += f" {scores[i]:.2f}" + (f", label {label}" if is_wrong[i] else "")
        tag = image_tag(pictures.to_png(picture), f"{name}: {label}")
        cells.append(f"<figure>{tag}<br><span{mark}>{html.escape(caption)}</span></figure>")
    count = f"{sum(is_wrong)} of the first {len(rows)} predictions of '{split}' are wrong"
    return step, f"<p>{html.escape(count)}; the surest ones first.</p>{''.join(cells)}"


def _labels(data, split, count):
    parse = images.stored_fn(data.features, True, data.num_classes)
    paths, record_bytes = data.files(split), data.split(split).record_bytes
    return serving.first_of(lambda: records.in_order(paths, parse, record_bytes), count)[1]
