"""Time and memory of `prepare_data.py --dataset=criteo` on a synthetic log, beside pandas.

    python -m benchmarks.prepare_clicks --pandas_python=OTHER_VENV/bin/python   # with pyarrow
    python -m benchmarks.prepare_clicks --rows=50000000 --rounds=1 --folder=FOLDER

Writes a log of --rows rows (265 bytes each) and prepares it in child processes, interleaved. pandas
reads all of it, counts the values of each category in the first 12/14 of the rows, and writes the
same numbers and rows of tables as arrays: once with its own parser, once with that of Arrow, which
uses all cores. Prints for each side the median seconds of the whole program, rows/s, rows/s of a
second of CPU, the peak memory of its largest process, and the ratio to ours.
"""

from __future__ import annotations

import os
import sys
import tempfile

import numpy as np
from absl import app, flags

from benchmarks.subprocesses import interleave, measure, print_rates

FLAGS = flags.FLAGS
flags.DEFINE_integer("rows", 1_000_000, "Rows of the log.")
flags.DEFINE_integer("rounds", 3, "Rounds; each runs every side once.")
flags.DEFINE_string("pandas_python", "", "Python with pandas and pyarrow; empty: ours only.")
flags.DEFINE_string("folder", None, "Folder for the temporary files.")
flags.DEFINE_list("prepare_flags", [], "More flags of prepare_data.py, such as --workers=1.")

# Numbers of distinct values; those of the Kaggle log are alike.
_VALUES = (
    *(1_500, 600, 10_000_000, 2_200_000, 300, 24, 12_000, 630, 3, 93_000, 5_700, 8_350_000, 3_200),
    *(27, 15_000, 5_460_000, 10, 5_600, 2_170, 4, 7_000_000, 18, 15, 286_000, 105, 142_000),
)
_BLOCK = 100_000
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)

PANDAS = """
import sys
import numpy as np, pandas as pd
path, engine, out = sys.argv[1:]
names = [f"C{i}" for i in range(26)]
numbers = [f"I{i}" for i in range(13)]
types = {"label": "int8", **dict.fromkeys(numbers, "float64"), **dict.fromkeys(names, "str")}
table = pd.read_csv(path, sep="\\t", names=list(types), dtype=types, engine=engine)
end = len(table) - 2 * round(len(table) / 14)
np.save(f"{out}/labels.npy", table["label"].to_numpy())
values = np.log1p(np.maximum(np.nan_to_num(table[numbers].to_numpy()), 0))
np.save(f"{out}/numbers.npy", values.astype(np.float32))
rows = np.zeros((len(table), 26), np.int32)
for i, name in enumerate(names):
    codes, found = pd.factorize(table[name])  # -1: missing
    counts = np.bincount(codes[:end][codes[:end] >= 0], minlength=len(found))
    order = np.argsort(-counts, kind="stable")
    known = order[counts[order] >= 10]
    row_of = 1 + len(known) + pd.util.hash_array(np.asarray(found, object)) % 100
    row_of[known] = 1 + np.arange(len(known))
    rows[:, i] = np.append(row_of, 0)[codes]
np.save(f"{out}/rows.npy", rows)
"""


def write_log(path: str, num_rows: int) -> int:
    """Writes random rows, whose categories have frequent values; returns the number of bytes."""
    random = np.random.default_rng(7)
    factors = random.integers(0, 2**31, len(_VALUES)) * 2 + 1
    with open(path, "wb") as file:
        for begin in range(0, num_rows, _BLOCK):
            size = min(_BLOCK, num_rows - begin)
            columns = [random.integers(0, 2, size).astype("S1")]
            for i in range(13):
                numbers = random.exponential(10 ** (1 + i % 4), size).astype(np.int64)
                columns.append((numbers - 3 * (i == 1)).astype("S12"))
                columns[-1][random.random(size) < 0.2] = b""
            for i, (values, factor) in enumerate(zip(_VALUES, factors)):
                keys = (values * random.random(size) ** 4).astype(np.int64) * factor + i
                columns.append(_HEX[keys[:, None] >> np.arange(28, -4, -4) & 15].view("S8")[:, 0])
                if i % 5 == 3:
                    columns[-1][random.random(size) < 0.3] = b""
            rows = zip(*(column.tolist() for column in columns))
            file.write(b"\n".join(map(b"\t".join, rows)) + b"\n")
        return file.tell()


def main(_):
    """Prints a line per side."""
    with tempfile.TemporaryDirectory(dir=FLAGS.folder) as folder:
        path = os.path.join(folder, "train.txt")
        write_log(path, FLAGS.rows)
        given = "--dataset=criteo", f"--source={path}", f"--data_dir={folder}/data", "--overwrite"
        sides = {"ours": [sys.executable, "prepare_data.py", *given, *FLAGS.prepare_flags]}
        if FLAGS.pandas_python:
            for engine in ("c", "pyarrow"):
                command = [FLAGS.pandas_python, "-c", PANDAS, path, engine, folder]
                sides[f"pandas, engine={engine!r}"] = command
        runs = interleave(
            {name: lambda command=command: measure(*command) for name, command in sides.items()},
            FLAGS.rounds,
        )
    print_rates(runs, FLAGS.rows, "rows")


if __name__ == "__main__":
    app.run(main)
