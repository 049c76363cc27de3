"""ImageNet as published: archives, folders, and labels of the flat validation set."""

import io
import tarfile

import numpy as np
import pytest
from scipy import io as matlab

from input_fns import DataError
from tests.archive_files import pack

WNIDS = ("n01440764", "n01443537", "n02105855")
NUMBERS = (7, 2, 5)  # ILSVRC2012_ID: not in the order of the ids
TRUTH = (1, 2, 0, 1, 1)  # classes of the images of the validation set
DEVKIT = "ILSVRC2012_devkit_t12"


@pytest.fixture
def images(photo, encode):
    """`{class: {name: file}}`; one file is a PNG and one has CMYK, as in ImageNet."""
    found = {}
    for number, (wnid, count) in enumerate(zip(WNIDS, (3, 4, 2))):
        found[wnid] = {
            f"{wnid}_{i}.JPEG": encode(photo(9, 7, seed=10 * number + i), "JPEG")
            for i in range(count)
        }
    found["n02105855"]["n02105855_2933.JPEG"] = encode(photo(9, 7), "PNG")
    found["n01443537"]["n01443537_9.JPEG"] = encode(photo(9, 7).convert("CMYK"), "JPEG")
    return found


@pytest.fixture
def validation(photo, encode):
    return {
        f"ILSVRC2012_val_{i:08d}.JPEG": encode(photo(8, 6, seed=100 + i), "JPEG")
        for i in range(1, len(TRUTH) + 1)
    }


def devkit():
    """`{name: content}` of the files of the development kit."""
    kind = [("ILSVRC2012_ID", "O"), ("WNID", "O"), ("num_children", "O")]
    rows = [*zip(NUMBERS, WNIDS, [0] * 3), (1001, "n00001740", 3)]
    meta = io.BytesIO()
    matlab.savemat(meta, {"synsets": np.array(rows, kind)[:, np.newaxis]})
    truth = "".join(f"{NUMBERS[label]}\n" for label in TRUTH).encode()
    return {
        f"{DEVKIT}/data/ILSVRC2012_validation_ground_truth.txt": truth,
        f"{DEVKIT}/data/meta.mat": meta.getvalue(),
        f"{DEVKIT}/readme.txt": b"text",
    }


def write(folder, files):
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def archives(images, validation):
    return {
        "ILSVRC2012_img_train.tar": pack({f"{w}.tar": pack(of) for w, of in images.items()}),
        "ILSVRC2012_img_val.tar": pack(validation),
        f"{DEVKIT}.tar.gz": pack(devkit(), mode="w:gz"),
    }


def examples(raw):
    return {
        name: sorted(
            (row.name.rsplit("/")[-1], row.values["image"], label)
            for row, label in zip(split, split.labels.tolist())
        )
        for name, split in raw.splits.items()
    }


def test_the_published_archives(read, images, validation, tmp_path):
    raw = read("imagenet", source=write(tmp_path, archives(images, validation)))
    assert raw.class_names == WNIDS
    assert np.bincount(raw.splits["train"].labels).tolist() == [3, 5, 3]
    assert raw.splits["validation"].labels.tolist() == list(TRUTH)
    assert list(raw.splits) == ["train", "validation"]
    assert not raw.left_out
    for row, label in zip(raw.splits["train"], raw.splits["train"].labels):
        wnid, name = row.name.split("/")[-2:]
        assert wnid == WNIDS[label]
        encoding = "png" if "2933" in name else "jpeg"
        assert row.features["image"].encoding == encoding
        assert "_9." in name or row.values["image"] == images[wnid][name]


def layouts(images, validation):
    train = {f"{w}/{name}": data for w, of in images.items() for name, data in of.items()}
    folders = {
        **{f"train/{name}": data for name, data in train.items()},
        **{f"val/{name}": data for name, data in validation.items()},
    }
    by_class = {f"val/{WNIDS[c]}/{name}": validation[name] for c, name in zip(TRUTH, validation)}
    solution = "ImageId,PredictionString\n" + "".join(
        f"{name[:-5]},{WNIDS[c]} 1 2 3 4 \n" for c, name in zip(TRUTH, validation)
    )
    lines = "".join(f"{WNIDS[c]}\n" for c in TRUTH).encode()
    below = "ILSVRC/Data/CLS-LOC"
    return {
        "unpacked": {**folders, **devkit()},
        "archives of classes": {
            **{f"train/{w}.tar": pack(of) for w, of in images.items()},
            "val.tar": pack(validation),
            "synset_labels.txt": lines,
        },
        "sorted by class": {**{k: v for k, v in folders.items() if k[0] == "t"}, **by_class},
        "Kaggle": {
            **{f"{below}/{name}": data for name, data in folders.items()},
            "LOC_val_solution.csv": solution.encode(),
        },
        "labels of tensorflow/tpu": {
            **folders,
            "imagenet_2012_validation_synset_labels.txt": lines,
        },
    }


