"""Raw data sets to TFRecord shards. A source is one file and one line in `SOURCES`."""

from __future__ import annotations

import importlib

# Name of the data set -> the module whose `read(name, source)` returns a `source.RawDataset`.
SOURCES = {
    "digits": "input_fns.convert.digits",
    "mnist": "input_fns.convert.idx",
    "fashion_mnist": "input_fns.convert.idx",
}


def read(name: str, source: str):
    """Reads the raw data set `name` from the folder `source`; digits need none."""
    return importlib.import_module(SOURCES[name]).read(name, source)
