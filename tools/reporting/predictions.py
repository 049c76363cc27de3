"""The worst predictions of a run, with their images, texts or recordings."""

from __future__ import annotations

import base64
import html
import itertools
import json
import operator

import numpy as np
import tensorflow as tf

from input_fns import dataset_info
from input_fns.core import records
from input_fns.kinds import PipelineOptions
from tools.reporting.evaluations import image_tag
from tools.reporting.mistakes import judge_of
from tools.reporting.runs import Run, matches, read

_COUNT, _CELL, _MOST_READ, _BATCH, _MOST_CHARACTERS = 24, 96, 2000, 100, 600


def draw(run: Run) -> tuple[int, str]:
    """Returns (step, HTML) of the newest file of predictions; (0, "") without one.

    The worst predictions of the first 2,000 examples come first.
    """
    found = matches(run.folder, r"predictions_(.+)_([0-9]{1,18})\.jsonl")
    data_dir = run.flags.get("data_dir", "")
    if not found or not data_dir:
        return 0, ""
    if not dataset_info.exists(data_dir):
        run.notes.append(
            f"the predictions: --data_dir={data_dir} has no data set, as seen from here"
        )
        return 0, ""
    data = dataset_info.read(data_dir)
    of_splits = [m for m in found if m[1] in data.splits and data.splits[m[1]].has_labels]
    if not of_splits:
        return 0, ""
    newest = max(of_splits, key=lambda match: int(match[2]))
    lines = read(run.folder, newest[0]).splitlines()[:_MOST_READ]
    image = data.features.get("image")
    size = (_CELL, _CELL) if image and image.dtype == "uint8" else None
    pipeline = data.kind.pipeline(data, PipelineOptions(image_size=size, center_crop=1.0))
    return int(newest[2]), _worst(pipeline, newest[1], list(map(json.loads, lines)))


def _worst(pipeline, split, rows):
    judge, text = (judge_of(pipeline, rows[0]) if rows else None) or (None, "")
    if not judge or not _previews(pipeline, split, {0}):
        return ""
    judged = [judge(label, row) for (_, label), row in zip(_examples(pipeline, split), rows)]
    order = sorted(range(len(judged)), key=lambda i: (-judged[i].is_wrong, -judged[i].size, i))
    chosen = order[:_COUNT]
    previews = _previews(pipeline, split, set(chosen))
    cells = [
        _cell(str(rows[i].get("name", f"example {i}")), previews[i], judged[i]) for i in chosen
    ]
    wrong = sum(mistake.is_wrong for mistake in judged)
    text = f"{split}: {text.format(wrong=wrong, count=len(judged))}"
    return f"<p>{html.escape(text)}.</p>{''.join(cells)}"


def _examples(pipeline, split):
    """Yields (features, labels) of each example as evaluation gets them."""
    for batch in records.iterate(lambda: pipeline.in_order(split).rebatch(_BATCH)):
        for i in range(len(tf.nest.flatten(batch)[0])):
            yield tf.nest.map_structure(operator.itemgetter(i), batch)


def _previews(pipeline, split, chosen):
    """Returns `{number of an example: Preview}`; {} if examples are no sight."""
    examples = itertools.islice(_examples(pipeline, split), max(chosen) + 1)
    found = [features for i, (features, _) in enumerate(examples) if i in chosen]
    features = {name: np.stack([row[name] for row in found]) for name in found[0]}
    return dict(zip(sorted(chosen), pipeline.data.kind.previews(pipeline.data, features)))


def _cell(name, preview, mistake):
    parts = []
    if preview.png:
        parts.append(image_tag(preview.png, name))
    if preview.wav:
        content = base64.b64encode(preview.wav).decode()
        parts.append(
            f'<audio controls preload="none" src="data:audio/wav;base64,{content}"></audio>'
        )
    if preview.text:
        parts.append(html.escape(preview.text[:_MOST_CHARACTERS]))
    mark = ' class="wrong"' if mistake.is_wrong else ""
    caption = f"<span{mark}>{html.escape(mistake.caption)}</span>"
    kind = ' class="text"' if preview.text else ""
    return f'<figure{kind} title="{html.escape(name)}">{"<br>".join([*parts, caption])}</figure>'
