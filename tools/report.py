"""Writes an HTML report of a run, as a single file without external resources.

    python -m tools.report MODEL_DIR [PAGE.html]      or: make report MODEL_DIR=runs/digits

Curves of training and evaluation, the results of the latest evaluation with its confusion matrix,
some predictions with their images (after --mode=predict), speed, and flags. Reads model_dir, and
data_dir for images. The run may still be running or may have been killed: the report lists files
that it cannot read.
"""

from __future__ import annotations

import base64
import collections
import html
import json
import os
import re
import sys

from engine.cli import startup

if __name__ == "__main__":
    startup.hide_logs()
    startup.check(startup.check_environment)

import numpy as np
import tensorflow as tf

from common import files, pictures
from common.errors import UsageError
from engine.cli import runtime
from input_fns import dataset_info
from input_fns.core import records, serving
from input_fns.image import contact_sheet, images
from input_fns.image.image_pipeline import ImagePipeline
from input_fns.image.kind import Images

_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 420, 200, 60, 30
_COLORS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e")  # training, then evaluations
# Evaluation metric -> training summary of the same quantity, drawn in one plot.
_SAME = {"average_loss": "loss"}
_NUM_PREDICTIONS, _CELL = 24, 96
# Sections of result_<step>.json and folders of evaluations; see `results.evaluation_name`.
_EVALUATION = r"eval(?:_(.+?))?/?"
# Pictures of an evaluation, and what their names do not say.
_TITLES = {"confusion_matrix": "confusion matrix, rows are labels"}
# Exceptions of reading a missing, truncated or invalid file.
_BROKEN = (
    OSError, ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError,
    tf.errors.OpError,
)  # fmt: skip
_NOTE_LENGTH = 300
_STYLE = """
body { font: 14px/1.5 sans-serif; max-width: 920px; margin: 2em auto; color: #222 }
figure { display: inline-block; margin: 0 1em 1em 0; vertical-align: top }
figcaption { font-weight: bold } table { border-collapse: collapse }
td, th { border: 1px solid #ccc; padding: 2px 8px; text-align: right }
pre { background: #f4f4f4; padding: 1em; overflow: auto }
.note { color: #777 } .wrong { color: #d62728 }
"""


def main(model_dir: str, path: str = "") -> None:
    """Writes the report to `path`, by default MODEL_DIR/report.html.

    Raises:
      UsageError: `model_dir` contains no run, or `path` is a folder.
    """
    runtime.prepare()
    if not tf.io.gfile.exists(os.path.join(model_dir, "flags.cfg")):
        raise UsageError(f"{model_dir} is not the model_dir of a run: flags.cfg is missing")
    path = path or os.path.join(model_dir, "report.html")
    if tf.io.gfile.isdir(path):
        raise UsageError(f"{path} is a folder. Use the path of a file")
    notes = []
    flags_text = _or_note(notes, "flags.cfg", lambda: _read(model_dir, "flags.cfg"), "")
    given = _flags(flags_text)
    results = _results(model_dir, notes)
    step, predictions = _or_note(
        notes, "the predictions", lambda: _predictions(model_dir, given), (0, "")
    )
    parts = [
        ("Curves", "".join(_curves(model_dir, notes))),
        ("Evaluation", _evaluation(model_dir, results)),
        (f"Predictions of step {step}", predictions),
        ("Speed", _speed(results)),
        ("Flags", f"<pre>{html.escape(flags_text)}</pre>" if flags_text else ""),
        ("Not shown", "".join(f'<p class="note">{html.escape(note)}</p>' for note in notes)),
    ]
    title = html.escape(f"{given.get('model')} on {given.get('dataset')}: {model_dir}")
    body = "".join(f"<h2>{name}</h2>{content}" for name, content in parts if content)
    with files.atomic_write(path) as file:
        file.write(
            f'<!doctype html><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>'
            f"<h1>{title}</h1>{body}\n"
        )
    print(path)


