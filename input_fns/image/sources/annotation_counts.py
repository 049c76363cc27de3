"""Counts the boxes or pixels of the rows of a split."""

from __future__ import annotations

import collections
from collections.abc import Iterator

import numpy as np

from input_fns.convert.source import Row
from input_fns.image.annotated_kind import Annotations, AnnotationsSplit
from input_fns.image.sources.boxes import Notes


class Counts:
    """Adds up the annotations of the rows of a split, as they are written."""

    # Names to print for each reason.
    _SHOWN = 3

    def __init__(self, annotations: Annotations, split: str):
        """Starts with the annotations of the split that have no image."""
        self._task, self._names = annotations.task, annotations.class_names
        self._counts = np.zeros([annotations.num_classes], np.int64)
        self._num_images = 0
        before = annotations.splits.get(split)
        self._notes = Notes(left_out=collections.Counter(before.left_out if before else {}))
        self._examples: dict[str, list[str]] = collections.defaultdict(list)

    def add(self, row: Row) -> None:
        """Adds a row that is stored."""
        self._num_images += 1
        self._counts += row.counts
        for mine, its in (
            (self._notes.corrected, row.notes.corrected),
            (self._notes.left_out, row.notes.left_out),
        ):
            mine.update(its)
            for reason in its:
                if len(self._examples[reason]) < self._SHOWN:
                    self._examples[reason].append(row.name)

    def as_split(self) -> AnnotationsSplit:
        """Returns the metadata of the split."""
        return AnnotationsSplit(
            self._num_images,
            tuple(self._counts.tolist()),
            dict(sorted(self._notes.corrected.items())),
            dict(sorted(self._notes.left_out.items())),
        )

    def lines(self) -> Iterator[str]:
        """Yields lines to print: counts, first images of each reason, classes without objects."""
        described = self.as_split()
        yield described.describe(self._task)
        for reason in (*described.corrected, *described.left_out):
            if self._examples[reason]:
                yield f"{reason}, for example: {', '.join(self._examples[reason])}"
        empty = [name for name, count in zip(self._names, described.counts) if not count]
        if empty:
            what = "box" if self._task == "detection" else "pixel"
            yield f"{len(empty)} class(es) without a {what}: {', '.join(empty[:20])}"
