"""Numbers, tables of classes and pictures of evaluations, and the speed of a training."""

from __future__ import annotations

import base64
import html
import os
from typing import Any

import tensorflow as tf

from tools.reporting.runs import Run, matches, read

# Pictures of an evaluation, and what their names do not say.
_TITLES = {"confusion_matrix": "confusion matrix, rows are labels"}
_NOT_SHOWN = ("checkpoint", "data")
_MOST_CLASSES = 200
_SPEED = (
    "start_step", "seconds_to_first_step", "seconds_after_first_step", "examples_per_second",
    "skipped_records", "system",
)  # fmt: skip


def summary(runs: list[Run]) -> str:
    """Returns a table of the numbers of the best and the last evaluations of each run."""
    rows = []
    evaluated = [(run, each) for run in runs for each in (run.best_evaluations, run.evaluations)]
    for run, (step, sections) in evaluated:
        for name, section in sections.items():
            numbers = {k: v for k, v in section.items() if not isinstance(v, (list, dict))}
            rows.append({"run": run.name, "evaluation": name, "step": step, **numbers})
    columns = dict.fromkeys(key for row in rows for key in row if key not in _NOT_SHOWN)
    if len(runs) == 1:
        columns.pop("run", None)
    return table(columns, [[row.get(key) for key in columns] for row in rows]) if rows else ""


def details(run: Run) -> str:
    """Returns the tables of classes and the pictures of the last evaluations of a run."""
    step, sections = run.evaluations
    content = ""
    for name, section in sections.items():
        folder = os.path.join(run.folder, name)
        content += run.attempt(
            f"classes of {name}",
            lambda section=section, folder=folder: _classes(section, folder, step),
            "",
        )
        for match in matches(folder, rf"([a-z_]+)_{step}\.png"):
            path = os.path.join(folder, match[0])
            if not tf.io.gfile.isdir(path):
                title = _TITLES.get(match[1], match[1].replace("_", " "))
                title += f" ({name})" if len(sections) > 1 else ""
                with tf.io.gfile.GFile(path, "rb") as file:
                    image = image_tag(file.read(), title)
                content += f"<p>{html.escape(title)}<br>{image}</p>"
    return content


def _classes(section, folder, step):
    """Returns a table of the classes, the worst ones first, or the text of classes_STEP.txt."""
    classes = section.get("classes")
    if isinstance(classes, dict) and classes:
        columns = dict.fromkeys(key for numbers in classes.values() for key in numbers)
        order = next((key for key in ("f1", "ap", "iou") if key in columns), "")
        found = sorted(classes.items(), key=lambda item: item[1].get(order) or 0)
        rows = [[name, *map(numbers.get, columns)] for name, numbers in found]
        more = len(rows) - _MOST_CLASSES
        note = f'<p class="note">and {more} more classes</p>' if more > 0 else ""
        shown = table(["class", *columns], rows[:_MOST_CLASSES]) + note
    elif matches(folder, rf"classes_{step}\.txt"):
        shown = f"<pre>{html.escape(read(folder, f'classes_{step}.txt'))}</pre>"
    else:
        return ""
    return f"<details open><summary>classes</summary>{shown}</details>"


def speed(runs: list[Run]) -> str:
    """Returns a table of the parts of each training."""
    rows = [
        [run.name, result["step"], *map(result["train"].get, _SPEED)]
        for run in runs
        for result in run.results
        if result.get("train")
    ]
    names = ["run", "up to step", *(key.replace("_", " ") for key in _SPEED)]
    is_one = len(runs) == 1
    return table(names[is_one:], [row[is_one:] for row in rows]) if rows else ""


def table(names: Any, rows: list[list]) -> str:
    """Returns an HTML table; numbers are rounded."""
    head = "".join(f"<th>{html.escape(str(name))}</th>" for name in names)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(_short(value))}</td>" for value in row) + "</tr>"
        for row in rows
    )
    return f'<div class="wide"><table><tr>{head}</tr>{body}</table></div>'


def _short(value):
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def image_tag(png: bytes, text: str) -> str:
    """Returns a picture that is part of the page."""
    return f'<img alt="{html.escape(text)}" title="{html.escape(text)}" src="data:image/png;' + (
        f'base64,{base64.b64encode(png).decode()}">'
    )
