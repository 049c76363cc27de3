"""Curves of the training and its evaluations, of one or several runs, with Plotly."""

from __future__ import annotations

import html
import math

from tools.reporting.runs import Run

_COLORS = (
    "#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b", "#e377c2",
)  # fmt: skip
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash")  # training, then evaluations
_HEIGHT, _MOST_POINTS = 320, 2000
_NOT_DRAWN = ("examples",)  # of an evaluation: the size of the split
_LOGARITHM = {
    "type": "buttons", "direction": "right", "font": {"size": 10}, "showactive": True,
    "x": 0.7, "xanchor": "right", "y": 1.25, "yanchor": "top",
    "buttons": [
        {"label": kind, "method": "relayout", "args": [{"yaxis.type": kind}]}
        for kind in ("linear", "log")
    ],
}  # fmt: skip

_CONFIG = {
    "displaylogo": False,
    "responsive": True,
    "modeBarButtonsToRemove": ["select2d", "lasso2d", "zoomIn2d", "zoomOut2d", "autoScale2d"],
}


def draw(runs: list[Run]) -> str:
    """Returns HTML: a plot per quantity, and a line with those that are the same at every step."""
    of_runs = [run.scalars() for run in runs]
    phases = list(dict.fromkeys(phase for scalars in of_runs for phase in scalars))
    tags = sorted({tag for scalars in of_runs for found in scalars.values() for tag in found})
    plots, constant = [], []
    for tag in tags:
        lines = [
            (run, phases.index(phase), phase, found[tag])
            for run, scalars in enumerate(of_runs)
            for phase, found in scalars.items()
            if tag in found
        ]
        if tag in _NOT_DRAWN or max(len(line[3]) for line in lines) < 2:
            continue
        values = {value for line in lines for value in line[3].values()}
        if len(values) == 1:
            constant.append(f"{tag} {values.pop():.4g}")
        else:
            plots.append(_plot(tag, lines, runs))
    same = f'<p class="note">Constant: {html.escape(", ".join(constant))}</p>' if constant else ""
    return "".join(plots) + same


def script() -> str:
    """Returns the script of Plotly, for a page that needs no network."""
    from plotly import offline

    return f"<script>{offline.get_plotlyjs()}</script>"


def _plot(tag, lines, runs):
    from plotly import graph_objects

    figure = graph_objects.Figure()
    for run, number, phase, line in lines:
        name = phase if len(runs) == 1 else f"{runs[run].name}: {phase}"
        color = _COLORS[(run if len(runs) > 1 else number) % len(_COLORS)]
        points = _thinned(sorted(line.items()))
        figure.add_scatter(
            x=[step for step, _ in points],
            y=[value if math.isfinite(value) else None for _, value in points],
            name=name,
            mode="lines+markers" if len(points) < 50 else "lines",
            marker={"size": 4},
            line={"color": color, "dash": _DASHES[number % len(_DASHES)], "width": 2},
        )
    figure.update_layout(
        title={"text": tag, "font": {"size": 14}},
        template="plotly_white",
        height=_HEIGHT,
        margin={"l": 60, "r": 10, "t": 50, "b": 40},
        hovermode="x unified",
        legend={"orientation": "h", "y": -0.2},
        xaxis_title="step",
        yaxis_minexponent=5,
        showlegend=True,
        updatemenus=[_LOGARITHM],
    )
    content = figure.to_html(full_html=False, include_plotlyjs=False, config=_CONFIG)
    return f"<figure><figcaption>{html.escape(tag)}</figcaption>{content}</figure>"


def _thinned(points):
    """Returns at most `_MOST_POINTS` points, the last one among them."""
    stride = math.ceil(len(points) / _MOST_POINTS)
    return points[::-1][::stride][::-1] if stride > 1 else points
