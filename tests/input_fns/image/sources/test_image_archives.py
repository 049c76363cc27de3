"""Images in tar and zip archives, which are read as folders."""

import pathlib
import pickle

import numpy as np
import pytest

from input_fns import DataError
from tests.archive_files import pack, pack_zip


def contents(folder, above=""):
    return {
        f"{above}{path.relative_to(folder)}": path.read_bytes()
        for path in sorted(pathlib.Path(folder).rglob("*.*"))
    }


@pytest.fixture
def make(tmp_path):
    """Writes files of `{path: bytes}` below a new folder, and returns it."""

    def write(files):
        for name, content in files.items():
            path = tmp_path / "packed" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return tmp_path / "packed"

    return write


def examples(raw):
    """Images with their labels, of each split."""
    found = {}
    for name, split in raw.splits.items():
        labels = [None] * len(split) if split.labels is None else split.labels.tolist()
        found[name] = sorted((row.values["image"], label) for row, label in zip(split, labels))
    return found


def layouts(folder):
    cat, dog = (pack(contents(folder / name)) for name in ("cat", "dog"))
    everything = pack(contents(folder))
    return {
        "an archive for each class": {"cat.tar": cat, "dog.tar": dog},
        "one archive": {"photos.tar": everything},
        "one archive with a folder": {"a.tar": pack(contents(folder, "photos/"))},
        "archives in an archive": {"all.tar": pack({"cat.tar": cat, "dog.tar": dog})},
    }


def test_archives_are_read_as_folders(read, folder, make, request):
    expected = examples(read("image_folder", source=folder))
    for number, (name, files) in enumerate(layouts(folder).items()):
        source = make({f"{number}/{path}": content for path, content in files.items()})
        raw = read("image_folder", source=source / str(number))
        assert raw.class_names == ("cat", "dog"), name
        assert examples(raw) == expected, name
        assert not raw.left_out


def test_an_archive_as_the_source(read, folder, make):
    source = make({"photos.tar": pack(contents(folder))}) / "photos.tar"
    raw = read("image_folder", source=source)
    assert examples(raw) == examples(read("image_folder", source=folder))
    assert next(iter(raw.splits["validation"])).name.startswith("cat/")


def test_archives_of_splits(read, folder, make, encode, photo):
    flat = {f"{i}.png": encode(photo(5, 5, seed=i), "PNG") for i in range(3)}
    files = {
        "train.tar": pack(contents(folder)),
        "val/cat.tar": pack(contents(folder / "cat")),
        "val/dog.tar": pack(contents(folder / "dog")),
        "test.tar": pack(flat),
    }
    raw = read("image_folder", source=make(files))
    assert [(name, len(split)) for name, split in raw.splits.items()] == [
        ("train", 18),
        ("validation", 18),
        ("test", 3),
    ]
    assert not raw.splits["test"].has_labels
    assert np.bincount(raw.splits["validation"].labels).tolist() == [11, 7]


def test_archives_of_kaggle_have_a_folder_of_the_split(read, folder, make):
    files = {
        "train.tar": pack(contents(folder, "train/")),
        "val.tar": pack(contents(folder, "images/val/")),
    }
    raw = read("image_folder", source=make(files))
    expected = examples(read("image_folder", source=folder, validation_fraction=0.0))["train"]
    assert examples(raw) == {"train": expected, "validation": expected}


def test_splits_in_the_folders_of_classes(read, folder, make):
    files = contents(folder / "cat", "cat/train/") | contents(folder / "dog", "dog/train/")
    files |= contents(folder / "dog", "cat/test/") | contents(folder / "cat", "dog/test/")
    raw = read("image_folder", source=make({"a.tar": pack(files)}), validation_fraction=0.0)
    counts = {name: np.bincount(split.labels).tolist() for name, split in raw.splits.items()}
    assert counts == {"train": [11, 7], "test": [7, 11]}


def test_parts_of_one_folder_in_several_archives(read, folder, make):
    files = {
        f"photos-{part}.zip": pack_zip(contents(folder / part, f"photos/{part}/"))
        for part in ("cat", "dog")
    }
    with pytest.raises(DataError, match=r"A class has images, .*unpack the archives and choose"):
        read("image_folder", source=make(files))


@pytest.mark.parametrize("ending", ["tar", "zip"])
def test_a_part_reads_what_the_split_reads(read, folder, make, ending):
    data = pack(contents(folder)) if ending == "tar" else pack_zip(contents(folder))
    train = read("image_folder", source=make({f"a.{ending}": data})).splits["train"]
    rows = [row.values["image"] for row in train]
    part = pickle.loads(pickle.dumps(train.part(3, 7)))  # as a worker process gets it
    assert [row.values["image"] for row in part] == rows[3:7]
    if ending == "tar":
        assert train.num_bytes == sum(map(len, rows))


def test_an_archive_beside_folders_of_classes_is_not_read(read, folder):
    (folder / "photos.tar").write_bytes(pack(contents(folder)))
    raw = read("image_folder", source=folder)
    assert raw.left_out.names == {".tar files that are not used": ["photos.tar"]}


def test_files_in_archives_that_are_left_out(read, folder, make):
    files = {**contents(folder), "cat/.DS_Store": b"x", "bird/1.jpg": b"x", "cat/a.txt": b"x"}
    raw = read("image_folder", source=make({"a.tar": pack(files)}), class_names=("dog", "cat"))
    assert raw.class_names == ("dog", "cat")
    assert raw.left_out.names == {
        "files of classes that --class_names does not name": ["a/bird/1.jpg"],
        "hidden files and files of the system": ["a/cat/.DS_Store"],
        ".txt files that are not used": ["a/cat/a.txt"],
    }


def test_a_broken_image_is_named(read, folder, make, rows):
    source = make({"a.tar": pack({**contents(folder), "cat/zero.jpg": b"", "dog/x.jpg": b"x"})})
    _, broken = rows(read("image_folder", source=source, validation_fraction=0.0).splits["train"])
    assert sorted((pathlib.Path(one.name).name, one.reason) for one in broken) == [
        ("x.jpg", "it is not an image"),
        ("zero.jpg", "it is empty"),
    ]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"a.txt": b"1"}, "without images"),
        ({"a.jpg": b"1"}, r"has 1 \(photos\)"),
        ({"cat/a.jpg": b"1"}, r"has 1 \(cat\)"),
        ({"train/cat/a.jpg": b"1", "more/cat/a.jpg": b"1"}, "not understood: 'more'"),
        (
            {"train/a.jpg": b"1", "val/cat/a.jpg": b"1", "val/dog/b.jpg": b"1"},
            "no folders of classes",
        ),
        ({"é/a.jpg": b"1", "e\u0301/a.jpg": b"1"}, "have one name, in two Unicode"),
        ({"cat/images/a.jpg": b"1", "cat/masks/a.jpg": b"1", "dog/b.jpg": b"1"}, "'cat' has the"),
        ({"a/1.jpg": b"1", "b/2.jpg": b"1", "plants/a/1.jpg": b"1"}, "'plants' has the folder a"),
        ({"train/a/1.jpg": b"1", "train/b/2.jpg": b"1", "train/3.jpg": b"1"}, "in no folder of a"),
    ],
)
def test_structures_that_are_not_understood(read, make, files, message):
    with pytest.raises(DataError, match=message):
        read("image_folder", source=make({"photos.tar": pack(files)}))
