"""Metrics, tables and pictures of evaluations, and the speed of a training."""

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
_MOST_ROWS = 200
# Tables of an evaluation, and the heads of their first columns.
_TABLES = {"classes": "class", "numbers": "number"}
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
    """Returns the tables of classes or numbers, and the pictures, of the last evaluations."""
    step, sections = run.evaluations
    content = ""
    for name, section in sections.items():
        folder = os.path.join(run.folder, name)
        for rows in _TABLES:
            content += run.attempt(
                f"{rows} of {name}",
                lambda section=section, folder=folder, rows=rows: _rows(
                    rows, section, folder, step
                ),
                "",
            )
        for match in matches(folder, rf"(.+)_{step}\.png"):
            path = os.path.join(folder, match[0])
            if not tf.io.gfile.isdir(path):
                title = _TITLES.get(match[1], match[1].replace("_", " "))
                title += f" ({name})" if len(sections) > 1 else ""
                with tf.io.gfile.GFile(path, "rb") as file:
                    image = image_tag(file.read(), title)
                content += f"<p>{html.escape(title)}<br>{image}</p>"
    return content


def _rows(noun, section, folder, step):
    """Returns a table of the classes or numbers, the worst ones first, or the text of their file.

    Args:
      noun: one of `_TABLES`: the key in `section`, and the name of the file, NOUN_STEP.txt.
      section: the evaluation in result_<step>.json.
      folder: folder of the evaluation.
      step: global step.
    """
    values = section.get(noun)
    if isinstance(values, dict) and values:
        columns = dict.fromkeys(key for row in values.values() for key in row)
        order = next((key for key in ("f1", "ap", "iou", "r2") if key in columns), "")
        found = sorted(values.items(), key=lambda item: item[1].get(order) or 0)
        rows = [[name, *map(row.get, columns)] for name, row in found]
        more = len(rows) - _MOST_ROWS
        note = f'<p class="note">and {more} more {noun}</p>' if more > 0 else ""
        shown = table([_TABLES[noun], *columns], rows[:_MOST_ROWS]) + note
    elif matches(folder, rf"{noun}_{step}\.txt"):
        shown = f"<pre>{html.escape(read(folder, f'{noun}_{step}.txt'))}</pre>"
    else:
        return ""
    return f"<details open><summary>{noun}</summary>{shown}</details>"


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
