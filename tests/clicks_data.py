"""Small click logs, and data sets prepared from them."""

import numpy as np

from input_fns import convert, dataset_info
from input_fns.convert import writer
from input_fns.convert.options import Options


def lines(size=70, seed=0):
    """Returns rows in Criteo's format: a click is likely if the first number is large."""
    random = np.random.default_rng(seed)
    found = []
    for numbers, categories in zip(
        random.integers(-1, 50, [size, 13]), random.zipf(1.5, [size, 26]) % 1000
    ):
        click = int(numbers[0] + random.normal() * 5 > 25)
        values = [str(n) if random.uniform() < 0.8 else "" for n in numbers[1:]]
        names = [f"{n:08x}" if random.uniform() < 0.9 else "" for n in categories]
        found.append("\t".join([str(click), str(numbers[0]), *values, *names]))
    return found


def prepare(folder, found, data_dir, **options):
    """Prepares a data set; returns its `DatasetInfo`."""
    folder.mkdir(exist_ok=True)
    (folder / "train.txt").write_text("\n".join(found) + "\n")
    raw = convert.read(Options("criteo", source=str(folder), **options))
    writer.write(raw, str(data_dir))
    return dataset_info.load(str(data_dir), "criteo")
