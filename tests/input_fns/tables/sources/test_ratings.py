"""MovieLens files and CSV: formats, the leave-one-out split, ids, negatives, invalid rows."""

import numpy as np
import pytest

from input_fns import DataError, convert, dataset_info
from input_fns.convert.options import Options
from input_fns.core import inspection
from input_fns.tables.sources import ratings
from tests import ratings_data

# User a: item x at time 1, y and z at time 2 in this order, w at time 3. b has 2 items.
ROWS = [
    ("a", "w", 5, 3),
    ("b", "y", 1, 1),
    ("a", "y", 4, 2),
    ("a", "z", 3, 2),
    ("a", "x", 2, 1),
    ("b", "x", 2, 2.5),
]


def read(source, **options):
    return convert.read(Options("ratings", source=str(source), **options))


def ids(raw, split):
    """Returns `[(user, item)]` as ids, sorted."""
    users, items = (
        [line.split("\t")[0] for line in raw.files[name].decode().splitlines()]
        for name in (raw.kind.users, raw.kind.items)
    )
    part = raw.splits[split]
    return sorted((users[user], items[item]) for user, item in zip(part.users, part.items))


@pytest.mark.parametrize(
    ("name", "separator", "header"),
    [
        ("u.data", "\t", None),
        ("ratings.dat", "::", None),
        ("ratings.csv", ",", ("userId", "movieId", "rating", "timestamp")),
        ("ratings.csv", ",", ("user", "item", "rating", "time")),
    ],
)
def test_formats_have_the_same_leave_one_out_split(tmp_path, name, separator, header):
    found = [header, *ROWS] if header else ROWS
    raw = read(ratings_data.write(tmp_path, found, name, separator))
    assert ids(raw, "test") == [("a", "w")]
    assert ids(raw, "validation") == [("a", "z")]  # after y in the file
    assert ids(raw, "train") == [("a", "x"), ("a", "y"), ("b", "x"), ("b", "y")]


def test_without_validation_its_interactions_are_in_train(tmp_path):
    ratings_data.write(tmp_path, ROWS)
    raw, both = read(tmp_path, validation_fraction=0.0), read(tmp_path)
    assert [*raw.splits] == ["train", "test"]
    assert ids(raw, "test") == ids(both, "test")
    assert ids(raw, "train") == sorted(ids(both, "train") + ids(both, "validation"))
    with pytest.raises(DataError, match="already has a split 'validation'"):
        read(tmp_path, validation_fraction=0.5)


def test_csv_without_ratings_and_with_quotes(tmp_path):
    rows = [("time", "item", "user"), *((t, f'"{i},1"', u) for u, i, _, t in ROWS)]
    raw = read(ratings_data.write(tmp_path, rows, "clicks.csv", ",") / "clicks.csv")
    assert ids(raw, "test") == [("a", "w,1")]


def test_items_are_in_the_order_of_their_popularity(tmp_path):
    raw = read(ratings_data.write(tmp_path, ROWS))
    assert raw.files[raw.kind.users].decode() == "a\nb\n"
    assert raw.files[raw.kind.items].decode() == "y\t2\nx\t2\nw\t0\nz\t0\n"


def test_the_last_of_equal_interactions_counts(tmp_path):
    raw = read(ratings_data.write(tmp_path, [*ROWS, ("a", "x", 1, 9), ("b", "y", 1, 0)]))
    assert ids(raw, "test") == [("a", "x")]
    assert ids(raw, "validation") == [("a", "w")]
    assert raw.kind.left_out == {"earlier interactions of the same user and item": 2}


def test_negatives_are_fixed_and_no_interactions(tmp_path):
    found = ratings_data.rows()
    data = ratings_data.prepare(tmp_path / "raw", found, tmp_path / "data")
    users, items = ratings_data.indices(data)
    seen = {(users[user], items[item]) for user, item, _, _ in found}
    raw = read(tmp_path / "raw")
    other = read(tmp_path / "raw", seed=1)
    for split in ("validation", "test"):
        rows = raw.splits[split].users
        content = raw.files[raw.kind.negatives[split]]
        negatives = np.frombuffer(content, "<i4").reshape(len(rows), 99)
        for user, row in zip(rows, negatives):
            drawn = row[row >= 0]
            assert (
                len(set(drawn))
                == len(drawn)
                == min(99, len(items) - sum(u == user for u, _ in seen))
            )
            assert not any((user, item) in seen for item in drawn)
        assert (tmp_path / "data" / data.kind.negatives[split]).read_bytes() == content
        assert other.files[other.kind.negatives[split]] != content


