"""A folder of images whose sub-folders are the classes."""

import os
import pathlib
import shutil
import sys
import tarfile

import numpy as np
import pytest

from input_fns import DataError
from input_fns.convert import image_files

APPLE = pathlib.Path(__file__).parents[4] / "shared" / "data" / "apple-leaf"


def test_classes_are_the_folders_in_the_order_of_their_names(read, folder):
    raw = read("image_folder", source=folder, validation_fraction=0.0)
    assert raw.class_names == ("cat", "dog")
    assert np.bincount(raw.splits["train"].labels).tolist() == [11, 7]
    assert list(raw.splits) == ["train"]


def test_the_order_of_the_classes_can_be_given(read, folder):
    raw = read("image_folder", source=folder, class_names=("dog", "cat"))
    assert raw.class_names == ("dog", "cat")


def test_files_are_kept_byte_for_byte_with_their_labels(read, rows, folder):
    train = read("image_folder", source=folder, validation_fraction=0.0).splits["train"]
    good, broken = rows(train)
    assert not broken
    for path, label, row in zip(train.paths, train.labels, good):
        assert row.values["image"] == pathlib.Path(path).read_bytes()
        assert row.name == str(pathlib.Path(path).relative_to(folder))
        assert pathlib.Path(path).parent.name == ("cat", "dog")[label]
        assert row.features["image"].shape == (9, 13, 3)


def test_training_examples_are_shuffled_and_others_in_order(read, folder):
    splits = read("image_folder", source=folder, validation_fraction=0.5).splits
    train, validation = (list(splits[name].paths) for name in ("train", "validation"))
    assert train != sorted(train)
    assert validation == sorted(validation)
    again = read("image_folder", source=folder, validation_fraction=0.5).splits
    assert list(again["train"].paths) == train


def test_splits_that_are_folders(read, folder, tmp_path):
    for name in ("train", "val", "test"):
        shutil.copytree(folder, tmp_path / "split" / name)
    raw = read("image_folder", source=tmp_path / "split")
    assert list(raw.splits) == ["train", "validation", "test"]
    assert all(len(split) == 18 for split in raw.splits.values())


def test_broken_files_are_told_and_not_stored(read, rows, folder):
    (folder / "cat" / "03.jpeg").write_bytes(b"no image")
    (folder / "dog" / "zero.png").write_bytes(b"")
    train = read("image_folder", source=folder, validation_fraction=0.0).splits["train"]
    good, broken = rows(train)
    assert len(good) == 17
    reasons = {pathlib.Path(row.name).name: row.reason for row in broken}
    assert reasons == {"03.jpeg": "it is not an image", "zero.png": "it is empty"}


def test_several_processes_give_what_one_gives(read, rows, folder, monkeypatch):
    options = {"source": folder, "image_size": (4, 3), "workers": 2}
    here, _ = rows(read("image_folder", **options).splits["train"])
    monkeypatch.setattr(image_files, "_WORTH_PROCESSES", 0)
    monkeypatch.setattr(image_files, "_CHUNK", 2)
    there, _ = rows(read("image_folder", **options).splits["train"])
    assert here == there


def test_an_empty_class(read, folder):
    (folder / "fish").mkdir()
    (folder / "fish" / "notes.txt").write_text("none yet")
    with pytest.raises(DataError, match=r"photos/fish holds no image: no file ends in \.jpg"):
        read("image_folder", source=folder)


def test_splits_of_different_classes(read, folder, tmp_path):
    shutil.copytree(folder, tmp_path / "split" / "train")
    shutil.copytree(folder, tmp_path / "split" / "test")
    (tmp_path / "split" / "test" / "dog").rename(tmp_path / "split" / "test" / "dgo")
    with pytest.raises(DataError, match=r"split 'test' of .* missing: dog; unknown: dgo"):
        read("image_folder", source=tmp_path / "split")


def test_two_names_of_one_split(read, folder, tmp_path):
    for name in ("train", "val", "valid"):
        shutil.copytree(folder, tmp_path / "split" / name)
    with pytest.raises(DataError, match="'val' and 'valid' both mean the split 'validation'"):
        read("image_folder", source=tmp_path / "split")


def test_a_source_that_is_no_folder(read, tmp_path):
    with pytest.raises(DataError, match="no/such is not a folder"):
        read("image_folder", source=tmp_path / "no/such")


def test_a_source_without_classes(read, tmp_path):
    with pytest.raises(DataError, match="should have a folder for each class, and has 0"):
        read("image_folder", source=tmp_path)


