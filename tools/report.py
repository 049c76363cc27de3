"""One HTML page about a run, which opens without a network.

    python -m tools.report MODEL_DIR [PAGE.html]      or: make report MODEL_DIR=runs/digits

Curves of training and evaluation on one axis, the figures of the newest evaluation with its
confusion matrix, some predictions beside their images (after --mode=predict), speed, and the flags.
Everything comes out of what a run leaves in its model_dir; the images out of its data set.
"""

from __future__ import annotations

import base64
import collections
import html
import io
import json
import os
import re
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
from PIL import Image

from common import files
from common.errors import UsageError
from input_fns import dataset, images, records, serving
from input_fns.image_pipeline import ImagePipeline
from training import program, runtime

_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 420, 200, 60, 30
_COLORS = {"training": "#1f77b4", "evaluation": "#d62728"}
# Means of a whole evaluation and of training batches that are the same quantity.
_SAME = {"average_loss": "loss"}
_NUM_PREDICTIONS, _CELL = 24, 96
_STYLE = """
body { font: 14px/1.5 sans-serif; max-width: 920px; margin: 2em auto; color: #222 }
figure { display: inline-block; margin: 0 1em 1em 0; vertical-align: top }
figcaption { font-weight: bold } table { border-collapse: collapse }
td, th { border: 1px solid #ccc; padding: 2px 8px; text-align: right }
pre { background: #f4f4f4; padding: 1em; overflow: auto } .wrong { color: #d62728 }
"""


def main(model_dir: str, path: str = "") -> None:
    """Writes the page; beside the checkpoints unless `path` says where.

    Raises:
      UsageError: there was no training in `model_dir`.
    """
    runtime.prepare()
    if not tf.io.gfile.exists(os.path.join(model_dir, "flags.cfg")):
        raise UsageError(f"{model_dir} has no flags.cfg: no training began there")
    path = path or os.path.join(model_dir, "report.html")
    given = _flags(model_dir)
    step, predictions = _predictions(model_dir, given)
    parts = [
        ("Curves", "".join(_curves(model_dir))),
        ("Evaluation", _evaluation(model_dir)),
        (f"Predictions of step {step}", predictions),
        ("Speed", _speed(model_dir)),
        ("Flags", f"<pre>{html.escape(_read(model_dir, 'flags.cfg'))}</pre>"),
    ]
    title = html.escape(f"{given.get('model')} on {given.get('dataset')}: {model_dir}")
    body = "".join(f"<h2>{name}</h2>{content}" for name, content in parts if content)
    with files.atomic_write(path) as file:
        file.write(
            f'<!doctype html><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>'
            f"<h1>{title}</h1>{body}\n"
        )
    print(path)


def _flags(model_dir):
    """Returns `{name: value}` of flags.cfg; of flags that come several times the last."""
    lines = _read(model_dir, "flags.cfg").splitlines()
    return dict(line[2:].partition("=")[::2] for line in lines)


def _read(*path):
    with tf.io.gfile.GFile(os.path.join(*path)) as file:
        return file.read()


def _scalars(directory):
    """Returns `{tag: {step: value}}` of the event files in a folder."""
    found = collections.defaultdict(dict)
    for path in sorted(tf.io.gfile.glob(os.path.join(directory, "events.*"))):
        for event in tf.compat.v1.train.summary_iterator(path):
            for value in event.summary.value:
                if value.HasField("simple_value"):
                    found[_SAME.get(value.tag, value.tag)][event.step] = value.simple_value
                elif value.tensor.dtype == tf.float32.as_datatype_enum:
                    number = tf.make_ndarray(value.tensor)
                    if number.ndim == 0:
                        found[_SAME.get(value.tag, value.tag)][event.step] = float(number)
    return found


def _curves(model_dir):
    """Yields a figure for each quantity."""
    by_phase = {
        "training": _scalars(model_dir),
        "evaluation": _scalars(os.path.join(model_dir, "eval")),
    }
    for tag in sorted({tag for scalars in by_phase.values() for tag in scalars}):
        lines = {phase: scalars[tag] for phase, scalars in by_phase.items() if tag in scalars}
        if max(map(len, lines.values())) > 1:
            yield f"<figure><figcaption>{html.escape(tag)}</figcaption>{_svg(lines)}</figure>"


