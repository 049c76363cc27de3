"""Parallel text, line by line."""

import gzip
import pathlib

import pytest

from input_fns import DataError
from input_fns.convert import files
from input_fns.convert.options import Options
from input_fns.text.sources import parallel_text
from tests.archive_files import pack_zip

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
            ["train", "newstest2012", "newstest2013", "newstest2014"],
            {"train": 1, "newstest2012": 1, "validation": 1, "test": 1},
        ),
        (
            ["train", "dev", "newstest2013", "newstest2014"],
            {"train": 1, "validation": 1, "newstest2013": 1, "test": 1},
        ),
        (["Books.de-en", "TED.de-en", "newstest2014"], {"train": 2, "test": 1}),
        (["train", "test_2016_flickr", "test_2017_mscoco"], None),
    ],
)
def test_names_of_corpora(tmp_path, stems, splits):
    for stem in stems:
        write_pair(tmp_path, stem)
    found = {name: len(split) for name, split in read(tmp_path).splits.items()}
    assert found == (splits or dict.fromkeys(stems, 1))


def test_a_corpus_beside_a_test_set_needs_a_split(tmp_path):
    for stem in ("books", "newstest2014"):
        write_pair(tmp_path, stem)
    message = r"books\.en has no split, while newstest2014\.en is 'test'.*--split_files="
    with pytest.raises(DataError, match=message):
        read(tmp_path)
    for name in ("books", "books.en", "books.de"):
        given = (f"train={name}", "test=newstest2014.en")
        assert list(read(tmp_path, split_files=given).splits) == ["train", "test"]
    with pytest.raises(DataError, match=r"novels\.en is not a file in both languages"):
        read(tmp_path, split_files=("train=novels.en",))


def sgml(*segments):
    """A test set as WMT writes it."""
    lines = [f'<seg id="{number}">{text}</seg>' for number, text in enumerate(segments, 1)]
    return "\n".join(
        ['<srcset setid="x" srclang="any">', '<doc docid="a"><p>', *lines, "</p></doc>"]
    )


def write(folder, files):
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


WMT14 = {
    "training/europarl-v7.de-en.de": "a\nb\n",
    "training/europarl-v7.de-en.en": "A\nB\n",
    "training/europarl-v7.cs-en.cs": "x\n",
    "training/europarl-v7.cs-en.en": "X\n",
    "training/news-commentary-v9.de-en.de": "d\n",
    "training/news-commentary-v9.de-en.en": "D\n",
    "commoncrawl.de-en.de": "c\n",
    "commoncrawl.de-en.en": "C\n",
    "commoncrawl.de-en.annotation": "x\n",
    "commoncrawl.cs-en.en": "X\n",
    **{
        f"dev/newstest{year}.{lang}": f"{lang}{year}\n"
        for year in (2012, 2013)
        for lang in ("de", "en")
    },
    "dev/newstest2013-src.de.sgm": sgml("other"),
    "dev/newstest2013-ref.en.sgm": sgml("other"),
    "dev/newssyscomb2009.de": "x\n",
    "dev/newssyscomb2009.en": "x\n",
    "dev/newsdev2014.en": "x\n",
    "dev/newsdev2014.hi": "x\n",
    "test-full/newstest2014-deen-src.en.sgm": sgml("Q &amp; A", " two "),
    "test-full/newstest2014-deen-src.de.sgm": sgml("x", "x"),
    "test-full/newstest2014-deen-ref.de.sgm": sgml("F &amp; A", "zwei"),
    "test-full/newstest2014-deen-ref.en.sgm": sgml("x", "x"),
    "test-full/newstest2014-csen-src.en.sgm": sgml("x"),
}


def test_wmt_as_unpacked(tmp_path, capsys):
    write(tmp_path, WMT14)
    with files.recording(print):
        raw = read(tmp_path)
    assert {name: pairs(split) for name, split in raw.splits.items()} == {
        "train": [(b"C", b"c"), (b"A", b"a"), (b"B", b"b"), (b"D", b"d")],
        "validation": [(b"en2013", b"de2013")],
        "test": [(b"Q & A", b"F & A"), (b"two", b"zwei")],
    }
    printed = capsys.readouterr().out
    names = "commoncrawl.de-en, training/europarl-v7.de-en, training/news-commentary-v9.de-en"
    assert f"'train' is {names}\n" in printed
    assert "left out: dev/newssyscomb2009, dev/newstest2012. Choose others with" in printed


