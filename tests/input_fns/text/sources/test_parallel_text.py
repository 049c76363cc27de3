"""Parallel text, line by line."""

import gzip
import pathlib

import pytest

from input_fns import DataError
from input_fns.convert.options import Options
from input_fns.text.sources import parallel_text

MULTI30K = pathlib.Path(__file__).parents[5] / "shared" / "data" / "multi30k" / "data/task1/raw"
ENGLISH = "A dog.\n\nTwo \u2028 cats\r\nno end"
GERMAN = "Ein Hund.\nleer\n  Zwei Katzen \nkein Ende\n"


@pytest.fixture
def texts(tmp_path):
    """A folder of two splits in two languages; one file is packed."""
    (tmp_path / "train.en").write_bytes(ENGLISH.encode())
    (tmp_path / "train.de.gz").write_bytes(gzip.compress(GERMAN.encode(), mtime=0))
    (tmp_path / "dev.en").write_text("One.\n")
    (tmp_path / "dev.de").write_text("Eins.\n")
    (tmp_path / "train.fr").write_text("other languages do not matter")
    return tmp_path


def read(folder, languages=("en", "de"), **options):
    options = Options("parallel_text", source=str(folder), languages=languages, **options)
    return parallel_text.read(options)


def pairs(split):
    return list(zip(split.source, split.target))


def test_lines_stay_as_they_are(texts):
    raw = read(texts)
    assert set(raw.splits) == {"train", "validation"}
    assert raw.class_names == ()
    assert pairs(raw.splits["train"]) == [
        (b"A dog.", b"Ein Hund."),
        (b"", b"leer"),
        ("Two \u2028 cats".encode(), b"  Zwei Katzen "),
        (b"no end", b"kein Ende"),
    ]


def test_lines_know_their_numbers(texts):
    split = read(texts).splits["train"].take([3, 1])
    assert pairs(split) == [(b"no end", b"kein Ende"), (b"", b"leer")]
    assert split.numbers.tolist() == [4, 2]


def test_a_byte_order_mark_is_no_text(texts):
    (texts / "dev.en").write_bytes(b"\xef\xbb\xbfOne.\r\n")
    assert pairs(read(texts).splits["validation"]) == [(b"One.", b"Eins.")]


def test_languages_say_which_is_the_source(texts):
    raw = read(texts, languages=("de", "en"))
    assert pairs(raw.splits["validation"]) == [(b"Eins.", b"One.")]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train.en", b"one line\n", r"train\.en has 1 lines, but .*train\.de\.gz 4"),
        ("train.en", b"a\nb\nc \xff\nd", r"train\.en, line 3, byte 6: no UTF-8 \(invalid start"),
        (
            "train.de.gz",
            gzip.compress(b"a\n", mtime=0)[:-4],
            r"train\.de\.gz .* is not a complete gzip file",
        ),
        ("test.en", b"alone\n", "'test' is in only one of the languages"),
        ("train.en.gz", b"", r"has both train\.en and train\.en\.gz"),
    ],
)
def test_a_wrong_file(texts, name, content, message):
    (texts / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        read(texts)


def test_two_names_of_one_split(texts):
    for language in ("en", "de"):
        (texts / f"val.{language}").write_text("x\n")
    with pytest.raises(DataError, match="'dev' and 'val' both mean the split 'validation'"):
        read(texts)


def write_pair(folder, stem, count=1):
    for language in ("en", "de"):
        (folder / f"{stem}.{language}").write_text(f"{stem}\n" * count)


@pytest.mark.parametrize(
    ("stems", "splits"),
    [
        (["Tiny.de-en"], {"train": 1}),
        (["Books.de-en", "Europarl.de-en", "TED.de-en"], {"train": 3}),  # OPUS
        (["train.de-en", "newsdev2019", "newstest2014"], {"train": 1, "validation": 1, "test": 1}),
        (["Train", "DEV", "Test"], {"train": 1, "validation": 1, "test": 1}),
        (["iwslt.train.de-en", "iwslt.valid.de-en"], {"train": 1, "validation": 1}),
        (
            ["train", "newstest2013", "newstest2014"],
            {"train": 1, "newstest2013": 1, "newstest2014": 1},
        ),
        (["train", "test_2016_flickr", "test_2017_mscoco"], None),
    ],
)
def test_names_of_corpora(tmp_path, stems, splits):
    for stem in stems:
        write_pair(tmp_path, stem)
    found = {name: len(split) for name, split in read(tmp_path).splits.items()}
    assert found == (splits or dict.fromkeys(stems, 1))


def test_a_corpus_beside_a_test_set_needs_a_split(tmp_path):
    for stem in ("Europarl.de-en", "newstest2014"):
        write_pair(tmp_path, stem)
    message = r"Europarl\.de-en\.en has no split, while newstest2014\.en is 'test'.*--split_files="
    with pytest.raises(DataError, match=message):
        read(tmp_path)
    for name in ("Europarl.de-en", "Europarl.de-en.en", "Europarl.de-en.de"):
        given = (f"train={name}", "test=newstest2014.en")
        assert list(read(tmp_path, split_files=given).splits) == ["train", "test"]
    with pytest.raises(DataError, match=r"books\.en is not a file in both languages"):
        read(tmp_path, split_files=("train=books.en",))


def test_other_files_do_not_matter(tmp_path):
    write_pair(tmp_path, "Tiny.de-en")
    for name in ("README", "README.en", "Tiny.de-en.xml", "LICENSE.de", "._Tiny.de-en.en"):
        (tmp_path / name).write_text("x")
    assert pairs(read(tmp_path).splits["train"]) == [(b"Tiny.de-en", b"Tiny.de-en")]


def test_the_encoding_is_that_of_the_flag_or_evident(tmp_path):
    (tmp_path / "train.en").write_text("a cat\n")
    (tmp_path / "train.de").write_bytes("eine gro\xdfe Katze\n".encode("cp1252"))
    expected = [(b"a cat", "eine gro\xdfe Katze".encode())]
    assert pairs(read(tmp_path).splits["train"]) == expected
    assert pairs(read(tmp_path, encoding="latin-1").splits["train"]) == expected


@pytest.mark.parametrize(
    ("languages", "message"),
    [
        (("en",), "--languages=en: two are needed"),
        (("en", "it"), r"has no file that ends in \.it, plain or with \.gz"),
    ],
)
def test_wrong_languages(texts, languages, message):
    with pytest.raises(DataError, match=message):
        read(texts, languages)


@pytest.mark.skipif(not MULTI30K.exists(), reason="the real Multi30k is not here")
def test_the_real_multi30k():
    raw = read(MULTI30K)
    sizes = {name: len(split) for name, split in raw.splits.items()}
    assert (sizes["train"], sizes["validation"], sizes["test_2016_flickr"]) == (29000, 1014, 1000)
    for name, file in (("train", "train"), ("test_2016_flickr", "test_2016_flickr")):
        for feature, language in (("source", "en"), ("target", "de")):
            lines = b"".join(line + b"\n" for line in getattr(raw.splits[name], feature))
            assert lines == gzip.decompress((MULTI30K / f"{file}.{language}.gz").read_bytes())