def _or_note(notes, name, read, default):
    """Returns `read()`; if a file is missing or broken, adds a note and returns `default`."""
    try:
        return read()
    except _BROKEN as error:
        reason = " ".join(str(error).split())[:_NOTE_LENGTH]
        notes.append(f"{name}: {type(error).__name__}: {reason}")
        return default


def _flags(text):
    """Returns `{name: value}` of flags.cfg; the last value of a repeated flag."""
    return dict(line[2:].partition("=")[::2] for line in text.splitlines())


def _read(*path):
    with tf.io.gfile.GFile(os.path.join(*path)) as file:
        return file.read()


def _names(directory, pattern):
    """Returns the matches of the file names in a folder, sorted."""
    # Not a glob, which would expand "[" in paths.
    names = sorted(tf.io.gfile.listdir(directory)) if tf.io.gfile.isdir(directory) else []
    return list(filter(None, map(re.compile(pattern).fullmatch, names)))


def _scalars(directory, notes):
    """Returns `{tag: {step: value}}` of the event files in a folder."""
    found = collections.defaultdict(dict)

    def read(path):
        for event in tf.compat.v1.train.summary_iterator(path):
            for value in event.summary.value:
                number = _scalar(value)
                if number is not None:
                    found[_SAME.get(value.tag, value.tag)][event.step] = number

    for name in _names(directory, r"events\..*"):
        path = os.path.join(directory, name[0])
        # The last record of a running or killed run may be truncated.
        _or_note(notes, f"the end of {path}", lambda path=path: read(path), None)
    return found


def _scalar(value):
    if value.HasField("simple_value"):
        return value.simple_value
    if value.tensor.dtype != tf.float32.as_datatype_enum:
        return None
    number = tf.make_ndarray(value.tensor)
    return float(number) if number.ndim == 0 else None


def _curves(model_dir, notes):
    """Yields a plot per quantity."""
    by_phase = {"training": _scalars(model_dir, notes)}
    for folder in _names(model_dir, _EVALUATION):
        phase = f"evaluation {folder[1] or ''}".rstrip()
        by_phase[phase] = _scalars(os.path.join(model_dir, folder[0].rstrip("/")), notes)
    colors = {phase: _COLORS[i % len(_COLORS)] for i, phase in enumerate(by_phase)}
    for tag in sorted({tag for scalars in by_phase.values() for tag in scalars} - {"examples"}):
        lines = {phase: scalars[tag] for phase, scalars in by_phase.items() if tag in scalars}
        if max(map(len, lines.values())) > 1:
            svg = _svg(lines, colors)
            yield f"<figure><figcaption>{html.escape(tag)}</figcaption>{svg}</figure>"


def _svg(lines, colors):
    """Returns an SVG plot of `{name: {step: value}}`; `colors` is `{name: color}`."""
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
        color = colors[name]
        drawn.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>')
        x = _LEFT + 90 * i
        drawn.append(f'<text x="{x}" y="{_HEIGHT - 10}" fill="{color}">{html.escape(name)}</text>')
    return f'<svg width="{_WIDTH}" height="{_HEIGHT}" font-size="11">{"".join(drawn)}</svg>'


def _results(model_dir, notes):
    """Returns the contents of the result files, oldest first."""
    found = [
        _or_note(notes, name[0], lambda name=name: _result(model_dir, name), None)
        for name in _names(model_dir, r"result_([0-9]{1,18})\.json")
    ]
    return sorted(filter(None, found), key=lambda result: result["step"])


def _result(model_dir, name):
    result = json.loads(_read(model_dir, name[0]))
    if not isinstance(result, dict):
        raise ValueError("it is not a JSON object")
    sections = {key: value for key, value in result.items() if isinstance(value, dict)}
    return {**sections, "step": int(name[1])}


