"""A folder of images whose sub-folders are the classes."""

import os
import pathlib
import shutil
import sys
import tarfile

import numpy as np
import pytest

from input_fns import DataError
from input_fns.convert import class_folders
from input_fns.image.sources import decoded_images

APPLE = pathlib.Path(__file__).parents[5] / "shared" / "data" / "apple-leaf"


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


def test_classes_that_have_one_folder_of_images_each(read, folder, tmp_path):
    for name in ("cat", "dog"):
        (tmp_path / "tiny" / name).mkdir(parents=True)
        (folder / name).rename(tmp_path / "tiny" / name / "images")
    raw = read("image_folder", source=tmp_path / "tiny", validation_fraction=0.0)
    assert raw.class_names == ("cat", "dog")
    assert np.bincount(raw.splits["train"].labels).tolist() == [11, 7]
    for name in ("cat", "dog"):  # may be a class of each of two splits
        (tmp_path / "tiny" / name / "images").rename(tmp_path / "tiny" / name / "frog")
    with pytest.raises(DataError, match="'cat' has the folder frog, and 'dog' has the folder frog"):
        read("image_folder", source=tmp_path / "tiny")


def test_broken_files_are_told_and_not_stored(read, rows, folder):
    (folder / "cat" / "03.jpeg").write_bytes(b"no image")
    (folder / "dog" / "zero.png").write_bytes(b"")
    train = read("image_folder", source=folder, validation_fraction=0.0).splits["train"]
    good, broken = rows(train)
    assert len(good) == 17
    reasons = {pathlib.Path(row.name).name: row.reason for row in broken}
    assert reasons == {"03.jpeg": "it is not an image", "zero.png": "it is empty"}


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


@pytest.mark.parametrize("name", ["train", "test"])
def test_an_empty_folder_of_a_split_is_refused(read, folder, tmp_path, name):
    shutil.copytree(folder, tmp_path / "split" / "val")
    (tmp_path / "split" / name).mkdir()
    with pytest.raises(DataError, match=f"folder '{name}' has no image. .*--skip={name}$"):
        read("image_folder", source=tmp_path / "split")


def test_a_source_without_classes(read, tmp_path):
    with pytest.raises(DataError, match=r"a folder for each class, and has 0 .*=image_csv"):
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


@pytest.fixture
def tree(tmp_path, photo, encode):
    """Writes two images into each of the folders; returns the source: `tree("train/cat", ...)`."""
    image = encode(photo(4, 5), "JPEG")

    def write(*paths):
        for path in paths:
            folder = tmp_path / "in" / path
            folder.mkdir(parents=True, exist_ok=True)
            for i in range(2):
                (folder / f"{path.replace('/', '_')}_{i}.jpg").write_bytes(image)
        return tmp_path / "in"

    return write


def found_in(read, source, **options):
    """Returns the class names, and `{split: number of examples of each class}`; None: no labels."""
    raw = read("image_folder", source=source, validation_fraction=0.0, **options)
    counts = {
        name: len(raw.class_names) and split.has_labels and np.bincount(split.labels).tolist()
        for name, split in raw.splits.items()
    }
    return raw.class_names, counts


CAT_DOG = {
    "Training and Test": ("Training/cat", "Training/dog", "Test/cat", "Test/dog"),
    "words in names": ("seg_train/cat", "seg_train/dog", "seg_test/cat", "seg_test/dog"),
    "twice the same name": (
        *("training_set/training_set/cat", "training_set/training_set/dog"),
        *("test_set/test_set/cat", "test_set/test_set/dog"),
    ),
    "classes first": ("cat/train", "cat/test", "dog/train", "dog/test"),
    "folders of systems": (
        *("train/cat", "train/dog", "test/cat", "test/dog"),
        *("__MACOSX/train/cat", "train/cat/.ipynb_checkpoints", "train/@eaDir", ".git/cat"),
    ),
    "spaces and Unicode": ("train /cat", "train /dog", "test/cat ", "test/ dog"),
}


@pytest.mark.parametrize("paths", CAT_DOG.values(), ids=CAT_DOG)
def test_structures_of_splits_and_classes(read, tree, paths):
    classes, counts = found_in(read, tree(*paths))
    assert classes == ("cat", "dog")
    assert counts == {"train": [2, 2], "test": [2, 2]}


@pytest.mark.parametrize("name", ["test", "test1", "test_images", "val"])
def test_a_split_without_classes_is_predicted(read, tree, name):
    _, counts = found_in(read, tree("train/cat", "train/dog", name))
    assert counts == {"train": [2, 2], "validation" if name == "val" else "test": False}


def test_classes_in_two_unicode_forms(read, tree):
    paths = "train/caf\u00e9", "train/tea", "val/cafe\u0301", "val/tea"
    assert found_in(read, tree(*paths)) == (
        ("caf\u00e9", "tea"),
        {"train": [2, 2], "validation": [2, 2]},
    )


def test_one_class_in_two_unicode_forms_is_refused(read, tree):
    with pytest.raises(DataError, match="have one name, in two Unicode forms or with spaces"):
        read("image_folder", source=tree("caf\u00e9", "cafe\u0301", "tea"))


