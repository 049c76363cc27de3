"""The report of a check as text for a terminal."""

from __future__ import annotations

import collections
import re

from tpu.check.report import ModeReport, Report
from tpu.findings import ERROR, NOTE, WARNING

_COLORS = {ERROR: "\033[31m", WARNING: "\033[33m", NOTE: "\033[36m"}
_BOLD, _RESET = "\033[1m", "\033[0m"
_MESSAGES_PER_RULE, _PLACES_PER_MESSAGE = 5, 3
_QUOTED = re.compile(r"'[^']*'")
_NEVER_CHECKED = (
    "of a TPU VM; the speed of the TPU's host; memory near its limit; quota and access to gs://; "
    "numerical results"
)


def format_text(report: Report, color: bool = False) -> str:
    """Returns the report as text for a terminal."""

    def paint(style, words):
        return f"{style}{words}{_RESET}" if color else words

    topology = report.topology
    subject = f"check of {report.title}" if report.title else "check"
    on_pjrt = "" if topology.has_infeed else " through PJRT"
    cores = f"{topology.hosts} x {topology.cores_per_host} cores"
    title = f"{subject} for {topology.name}{on_pjrt}: {cores}"
    lines = [paint(_BOLD, title)]
    lines += ["", *_table(report)] if report.modes else []
    lines += _largest_costs(report.modes.get("train"))
    lines += _uncounted(report)
    lines += _embedding_lines(report)
    rules = _by_rule(report.findings)
    lines += [""] if rules else []
    for (level, code, _), entries in rules.items():
        name, *rest = _rule_lines(level, code, entries)
        lines += [f"{paint(_COLORS[level], level)} {name}", *rest]
    lines.append("")
    lines += [f"not checked: {reason}" for reason in report.not_checked]
    compiler = "the older compiler" if topology.has_infeed else "the libtpu"
    lines.append(f"never checked: {compiler} {_NEVER_CHECKED}")
    lines += [f"{name}: not checked: {reason}" for name, reason in report.unchecked.items()]
    lines.append(paint(_BOLD, _verdict(report)))
    return "\n".join(lines)


def _by_rule(findings):
    """Returns `{(level, code, modes): {(message, where): [findings that differ in the mode]}}`.

    Errors of different modes are separate, because the report names each error.
    """
    found = {}
    for one in findings:
        found.setdefault((one.level, one.code, one.message, one.where), []).append(one)
    rules = {}
    for (level, code, *entry), same in found.items():
        modes = tuple(one.mode for one in same) if level == ERROR else ()
        rules.setdefault((level, code, modes), {})[tuple(entry)] = same
    return rules


def _rule_lines(level, code, entries):
    """Returns the lines about findings of one rule, which are sorted by cost.

    Each error is named; of warnings and notes the costliest, and all places.
    """
    modes = dict.fromkeys(found.mode for same in entries.values() for found in same if found.mode)
    in_modes = f" ({', '.join(modes)})" if modes else ""
    waste = sum(max(found.waste for found in same) for same in entries.values())
    count = f"{len(entries)} x: " if len(entries) > 1 else ""
    total = f" ({_bytes(waste)} in all)" if waste and count else ""
    by_message = {}
    for message, where in entries:
        by_message.setdefault(message, []).append(where)
    first, *others = by_message.items()
    if level != ERROR:
        first, others = (first[0], [where for _, where in entries]), []
    lines = [f"{code}{in_modes}: {count}{first[0]}{total}"]
    lines += [f"    {_places(first[1])}"] if any(first[1]) else []
    same = [message for message, places in others if _is_like(first, (message, places))]
    if same:
        names = [_QUOTED.search(message)[0] for message in same[:_MESSAGES_PER_RULE]]
        more = len(same) - len(names)
        lines.append(f"  the same: {', '.join(names)}{f' and {more} more' if more else ''}")
        others = [entry for entry in others if entry[0] not in same]
    for message, places in others[:_MESSAGES_PER_RULE]:
        place = f" {_places(places)}" if any(places) else ""
        lines.append(f"  {message}{place}")
    if others[_MESSAGES_PER_RULE:]:
        lines.append(f"  and {len(others) - _MESSAGES_PER_RULE} more")
    return lines


