"""Small files of ratings, and data sets prepared from them."""

import numpy as np

from input_fns import convert, dataset_info
from input_fns.convert import writer
from input_fns.convert.options import Options


def rows(num_users=13, num_items=120, seed=0):
    """Returns `[(user, item, rating, time)]`: users like the items of their parity."""
    random = np.random.default_rng(seed)
    found = []
    for user in range(num_users):
        items = 2 * random.permutation(num_items // 2)[: random.integers(4, 9)] + user % 2
        found += [(f"u{user}", f"i{item}", 3, time) for time, item in enumerate(items)]
    return [found[i] for i in random.permutation(len(found))]


def write(folder, found, name="u.data", separator="\t"):
    """Writes rows to a file of a folder; returns the folder."""
    folder.mkdir(exist_ok=True)
    lines = [f"{separator.join(map(str, row))}\n" for row in found]
    (folder / name).write_text("".join(lines))
    return folder


def prepare(folder, found, data_dir, **options):
    """Prepares a data set; returns its `DatasetInfo`."""
    source = str(write(folder, found))
    raw = convert.read(Options("ratings", source=source, **options))
    writer.write(raw, str(data_dir))
    return dataset_info.load(str(data_dir), "ratings")


def indices(data):
    """Returns `{id: index}` of users and of items."""
    found = []
    for name in (data.kind.users, data.kind.items):
        with open(f"{data.data_dir}/{name}", encoding="utf-8") as file:
            found.append({line.rstrip("\n").split("\t")[0]: i for i, line in enumerate(file)})
    return found
