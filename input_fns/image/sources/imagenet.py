"""ImageNet as published (ILSVRC2012): archives or folders, and labels of the flat validation set.

    ILSVRC2012_img_train.tar     1,000 archives of a class, nNNNNNNNN.tar; or train/nNNNNNNNN/
    ILSVRC2012_img_val.tar       50,000 files without classes; or val/
    ILSVRC2012_img_test*.tar     optional: files to predict; or test/

or the same folders in ILSVRC/Data/CLS-LOC, as on Kaggle. `val` may have folders of classes. Else
its labels are in one of

    ILSVRC2012_devkit_t12.tar.gz or its folder     numbers, whose WordNet ids meta.mat has
    LOC_val_solution.csv                           of Kaggle
    imagenet_2012_validation_synset_labels.txt     or synset_labels.txt: WordNet ids, in order

The classes are the WordNet ids, sorted, as in most models of ImageNet. Archives are not unpacked.
"""

from __future__ import annotations

import io
import os
import re
import tarfile

import numpy as np

from common import folders
from common.names import printable
from input_fns import DataError
from input_fns.convert import class_archives, inventory
from input_fns.convert.archive_members import ENDINGS
from input_fns.convert.class_folders import Found, LabelledFiles
from input_fns.convert.files import opened, read_lines, read_start
from input_fns.convert.options import Options
from input_fns.convert.source import RawDataset
from input_fns.dataset_info import LeftOut
from input_fns.image.sources import decoded_images, image_files

_WORDNET_ID = re.compile(r"n[0-9]{8}")
_BELOW = ("ILSVRC/Data/CLS-LOC", "Data/CLS-LOC", "ILSVRC")
_PLACES = {
    "train": re.compile(r"(ILSVRC2012_img_)?train(\.tar)?"),
    "validation": re.compile(r"(ILSVRC2012_img_)?val(idation)?(\.tar)?"),
    "test": re.compile(r"(ILSVRC2012_img_)?test(_v[0-9]+)?(\.tar)?"),
}
_DEVKIT = "ILSVRC2012_devkit_t12"
_TRUTH, _META = "ILSVRC2012_validation_ground_truth.txt", "meta.mat"
_SYNSETS = ("imagenet_2012_validation_synset_labels.txt", "synset_labels.txt")
_SOLUTION = "LOC_val_solution.csv"
_UNUSED_LABELS = "labels of images that are not there"
_MAX_BYTES = 2**26  # of a file of the devkit
_EXTENSIONS = decoded_images.EXTENSIONS


def read(options: Options) -> RawDataset:
    """Returns "train", "validation" and "test", those that are there.

    Raises:
      DataError: there is no training or validation set, a class is not a WordNet id, or an image of
        the validation set has no label.
    """
    left_out = LeftOut()
    places = _find_places(options)
    found = {split: _files(path, options, left_out) for split, path in places.items()}
    wnids: dict[str, list[str] | None] = dict.fromkeys(places)
    for split in places:
        parents = [os.path.basename(os.path.dirname(name)) for name in found[split][0]]
        if split == "train" or all(map(_WORDNET_ID.fullmatch, parents)):
            wnids[split] = parents
    if "validation" in places and wnids["validation"] is None:
        names = found["validation"][0]
        wnids["validation"] = _validation_labels(names, places["validation"], options, left_out)
    class_names = tuple(sorted(set(wnids.get("train") or wnids.get("validation") or ())))
    number_of = {name: number for number, name in enumerate(class_names)}
    splits = {}
    for split, (names, files) in found.items():
        labels = None
        if wnids[split] is not None:
            for name, wnid in zip(names, wnids[split]):
                _check_class(name, wnid, number_of, split)
            labels = np.array([number_of[wnid] for wnid in wnids[split]], np.int64)
        splits[split] = LabelledFiles(files.paths, labels, None, files.archives, files.ranges)
    return image_files.to_dataset(options, Found(class_names, splits, {}, left_out))


def _bases(options):
    """Returns the folders that may have the archives, the folders of splits and the labels."""
    return [options.source, *(os.path.join(options.source, below) for below in _BELOW)]


def _find_places(options):
    """Returns `{split: path of its archive or folder}`."""
    for base in _bases(options):
        found = {}
        for split, pattern in _PLACES.items():
            names = [n for n in inventory.names(base, options) if pattern.fullmatch(n)]
            # An archive and the folder that it was unpacked to: the folder.
            names.sort(key=lambda name: name.endswith(ENDINGS))
            if names:
                found[split] = os.path.join(base, names[0])
        if "train" in found or "validation" in found:
            return found
    raise DataError(
        f"--source={options.source} has no ILSVRC2012_img_train.tar, ILSVRC2012_img_val.tar, "
        "folder train or val, or ILSVRC/Data/CLS-LOC of Kaggle. Of images in other folders of "
        "classes use --dataset=image_folder"
    )


