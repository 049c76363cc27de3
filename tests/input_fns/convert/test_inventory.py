"""Every file of a source is an example, or is counted with a reason."""

import os
import shutil

import pytest

from input_fns.convert import files, inventory
from input_fns.convert.options import Options


def make(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)


def options(folder, **more):
    return Options("image_folder", source=str(folder), **more)


def test_visible_names_are_listed(tmp_path):
    hidden = (".DS_Store", "._a.jpg", "__MACOSX", "Thumbs.db", "desktop.ini", "@eaDir", "~$a.csv")
    make(tmp_path, "a.jpg", "b.txt", *hidden)
    assert inventory.names(str(tmp_path), options(tmp_path)) == ["a.jpg", "b.txt"]


def test_names_and_patterns_can_be_skipped(tmp_path):
    make(tmp_path, "cat/1.jpg", "seg_pred/1.jpg", "raw_a/1.jpg", "raw_b/2.jpg")
    chosen = options(tmp_path, skip=("seg_pred", "raw_*"))
    assert inventory.subfolders(str(tmp_path), chosen) == ["cat"]
    assert [os.path.relpath(p, tmp_path) for p in inventory.files(str(tmp_path), chosen)] == [
        "cat/1.jpg"
    ]


def test_files_that_are_not_used_are_counted_by_kind(tmp_path):
    make(tmp_path, "cat/1.jpg", "cat/2.HEIC", "cat/3.heic", "README", "notes.md", "old/x.jpg")
    make(tmp_path, "cat/.ipynb_checkpoints/1.jpg")
    used = [str(tmp_path / "cat" / "1.jpg")]
    reasons = {str(tmp_path / "notes.md"): "notes"}
    found = inventory.unread(options(tmp_path, skip=("old",)), used, reasons)
    by_first_word = {reason.split()[0]: count for reason, count in found.counts.items()}
    assert by_first_word == {".heic": 2, "files": 1, "notes": 1, "hidden": 1, "named": 1}
    assert found.names["notes"] == ["notes.md"]
    assert found.names[inventory.SYSTEM] == ["cat/.ipynb_checkpoints/1.jpg"]
    assert found.names[inventory.SKIPPED] == ["old/x.jpg"]
    lines = list(found.lines())
    assert "left out: 1 notes, for example notes.md" in lines
    assert any("cat/2.HEIC, cat/3.heic" in line for line in lines)


def test_a_name_to_skip_that_is_not_there_is_warned_of(tmp_path):
    make(tmp_path, "cat/1.jpg", "old_a/x.jpg")
    with files.recording((lines := []).append):
        inventory.unread(options(tmp_path, skip=("old*", "odl_a")), [])
    assert lines == [f"warning: --skip=odl_a is the name of no file or folder in {tmp_path}"]


@pytest.mark.parametrize("spelling", ["{0}/cat/1.jpg", "{0}/./cat//1.jpg", "{0}/dog/../cat/1.jpg"])
def test_a_file_is_used_under_any_spelling_of_its_path(tmp_path, spelling):
    make(tmp_path, "cat/1.jpg", "dog/2.jpg")
    used = [spelling.format(tmp_path), str(tmp_path / "dog/2.jpg")]
    assert not inventory.unread(options(tmp_path), used)


def test_a_file_that_is_read_through_a_link_is_used(tmp_path):
    make(tmp_path, "photos/1.jpg")
    (tmp_path / "all").symlink_to(tmp_path / "photos")
    assert not inventory.unread(options(tmp_path), [str(tmp_path / "photos" / "1.jpg")])
    assert not inventory.unread(options(tmp_path), [str(tmp_path / "all" / "1.jpg")])


def test_a_source_reports_what_it_does_not_use(read, folder):
    (folder / "cat" / "notes.txt").write_text("a note")
    shutil.copy(folder / "dog" / "00.png", folder / "lost.png")
    left_out = read("image_folder", source=folder, validation_fraction=0.0).left_out
    assert sorted(name for names in left_out.names.values() for name in names) == [
        "cat/notes.txt",
        "lost.png",
    ]


def test_a_folder_below_that_has_the_files_is_named(tmp_path):
    make(tmp_path, "notes.md", "cv/cy/notes.md", "cv/cy/train.tsv", "p/annotations/train.json")
    chosen = options(tmp_path, skip=("q",))
    hint = inventory.hint_of_folder(chosen, lambda path: path.endswith(".tsv"))
    assert hint == f". {tmp_path}/cv/cy has train.tsv: try --source={tmp_path}/cv/cy"
    hint = inventory.hint_of_folder(chosen, lambda path: path.endswith(".json"))
    assert hint == f". {tmp_path}/p has annotations/train.json: try --source={tmp_path}/p"
    assert not inventory.hint_of_folder(chosen, lambda path: path.endswith(".csv"))
