"""A file of images to generate, `--input`: JSON, one request per line."""

from __future__ import annotations

import json

import numpy as np

from common.names import shown
from input_fns import DataError
from input_fns.convert.files import read_lines
from input_fns.image import generated_images

_MAX_SEED = np.iinfo(np.int32).max
_FORM = '{"seed": 7, "class": "NAME"} or {"seed": [7, 8], "steps": 10, "class": "NAME"}'


def read(path: str, pipeline) -> generated_images.Requests:
    """Returns the requests of a file of JSON, one per line: a seed, or two to interpolate between.

    Raises:
      DataError: the file is missing, or a line is not such a request.
    """
    rows, columns = [], generated_images.COLUMNS
    for number, line in enumerate(read_lines(path), start=1):
        try:
            found = _rows(line, pipeline)
        except (ValueError, TypeError) as error:
            raise DataError(
                f"{path}, line {number}: {shown(line.decode())} {error}. Write {_FORM}"
            ) from error
        columns = len(found) if len(found) > 1 else columns
        rows += found
    if not rows:
        raise DataError(f"{path} has no request. Write {_FORM}")
    dtypes = {"first": np.int32, "second": np.int32, "fraction": np.float32, "class_id": np.int32}
    arrays = {n: np.array(column, dtypes[n]) for n, column in zip(dtypes, zip(*rows))}
    return generated_images.Requests(pipeline, arrays, columns)


def _rows(line, pipeline):
    """Returns (first seed, second seed, fraction, class) for each image of a line.

    Raises:
      ValueError, TypeError: the line is not a request.
    """
    request = json.loads(line)
    known = {"seed", "steps", *(["class"] if pipeline.has_classes else [])}
    if not isinstance(request, dict) or not request.keys() <= known or "seed" not in request:
        raise ValueError(f"must be an object with {', '.join(sorted(known))}")
    seeds = request["seed"] if isinstance(request["seed"], list) else [request["seed"]] * 2
    is_valid = len(seeds) == 2 and all(type(s) is int and 0 <= s < _MAX_SEED for s in seeds)
    if not is_valid:
        raise ValueError(f"needs one or two integers from 0 to {_MAX_SEED - 1} as seed")
    steps = request.get("steps", 1)
    if type(steps) is not int or steps < 1 or (steps == 1) != (seeds[0] == seeds[1]):
        raise ValueError("needs two different seeds and steps of 2 or more, or one seed")
    chosen = _class(request, pipeline)
    return [(*seeds, fraction, chosen) for fraction in np.linspace(0, 1, steps)]


def _class(request, pipeline):
    names = pipeline.data.class_names
    if not pipeline.has_classes:
        return 0
    chosen = request.get("class")
    if chosen in names:
        return names.index(chosen)
    if type(chosen) is int and 0 <= chosen < len(names):
        return chosen
    raise ValueError(f"needs a class, a name or a number from 0 to {len(names) - 1}")