def test_the_test_set_of_the_direction(tmp_path):
    for direction, languages in (("ende", ("en", "de")), ("deen", ("de", "en"))):
        for role, language in zip(("src", "ref"), languages):
            name = f"test/newstest2015-{direction}-{role}.{language}.sgm"
            write(tmp_path, {name: sgml(direction), "train.de": "x\n", "train.en": "x\n"})
    write(tmp_path, {"dev/newstest2014.de": "x\n", "dev/newstest2014.en": "x\n"})
    for languages, direction in ((("en", "de"), b"ende"), (("de", "en"), b"deen")):
        assert read(tmp_path, languages).splits["test"].source == [direction]


def test_archives_of_opus(tmp_path):
    for name in ("Books", "TED2013"):
        contents = {"README": b"x", **{f"{name}.de-en.{one}": one.encode() for one in ("de", "en")}}
        contents[f"{name}.de-en.xml"] = b"x"
        (tmp_path / f"{name}.zip").write_bytes(pack_zip(contents))
    assert pairs(read(tmp_path).splits["train"]) == [(b"en", b"de")] * 2
    assert pairs(read(tmp_path / "Books.zip").splits["train"]) == [(b"en", b"de")]


@pytest.mark.parametrize("name", ["news-commentary-v15.de-en.tsv.gz", "de-en.txt.gz"])
def test_two_columns_in_the_order_of_the_name(tmp_path, name):
    (tmp_path / name).write_bytes(gzip.compress(b"a\tA\nonly one\nb\tB\n", mtime=0))
    for source in (tmp_path, tmp_path / name):
        raw = read(source)
        assert pairs(raw.splits["train"]) == [(b"A", b"a"), (b"B", b"b")]
        assert raw.splits["train"].numbers.tolist() == [1, 3]
        assert raw.left_out.counts == {"lines without two columns": 1}


def test_segments_need_not_be_lines(tmp_path):
    source = '<doc><seg id="1">a\nb</seg><seg id="2">c</seg>\n'
    target = '<seg id="1">A B</seg>\n<seg id="2">C\n</seg>'
    write(tmp_path, {"x-src.en.sgm": source, "x-ref.de.sgm": target})
    raw = read(tmp_path, split_files=("train=x-src.en.sgm",))
    assert pairs(raw.splits["train"]) == [(b"a b", b"A B"), (b"c", b"C")]


def test_markup_of_iwslt_is_no_text(tmp_path):
    for language in ("en", "de"):
        lines = ["<url>http://x</url>", f"one {language}", "<title>T</title>", f"two {language}"]
        write(tmp_path, {f"train.tags.en-de.{language}": "\n".join(lines)})
    raw = read(tmp_path)
    assert pairs(raw.splits["train"]) == [(b"one en", b"one de"), (b"two en", b"two de")]
    assert raw.splits["train"].numbers.tolist() == [2, 4]
    assert raw.left_out.counts == {"lines of markup": 2}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            {"a-src.en.sgm": sgml("x", "y"), "a-ref.de.sgm": sgml("x")},
            r"has 2 segments, but .* 1: ",
        ),
        (
            {"a-src.en.sgm": sgml("x"), "a-ref.de.sgm": sgml("x").replace('"1"', '"2"')},
            "segments of different ids",
        ),
        ({"x.de-en.tsv": "no columns\n"}, "has no line of two columns"),
        ({"x.de-en.tsv": "", "x.de-en.tsv.gz": ""}, r"both x.de-en.tsv and x.de-en.tsv.gz"),
        ({"training/x.de-en.en": "x\n"}, r"has no file that ends in \.de"),
        ({"dev.tgz": "", "train.en": "x\n"}, r"no text in de. Unpack .* tar -xzf dev.tgz"),
    ],
)
def test_corpora_that_are_wrong(tmp_path, wrong, message):
    write(tmp_path, wrong)
    with pytest.raises(DataError, match=message):
        read(tmp_path)


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