@pytest.mark.skipif(not APPLE.exists(), reason="the real leaves are not here")
def test_the_real_leaves(read, rows, tmp_path):
    with tarfile.open(APPLE / "plantvillage-apple-color.tar.gz") as tar:
        tar.extractall(tmp_path)
    raw = read("image_folder", source=tmp_path / "apple-leaf", test_fraction=0.1)
    assert len(raw.class_names) == 4
    sizes = {name: np.bincount(split.labels).tolist() for name, split in raw.splits.items()}
    assert sizes == {"train": [288, 288, 247, 288], "test": [32, 32, 28, 32]}
    for split in raw.splits.values():
        good, broken = rows(split)
        assert not broken
        for path, row in zip(split.paths, good):
            assert row.values["image"] == pathlib.Path(path).read_bytes()


def images_of(raw):
    return {name: sorted(split.paths) for name, split in raw.splits.items()}


def test_links_that_loop_add_nothing(read, folder):
    before = images_of(read("image_folder", source=folder))
    (folder / "cat" / "up").symlink_to("..")
    (folder / "dog" / "again").symlink_to(folder, target_is_directory=True)
    (folder / "dog" / "self").symlink_to(".")
    assert images_of(read("image_folder", source=folder)) == before


def test_a_linked_folder_is_read_once(read, folder, tmp_path):
    (tmp_path / "more").mkdir()
    (folder / "cat" / "00.jpeg").rename(tmp_path / "more" / "00.jpeg")
    for name in ("more", "more_again"):
        (folder / "cat" / name).symlink_to(tmp_path / "more", target_is_directory=True)
    raw = read("image_folder", source=folder, validation_fraction=0)
    assert len(raw.splits["train"]) == 18


def test_a_file_in_two_classes(read, folder):
    (folder / "cat" / "link.png").symlink_to("../dog/00.png")
    with pytest.raises(DataError, match=r"dog/00.png and .*cat/link.png are the same file"):
        read("image_folder", source=folder)


def test_a_file_in_two_splits(read, folder, tmp_path):
    for split in ("train", "test"):
        for label in ("cat", "dog"):
            (tmp_path / "splits" / split / label).mkdir(parents=True)
            for path in (folder / label).iterdir():
                copy = tmp_path / "splits" / split / label / path.name
                copy.write_bytes(path.read_bytes())
    path = tmp_path / "splits" / "test" / "cat" / "00.jpeg"
    path.unlink()
    os.link(tmp_path / "splits" / "train" / "cat" / "00.jpeg", path)
    with pytest.raises(DataError, match="are the same file, which cannot be in two classes"):
        read("image_folder", source=tmp_path / "splits")


def test_two_classes_of_one_folder(read, folder):
    (folder / "wolf").symlink_to("dog", target_is_directory=True)
    with pytest.raises(DataError, match=r"wolf and .*dog are the same folder"):
        read("image_folder", source=folder)


def test_a_file_that_is_there_twice_stays_in_one_split(read, folder):
    for i in range(7):
        (folder / "dog" / f"link{i}.png").symlink_to(f"{i:02d}.png")
    for seed in range(3):
        splits = read("image_folder", source=folder, validation_fraction=0.3, seed=seed).splits
        real = [{os.path.realpath(path) for path in split.paths} for split in splits.values()]
        assert not set.intersection(*real)


def test_what_is_not_a_file_is_broken(read, folder, rows):
    (folder / "cat" / "dead.jpg").symlink_to("nothing")
    os.mkfifo(folder / "cat" / "pipe.jpg")
    os.mkdir(folder / "cat" / "folder.jpg")
    (folder / "cat" / "zero.jpg").symlink_to("/dev/zero")
    raw = read("image_folder", source=folder, validation_fraction=0)
    _, broken = rows(raw.splits["train"])
    assert sorted(os.path.basename(row.name) for row in broken) == [
        "dead.jpg",
        "pipe.jpg",
        "zero.jpg",
    ]
    assert raw.splits["train"].num_bytes > 0


@pytest.mark.skipif(sys.platform == "darwin", reason="its file system has UTF-8 names only")
def test_a_name_that_is_not_utf8_is_read_and_escaped(read, folder, rows):
    os.rename(bytes(folder / "cat" / "00.jpeg"), bytes(folder / "cat") + b"/\xff\n.jpeg")
    (good, broken) = rows(read("image_folder", source=folder).splits["train"])
    assert not broken
    assert "cat/\\udcff\\n.jpeg" in {row.name for row in good}


@pytest.mark.parametrize("name", ["x\ny", "x\u2028y", "\udcff"])
def test_a_folder_whose_name_is_not_a_class(read, folder, name):
    (folder / name).mkdir()
    with pytest.raises(DataError, match="cannot be the name of a class"):
        read("image_folder", source=folder)


def test_patterns_in_names_are_plain_characters(read, folder):
    (folder / "cat").rename(folder / "c[a]t*?\\")
    (folder / "dog" / "00.png").rename(folder / "dog" / "[0-9]*?\\.png")
    raw = read("image_folder", source=folder, validation_fraction=0)
    assert raw.class_names == ("c[a]t*?\\", "dog")
    assert len(raw.splits["train"]) == 18
