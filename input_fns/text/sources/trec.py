"""Questions of TREC (Li and Roth 2002) with six classes.

train_5500.label, TREC_10.label    "DESC:manner How did ..."; published in Latin-1
TREC.train.all, TREC.test.all      "0 How did ..."; UTF-8
"""

from __future__ import annotations

import os

from input_fns import DataError
from input_fns.convert import files, inventory
from input_fns.convert.options import Options
from input_fns.convert.source import RawDataset
from input_fns.text.sources import text_files
from input_fns.text.sources.text_files import CLASSIFICATION, LabelledTable

_CLASSES = ("DESC", "ENTY", "ABBR", "HUM", "LOC", "NUM")
_NAMES = ("description", "entity", "abbreviation", "human", "location", "number")
_NUMBERS = {str(number): name for number, name in enumerate(_CLASSES)}
_FILES = {
    "train": ("train_5500.label", "TREC.train.all"),
    "test": ("TREC_10.label", "TREC.test.all"),
}


def read(options: Options) -> RawDataset:
    """Returns the splits "train" and "test" of the folder `options.source`.

    Raises:
      DataError: a file is missing, or a line has no class or no text.
    """
    present, splits = inventory.names(options.source, options), {}
    for split, names in _FILES.items():
        found = [name for name in present if files.split_packed(name)[0] in names]
        if len(found) != 1:
            raise DataError(
                f"--source={options.source} has {' and '.join(found) or 'no file'} for '{split}'; "
                f"one is needed: {' or '.join(names)}"
            )
        splits[split] = _read_file(os.path.join(options.source, found[0]), options.encoding)
    return text_files.to_dataset(options, splits, CLASSIFICATION, _CLASSES, _NAMES)


def _read_file(path, encoding):
    is_published = files.split_packed(path)[0].endswith(".label")
    places, texts, labels = [], [], []
    for number, line in enumerate(files.iterate_lines(path, encoding), start=1):
        label, _, text = line.partition(" ")
        place = f"{path}, line {number}"
        if not text.strip():
            raise DataError(f"{place}: {line[:60]!a} is not a class, a space and a question")
        places.append(place)
        texts.append(text)
        labels.append(label.partition(":")[0] if is_published else _NUMBERS.get(label, label))
    return LabelledTable(places, (texts,), labels)
