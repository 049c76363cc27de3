"""Tables of text, and the encodings of their files."""

import json

import pytest

from input_fns import DataError
from input_fns.convert import delimited, files, tables
from input_fns.convert.options import Options


@pytest.fixture
def read(tmp_path):
    """`read(name, content, **options)` returns a table and the lines that are printed."""

    def read_content(name, content, **options):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        printed = []
        with files.recording(printed.append):
            table = tables.read(str(path), **{"encoding": "", **options})
        return table, printed

    return read_content


@pytest.mark.parametrize(
    ("name", "content", "options"),
    [
        ("a.csv", "text,label\na film,good\n", {}),
        ("a.csv", "\ufefftext , label \r\na film,good\r\n", {}),
        ("a.CSV", '"text","label"\n"a film","good"\n', {}),
        ("a.csv", "text;label\na film;good\n", {"delimiter": ";"}),
        ("a.csv", "sep=;\r\ntext;label\r\na film;good\r\n", {}),
        ("a.csv", '"sep=;"\r\ntext;label\r\na film;good\r\n', {}),
        ("a.csv", "text\tlabel\na film\tgood\n", {"delimiter": "\t"}),
        ("a.tsv", "text,label\na film,good\n", {"delimiter": ","}),
        ("a.csv", "a film|good\n", {"delimiter": "|", "columns": ("text", "label")}),
        ("a.csv", '"text", "label"\n"a film", "good"\n', {}),
        ("a.csv", "text,label,,\na film,good,,\n", {}),
        ("a.csv", "text,label\na film,good,,,\n", {}),
        ("a.csv", "text,label,,\na film,good\n", {}),
        ("a.csv", "text,label\na film,good\n".encode("utf-16"), {}),
        ("a.tsv", "text\tlabel\na film\tgood\n".encode("utf-16-be"), {"encoding": "utf-16-be"}),
        ("a.jsonl", '{"text": "a film", " label": "good"}\n', {}),
        ("a.ndjson", '\ufeff{"text": "a film", "label": "good"}\n', {}),
        ("a.json", '{"text": "a film", "label": "good"}\n', {}),
        ("a.json", '[\n  {"text": "a film",\n   "label": "good"}\n]\n', {}),
    ],
)
def test_the_same_table_in_many_formats(read, name, content, options):
    table, printed = read(name, content, **options)
    assert table.columns[:2] == ("text", "label")
    assert table.column("text") == ["a film"]
    assert table.cleaned("label") == ["good"]
    assert not printed


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        ('text\tlabel\n"a ""good""\nfilm"\tx\nb "c" d\ty\n', ['a "good"\nfilm', 'b "c" d']),
        ('text\tlabel\n"a\tb"\tx\n"c"\ty\n', ["a\tb", "c"]),
        ('"text"\t"label"\n"a ""b"""\t"x"\n"c"\t"y"\n', ['a "b"', "c"]),
    ],
)
def test_quotes_in_a_tsv_enclose_values_if_all_rows_fit_only_then(read, content, texts):
    table, printed = read("a.tsv", content)
    assert (table.column("text"), table.cleaned("label")) == (texts, ["x", "y"])
    assert printed[0].endswith("a.tsv: quotes in it enclose values")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", 'text,label\n"a\nb\n",x\n\nc,y\n"d\n",z\n'),
        ("a.csv", 'sep=;\ntext;label\n"a\n";x\n\nc;y\n"d\n";z\n'),
        ("a.csv", 'text,label\r\n"a\r\nb\r\n",x\r\n\r\nc,y\r\n"d",z'),
        ("a.tsv", 'text\tlabel\n"a\nb\nc"\tx\n\nc\ty\n"d\n"\tz\n'),
    ],
)
def test_the_place_of_a_row_is_its_first_line(read, name, content):
    table, _ = read(name, content)
    rows = [row for row, label in enumerate(table.cleaned("label")) if label]
    found = [table.where(row).partition(f"{name}, ")[2] for row in rows]
    first = 3 if content.startswith("sep") else 2
    assert found == [f"line {first}", "line 6", "line 7"]


