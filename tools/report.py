"""Writes one HTML page about a run, or that compares several, which needs no network.

    python -m tools.report MODEL_DIR [PAGE.html]
    python -m tools.report MODEL_DIR MODEL_DIR... [PAGE.html]

The page has the curves of the training and its evaluations, the numbers and classes of the last
evaluations with their pictures, the worst predictions with their images, texts or recordings, the
speed, the system and the flags; of several runs the curves in one plot, and the hyperparameters
that differ. Default: report.html in MODEL_DIR; of several, in the current folder.
"""

import html
import itertools
import os
import sys

from engine.cli import startup

if __name__ == "__main__":
    startup.hide_logs()
    startup.check(startup.check_environment)

import tensorflow as tf

from common import files
from common.errors import UsageError
from engine.cli import runtime
from tools.reporting import curves, evaluations, predictions
from tools.reporting.runs import Run, different_flags

_STYLE = """
body { font: 14px/1.5 sans-serif; max-width: 1100px; margin: 2em auto; padding: 0 1em; color: #222 }
.curves { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(480px, 100%), 1fr)) }
figure { display: inline-block; margin: 0 1em 1em 0; vertical-align: top }
figure img { min-width: 96px }
.curves figure { display: block; min-width: 0; margin: 0; overflow: hidden }
.curves figcaption { display: none } figure.text { display: block; max-width: 70ch }
table { border-collapse: collapse } .wide { overflow-x: auto }
td, th { border: 1px solid #ccc; padding: 2px 8px; text-align: right } img { max-width: 100% }
td:first-child, th:first-child { text-align: left } tr:hover { background: #f0f6ff }
pre { background: #f4f4f4; padding: 1em; overflow: auto } summary { cursor: pointer }
nav a { margin-right: 1em } .note { color: #777 } .wrong { color: #d62728 }
"""


def main(*arguments: str) -> None:
    """Writes the page: see the head of this file.

    Raises:
      UsageError: a folder has no run, the path of the page is a folder, or Plotly is missing.
    """
    runtime.prepare()
    _check_plotly()
    model_dirs = [os.path.normpath(a) if "://" not in a else a.rstrip("/") for a in arguments]
    path = model_dirs.pop() if model_dirs[-1].endswith(".html") and model_dirs[1:] else ""
    for model_dir in model_dirs:
        if not tf.io.gfile.exists(os.path.join(model_dir, "flags.cfg")):
            raise UsageError(f"{model_dir} is not the model_dir of a run: flags.cfg is missing")
    path = path or os.path.join("" if model_dirs[1:] else model_dirs[0], "report.html")
    if tf.io.gfile.isdir(path):
        raise UsageError(f"{path} is a folder. Use the path of a file")
    runs = [Run(*pair) for pair in zip(model_dirs, _names(model_dirs))]
    with files.atomic_write(path) as file:
        file.write(_page(runs))
    print(path)


def _names(folders):
    """Returns the paths without the folders that all of them are in; "" for a single one."""
    paths = [folder.rstrip("/").split("/") for folder in folders]
    parents = zip(*(path[:-1] for path in paths))
    num_shared = len(list(itertools.takewhile(lambda parts: len({*parts}) == 1, parents)))
    return ["/".join(path[num_shared:]) if folders[1:] else "" for path in paths]


def _page(runs):
    drawn = curves.draw(runs)
    different = different_flags(runs)
    parts = [
        ("Flags that differ", _different(different, runs) if runs[1:] else ""),
        ("Curves", f'<div class="curves">{drawn}</div>' if drawn else ""),
        ("Evaluation", evaluations.summary(runs) + _of_each(runs, evaluations.details)),
        *_predictions(runs),
        ("Speed", evaluations.speed(runs)),
        ("Flags", _of_each(runs, lambda run: _text(run.flags_text))),
        ("Not shown", "".join(f'<p class="note">{html.escape(n)}</p>' for n in _notes(runs))),
    ]
    parts = [(name, content) for name, content in parts if content]
    first = runs[0].flags
    what = f"{first.get('model')} on {first.get('dataset')}: {runs[0].folder}"
    title = html.escape(f"{len(runs)} runs" if runs[1:] else what)
    links = "".join(f'<a href="#part{i}">{name}</a>' for i, (name, _) in enumerate(parts))
    body = "".join(
        f'<h2 id="part{i}">{name}</h2>{content}' for i, (name, content) in enumerate(parts)
    )
    return (
        '<!doctype html><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{_STYLE}</style>{curves.script() if drawn else ''}"
        f"<h1>{title}</h1><nav>{links}</nav>{body}\n"
    )


def _different(different, runs):
    rows = [[name, *values] for name, values in different.items()]
    return evaluations.table(["flag", *(run.name for run in runs)], rows) if rows else ""


def _of_each(runs, content_of):
    """Returns the content of each run below its name."""
    found = [(run, content_of(run)) for run in runs]
    return "".join(
        f"<h3>{html.escape(run.name)}</h3>{content}" if run.name else content
        for run, content in found
        if content
    )


def _predictions(runs):
    for run in runs:
        step, content = run.attempt(
            "the predictions", lambda run=run: predictions.draw(run), (0, "")
        )
        name = f" by {html.escape(run.name)}" if run.name else ""
        yield f"Predictions of step {step}{name}", content


def _text(text):
    return f"<pre>{html.escape(text)}</pre>" if text else ""


def _notes(runs):
    return [f"{run.name}: {note}" if run.name else note for run in runs for note in run.notes]


def _check_plotly():
    try:
        import plotly  # noqa: F401
    except ImportError:
        raise UsageError(
            "the curves need plotly: run `make report`, or pip install plotly"
        ) from None


def _main():
    if not sys.argv[1:]:
        raise UsageError('usage: make report MODEL_DIR=runs/digits, or MODEL_DIR="runs/a runs/b"')
    main(*sys.argv[1:])


if __name__ == "__main__":
    startup.run(_main)