@pytest.mark.parametrize(
    ("names", "order"),
    [
        (("10", "9", "2"), ("2", "9", "10")),
        (("10", "9", "b"), ("10", "9", "b")),
        (("-1", "1", "0.5"), ("-1", "0.5", "1")),
    ],
)
def test_numbers_are_sorted_as_numbers(read, tree, names, order):
    assert found_in(read, tree(*names))[0] == order


NOT_UNDERSTOOD = [
    (
        ("train/cat", "train/dog", "val/cat", "val/dog", "copy/train", "copy/val"),
        r"not understood: 'copy' \(the folders train, val\). Leave these out with --skip=copy",
    ),
    (
        ("train/cat", "train/dog", "bird"),
        r"'train' is the split 'train' \(the folders cat, dog\); not understood: 'bird' \(images\)",
    ),
    (
        ("seg_train/cat", "seg_train/dog", "seg_pred"),
        r"not understood: 'seg_pred' \(images\). Leave these out with --skip=seg_pred",
    ),
    (("cat", "dog", "test"), "'test' beside cat, dog may be a split without classes, or a class"),
    (("cat", "dog", "copy/cat", "copy/dog"), "'copy' has the folders cat, dog, and 'cat' has im"),
    (
        ("art/cat", "art/dog", "photo/cat", "photo/dog"),
        "'art' has the folders cat, dog, and 'photo'",
    ),
    (("cat/train", "cat/val", "dog"), "'cat' has the folders of splits train, val, and 'dog' has"),
    (("trainA", "trainB", "testA", "testB"), "are all of the split 'train'"),
    (("train_good", "test_good"), "folder 'train_good' has images, but no folders of classes"),
    (("train", "test"), "folder 'train' has images, but no folders of classes.*=image_csv"),
    (("train", "val/cat", "val/dog"), "folder 'train' has images, but no folders of classes"),
    (
        ("pets/cat", "pets/dog"),
        r"a folder for each class, and has 1 .pets.. Choose .*in/pets",
    ),
    (("train/cat", "train/dog", "val/cat"), "split 'validation' .* missing: dog; unknown: none"),
    (("train/cat", "train/dog", "val/cat", "val/dog", "val/cow"), "unknown: cow; leave others out"),
]


@pytest.mark.parametrize(("paths", "message"), NOT_UNDERSTOOD)
def test_a_structure_that_is_not_understood(read, tree, paths, message):
    with pytest.raises(DataError, match=message):
        read("image_folder", source=tree(*paths))


@pytest.mark.parametrize(
    ("paths", "options"),
    [
        (NOT_UNDERSTOOD[0][0], {"skip": ("copy",)}),
        (NOT_UNDERSTOOD[1][0], {"skip": ("bi*",)}),
        (("cat", "dog", "test"), {"class_names": ("cat", "dog")}),
        (("cat", "dog", "copy/cat", "copy/dog"), {"skip": ("copy",)}),
    ],
)
def test_flags_make_it_understood(read, tree, paths, options):
    classes, counts = found_in(read, tree(*paths), **options)
    assert classes == ("cat", "dog")
    assert counts["train"] == [2, 2]


def test_a_class_may_be_named_like_a_split(read, tree):
    assert found_in(read, tree("bus", "car", "train"))[0] == ("bus", "car", "train")
    names = ("bus", "car", "test")
    assert found_in(read, tree("test"), class_names=names)[0] == names


@pytest.mark.parametrize("prefix", ["", "train/"])
def test_a_choice_of_classes_counts_the_others(read, tree, prefix):
    source = tree(*(f"{prefix}{name}" for name in ("a", "b", "c")))
    raw = read("image_folder", source=source, class_names=("c", "a"), validation_fraction=0.0)
    assert raw.class_names == ("c", "a")
    assert np.bincount(raw.splits["train"].labels).tolist() == [2, 2]
    assert raw.left_out.counts == {class_folders.NOT_NAMED: 2}


def test_a_class_that_is_not_there(read, tree):
    with pytest.raises(DataError, match="missing: cow; unknown: none; its folders are cat, dog"):
        read("image_folder", source=tree("cat", "dog"), class_names=("cat", "cow"))


def test_a_class_without_images_in_a_split(read, tree):
    source = tree("train/cat", "train/dog", "val/cat")
    (source / "val" / "dog").mkdir()
    assert found_in(read, source)[1] == {"train": [2, 2], "validation": [2]}


@pytest.mark.skipif(".heic" in decoded_images.EXTENSIONS, reason="the extra heic is installed")
def test_files_of_other_kinds_are_counted(read, folder):
    for name in ("IMG_1.HEIC", "IMG_2.heic", "list.txt", "0001"):
        (folder / "cat" / name).write_bytes(b"1")
    for name in ("scan.jfif", "scan.JPE"):
        (folder / "dog" / name).write_bytes((folder / "cat" / "00.jpeg").read_bytes())
    raw = read("image_folder", source=folder, validation_fraction=0.0)
    assert len(raw.splits["train"]) == 20
    reasons = dict(raw.left_out.counts)
    heic = next((reason for reason in reasons if "heic" in reason), "")
    assert reasons.pop(heic) == 2
    assert "pip install '.[heic]'" in heic
    assert reasons == {
        ".txt files that are not used": 1,
        "files without an extension that are not used": 1,
    }
