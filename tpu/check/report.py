"""The report of a check: for people as text, for programs as JSON."""

from __future__ import annotations

import dataclasses
import json

from tpu.check import lint
from tpu.check.check import ModeReport, Report
from tpu.findings import ERROR, NOTE, WARNING

_COLOURS = {ERROR: "\033[31m", WARNING: "\033[33m", NOTE: "\033[36m"}
_BOLD, _PLAIN = "\033[1m", "\033[0m"
_CANNOT_KNOW = (
    "whether a TPU VM's own, older compiler agrees; how fast the host feeds the TPU; memory near "
    "its limit; quota and access to gs://; the numbers that come out"
)


def text(report: Report, colour: bool = False) -> str:
    """Returns the report for a terminal."""

    def paint(style, words):
        return f"{style}{words}{_PLAIN}" if colour else words

    topology = report.topology
    hosts = f"{topology.num_hosts} host{'s' if topology.num_hosts > 1 else ''}"
    lines = [paint(_BOLD, f"check for {topology.name}: {hosts} x {topology.cores_per_host} cores")]
    lines += ["", *_table(report)] if report.modes else []
    lines += [line for mode, of_mode in report.modes.items() for line in _expensive(mode, of_mode)]
    grouped = {}
    for finding in report.findings:
        key = (finding.level, finding.code, finding.message, finding.where)
        grouped.setdefault(key, []).append(finding.mode)
    lines += [""] if grouped else []
    for (level, code, message, where), modes in grouped.items():
        place = f"\n    at {where}" if where else ""
        of_modes = f" ({', '.join(filter(None, modes))})" if any(modes) else ""
        lines.append(f"{paint(_COLOURS[level], level)} {code}{of_modes}: {message}{place}")
    lines.append("")
    lines += [f"not checked: {reason}" for reason in report.not_checked]
    lines.append(f"cannot be known here: {_CANNOT_KNOW}")
    lines.append(paint(_BOLD, _verdict(report.num_errors, report.num_warnings)))
    return "\n".join(lines)


def _verdict(errors, warnings):
    if not errors and not warnings:
        return "no problem found"
    counts = [(errors, "error"), *([(warnings, "warning")] if warnings else [])]
    return ", ".join(f"{count or 'no'} {name}{'s' if count > 1 else ''}" for count, name in counts)


def as_json(report: Report) -> str:
    """Returns the same for programs; sizes are bytes, times seconds."""
    fields = dataclasses.asdict(report)
    for mode in fields["modes"].values():
        if mode["compiled"]:
            del mode["compiled"]["optimized"]
    fields.update(num_errors=report.num_errors, num_warnings=report.num_warnings)
    fields["kernels"] = lint.provenance()
    return json.dumps(fields, indent=1) + "\n"


def _table(report):
    """Returns a line a quantity, a column a mode."""
    modes, cores = report.modes, report.topology.cores_per_host
    rows = [
        ("batch", {mode: str(of.batch_size) for mode, of in modes.items()}),
        ("parameters", _each(modes, lambda sizes: f"{sizes.parameters:,}")),
        ("slots, state", _each(modes, lambda sizes: _bytes(sizes.slot_bytes))),
        ("kept activations", _each(modes, lambda sizes: _bytes(sizes.kept_bytes))),
        ("infeed a step", _each(modes, lambda sizes: _bytes(sizes.infeed_bytes))),
        ("padding", _each(modes, lambda sizes: f"{sizes.padding:.0%}")),
        ("memory", {mode: _memory(of, report.topology) for mode, of in modes.items()}),
        ("FLOPs a step", _each(modes, _flops)),
    ]
    if any(of.step_time for of in modes.values()):
        rows += [
            ("step time, modelled", _times(modes, lambda time, of: _seconds(time.seconds))),
            ("share of peak", _times(modes, lambda time, of: f"{time.share_of_peak:.1%}")),
            (
                "examples/s a core",
                _times(modes, lambda time, of: f"{of.batch_size / time.seconds:,.0f}"),
            ),
            (
                "examples/s, slice",
                _times(
                    modes,
                    lambda time, of: (
                        f"{of.batch_size * report.topology.num_cores / time.seconds:,.0f}"
                    ),
                ),
            ),
        ]
    needed = _times(
        modes,
        lambda time, of: f"{_bytes(of.sizes.infeed_bytes * cores / time.seconds)}/s",
    )
    rows += [("infeed of a host, needed", needed)] if needed else []
    host = {
        mode: f"{of.host_examples_per_second:,.0f}"
        for mode, of in modes.items()
        if of.host_examples_per_second
    }
    if host:
        rows.append(("examples/s, input_fn here", host))
    if any(of.compiled for of in modes.values()):
        compiled = {m: f"{of.compiled.seconds:.1f} s" for m, of in modes.items() if of.compiled}
        rows.append(("compiled in", compiled))
    rows.append(("checked in", {mode: f"{of.seconds:.1f} s" for mode, of in modes.items()}))
    width = max(len(name) for name, _ in rows)
    columns = {
        mode: max(len(mode), *(len(values.get(mode, "")) for _, values in rows)) for mode in modes
    }
    lines = [" " * width + "".join(f"  {mode:>{size}}" for mode, size in columns.items())]
    for name, values in rows:
        cells = "".join(f"  {values.get(mode, '-'):>{size}}" for mode, size in columns.items())
        lines.append(f"{name:<{width}}{cells}")
    names = {of.compiled.compiler for of in modes.values() if of.compiled}
    lines += [f"compiled with {name}" for name in sorted(names)]
    return lines


def _each(modes, describe):
    return {mode: describe(of.sizes) for mode, of in modes.items() if of.sizes}


def _times(modes, describe):
    return {mode: describe(of.step_time, of) for mode, of in modes.items() if of.step_time}


def _memory(of: ModeReport, topology):
    if of.compiled and of.compiled.fits:
        peak = of.compiled.peak_bytes
        share = peak / (topology.hbm_gib * 2**30)
        return f"{_bytes(peak)} ({share:.0%} of {topology.hbm_gib} GiB)"
    if of.compiled and of.compiled.out_of_memory:
        return "does not fit"
    return f"about {_bytes(of.sizes.hbm_bytes)}" if of.sizes else "-"


def _flops(sizes):
    for factor, name in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if sizes.flops >= factor:
            return f"{sizes.flops / factor:.2f} {name}"
    return str(sizes.flops)


def _expensive(mode, of: ModeReport):
    if mode != "train":
        return []
    lines = []
    if of.step_time and of.step_time.largest:
        lines += ["", "where the time of a training step goes:"]
        lines += [
            f"  {part.share:5.1%}  {part.operation or part.name}  {part.where}"
            for part in of.step_time.largest
        ]
        if of.step_time.not_counted:
            count = of.step_time.not_counted
            lines.append(f"  not counted: {count} sums, fusions and pads, the infeed, the host")
    if of.sizes and of.sizes.largest:
        lines += ["", "what the forward pass keeps, largest first:"]
        lines += [
            f"  {_bytes(tensor.num_bytes):>9}  {tensor.shape}  {tensor.where}"
            for tensor in of.sizes.largest
        ]
    return lines


def _bytes(number):
    for factor, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if number >= factor:
            return f"{number / factor:.1f} {name}"
    return f"{number} B"


def _seconds(seconds):
    return f"{seconds * 1e3:.2f} ms" if seconds < 1 else f"{seconds:.2f} s"