def _is_like(first, second):
    """Returns True if two (message, places) differ in the first quoted name only."""
    is_same_text = _QUOTED.sub("", first[0], 1) == _QUOTED.sub("", second[0], 1)
    return is_same_text and set(first[1]) == set(second[1])


def _places(places):
    """Returns the first places and their counts as "at a.py:3 (8 x), b.py:4 and 2 more places"."""
    counts = list(collections.Counter(filter(None, places)).items())
    shown = [f"{place} ({n} x)" if n > 1 else place for place, n in counts[:_PLACES_PER_MESSAGE]]
    more = len(counts) - len(shown)
    rest = f" and {more} more place{'s' if more > 1 else ''}" if more > 0 else ""
    return f"at {', '.join(shown)}{rest}"


def _verdict(report):
    errors, warnings = report.num_errors, report.num_warnings
    counts = [(errors, "error"), *([(warnings, "warning")] if warnings else [])]
    counted = ", ".join(f"{n or 'no'} {name}{'s' if n > 1 else ''}" for n, name in counts)
    if report.status != 2:
        return counted if errors or warnings else "no problem found"
    if report.checked_steps:
        names = ", ".join(report.unchecked)
        return f"{counted} in {', '.join(report.checked_steps)}; not checked: {names}"
    exports = [mode for mode in report.modes if mode not in report.unchecked]
    found = f"{counted} in {', '.join(exports)}; " if exports else ""
    return f"{found}no step of training, evaluation or prediction was checked"


def _table(report):
    """Returns the lines of a table with a row per quantity and a column per mode."""
    modes, topology = report.modes, report.topology

    def sized(format_cell):
        return {mode: format_cell(found.sizes) for mode, found in modes.items() if found.sizes}

    def timed(format_cell):
        return {
            mode: format_cell(found, found.step_time.seconds)
            for mode, found in modes.items()
            if found.step_time
        }

    def seconds(value):
        return f"{value * 1e3:.2f} ms" if value < 1 else f"{value:.2f} s"

    rows = {
        "batch per core": {mode: str(found.batch_size or "-") for mode, found in modes.items()},
        "parameters": sized(lambda sizes: f"{sizes.parameters:,}"),
        "slots, state": sized(lambda sizes: _bytes(sizes.slot_bytes)),
        "kept activations": sized(lambda sizes: _bytes(sizes.kept_bytes)),
        "infeed per step": sized(lambda sizes: _bytes(sizes.infeed_bytes)),
        "padding": sized(lambda sizes: f"{sizes.padding:.0%}"),
        "memory": {mode: _memory(found, topology) for mode, found in modes.items()},
        "FLOPs per step": sized(_flops),
    }
    optional_rows = {
        "step time, modeled": timed(lambda _, s: seconds(s)),
        "step time, expected": {
            mode: seconds(found.step_time.expected_seconds)
            for mode, found in modes.items()
            if mode == "train" and found.step_time
        },
        "share of peak": timed(lambda found, _: f"{found.step_time.share_of_peak:.1%}"),
        "examples/s per core": timed(lambda found, s: f"{found.batch_size / s:,.0f}"),
        "examples/s, slice": timed(lambda found, s: f"{found.global_batch_size / s:,.0f}"),
        "infeed needed per host": timed(
            lambda found, s: f"{_bytes(found.sizes.infeed_bytes * topology.cores_per_host / s)}/s"
        ),
        "examples/s, input_fn here": {
            mode: f"{found.host_examples_per_second:,.0f}"
            for mode, found in modes.items()
            if found.host_examples_per_second
        },
        "compiled in": {
            mode: f"{found.compiled.seconds:.1f} s"
            for mode, found in modes.items()
            if found.compiled
        },
    }
    rows.update((name, cells) for name, cells in optional_rows.items() if cells)
    rows["checked in"] = {mode: f"{found.seconds:.1f} s" for mode, found in modes.items()}
    width = max(map(len, rows))
    columns = {
        mode: max(len(mode), *(len(cells.get(mode, "")) for cells in rows.values()))
        for mode in modes
    }
    lines = [" " * width + "".join(f"  {mode:>{size}}" for mode, size in columns.items())]
    for name, values in rows.items():
        cells = "".join(f"  {values.get(mode, '-'):>{size}}" for mode, size in columns.items())
        lines.append(f"{name:<{width}}{cells}")
    names = {found.compiled.compiler for found in modes.values() if found.compiled}
    return lines + [f"compiled with {name}" for name in sorted(names)]


