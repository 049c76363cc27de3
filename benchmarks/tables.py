"""Writes results of a benchmark as a Markdown table into the docs."""

from __future__ import annotations

import pathlib


def replace(path: str, name: str, header: list[str], rows: list[list[str]]) -> None:
    """Replaces the text between `<!-- name -->` and `<!-- end of name -->` by a table.

    Raises:
      ValueError: the page has no such lines.
    """
    page = pathlib.Path(path).read_text()
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    before, found, rest = page.partition(begin)
    _, found_end, after = rest.partition(end)
    if not found or not found_end:
        raise ValueError(f"{path} has no lines '{begin.strip()}' and '{end}'")
    lines = [header, ["---"] * len(header), *rows]
    table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    pathlib.Path(path).write_text(f"{before}{begin}{table}{end}{after}")
