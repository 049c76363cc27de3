"""Writes a data set as prepare_data.py does, with the check of what can be learned from it."""

from input_fns import anomalies, convert
from input_fns.convert import writer


def with_warnings(options, data_dir):
    """Converts what `options.Options` describe into a folder; returns the warnings."""
    raw, found = convert.read(options), []
    writer.write(
        raw,
        str(data_dir),
        before_commit=lambda data: found.extend(anomalies.require_none(data, raw.files)),
    )
    return found