def _evaluation(model_dir, results):
    """Returns a table of the evaluations of the last step that has one, and their pictures."""
    found = [
        (result["step"], {name: result[name] for name in result if re.fullmatch(_EVALUATION, name)})
        for result in results
    ]
    found = [(step, sections) for step, sections in found if any(sections.values())]
    if not found:
        return ""
    step, sections = found[-1]
    numbers = {
        name: {key: value for key, value in section.items() if not isinstance(value, (list, dict))}
        for name, section in sections.items()
    }
    columns = dict.fromkeys(key for section in numbers.values() for key in section)
    rows = [[name, step, *map(section.get, columns)] for name, section in numbers.items()]
    content = _table(["name", "step", *columns], rows)
    for section in sections:
        folder = os.path.join(model_dir, section)
        for name in _names(folder, rf"([a-z_]+)_{step}\.png"):
            path = os.path.join(folder, name[0])
            if not tf.io.gfile.isdir(path):
                title = _TITLES.get(name[1], name[1].replace("_", " "))
                title += f" ({section})" if len(sections) > 1 else ""
                with tf.io.gfile.GFile(path, "rb") as file:
                    content += f"<p>{html.escape(title)}<br>{_image_tag(file.read(), title)}</p>"
    return content


def _speed(results):
    trained = [result for result in results if result.get("train")]
    columns = ("start_step", "seconds_to_first_step", "seconds_after_first_step")
    columns += ("examples_per_second",)
    rows = [[result["step"], *(result["train"].get(key) for key in columns)] for result in trained]
    names = ["up to step", *(key.replace("_", " ") for key in columns)]
    return _table(names, rows) if rows else ""


def _table(names, rows):
    head = "".join(f"<th>{html.escape(str(name))}</th>" for name in names)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(_short(value))}</td>" for value in row) + "</tr>"
        for row in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def _short(value):
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _predictions(model_dir, given):
    """Returns (step, HTML) of the first predictions of the newest file, with their images."""
    found = _names(model_dir, r"predictions_(.+)_([0-9]{1,18})\.jsonl")
    if not found or not dataset_info.exists(given.get("data_dir", "")):
        return 0, ""
    data = dataset_info.read(given["data_dir"])
    of_splits = [match for match in found if match[1] in data.splits]
    if not isinstance(data.kind, Images) or not of_splits:
        return 0, ""
    newest = max(of_splits, key=lambda match: int(match[2]))
    split, step = newest[1], int(newest[2])
    lines = _read(model_dir, newest[0]).splitlines()[:_NUM_PREDICTIONS]
    if not lines:
        return 0, ""
    is_resized = data.features["image"].dtype == "uint8"
    pipeline = ImagePipeline(data, (_CELL, _CELL) if is_resized else None)
    shown = serving.first_of(lambda: pipeline.features_in_order(split), len(lines))["image"]
    labels = _labels(data, split, len(lines))
    brightest = max(1, shown.max())
    cells = []
    for pixels, label, line in zip(shown, labels, map(json.loads, lines)):
        predicted = line.get("class_names", "")
        caption = f"{predicted} {max(line.get('probabilities', []), default=0):.2f}"
        mark = "" if predicted == data.class_names[label] else ' class="wrong"'
        shown = contact_sheet.to_picture(pixels, brightest).resize((_CELL, _CELL))
        tag = _image_tag(pictures.to_png(shown), data.class_names[label])
        if mark:
            caption += f", label {data.class_names[label]}"
        cells.append(f"<figure>{tag}<br><span{mark}>{html.escape(caption)}</span></figure>")
    return step, "".join(cells)


def _labels(data, split, count):
    parse = images.stored_fn(data.features, True, data.num_classes)
    files, record_bytes = data.files(split), data.split(split).record_bytes
    return serving.first_of(lambda: records.in_order(files, parse, record_bytes), count)[1]


def _image_tag(png, text):
    return f'<img alt="{html.escape(text)}" title="{html.escape(text)}" src="data:image/png;' + (
        f'base64,{base64.b64encode(png).decode()}">'
    )


def _main():
    if len(sys.argv) not in (2, 3):
        raise UsageError("usage: make report MODEL_DIR=runs/digits")
    main(*sys.argv[1:])


if __name__ == "__main__":
    startup.run(_main)
