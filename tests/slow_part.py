"""`pytest --slow_part=K/N`: the slow tests of every N-th part of the files, from K = 1."""

import collections
import re

import pytest


def parse(text):
    """Returns `(k, n)` of "K/N", 1 <= k <= n."""
    found = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", text)
    k, n = map(int, found.groups()) if found else (1, 0)
    if k > n:
        raise pytest.UsageError(f"--slow_part={text} must be K/N with K from 1 to N, such as 2/7")
    return k, n


def cost(item):
    """Returns the cost of a slow test: that of `pytest.mark.slow(cost=...)`, 1 by default."""
    return item.get_closest_marker("slow").kwargs.get("cost", 1)


def split(costs, n):
    """Splits files into n parts of similar cost: the next largest goes to the cheapest part.

    Args:
      costs: `{file: cost}`.
      n: number of parts.

    Returns:
      n lists of files, in descending order of cost.
    """
    parts, totals = [[] for _ in range(n)], [0] * n
    for file in sorted(costs, key=lambda file: (-costs[file], file)):
        smallest = totals.index(min(totals))
        parts[smallest].append(file)
        totals[smallest] += costs[file]
    return parts


def select(items, text):
    """Splits collected tests into those to run and the slow tests of other parts.

    Args:
      items: collected tests; those that are not slow always run.
      text: "K/N".
    """
    k, n = parse(text)
    costs = collections.Counter()
    for item in items:
        if item.get_closest_marker("slow"):
            costs[item.location[0]] += cost(item)
    chosen = set(split(costs, n)[k - 1])
    is_in = [not item.get_closest_marker("slow") or item.location[0] in chosen for item in items]
    return (
        [item for item, run in zip(items, is_in) if run],
        [item for item, run in zip(items, is_in) if not run],
    )