def _files(path, options, left_out):
    """Returns the sorted names of the images in an archive or a folder, and a `LabelledFiles`."""
    is_folder = folders.is_folder(path)
    archives = class_archives.in_folder(path, options) if is_folder else [path]
    if archives:
        found = class_archives.files_of(archives, options, _EXTENSIONS, left_out)
        names = sorted(found)
        in_order = {name: found[name] for name in names}
        files = class_archives.in_archives(options, archives, in_order, None)
    else:
        paths = sorted(p for p in inventory.files(path, options) if p.lower().endswith(_EXTENSIONS))
        names = [path[len(options.source) :].lstrip("/") for path in paths]
        files = LabelledFiles(np.array(paths, object), None, None)
    if not names:
        raise DataError(f"{path} has no images")
    return names, files


def _check_class(name, wnid, number_of, split):
    if not _WORDNET_ID.fullmatch(wnid):
        raise DataError(
            f"{printable(name)}: the class {printable(wnid)!a} is not a WordNet id such as "
            "n01440764. Of images in other folders of classes use --dataset=image_folder"
        )
    if wnid not in number_of:
        raise DataError(f"{printable(name)}: '{split}' has the class {wnid}, and 'train' has not")


def _validation_labels(names, place, options, left_out):
    """Returns the WordNet id of each file of the validation set."""
    path, wnid_of = _read_labels(options)
    found, unused = [], dict(wnid_of)
    for name in names:
        stem = os.path.splitext(os.path.basename(name))[0]
        if stem not in wnid_of:
            raise DataError(
                f"{place}: {printable(stem)} has no label: {path} has those of {len(wnid_of)} "
                "images"
            )
        found.append(wnid_of[stem])
        unused.pop(stem, None)
    for stem in sorted(unused):
        left_out.add(_UNUSED_LABELS, stem)
    return found


def _read_labels(options):
    """Returns the path of the labels of the validation set, and `{stem: WordNet id}`."""
    for folder in _bases(options):
        there = set(inventory.names(folder, options))
        for name in _SYNSETS:
            if name in there:
                path = os.path.join(folder, name)
                return path, _numbered(
                    [line.decode("utf-8", "replace") for line in read_lines(path)]
                )
        if _SOLUTION in there:
            path = os.path.join(folder, _SOLUTION)
            return path, _read_solution(path)
        for name in (_DEVKIT, f"{_DEVKIT}.tar.gz", f"{_DEVKIT}.tgz"):
            if name in there:
                path = os.path.join(folder, name)
                truth, meta = _read_devkit(path)
                return path, _numbered(_from_numbers(path, truth, meta))
    raise DataError(
        f"--source={options.source} has no labels of the validation set: put "
        f"{_DEVKIT}.tar.gz there, or {_SYNSETS[0]}, or {_SOLUTION} of Kaggle"
    )


def _numbered(wnids):
    return {f"ILSVRC2012_val_{number:08d}": wnid for number, wnid in enumerate(wnids, start=1)}


def _read_solution(path):
    """Reads "ImageId,PredictionString": the string is a WordNet id and a box, for each object."""
    found = {}
    for number, line in enumerate(read_lines(path)[1:], start=2):
        stem, comma, rest = line.decode("utf-8", "replace").partition(",")
        if line and not (comma and rest.split()):
            raise DataError(f"{path}, line {number}: it should be IMAGE,WORDNETID and a box")
        if line:
            found[stem] = rest.split()[0]
    return found


def _read_devkit(path):
    """Returns the contents of the ground truth and of meta.mat, in a folder or an archive."""
    if folders.is_folder(path):
        paths = [os.path.join(path, "data", name) for name in (_TRUTH, _META)]
        return [read_start(path, _MAX_BYTES) for path in paths]
    found = {}
    with opened(path) as file:
        try:
            with tarfile.open(fileobj=file, mode="r|") as tar:
                for member in tar:
                    name = os.path.basename(member.name)
                    if name in (_TRUTH, _META) and member.isreg() and member.size < _MAX_BYTES:
                        found[name] = tar.extractfile(member).read()
        except tarfile.TarError as error:
            raise DataError(f"{path} is not a complete archive: {error}") from error
    missing = [name for name in (_TRUTH, _META) if name not in found]
    if missing:
        raise DataError(f"{path} has no {missing[0]}. Download it again")
    return found[_TRUTH], found[_META]


def _from_numbers(path, truth, meta):
    """Returns the WordNet id of each line of the ground truth, which are numbers in meta.mat."""
    try:
        from scipy import io as matlab
    except ImportError as error:
        raise DataError(
            f"{path} needs SciPy to read {_META}: pip install scipy, or put {_SYNSETS[0]} there"
        ) from error
    try:
        synsets = matlab.loadmat(io.BytesIO(meta), squeeze_me=True)["synsets"]
        pairs = zip(synsets["ILSVRC2012_ID"].tolist(), synsets["WNID"].tolist())
        wnid_of = {int(number): str(wnid) for number, wnid in pairs}
        return [wnid_of[int(line)] for line in truth.split()]
    except Exception as error:  # SciPy raises many types of errors
        raise DataError(
            f"{path}: {_TRUTH} or {_META} is not valid ({type(error).__name__}: "
            f"{printable(str(error))[:100]}). Download it again"
        ) from error
