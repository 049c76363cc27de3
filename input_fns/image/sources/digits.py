"""The 8x8 UCI handwritten digits, included in this package.

`digits.csv.gz` is the file in scikit-learn: the test set of E. Alpaydin and C. Kaynak,
"Optical Recognition of Handwritten Digits", UCI Machine Learning Repository, 1998, CC BY 4.0,
https://doi.org/10.24432/C50P49. A row is 64 pixels of 0..16 and the digit.
"""

from __future__ import annotations

import gzip
import pathlib

import numpy as np

from input_fns.convert.options import Options
from input_fns.convert.source import RawArrays, RawDataset

_FILE = pathlib.Path(__file__).with_name("digits.csv.gz")
# Every fifth row is a test example; the rows are not sorted by class.
_TEST_EVERY = 5


def read(options: Options) -> RawDataset:
    """Returns 1438 train and 359 test images, uint8 `[n, 8, 8, 1]` with pixels 0..16."""
    with gzip.open(_FILE, "rt", encoding="ascii") as file:
        rows = np.loadtxt(file, delimiter=",", dtype=np.int64)
    images = rows[:, :-1].astype(np.uint8).reshape(-1, 8, 8, 1)
    labels = rows[:, -1]
    is_test = np.arange(len(rows)) % _TEST_EVERY == _TEST_EVERY - 1
    return RawDataset(
        name=options.dataset,
        class_names=tuple(str(digit) for digit in range(10)),
        splits={
            "train": RawArrays(images[~is_test], labels[~is_test]),
            "test": RawArrays(images[is_test], labels[is_test]),
        },
    )