def test_other_quotes_in_a_tsv_are_text(read):
    table, printed = read("a.tsv", 'text\tlabel\n"a"\tx\n"b\ty\n')
    assert (table.column("text"), printed) == (['"a"', '"b'], [])


def test_an_open_quote_joins_no_rows(read):
    content = 'text\tlabel\n"open\tx\nb\ty\nshort\nc\tx\nclosed"\ty\n'
    with pytest.raises(DataError, match=r"a\.tsv, line 4: 1 values instead of 2"):
        read("a.tsv", content)


@pytest.mark.parametrize("blank", ["", "  ", "\t"])
def test_a_blank_line_is_a_row_of_empty_values(read, blank):
    table, _ = read("a.tsv", f"text\tlabel\na\tx\n{blank}\nb\ty\n")
    assert [table.cleaned("text"), table.cleaned("label")] == [["a", "", "b"], ["x", "", "y"]]


def test_labels_are_cleaned_and_texts_are_not(read):
    table, _ = read("a.csv", "text, label\n a\u0301 ,\u00a0cafe\u0301 \nb,caf\u00e9\n")
    assert table.column("text") == [" a\u0301 ", "b"]
    assert table.cleaned("label") == ["caf\u00e9"] * 2


def test_quotes_are_text_between_bars(read):
    """As in metadata.csv of LJSpeech."""
    content = 'LJ1|"Well," he said|x\nLJ2|"open|y\n'
    table, _ = read("metadata.csv", content, delimiter="|", columns=("id", "text", "rest"))
    assert table.column("text") == ['"Well," he said', '"open']


def test_quotes_may_be_escaped_by_backslashes(read):
    table, printed = read("a.csv", 'text,label\n"a \\"fine\\", film",good\nbad,b\n')
    assert table.column("text") == ['a "fine", film', "bad"]
    assert len(printed) == 1
    assert printed[0].endswith("a.csv: quotes in it are escaped by backslashes")


def test_backslashes_stay_where_quotes_are_doubled(read):
    table, printed = read("a.csv", 'text,label\n"C:\\new ""x""",\\n\n')
    assert table.rows == [['C:\\new "x"', "\\n"]]
    assert not printed


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "text;label\na, b;good\n", r"one column, 'text;label'.* by ';', set --delimiter"),
        ("a.csv", "text\tlabel\na\tb\n", r"separated by tab, set --delimiter=tab"),
        ("a.tsv", "text,label\na,b\n", r"separated by ',', set --delimiter=','"),
        (
            "a.csv",
            "text,label\na,b,c\n",
            r"line 2: 3 values instead of 2: text, label\. Put .*quotes",
        ),
        ("a.csv", 'text,label\na,"b\nc,d\n', r"a\.csv, line 2: invalid CSV"),
        ("a.csv", 'text,label\n"a\nb",c\n"d\ne,f\n', r"a\.csv, line 4: invalid CSV"),
        ("a.csv", 'text,label\n"a \\" b",c,d\n', r"a\.csv, line 2: invalid CSV"),
        ("a.csv", "text, text\na,b\n", r"more than one column 'text'"),
        ("a.csv", "a\0b,c\n", r"a\.csv, line 1: a NUL byte"),
        ("a.tsv", "a\tb\nc\0\td\n", r"a\.tsv, line 2: a NUL byte"),
        ("a.csv", "text,label\nabc,d\n".encode("utf-16-le"), r"NUL bytes.*--encoding=utf-16-le"),
        ("a.csv", "text,label\nabc,d\n".encode("utf-16-be"), r"NUL bytes.*--encoding=utf-16-be"),
        ("a.csv", b"PK\x03\x04\0\0", r"a\.csv is not text but a ZIP archive, such as of Excel"),
        ("a.csv", b"\x1f\x8b\x08", r"packed with gzip: its name must end in \.gz"),
        ("a.json", "[1]", r"a\.json, item 1: a JSON int instead of an object"),
        ("a.json", '{"text":\n1}', r"a\.json, line 1: it is not JSON.*list of objects"),
        (
            "a.json",
            '{"text": {"0": "a"}, "label": {"0": "b"}}',
            r"one object with text, label, each",
        ),
        ("a.json", '{"data": [{"text": "a"}]}', r"one object with data, .*Write a list of objects"),
        ("a.json", '[{"a": 1, "a ": 2}]', r"more than one key 'a'"),
    ],
)
def test_a_bad_table_is_an_error(read, name, content, message):
    with pytest.raises(DataError, match=message):
        read(name, content)