def _svg(lines):
    """Returns a picture of `{name: {step: value}}`."""
    values = [value for line in lines.values() for value in line.values() if np.isfinite(value)]
    last = max(step for line in lines.values() for step in line)
    low, high = min(values, default=0.0), max(values, default=0.0)
    span = (high - low) or 1.0

    def place(step, value):
        x = _LEFT + step / max(last, 1) * (_WIDTH - _LEFT - 10)
        return f"{x:.1f},{10 + (high - value) / span * (_HEIGHT - _BOTTOM - 10):.1f}"

    if values:
        scale = [
            f'<text x="{_LEFT - 4}" y="15" text-anchor="end">{high:.4g}</text>',
            f'<text x="{_LEFT - 4}" y="{_HEIGHT - _BOTTOM}" text-anchor="end">{low:.4g}</text>',
        ]
    else:
        scale = [f'<text x="{_LEFT + 10}" y="{_HEIGHT // 2}">not finite</text>']
    drawn = [
        *scale,
        f'<text x="{_WIDTH - 10}" y="{_HEIGHT - 10}" text-anchor="end">step {last:,}</text>',
        f'<path d="M{_LEFT},10 V{_HEIGHT - _BOTTOM} H{_WIDTH - 10}" fill="none" stroke="#999"/>',
    ]
    for i, (name, line) in enumerate(lines.items()):
        path = " ".join(place(*pair) for pair in sorted(line.items()) if np.isfinite(pair[1]))
        color = _COLORS[name]
        drawn.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>')
        x = _LEFT + 90 * i
        drawn.append(f'<text x="{x}" y="{_HEIGHT - 10}" fill="{color}">{name}</text>')
    return f'<svg width="{_WIDTH}" height="{_HEIGHT}" font-size="11">{"".join(drawn)}</svg>'


def _results(model_dir):
    """Returns the result files, oldest first."""
    found = [json.loads(_read(path)) for path in tf.io.gfile.glob(f"{model_dir}/result_*.json")]
    return sorted(found, key=lambda result: result["step"])


def _evaluation(model_dir):
    evaluated = [result for result in _results(model_dir) if "eval" in result]
    if not evaluated:
        return ""
    step, figures = evaluated[-1]["step"], evaluated[-1]["eval"]
    numbers = {key: value for key, value in figures.items() if not isinstance(value, (list, dict))}
    rows = _table(["step", *numbers], [[step, *numbers.values()]])
    for path in tf.io.gfile.glob(os.path.join(model_dir, "eval", f"confusion_matrix_{step}.png")):
        with tf.io.gfile.GFile(path, "rb") as file:
            rows += f"<p>{_picture(file.read(), 'confusion matrix, rows are labels')}</p>"
    return rows


def _speed(model_dir):
    trained = [result for result in _results(model_dir) if "train" in result]
    columns = ("start_step", "seconds_to_first_step", "seconds_after_first_step")
    columns += ("examples_per_second",)
    rows = [[result["step"], *(result["train"][key] for key in columns)] for result in trained]
    return _table(["up to step", *(key.replace("_", " ") for key in columns)], rows)


def _table(names, rows):
    head = "".join(f"<th>{html.escape(str(name))}</th>" for name in names)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(_short(value))}</td>" for value in row) + "</tr>"
        for row in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def _short(value):
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _predictions(model_dir, given):
    """Returns the step of the newest file of predictions, and the first of them by their images."""
    paths = tf.io.gfile.glob(os.path.join(model_dir, "predictions_*.jsonl"))
    found = [re.fullmatch(r".*/predictions_(.+)_(\d+)\.jsonl", path) for path in paths]
    if not paths or not dataset.exists(given.get("data_dir", "")):
        return 0, ""
    data = dataset.read(given["data_dir"])
    of_splits = [match for match in found if match and match[1] in data.splits]
    if "image" not in data.features or not of_splits:
        return 0, ""
    newest = max(of_splits, key=lambda match: int(match[2]))
    split, step = newest[1], int(newest[2])
    lines = _read(newest[0]).splitlines()[:_NUM_PREDICTIONS]
    pipeline = ImagePipeline(data, (_CELL, _CELL))
    shown = serving.first_of(lambda: pipeline.features_in_order(split), len(lines))["image"]
    labels = _labels(data, split, len(lines))
    brightest = max(1, shown.max())
    cells = []
    for pixels, label, line in zip(shown, labels, map(json.loads, lines)):
        pixels = (pixels.astype(np.float32) * (255 / brightest)).astype(np.uint8)
        said = line.get("class_names", "")
        caption = f"{said} {max(line.get('probabilities', [0])):.2f}"
        mark = "" if said == data.class_names[label] else ' class="wrong"'
        encoded = io.BytesIO()
        Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels).save(encoded, "PNG")
        picture = _picture(encoded.getvalue(), data.class_names[label])
        if mark:
            caption += f", is {data.class_names[label]}"
        cells.append(f"<figure>{picture}<br><span{mark}>{html.escape(caption)}</span></figure>")
    return step, "".join(cells)


def _labels(data, split, count):
    parse = images.stored_fn(data.features, True, data.num_classes)
    return serving.first_of(lambda: records.in_order(data.files(split), parse), count)[1]


def _picture(png, words):
    return f'<img alt="{html.escape(words)}" title="{html.escape(words)}" src="data:image/png;' + (
        f'base64,{base64.b64encode(png).decode()}">'
    )


def _main():
    if len(sys.argv) not in (2, 3):
        raise UsageError("write: make report MODEL_DIR=runs/digits")
    main(*sys.argv[1:])


if __name__ == "__main__":
    program.run(_main)