def test_negatives_are_uniform():
    users, items = np.zeros(3, int), np.array([0, 4, 7])
    rows = np.zeros(300, int)
    drawn = ratings.draw_negatives(users, items, 203, rows, 0)
    counts = np.bincount(drawn.ravel(), minlength=203)
    assert not counts[items].any()
    # Each of the 200 others is in a row with probability 99/200: 148.5, sigma 8.7.
    assert abs(np.delete(counts, items) - 148.5).max() < 5 * 8.7


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("a\tx\t1", "line 2: 3 values instead of 4"),
        ("a\tx\tgood\t3", "line 2: the rating 'good' is not a number"),
        ("a\tx\t1\tnan", "line 2: the time 'nan' is not a number"),
        ("\tx\t1\t3", "line 2: '' is not a valid user id"),
        ("a\t\x07\t1\t3", "line 2: .* is not a valid item id"),
    ],
)
def test_invalid_rows_are_one_error(tmp_path, line, message):
    path = ratings_data.write(tmp_path, ROWS) / "u.data"
    first, rest = path.read_text().split("\n", 1)
    path.write_text(f"{first}\n{line}\n{line}\n{rest}")
    with pytest.raises(DataError, match=message) as error:
        read(tmp_path)
    assert "(2 such lines). Correct or remove them" in str(error.value)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "ratings.csv",
            "fan,film\na,b\n",
            "line 1: the header must have a column of users .* fan, film",
        ),
        ("ratings.csv", "a,b,5,1\n", "name all columns, such as --columns=user,item,rating,time"),
        (
            "ratings.csv",
            "a,b,5,1e9,1\n",
            "name all columns, such as --columns=user,item,rating,time",
        ),
        ("x.csv", '"user";"item";"time"\n', "separated by ';', set --delimiter=';'"),
        ("ratings.csv", "user;item;time\na;b;1\n", "separated by ';', set --delimiter=';'"),
        (
            "ratings.csv",
            "user,item,asin\n",
            "columns 'item' and 'asin': choose one with --item_column",
        ),
        ("ratings.csv", "user,item,time,time\n", "line 1: more than one column 'time'"),
        ("ratings.csv", 'user,item,time\n"a\nb",x,1\n', "line 2: 'a.*nb' is not a valid user id"),
        (
            "ratings.csv",
            'user,item,time\n"a\n",x,1\nb,"y\n,1\nc,x,1\n',
            "line 4: invalid CSV",
        ),
        ("ratings.csv", "user,item,date\na,x,5 Mar\n", "the time '5 Mar' is neither a number nor"),
        ("ratings.csv", "user,item,date\na,x,2005-04-02\na,y,1\n", "the time '1' is neither"),
        ("ratings.csv", "user,item,date\na,x,\na,y,2005-04-02\n", "the time '' is neither"),
        ("u.tsv", "7\tSkyrim\tpurchase\t1.0\n", "name all columns"),
        ("u.tsv", "fan\tfilm\tstars\tday\na\tb\t1\t2\n", "the header must have a column of users"),
        ("ratings.csv", "", "has no interactions"),
        ("ratings.csv", 'user,item,time\n"a,x,1\n', "invalid CSV"),
        ("u.data", "", "has no interactions"),
        ("u.data", "a\tx\t1\t1\na\ty\t1\t1\n", "no user has 3 items"),
        ("u.data.txt", "", "has no file such as u.data"),
    ],
)
def test_invalid_files(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=message):
        read(tmp_path)


def test_two_files_and_an_unknown_extension(tmp_path):
    ratings_data.write(tmp_path, ROWS)
    ratings_data.write(tmp_path, ROWS, "ratings.dat", "::")
    with pytest.raises(DataError, match=r"has ratings.dat, u.data: name one of them"):
        read(tmp_path)
    (tmp_path / "u.item").touch()
    with pytest.raises(DataError, match=r"a file that ends in .data, .tsv"):
        read(tmp_path / "u.item")


def test_dataset_json_is_read_back_and_files_are_checked(tmp_path):
    data = ratings_data.prepare(tmp_path / "raw", ratings_data.rows(), tmp_path / "data")
    assert dataset_info.read(data.data_dir) == data
    assert not list(inspection.file_problems(data, data.splits))
    path = tmp_path / "data" / data.kind.negatives["test"]
    path.write_bytes(path.read_bytes()[:-4] + b"\0\0\0\0")
    (problem,) = inspection.file_problems(data, data.splits)
    assert "has changed: its checksum" in problem


def test_new_data_replaces_all_files(tmp_path):
    ratings_data.prepare(tmp_path / "raw", ratings_data.rows(), tmp_path / "data")
    data = ratings_data.prepare(tmp_path / "raw", ratings_data.rows(seed=1), tmp_path / "data")
    shards = [shard.name for split in data.splits.values() for shard in split.shards]
    names = {path.name for path in (tmp_path / "data").iterdir()}
    assert names == {"dataset.json", *data.kind.files, *shards}


# Headers, and rows (user, item, rating, time) as each file has them.
HEADERS = [
    ("userID,itemID,rating,timestamp", "{0},{1},{2},{3}"),
    ("reviewerID,asin,overall,unixReviewTime", "{0},{1},{2},{3}"),
    ("rating,User-ID,ISBN,date", "{2}, {0}, {1}, 2005-04-0{3} 10:00:00"),
    ("\ufeffuser_id , book_id , rating,time,", "{0},{1},{2},{3},"),
]