def test_a_wrong_width_proposes_the_delimiter_of_a_table_without_header(read):
    with pytest.raises(DataError, match=r"line 1: 1 values .*by ';', set --delimiter=';'"):
        read("a.csv", "a;b\n", columns=("text", "label"))


@pytest.mark.parametrize(
    ("name", "delimiter", "content", "message"),
    [
        ("a.csv", ";", "text,label\n", r"no ';' .* its header 'text,label'\. .* leave out --delim"),
        ("a.csv", ";", 'a,"b, c"\n', r"by ',', leave out --delimiter"),
        ("a.csv", "\t", "sep=|\nb|c\n", r"no '\\t' .*'sep=\|'\. .* by '\|', set --delimiter='\|'"),
        ("a.csv", "|", "\ufeff a\tb,c\td\n", r"by tab, set --delimiter=tab"),
        ("a.tsv", ",", "text\tlabel\n", r"no ',' .* by tab, leave out --delimiter"),
        ("a.csv", ";", '"text","label"\n', r"no ';' .* by ',', leave out --delimiter"),
        ("a.csv", ",", "text;label\n", r"no ',' .* by ';', set --delimiter=';'"),
    ],
)
@pytest.mark.parametrize("rows", ['"a "b", c\n', ""])
def test_a_wrong_delimiter_is_told_before_quotes_are_read(
    read, name, delimiter, content, message, rows
):
    with pytest.raises(DataError, match=message):
        read(name, content + rows, delimiter=delimiter)


def test_the_usual_delimiter_is_checked_before_quotes_are_read(read):
    with pytest.raises(DataError, match=r"one column, 'text;label'.* set --delimiter=';'"):
        read("a.csv", 'text;label\n"a";"b "c""\n')
    with pytest.raises(DataError, match=r"line 1: 1 values instead of 2.* set --delimiter=';'"):
        read("a.csv", '"a";b\n', columns=("text", "label"))


@pytest.mark.parametrize("header", ["text\n", '"text,\nof two lines"\n', "text" * 2**15 + "\n"])
def test_one_column_needs_no_delimiter(read, header):
    table, _ = read("a.csv", f'{header}"a, b"\n', delimiter=",")
    assert table.rows == [["a, b"]]


@pytest.mark.parametrize(
    "text",
    [
        "Caf\u00e9 \u00a35",  # few letters, as of an SMS
        "Die gro\u00dfe Stra\u00dfe f\u00fchrt nach M\u00fcnchen und zur\u00fcck 5 \u20ac",
        "it\u2019s a \u201cfine\u201d film \u2013 and more of it than anyone would see",
        "sch\u00f6ne gr\u00fc\u00dfe an \u00f6mer und j\u00fcrgen",
        "un peu de fran\u00e7ais \u00e0 lire: le film n\u2019a pas encore commenc\u00e9",
    ],
)
def test_western_text_is_read_and_a_line_printed(read, text):
    content = f"label,text\nham,plain words without accents\nspam,{text}\n"
    table, printed = read("a.csv", content.encode("cp1252"))
    assert table.column("text")[1] == text
    assert len(printed) == 1
    assert "is not UTF-8: read as Windows-1252 (cp1252)" in printed[0]
    assert read("a.csv", content)[1] == []  # UTF-8