def _memory(found: ModeReport, topology):
    if found.compiled and found.compiled.fits:
        peak = found.compiled.peak_bytes
        share = peak / (topology.hbm_gib * 2**30)
        return f"{_bytes(peak)} ({share:.0%} of {topology.hbm_gib} GiB)"
    if found.compiled and found.compiled.out_of_memory:
        return "does not fit"
    return f"about {_bytes(found.sizes.hbm_bytes)}" if found.sizes else "-"


def _flops(sizes):
    for factor, name in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if sizes.flops >= factor:
            return f"{sizes.flops / factor:.2f} {name}"
    return str(sizes.flops)


def _largest_costs(train: ModeReport | None):
    """Returns the lines about the most expensive instructions and tensors of training."""
    lines = []
    step_time, sizes = (train.step_time, train.sizes) if train else (None, None)
    if step_time and step_time.largest:
        lines += ["", "most expensive instructions of a training step:"]
        lines += [
            f"  {part.share:5.1%}  {part.operation or part.name}  {part.where}"
            for part in step_time.largest
        ]
        lines.append(
            f"  {step_time.moved_seconds / step_time.seconds:5.1%}  by their bytes: instructions "
            "without an estimate of the compiler"
        )
        lines.append(f"  {step_time.all_reduce_seconds / step_time.seconds:5.1%}  all-reduces")
        lines.append("  not counted: the infeed, the host")
    if sizes and sizes.largest:
        lines += ["", "largest activations kept for the backward pass:"]
        lines += [
            f"  {_bytes(tensor.num_bytes):>9}  {tensor.shape}  {tensor.where}"
            for tensor in sizes.largest
        ]
    return lines


def _uncounted(report):
    """Returns lines about what the figures of the table do not include."""
    lines = {}
    for mode, found in report.modes.items():
        reasons = list(found.sizes.not_counted) if found.sizes else []
        step_time = found.step_time
        if step_time:
            reasons += [
                f"time of all but one iteration of the loop at {place}"
                for place in step_time.unknown_loops
            ]
            if step_time.skipped_branches:
                reasons.append("time of the cheaper branches of conditionals")
            if step_time.custom_calls:
                reasons.append(f"time of custom calls ({', '.join(step_time.custom_calls)})")
        for reason in reasons:
            lines.setdefault(reason, []).append(mode)
    return [f"not counted ({', '.join(modes)}): {reason}" for reason, modes in lines.items()]


def _embedding_lines(report):
    """Returns a line for each table of TPU embeddings, those of training if it is checked."""
    tables = next((found.embeddings for found in report.modes.values() if found.embeddings), ())
    if not tables:
        return []
    cores = report.topology.num_cores
    total = sum(table.num_bytes for table in tables)
    lines = [
        "",
        f"TPU embeddings: {_bytes(total)} with slots, {_bytes(total / cores)} on each of {cores} "
        "cores",
    ]
    for table in tables:
        line = f"  {_bytes(table.num_bytes):>9}  {table.name}: {table.rows:,} rows x {table.width}"
        line += f", {table.slots} slot{'s' if table.slots != 1 else ''}"
        if table.ids_per_step is not None:
            line += f"; {table.ids_per_step:,.0f} ids per step, {table.duplicates:.0%} duplicates"
        lines.append(line)
    return lines


def _bytes(number):
    for factor, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if number >= factor:
            return f"{number / factor:.1f} {name}"
    return f"{number} B"