@pytest.mark.parametrize(("header", "row"), HEADERS)
def test_usual_names_of_columns_are_found(tmp_path, header, row):
    found = [(user, item, rating, int(time * 2)) for user, item, rating, time in ROWS]
    lines = [header, *(row.format(*values) for values in found)]
    (tmp_path / "x.csv").write_text("\n".join(lines))
    raw = read(tmp_path)
    assert ids(raw, "test") == [("a", "w")]
    assert ids(raw, "validation") == [("a", "z")]


@pytest.mark.parametrize(
    ("flags", "name", "header"),
    [
        (
            {"user_column": "fan", "item_column": "film", "time_column": "day"},
            "x.csv",
            "fan,film,note,day\n",
        ),
        (
            {
                "columns": ("fan", "film", "note", "time"),
                "user_column": "fan",
                "item_column": "film",
            },
            "x.csv",
            "",
        ),
        ({"columns": ("user", "item", "note", "time")}, "x.csv", ""),
        ({"columns": ("user", "item", "note", "time"), "delimiter": ","}, "x.log", ""),
    ],
)
def test_flags_name_the_columns(tmp_path, flags, name, header):
    rows = "\n".join(f"{user},{item},bought,{time}" for user, item, _, time in ROWS)
    (tmp_path / name).write_text(header + rows)
    raw = read(tmp_path / name, **flags)
    assert ids(raw, "test") == [("a", "w")]
    assert ids(raw, "validation") == [("a", "z")]


def test_semicolons_and_an_encoding(tmp_path):
    lines = ['"User-ID";"ISBN";"Book-Rating"', *(f'"\u00e9";"{item}";"0"' for item in "xyz")]
    (tmp_path / "BX-Book-Ratings.csv").write_bytes("\n".join(lines).encode("latin-1"))
    raw = read(tmp_path, delimiter=";", encoding="latin-1")
    assert ids(raw, "test") == [("\u00e9", "z")]


def test_the_first_line_of_excel_names_the_delimiter(tmp_path):
    rows = "".join(f"1;{item};5;{item}\n" for item in (3, 4, 5))
    (tmp_path / "ratings.csv").write_text(f"sep=;\nuserId;movieId;rating;timestamp\n{rows}")
    assert ids(read(tmp_path), "test") == [("1", "5")]


def test_without_times_the_order_of_the_file_counts_and_is_printed(tmp_path):
    (tmp_path / "ratings.csv").write_text("user_id,item_id,rating\n" + "a,x,1\na,z,5\na,y,2\n")
    printed = []
    raw = convert.read(Options("ratings", source=str(tmp_path)), printed.append)
    assert ids(raw, "test") == [("a", "y")]
    assert ids(raw, "validation") == [("a", "z")]
    (line,) = printed
    assert line.endswith("without a column of times, interactions are in the order of the file")


@pytest.mark.parametrize("has_item_first", [False, True])
def test_amazon_ratings_without_a_header(tmp_path, has_item_first):
    rows = [(f"B00{item}", f"A1Q{user}00000", t) for item, user, t in ("xa4", "yb3", "za5", "wa6")]
    lines = []
    for item, user, time in rows:
        pair = (item, user) if has_item_first else (user, item)
        lines.append(f"{pair[0]},{pair[1]},5.0,136{time}212800".upper())
    (tmp_path / "ratings_Toys.csv").write_text("\n".join(lines))
    printed = []
    raw = convert.read(Options("ratings", source=str(tmp_path)), printed.append)
    assert ids(raw, "test") == [("A1QA00000", "B00W")]
    order = "item, user" if has_item_first else "user, item"
    assert f"no header line: its columns are read as {order}, rating, time" in printed[0]


def test_other_files_are_counted(tmp_path):
    ratings_data.write(tmp_path, ROWS, "ratings.csv", ",")
    text = (tmp_path / "ratings.csv").read_text()
    (tmp_path / "ratings.csv").write_text("user,item,rating,time\n" + text)
    for name in ("movies.csv", "tags.csv", "README.txt"):
        (tmp_path / name).write_text("1,2\n")
    raw = read(tmp_path)
    assert raw.left_out.counts == {
        ".csv files that are not used": 2,
        ".txt files that are not used": 1,
    }
    (tmp_path / "ratings.csv").unlink()
    with pytest.raises(DataError, match=r"has movies.csv, tags.csv: name one of them, such as --"):
        read(tmp_path)


def test_a_column_that_is_not_used_may_have_long_texts(tmp_path):
    rows = "".join(f'a,{item},{i},"{"long " * 30_000}"\n' for i, item in enumerate("wxyz"))
    (tmp_path / "ratings.csv").write_text(f"user,item,time,review\n{rows}")
    assert read(tmp_path)