def test_rare_bytes_in_much_ascii_are_western(read):
    """As in spam.csv of Kaggle, whose signs were converted twice, and train_5500.label of TREC."""
    rows = [b"ham,\x89\xdb_ I don\x89\xdb\xf7t, \xcc_ b at \xe5\xa31.50", b"ham,a sister\xf0city"]
    plain = b"ham,plain words that have no signs at all in this row\n" * 100
    table, printed = read(
        "a.csv", b"label,text\n" + plain + b"\n".join(rows).replace(b"t, ", b"t ")
    )
    assert table.column("text")[-1] == "a sister\u00f0city"
    assert len(printed) == 1


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("\u4eca\u5929\u5929\u6c14\u5f88\u597d", "gb18030"),
        ("\u4eca\u65e5\u306f\u3068\u3066\u3082\u3044\u3044\u5929\u6c17", "shift_jis"),
        ("\u0441\u0435\u0433\u043e\u0434\u043d\u044f \u0434\u043e\u0436\u0434\u044c", "cp1251"),
        ("za\u017c\u00f3\u0142\u0107 dzisiaj jest \u0142adna pogoda nad jeziorem", "cp1250"),
        ("bug\u00fcn hava \u00e7ok g\u00fczel de\u011fil mi arkada\u015flar", "cp1254"),
        ("caf\u00e9 d\u00e9j\u00e0 vu in this long row of many plain words", "mac_roman"),
        ("caf\u00e9 d\u00e9j\u00e0 vu in this long row of many plain words", "cp850"),
    ],
)
def test_text_of_other_encodings_needs_the_flag(read, text, encoding):
    content = f"label,text\nham,{text}\n".encode(encoding)
    with pytest.raises(DataError, match=r"a\.csv, line 2, byte \d+: no UTF-8.* --encoding="):
        read("a.csv", content)
    table, printed = read("a.csv", content, encoding=encoding)
    assert table.column("text") == [text]
    assert not printed


# UTF-8 but for rows in Windows-1252, which share the file with others after a join.
MIXED = "label,text\nham,caf\u00e9 na\u00efve\n".encode() + b"ham,words\nham,caf\xe9\n"
MORE = "ham,na\u00efve\n".encode() * 9 + b"ham,\xe9\n" * 5 + b"ham,\x81\n"


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize(
    ("more", "advice"),
    [
        (b"", r"All other lines are UTF-8\. Write line 4 in UTF-8, or remove it$"),
        (MORE, r"Write each of the 7 lines 4, 14, 15, 16, 17, \.\.\. in UTF-8, or remove it$"),
    ],
)
def test_lines_that_are_not_utf8_are_named_if_the_others_are(read, mark, more, advice):
    with pytest.raises(DataError, match=rf"line 4, byte \d+: no UTF-8 .*\. {advice}"):
        read("a.csv", mark + MIXED + more)
    with pytest.raises(DataError, match=rf"no UTF-8 .*\. {advice}"):
        read("a.csv", mark + MIXED + more, encoding=None)


