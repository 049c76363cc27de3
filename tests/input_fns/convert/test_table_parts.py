"""A table that is read in parts is the table."""

import itertools

import numpy as np
import pytest

from input_fns import DataError
from input_fns.convert import files, runners, table_parts, tables
from input_fns.convert.options import Options
from input_fns.convert.table_parts import LargeTable

TEXTS, LABELS = ("text", "other"), ("label", "")
CELLS = ["dog", "", " ", "a b", "é東", "x" * 30]
QUOTED = ['"a,b"', '"two\nlines"', '"say ""no"""', '""', '"\r\n\n"', '",\n"","', "dog", 'a"b']


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(table_parts, "_PART_BYTES", 20)


def read_both(path, texts=TEXTS, **options):
    """Returns a table as it is read in parts and as a whole, or their errors, with the notes."""
    options, found = Options("text_files", source=str(path), **options), []
    for read in (
        lambda runner: table_parts.read(options, str(path), texts, LABELS, runner),
        lambda runner: tables.read_with(options, str(path)),
    ):
        notes = []
        with runners.InProcess() as runner, files.recording(notes.append):
            try:
                table = read(runner)
                columns = [list(table.column(name)) for name in texts]
                cleaned = table.cleaned("label") if "label" in table.columns else None
                found.append((type(table), columns, cleaned, table, notes))
            except DataError as error:
                found.append((str(error), notes))
    return found


def require_equal(path, is_large=True, **options):
    in_parts, whole = read_both(path, **options)
    assert (in_parts[0] is LargeTable) == is_large
    if len(whole) == 2:
        assert in_parts == whole
        return
    _, columns, cleaned, table, notes = in_parts
    _, all_columns, all_cleaned, whole, all_notes = whole
    if is_large:  # white space is not kept
        all_columns = [[text if text.strip() else "" for text in column] for column in all_columns]
    assert (columns, cleaned, notes) == (all_columns, all_cleaned, all_notes)
    assert (table.path, table.columns) == (whole.path, whole.columns)
    assert list(table.lines) == list(whole.lines)
    if is_large:
        by_text = {}
        wanted = [by_text.setdefault(texts, len(by_text)) for texts in zip(*columns)]
        assert table.groups.tolist() == wanted


def write(path, cells, line_end, delimiter, seed, end=""):
    rng = np.random.default_rng(seed)
    rows = [rng.choice(np.array(cells, object), 3) for _ in range(40)]
    lines = ["label,text,other".replace(",", delimiter), *map(delimiter.join, rows)]
    path.write_bytes((line_end.join(lines) + end).encode())


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("line_end", "end"), [("\n", "\n"), ("\r\n", ""), ("\n", "\n\r\n\n")])
def test_a_tsv_is_cut_at_lines(tmp_path, seed, line_end, end):
    write(tmp_path / "train.tsv", [*CELLS, '"', 'a"b'], line_end, "\t", seed, end)
    require_equal(tmp_path / "train.tsv")


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("line_end", "end"), [("\n", "\n"), ("\r\n", ""), ("\n\n", "\n\r\n\n")])
def test_a_csv_is_cut_outside_of_quotes(tmp_path, seed, line_end, end):
    # An odd number of quotes in a value without quotes around it makes cuts wrong.
    cells = [*CELLS, *QUOTED[: len(QUOTED) - seed % 2]]
    write(tmp_path / "train.csv", cells, line_end, ",", seed, end)
    in_parts, _ = read_both(tmp_path / "train.csv")
    require_equal(tmp_path / "train.csv", is_large=in_parts[0] is LargeTable)
    assert in_parts[0] is LargeTable or not seed % 2


@pytest.mark.parametrize(
    ("name", "content", "options"),
    [
        ("a.csv", "label;text;other\n" + '1;"a\nb";c\n' * 9, {"delimiter": ";"}),
        ("a.csv", "label|text|other\n" + '1|a"b|c\n' * 9, {"delimiter": "|"}),
        ("a.csv", "\ufefflabel,text,other\n" + '1,"a\nb",c\n' * 9, {}),
        ("a.csv", '1,"a\nb",c\n' * 9, {"columns": ("label", "text", "other")}),
        ("a.tsv", "1\ta\tb\n" * 9, {"columns": ("label", "text", "other")}),
        ("a.tsv", "label\ttext\tother\t\n" + "1\ta\tb\n2\tc\td\te\n" * 9, {}),
        ("a.csv", "label,text,other,,\n" + "1,a,b,,,,\n\n" * 9, {}),
    ],
)
def test_other_forms_in_parts(tmp_path, name, content, options):
    (tmp_path / name).write_text(content, "utf-8")
    require_equal(tmp_path / name, **options)


@pytest.mark.parametrize(
    ("name", "content", "options"),
    [
        ("a.csv", "label,text,other\n" + "1,a,b\n" * 9 + "2,c\n", {}),  # too few values
        ("a.csv", "label,text,other\n" + "1,a,b\n" * 9 + '2,"c,d\n', {}),  # an open quote
        ("a.csv", "label,text,other\n" + '1,"a\\"b",c\n' * 9, {}),  # backslashes
        ("a.csv", "label, text, other\n" + '1, "a,b", c\n' * 9, {}),  # spaces before quotes
        ("a.csv", "sep=;\nlabel;text;other\n" + "1;a;b\n" * 9, {}),  # of Excel
        ("a.csv", "label;text;other\n" + "1;a;b\n" * 9, {}),  # another delimiter
        ("a.csv", "label,text,text\n" + "1,a,b\n" * 9, {}),
        ("a.csv", "label,text\n" + "1,a\n" * 9, {}),  # a missing column
        ("a.csv", "text\n" + "a\n" * 19, {"texts": ("text",)}),  # one column
        ("a.csv", "label,text,other\n" + "1,a,b\n" * 9 + "1,\0,b\n", {}),
        ("a.csv", b"label,text,other\n" + b"1,a,b\n" * 99 + b"1,caf\xe9,b\n", {"encoding": ""}),
        ("a.csv", b"label,text,other\n" + b"1,a,b\n" * 9 + b"1,\xe9,b\n", {}),
        ("a.csv", "label,text,other\n" + "1,é,b\n" * 9, {"encoding": "utf-16"}),
        ("a.tsv", '"label"\t"text"\t"other"\n' + '"1"\t"a"\t"b"\n' * 9, {}),  # quotes enclose
        ("a.tsv", "label\ttext\tother\n" + "1\ta\tb\n" * 9 + '1\t"a\tb"\tc\n', {}),
        ("a.tsv", "label\ttext\tother\n" + "1\ta\n" * 9, {}),
        ("a.jsonl", '{"label": 1, "text": "a", "other": "b"}\n' * 9, {}),
    ],
)
def test_a_table_of_another_form_is_read_as_a_whole(tmp_path, name, content, options):
    encoding = options.get("encoding") or "utf-8"
    content = content if isinstance(content, bytes) else content.encode(encoding)
    (tmp_path / name).write_bytes(content)
    require_equal(tmp_path / name, is_large=False, **options)


def test_rows_are_chosen(tmp_path):
    write(tmp_path / "a.tsv", [*CELLS, "1", "2"], "\n", "\t", 5)
    options = Options("text_files", source=str(tmp_path / "a.tsv"))
    with runners.InProcess() as runner:
        table = table_parts.read(options, options.source, TEXTS, LABELS, runner)
        texts = table.column("text")
        chosen = texts[np.array([7, 3, 3, 20])]
        assert list(chosen) == [texts[i] for i in (7, 3, 3, 20)]
        assert list(itertools.islice(chosen[1:], 1)) == [texts[3]]
