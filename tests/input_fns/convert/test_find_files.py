"""Files that a table names, as other systems and tools write their names."""

import unicodedata

import pytest

from input_fns.convert.find_files import Finder


@pytest.fixture
def finder(tmp_path):
    for name in ("wavs/c1.wav", "photos/a.jpg", "photos/b.JPG", "photos/B.jpg", "4/x y.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / unicodedata.normalize("NFD", "café.jpg")).write_text("")
    (tmp_path.parent / "outside.jpg").write_text("")
    return Finder(str(tmp_path), (".jpg", ".wav"))


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("photos/a.jpg", "photos/a.jpg"),
        (" photos/a.jpg ", "photos/a.jpg"),
        ("photos/a.JPG", "photos/a.jpg"),
        ("photos/b.JPG", "photos/b.JPG"),
        ("photos/B.jpg", "photos/B.jpg"),
        ("photos/a", "photos/a.jpg"),
        ("./photos//a.jpg", "photos/a.jpg"),
        ("wavs\\c1.wav", "wavs/c1.wav"),
        ("wavs\\c1", "wavs/c1.wav"),
        ("4/x%20y.png", "4/x y.png"),
        ("..\\..\\label-studio\\media\\upload\\4\\x y.png", "4/x y.png"),
        ("C:\\data\\photos\\a.jpg", "photos/a.jpg"),
        ("/home/me/photos/a.jpg", "photos/a.jpg"),
        ("https://host/media/photos/a.jpg", "photos/a.jpg"),
        ("https://host/media/photos/a.jpg?Expires=1&Signature=b/c", "photos/a.jpg"),
        ("/data/local-files/?d=photos/a.jpg", "photos/a.jpg"),
    ],
)
def test_a_name_is_found(finder, tmp_path, name, found):
    assert finder.find(name) == str(tmp_path / found)


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_unicode_forms_are_one_name(finder, form):
    assert finder.find(unicodedata.normalize(form, "café.jpg"))


@pytest.mark.parametrize(
    "name", ["", " ", ".", "..", "/", "a.jpg", "no/a.jpg", "../outside.jpg", "a\0.jpg"]
)
def test_other_names_are_not_found(finder, name):
    assert finder.find(name) is None
