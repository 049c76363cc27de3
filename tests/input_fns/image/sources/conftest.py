"""Data sets of annotated images, read in any format."""

import pytest

from input_fns.image.sources.boxes import Notes


@pytest.fixture
def read_detection(read):
    """Reads a source for detection: rows of train, and what was corrected and left out."""

    def read_split(dataset, **options):
        raw = read(dataset, **{"task": "detection", **options})
        rows = list(raw.splits["train"])
        notes = Notes()
        for row in rows:
            notes.corrected.update(row.notes.corrected)
            notes.left_out.update(row.notes.left_out)
        return raw, rows, notes

    return read_split