def test_every_layout_has_the_same_examples(read, images, validation, tmp_path):
    expected = examples(
        read("imagenet", source=write(tmp_path / "packed", archives(images, validation)))
    )
    for name, files in layouts(images, validation).items():
        raw = read("imagenet", source=write(tmp_path / name, files))
        assert raw.class_names == WNIDS, name
        assert examples(raw) == expected, name


def test_the_test_set_can_be_predicted_only(read, images, validation, tmp_path):
    files = archives(images, validation)
    files["ILSVRC2012_img_test_v10102019.tar"] = pack(
        {"test/ILSVRC2012_test_00000001.JPEG": next(iter(validation.values()))}
    )
    raw = read("imagenet", source=write(tmp_path, files))
    assert [(name, split.has_labels) for name, split in raw.splits.items()] == [
        ("train", True),
        ("validation", True),
        ("test", False),
    ]


def changed(files, name, content):
    return {**{key: data for key, data in files.items() if key != name}, **content}


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (
            "no devkit",
            "has no labels of the validation set: put ILSVRC2012_devkit_t12.tar.gz there",
        ),
        ("truncated train", r"ILSVRC2012_img_train.tar.* is truncated.*Download it again"),
        ("truncated devkit", "devkit_t12.tar.gz.* is not a complete"),
        ("devkit without meta", "has no meta.mat"),
        ("broken meta", "meta.mat is not valid"),
        ("no label", "ILSVRC2012_val_00000006 has no label: .* has those of 5 images"),
        (
            "another class",
            "ILSVRC2012_val_00000003.JPEG: 'validation' has the class n01440764, and",
        ),
        ("not a WordNet id", "cats/a.JPEG: the class 'cats' is not a WordNet id"),
        ("nothing", "has no ILSVRC2012_img_train.tar"),
    ],
)
def test_errors(read, images, validation, tmp_path, case, message):
    files = archives(images, validation)
    train, val, kit = files
    truth, meta, _ = devkit()
    content = {
        "no devkit": lambda: changed(files, kit, {}),
        "truncated train": lambda: {**files, train: files[train][: len(files[train]) * 2 // 3]},
        "truncated devkit": lambda: {**files, kit: files[kit][: len(files[kit]) // 2]},
        "devkit without meta": lambda: {**files, kit: pack({truth: devkit()[truth]}, mode="w:gz")},
        "broken meta": lambda: {**files, kit: pack({**devkit(), meta: b"x"}, mode="w:gz")},
        "no label": lambda: {
            **files,
            val: pack({**validation, "ILSVRC2012_val_00000006.JPEG": b"x"}),
        },
        "another class": lambda: {
            **files,
            train: pack({f"{w}.tar": pack(images[w]) for w in WNIDS[1:]}),
        },
        "not a WordNet id": lambda: {"train/cats/a.JPEG": b"x", "train/dogs/a.JPEG": b"x"},
        "nothing": lambda: {"photos/a.jpg": b"x"},
    }[case]()
    with pytest.raises(DataError, match=message) as error:
        read("imagenet", source=write(tmp_path, content))
    assert "\n" not in str(error.value)


def test_labels_without_an_image_are_counted(read, images, validation, tmp_path):
    validation.pop("ILSVRC2012_val_00000002.JPEG")
    raw = read("imagenet", source=write(tmp_path, archives(images, validation)))
    assert raw.splits["validation"].labels.tolist() == [1, 0, 1, 1]
    assert raw.left_out.names == {
        "labels of images that are not there": ["ILSVRC2012_val_00000002"]
    }


def test_archives_are_not_unpacked_by_the_devkit(read, images, validation, tmp_path):
    files = archives(images, validation)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        info = tarfile.TarInfo(f"{DEVKIT}/data/meta.mat")
        info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(info)
    files[f"{DEVKIT}.tar.gz"] = packed.getvalue()
    with pytest.raises(DataError, match=r"has no ILSVRC2012_validation_ground_truth.txt"):
        read("imagenet", source=write(tmp_path, files))