def test_the_encoding_that_failed_is_not_proposed(read):
    with pytest.raises(
        DataError, match=r"line 19: no cp1252|line 19, byte \d+: no cp1252"
    ) as found:
        read("a.csv", MIXED + MORE, encoding="cp1252")
    assert str(found.value).endswith("in UTF-8, or remove it, and leave out --encoding")
    with pytest.raises(DataError, match=r"no cp1252 .*such as --encoding=cp1250 .* or cp1251 \("):
        read("a.csv", b"text,label\n\xe9\x81,a\n", encoding="cp1252")
    with pytest.raises(DataError, match=r"no ascii .*The file is UTF-8: leave out --encoding$"):
        read("a.csv", "text,label\ncaf\u00e9,a\n".encode(), encoding="ascii")


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_lines_that_are_not_utf8_are_named_in_files_of_any_size(tmp_path, mark):
    path = tmp_path / "a.txt"
    path.write_bytes(mark + MIXED)
    with pytest.raises(DataError, match=r"line 4: no UTF-8 .* UTF-8\. Write line 4 in UTF-8, or"):
        list(files.iterate_lines(str(path), ""))
    path.write_bytes(MIXED)
    with pytest.raises(DataError, match=r"no ascii .* Write line 4 in UTF-8, .*leave out --encod"):
        list(files.iterate_lines(str(path), "ascii"))


def test_sources_without_the_flag_read_no_other_encoding(read):
    with pytest.raises(DataError, match=r"no UTF-8 .*\. Convert the file to UTF-8"):
        read("a.csv", "text,label\ncaf\u00e9,good\n".encode("cp1252"), encoding=None)


def test_a_wrong_encoding_is_named(read):
    with pytest.raises(DataError, match=r"line 2, byte 11: no cp932"):
        read("a.csv", b"text,label\n\x85\xff,x\n", encoding="cp932")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32", "gb18030", "shift_jis"])
def test_lines_are_equal_however_they_are_read(tmp_path, encoding):
    path = tmp_path / "a.txt"
    lines = ["\u4eca\u65e5", "", "\u010a\u0a00\u0a0a" if "utf" in encoding else "x", "end"]
    path.write_bytes("\r\n".join(lines).encode(encoding))
    given = "" if "utf" in encoding else encoding
    assert list(files.iterate_lines(str(path), given)) == lines
    assert [line.decode() for line in files.read_lines(str(path), given)] == lines
    assert files.read_text(str(path), given) == "\r\n".join(lines)


def test_lines_of_western_text_are_read_one_by_one(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"plain words\n" * 5 + b"caf\xe9\nna\xefve\n")
    with files.recording() as opened:
        assert list(files.iterate_lines(str(path), ""))[-2:] == ["caf\u00e9", "na\u00efve"]
    assert opened == {str(path)}
    with pytest.raises(DataError, match=r"a\.txt, line 6: no UTF-8"):
        list(files.iterate_lines(str(path)))


def test_values_of_json_are_text(read):
    values = {"text": None, "flag": True, "number": 2, "list": [1]}
    assert read("a.json", json.dumps([values]))[0].rows == [[None, "true", "2", "[1]"]]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", "".join(f'{{"key{i}": 1}}\n' for i in range(70))),
        ("a.csv", "text,label" + "," * 4000 + "\n" + " \n" * 4000),
        ("a.tsv", "text\tlabel" + "\t" * 4000 + "\n" + "x\ty\n" * 4000),
    ],
)
def test_a_table_of_missing_values_is_refused_before_it_fills_the_memory(
    read, monkeypatch, name, content
):
    """Rows times columns grow with the square of the file: 1 MB would become 4 GB."""
    monkeypatch.setattr(delimited, "_SMALL_TABLE", 4000)
    with pytest.raises(
        DataError, match=rf"{name} has \d+ rows and \d+ different columns, and only"
    ):
        read(name, content)


def test_a_small_table_may_have_other_keys_in_each_row(read):
    table, _ = read("a.jsonl", "".join(f'{{"key{i}": 1}}\n' for i in range(100)))
    assert [row.count("1") for row in table.rows] == [1] * 100


@pytest.mark.parametrize("flag", [{"columns": ("a", "b")}, {"delimiter": ";"}])
def test_flags_of_text_tables_have_no_effect_on_json(tmp_path, flag):
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n')
    with pytest.raises(DataError, match=f"--{next(iter(flag))} has no effect on .*JSON names its"):
        tables.read_with(Options("text_files", **flag), str(tmp_path / "a.jsonl"))
