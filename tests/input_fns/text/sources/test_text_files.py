"""Tables of text with labels."""

import gzip
import lzma

import pytest

from input_fns import DataError, dataset_info
from input_fns.convert import table_parts, writer
from input_fns.core import inspection
from input_fns.text.token_pipeline import TokenPipeline
from tests.input_fns.text.sources import text_data


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "texts"
    path.mkdir()
    text_data.vocab_file(tmp_path)
    return path


def read(folder, **options):
    options = {"text_columns": ("text",), "label_columns": ("label",), **options}
    options = {"validation_fraction": 0.0, **options}
    vocabulary = options.pop("vocabulary", folder.parent / "vocab.txt")
    return text_data.read("text_files", folder, vocabulary, **options)


ROWS = {
    "tsv": 'text\tlabel\n"good" film\tgood\nbad, film\tbad\n',
    "csv": 'text,label\n"""good"" film",good\n"bad, film",bad\n',
    "jsonl": '{"text": "\\"good\\" film", "label": "good"}\n{"label": "bad", "text": "bad, film"}',
}


@pytest.mark.parametrize("extension", ROWS)
@pytest.mark.parametrize("pack", [None, gzip.compress, lzma.compress])
def test_formats_hold_the_same_texts(folder, extension, pack):
    content, ending = ROWS[extension].encode(), {gzip.compress: ".gz", lzma.compress: ".xz"}
    name = f"train.{extension}{ending.get(pack, '')}"
    (folder / name).write_bytes(pack(content) if pack else content)
    raw, _ = read(folder)
    assert raw.class_names == ("bad", "good")
    split = raw.splits["train"]
    found = {(text, raw.class_names[i]) for text, i in zip(text_data.texts(split), split.labels)}
    assert found == {
        ("[CLS] [UNK] good [UNK] film [SEP]", "good"),
        ("[CLS] bad , film [SEP]", "bad"),
    }


def test_the_name_of_a_file_is_its_split(folder):
    for name in ("train.tsv", "dev.csv", "test.jsonl"):
        (folder / name).write_text(ROWS[name.split(".")[-1]])
    (folder / "README.md").write_text("no table")
    raw, _ = read(folder)
    assert set(raw.splits) == {"train", "validation", "test"}
    assert raw.left_out.counts == {".md files that are not used": 1}


@pytest.mark.parametrize(
    "names",
    [
        ("Training.csv", "Validation.csv", "Test.csv"),
        ("reviews_train.csv", "reviews_dev.csv", "reviews_test.csv"),
        ("imdb-TRAIN.csv", "imdb-Val.csv", "imdb-TEST.csv"),
        ("TrainSet.csv", "DevSet.csv", "TestSet.csv"),
        ("a.train.csv", "a.valid.csv", "a.test.csv"),
    ],
)
def test_names_of_splits_have_many_forms(folder, names):
    for name in names:
        (folder / name).write_text(ROWS["csv"])
    assert list(read(folder)[0].splits) == ["train", "validation", "test"]


def test_a_file_without_a_split_is_named_beside_others(folder):
    for name in ("train.csv", "more.csv"):
        (folder / name).write_text(ROWS["csv"])
    message = r"more\.csv has no split, while train\.csv is 'train'.*--split_files=train=train\.csv"
    with pytest.raises(DataError, match=message):
        read(folder)
    assert list(read(folder, skip=("more*",))[0].splits) == ["train"]
    given = read(folder, split_files=("train=train.csv", "test=more.csv"))[0]
    assert list(given.splits) == ["train", "test"]


def test_json_that_describes_data_is_no_table_beside_tables(folder):
    (folder / "train.csv").write_text(ROWS["csv"])
    (folder / "dataset_info.json").write_text('{"features": 2}')
    raw, _ = read(folder)
    assert raw.left_out.counts == {".json files that are not used": 1}


def test_labels_are_one_class_whatever_spaces_are_around_them(folder):
    (folder / "train.csv").write_text("text, label\nfilm,cat\ngood, cat \ndog,dog\nbad,dog\u00a0\n")
    raw, _ = read(folder)
    assert raw.class_names == ("cat", "dog")
    assert sorted(raw.splits["train"].labels.tolist()) == [0, 0, 1, 1]
    raw, _ = read(folder, class_names=("dog ", "cat"))
    assert raw.class_names == ("dog", "cat")


def test_rows_without_a_text_are_left_out_and_counted(folder):
    (folder / "train.csv").write_text("text,label\nfilm,g\n ,g\nbad,b\n,b\n")
    raw, _ = read(folder)
    assert len(raw.splits["train"]) == 2
    assert raw.kind.splits["train"].left_out == {"rows without a text": 2}
    path = folder / "train.csv"
    assert list(raw.left_out.lines()) == [
        f"left out: 2 rows without a text, for example {path}, line 3, {path}, line 5"
    ]


def test_blank_lines_of_a_tsv_are_counted(folder):
    (folder / "train.tsv").write_text(f"{HEADER}good\tg\n\nbad\tb\n  \n")
    raw, _ = read(folder)
    assert raw.left_out.counts == {"rows without a text": 2}
    assert len(raw.splits["train"]) == 2


def test_rows_to_predict_need_a_text(folder):
    (folder / "train.csv").write_text(ROWS["csv"])
    (folder / "test.csv").write_text("text\nfilm\n \n")
    with pytest.raises(DataError, match=r"test\.csv, line 3: no text in column 'text'"):
        read(folder)


def test_all_rows_to_predict_without_a_text_are_counted(folder):
    (folder / "train.csv").write_text(ROWS["csv"])
    (folder / "test.csv").write_text('text\n"good\nfilm"\n \nbad\n""\n')
    message = (
        r"test\.csv, line 4: no text in column 'text' \(the first of 2 such rows\)\. Remove them"
    )
    with pytest.raises(DataError, match=message):
        read(folder)


@pytest.mark.parametrize("label", ["", "-1"])
def test_rows_of_a_file_without_labels_are_not_left_out(folder, label):
    (folder / "train.csv").write_text(ROWS["csv"])
    (folder / "test.csv").write_text(f"text,label\nfilm,{label}\n ,{label}\n")
    with pytest.raises(
        DataError, match=r"test\.csv, line 3: no text in column 'text'\. Remove the"
    ):
        read(folder)


PAIRS = {"text_columns": ("title", "text")}


@pytest.mark.parametrize("part_bytes", [None, 8])
@pytest.mark.parametrize("truncate", ["end", "windows"])
def test_one_text_of_a_pair_may_be_empty(folder, monkeypatch, part_bytes, truncate):
    if part_bytes:  # a `LargeTable`
        monkeypatch.setattr(table_parts, "_PART_BYTES", part_bytes)
    rows = "good,the film,g\n,bad film,b\nbad, ,b\n , ,g\ngood,film,g\n"
    (folder / "train.csv").write_text("title,text,label\n" + rows)
    (folder / "test.csv").write_text("title,text\n,bad\ngood,\n")
    raw, lines = read(folder, **PAIRS, truncate=truncate, doc_stride=4)
    assert sorted(text_data.texts(raw.splits["train"])) == [
        "[CLS] [SEP] bad film [SEP]",
        "[CLS] bad [SEP] [SEP]",
        "[CLS] good [SEP] film [SEP]",
        "[CLS] good [SEP] the film [SEP]",
    ]
    assert text_data.texts(raw.splits["test"]) == [
        "[CLS] [SEP] bad [SEP]",
        "[CLS] good [SEP] [SEP]",
    ]
    assert raw.kind.splits["train"].left_out == {"rows without a text": 1}
    place = f"{folder / 'train.csv'}, line 5"
    assert list(raw.left_out.lines()) == [f"left out: 1 rows without a text, for example {place}"]
    assert "test: 2 of them have a text without tokens, such as an empty one" in lines


def test_json_without_one_text_of_a_pair(folder):
    rows = '{"title": null, "text": "dog", "label": "a"}\n{"title": "film", "label": "b"}\n'
    (folder / "train.jsonl").write_text(rows)
    raw, _ = read(folder, **PAIRS)
    found = sorted(text_data.texts(raw.splits["train"]))
    assert found == ["[CLS] [SEP] dog [SEP]", "[CLS] film [SEP] [SEP]"]


def test_pairs_to_predict_need_one_text(folder):
    (folder / "train.csv").write_text("title,text,label\ngood,film,g\nbad,film,b\n")
    (folder / "test.csv").write_text("title,text\n,film\n,\n , \n")
    message = r"line 3: no text in columns 'title' and 'text' \(the first of 2 such rows\)"
    with pytest.raises(DataError, match=message):
        read(folder, **PAIRS)


@pytest.mark.parametrize("splits", [("train", "test"), ("train", "dev")])
def test_a_group_is_in_one_of_the_given_splits(folder, splits):
    for name, group in zip(splits, ("a", "b")):
        (folder / f"{name}.csv").write_text(f"text,label,by\nfilm,g,{group}\nbad,b, x \n")
    message = r"the group 'x' of --group_column=by is in 'train' and in '(test|validation)'"
    with pytest.raises(DataError, match=message):
        read(folder, group_column="by")
    assert len(read(folder)[0].splits) == 2  # equal texts may be in both


def test_one_table_may_have_groups_in_two_splits_of_a_column(folder):
    rows = "film,g,a,train\nbad,b,b,train\ngood,g,b,dev\n"
    (folder / "all.csv").write_text("text,label,by,part\n" + rows)
    with pytest.raises(DataError, match=r"the group 'b' of --group_column=by is in 'train' and in"):
        read(folder, group_column="by", split_column="part")


def test_one_file_may_be_the_source(folder):
    (folder / "reviews.csv").write_text(ROWS["csv"])
    raw, _ = read(folder / "reviews.csv", vocabulary=folder.parent / "vocab.txt")
    assert len(raw.splits["train"]) == 2


def test_a_table_alone_is_train_unless_it_has_the_name_of_another_split(folder):
    (folder / "reviews.csv").write_text(ROWS["csv"])
    assert list(read(folder)[0].splits) == ["train"]
    (folder / "reviews.csv").rename(folder / "test.csv")
    assert list(read(folder)[0].splits) == ["test"]


def test_columns_names_the_columns_of_files_without_a_header_line(folder):
    (folder / "train.tsv").write_text("1\tx\tgood film\tis good\n0\ty\tbad\tfilm\n")
    (folder / "test.tsv").write_text("1\tx\tgood\tfilm\n")
    columns = ("label", "id", "a", "b")
    raw, _ = read(folder, columns=columns, text_columns=("a", "b"))
    assert raw.kind.has_pairs
    assert text_data.texts(raw.splits["test"]) == ["[CLS] good [SEP] film [SEP]"]
    assert raw.splits["test"].labels.tolist() == [1]


def test_classes_that_are_numbers_are_in_their_order(folder):
    rows = "".join(f"dog {i}\t{i}\n" for i in (10, 9, 2.5))
    (folder / "train.tsv").write_text("text\tlabel\n" + rows)
    assert read(folder)[0].class_names == ("2.5", "9", "10")


def test_numbers_that_are_read_as_classes_are_told(folder):
    (folder / "train.csv").write_text("text,stars\ngood,3.37\nbad,-1\nfilm,2e-1\ndog,4\n")
    raw, lines = read(folder, label_columns=("stars",))
    assert len(raw.class_names) == 4
    assert (
        "split 'train', column 'stars': 4 classes, all of them numbers, such as '2e-1'. To predict "
        "the number, use --task=regression"
    ) in lines
    _, lines = read(folder, label_columns=("stars",), class_names=("-1", "2e-1", "3.37", "4"))
    assert "--task" not in " ".join(lines)


@pytest.mark.parametrize("number", [int, float, "level {}".format])
def test_names_of_classes_may_be_whole_numbers(folder, number):
    rows = "".join(f"dog {i},{number(i % 23)}\n" for i in range(46))
    (folder / "train.csv").write_text("text,label\n" + rows)
    assert "--task" not in " ".join(read(folder)[1])


def test_whole_numbers_that_hardly_repeat_are_told(folder):
    rows = "".join(f"dog {i},{100 * i}\n" for i in range(23))
    (folder / "train.csv").write_text("text,price\n" + rows)
    _, lines = read(folder, label_columns=("price",))
    assert "column 'price': 23 classes, all of them numbers, such as '0'" in " ".join(lines)


def test_a_column_may_name_the_splits(folder):
    rows = "good\tg\ttrain\nbad\tb\tTrain \nfilm\tg\tdev\n"
    (folder / "all.tsv").write_text("text\tlabel\tpart\n" + rows)
    raw, _ = read(folder, split_column="part")
    assert {name: len(split) for name, split in raw.splits.items()} == {
        "train": 2,
        "validation": 1,
    }


def test_equal_texts_stay_in_one_split(folder):
    rows = "".join(f"dog {i % 10}\t{i % 2}\n" for i in range(40))
    (folder / "train.tsv").write_text("text\tlabel\n" + rows)
    splits = read(folder, validation_fraction=0.3)[0].splits
    train, validation = (set(text_data.texts(splits[name])) for name in ("train", "validation"))
    assert validation
    assert not train & validation


@pytest.mark.parametrize(
    "rows",
    [
        "id\ttext\n0\tgood\n1\tbad\n",
        "text\tlabel\ngood\t\nbad\t\n",
        "text\tlabel\ngood\t-1\nbad\t-1\n",
    ],
)
@pytest.mark.parametrize("task", ["classification", "regression"])
def test_a_split_without_labels_can_be_predicted(folder, rows, task):
    numbers = ROWS["tsv"].replace("\tgood\n", "\t1\n").replace("\tbad\n", "\t0\n")
    (folder / "train.tsv").write_text(numbers)
    (folder / "test.tsv").write_text(rows)
    raw, lines = read(folder, task=task)
    assert [split.has_labels for split in raw.splits.values()] == [
        True,
        # A score may be -1.
        task == "regression" and "-1" in rows,
    ]
    assert text_data.texts(raw.splits["test"]) == ["[CLS] good [SEP]", "[CLS] bad [SEP]"]
    why = "" if "label" in rows else " (no column 'label')"
    line = f"test: no labels{why}, so only --mode=predict can use it"
    assert (line in lines) != raw.splits["test"].has_labels


def test_validation_is_held_out_beside_texts_to_predict(folder):
    rows = "".join(f"dog {i}\t{i % 2}\n" for i in range(40))
    (folder / "train.tsv").write_text(HEADER + rows)
    (folder / "test.tsv").write_text("text\ngood\n")
    raw, _ = read(folder, validation_fraction=None)
    assert {name: len(split) for name, split in raw.splits.items()} == {
        "train": 36,
        "validation": 4,
        "test": 1,
    }
    (folder / "dev.tsv").write_text("text\ngood\n")
    assert len(read(folder, validation_fraction=None)[0].splits["train"]) == 40


def test_texts_to_predict_alone_get_the_classes_of_a_data_set(folder, tmp_path):
    (folder / "train.tsv").write_text(ROWS["tsv"])
    writer.write(read(folder)[0], str(tmp_path / "prepared"))
    new = tmp_path / "new.csv"
    new.write_text("text\ngood film\n")
    raw, _ = read(new, vocabulary=tmp_path / "prepared", label_columns=())
    assert raw.class_names == ("bad", "good")
    assert [(name, split.has_labels) for name, split in raw.splits.items()] == [("test", False)]
    options = {"vocabulary": tmp_path / "vocab.txt", "label_columns": ()}
    with pytest.raises(DataError, match=r"'test' has no labels; its columns are text\. To"):
        read(new, **options)
    raw, _ = read(new, **options, class_names=("b", "a"))
    assert raw.class_names == ("b", "a")
    new.write_text("text,stars\ngood film,1\n")
    message = r"are text, stars\. If a column has the labels, name it with --label_columns\. To"
    with pytest.raises(DataError, match=message):
        read(new, **options)
    new.write_text("text,stars\ngood film,1\n,2\n")
    with pytest.raises(DataError, match=r"no text .* If a column has the labels, name it with"):
        read(new, **options)
    with pytest.raises(DataError, match=r"no text in column 'text'\. Remove .*, or add text$"):
        read(new, vocabulary=tmp_path / "prepared", label_columns=())


@pytest.mark.parametrize("names", [("all.csv",), ("test.csv",), ("dev.csv", "test.csv")])
@pytest.mark.parametrize("row", ["good,1", ",1"])
def test_an_unknown_label_column_is_named(folder, names, row):
    for name in names:
        (folder / name).write_text(f"text,stars\n{row}\n")
    message = (
        rf"{names[0]} has no column 'star'; it has: text, stars\. .* leave out --label_columns"
    )
    with pytest.raises(DataError, match=message):
        read(folder, label_columns=("star",))


def test_train_needs_the_label_column_that_test_has(folder):
    (folder / "train.csv").write_text("text,label\ngood,g\n")
    (folder / "test.csv").write_text("text,stars\ngood,g\n")
    with pytest.raises(DataError, match=r"train\.csv has no column 'stars'; it has: text, label"):
        read(folder, label_columns=("stars",))


def test_the_missing_label_column_of_a_test_is_printed(folder):
    (folder / "train.csv").write_text(ROWS["csv"])
    (folder / "test.csv").write_text("text,labels\ngood,good\n")
    _, lines = read(folder)
    assert "test: no labels (no column 'label'), so only --mode=predict can use it" in lines


def test_missing_labels_of_some_rows_are_an_error(folder):
    (folder / "train.tsv").write_text(ROWS["tsv"])
    (folder / "test.tsv").write_text(HEADER + "good\tgood\nbad\t\n")
    message = r"test\.tsv, line 3: no label\. .* a file without any labels can be prepared for --mo"
    with pytest.raises(DataError, match=message):
        read(folder)


HEADER = "text\tlabel\n"


def test_missing_labels_are_counted(folder):
    (folder / "train.tsv").write_text(HEADER + "good\tg\nbad\t\nfilm\tb\nthe\t \nis\t\n")
    message = r"line 3: no label \(the first of 3 such rows\)\. Remove them, or add their labels"
    with pytest.raises(DataError, match=message):
        read(folder)


def test_unknown_labels_are_counted(folder):
    (folder / "train.tsv").write_text(ROWS["tsv"])
    (folder / "dev.tsv").write_text(HEADER + "good\tgood\nbad\tugly\nfilm\tfine\nthe\tugly\n")
    message = r"dev\.tsv, line 3: unknown label 'ugly' \(the first of 3 such rows\); the 2 classes"
    with pytest.raises(DataError, match=message):
        read(folder)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (HEADER + "good\tg\nbad\n", r"train\.tsv, line 3: 1 values instead of 2: text, label"),
        (HEADER + "good\tg\nbad\tb\tx\n", r"line 3: 3 values instead of 2"),
        (HEADER + "  \tg\n\tb\n", r"line 2: no text in column 'text'"),
        (HEADER + "good\tg\nbad\t\n", r"line 3: no label"),
        (HEADER + "good\tg\nbad\tb\x1b[1m\n", r"line 3: the label 'b\\x1b\[1m' has control"),
        (HEADER.encode() + b"good\tg\nb\xffd\tb\n", r"train\.tsv, line 3, byte 19: no UTF-8"),
        ("text\ttext\ngood\tg\n", r"more than one column 'text'"),
        ("label\tid\ng\t1\n", r"no column 'text'; it has: label, id"),
        ("x" * 9999 + "\tb\n", r"no column 'text'; it has: x{60}\.\.\., b\. If"),
        (
            "text\tstars\ngood\t1\n",
            r"train\.tsv has no column 'label'; it has: text, stars",
        ),
        (HEADER + "good\t1\nbad\t1.0\n", r"'train': the labels '1' and '1\.0' are one number"),
        (HEADER + "good\t1\nbad\t01\n", r"'train': the labels '01' and '1' are one number"),
        (HEADER + "good\t1.0\nbad\tnan\n", r"line 3: the label 'nan' stands for a missing one"),
        (HEADER + "good\tg\nbad\tg\n", r"all texts of 'train' have the label 'g'"),
        ("", r"train\.tsv is empty"),
        (HEADER, r"split 'train' of .* has no texts"),
    ],
)
def test_a_bad_table_is_an_error(folder, content, message):
    data = content if isinstance(content, bytes) else content.encode()
    (folder / "train.tsv").write_bytes(data)
    with pytest.raises(DataError, match=message):
        writer.write(read(folder)[0], str(folder / "out"))
    assert not (folder / "out").exists()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[1]", "line 2: a JSON list instead of an object"),
        ("{", "line 2: it is not JSON"),
        ("[" * 100_000, "line 2: it is nested too deep"),
        ('{"text": "dog"}', "line 2: no label"),
        ('{"text": "a", "text": "b", "label": "a"}', "line 2: the key .text. is repeated"),
        (r'{"text": "a", "label": "\ud800"}', "line 2: 'label' has a lone surrogate"),
        (r'{"text": "a", "label": ["a", "\ud800"]}', "line 2: 'label' has a lone surrogate"),
        (r'{"text": "a", "label": {"\ud800": 1}}', "line 2: 'label' has a lone surrogate"),
        ('{"text": "a", "label": 1e999}', "line 2: the number 1e999.* is too large"),
    ],
)
def test_a_bad_json_line_is_an_error(folder, line, message):
    (folder / "train.jsonl").write_text('{"text": "dog", "label": "a"}\n' + line)
    with pytest.raises(DataError, match=message):
        read(folder)


def test_a_label_that_training_does_not_have_is_an_error(folder):
    (folder / "train.tsv").write_text(ROWS["tsv"])
    (folder / "dev.tsv").write_text("text\tlabel\nfilm\tugly\n")
    message = r"dev\.tsv, line 2: unknown label 'ugly'; the 2 classes are bad, good"
    with pytest.raises(DataError, match=message):
        read(folder)


@pytest.mark.parametrize("row", ['{"text": null, "label": "b"}', '{"label": "b"}'])
def test_json_without_a_text_is_left_out(folder, row):
    rows = '{"text": "dog", "label": "a"}\n{"text": "film", "label": "b"}\n'
    (folder / "train.jsonl").write_text(rows + row)
    raw, _ = read(folder)
    assert raw.kind.splits["train"].left_out == {"rows without a text": 1}


@pytest.mark.parametrize("score", ["", "high", "nan", "1e99", "1_0"])
def test_a_score_that_is_no_number_is_an_error(folder, score):
    (folder / "train.tsv").write_text(f"text\tlabel\ngood\t1\nbad\t{score}\n")
    message = f"the score '{score}' is not a number of float32" if score else "no score"
    with pytest.raises(DataError, match=rf"line 3: {message}\. Write a number, or remove the row"):
        read(folder, task="regression")


def test_invalid_scores_are_counted(folder):
    (folder / "train.tsv").write_text("text\tlabel\ngood\t1\nbad\t\nfilm\t2\ndog\tmany\n")
    message = r"line 3: no score \(the first of 2 such rows\)\. Write a number, or remove them"
    with pytest.raises(DataError, match=message):
        read(folder, task="regression")


def test_sources_without_tables_are_errors(folder):
    with pytest.raises(DataError, match=r"has no file that ends in \.tsv, \.csv, \.jsonl"):
        read(folder)
    with pytest.raises(DataError, match=r"texts/none is not a folder and not a file"):
        read(folder / "none", vocabulary=folder.parent / "vocab.txt")
    (folder / "train.jsonl").touch()
    with pytest.raises(DataError, match=r"train\.jsonl is empty"):
        read(folder)
    (folder / "train.jsonl").unlink()
    (folder / "train.tsv").write_text(ROWS["tsv"])
    (folder / "train.csv").write_text(ROWS["csv"])
    with pytest.raises(DataError, match=r"has both train\.csv and train\.tsv"):
        read(folder)


@pytest.mark.parametrize("ending", [".gz", ".xz"])
def test_a_packed_file_that_is_cut_off_is_an_error(folder, ending):
    pack = gzip.compress if ending == ".gz" else lzma.compress
    (folder / f"train.tsv{ending}").write_bytes(pack(ROWS["tsv"].encode())[:-9])
    with pytest.raises(DataError, match="not a complete"):
        read(folder)


COMMENTS = "text,toxic,insult\ngood film,0,0\nbad film,1,1\nbad dog,1,0\n"


def test_texts_with_a_column_per_label(folder, tmp_path):
    (folder / "train.csv").write_text(COMMENTS)
    (folder / "test.csv").write_text("text\nthe film\n")
    options = {"task": "multilabel", "label_columns": ("toxic", "insult")}
    raw, _ = read(folder, **options)
    writer.write(raw, str(tmp_path / "data"))
    data = dataset_info.load(str(tmp_path / "data"), "text_files")
    assert (data.target.kind, data.target.names) == ("multilabel", ("toxic", "insult"))
    pipeline = TokenPipeline(data)
    features, labels = next(pipeline.host_examples("train", 3))
    found = [pipeline.tokenizer.decode(ids.tolist()) for ids in features["input_ids"]]
    assert dict(zip(found, labels.tolist())) == {
        "[CLS] good film [SEP]": [0, 0],
        "[CLS] bad film [SEP]": [1, 1],
        "[CLS] bad dog [SEP]": [1, 0],
    }
    assert not data.splits["test"].has_labels
    assert "insult" in inspection.inspect(data, "train").lines[3]
    texts_to_predict = tmp_path / "new"
    texts_to_predict.mkdir()
    (texts_to_predict / "test.csv").write_text("text\nbad\n")
    alone, _ = read(texts_to_predict, vocabulary=tmp_path / "data", **options)
    assert alone.target == data.target


def test_texts_with_a_list_of_labels(folder):
    (folder / "train.tsv").write_text("text\tlabel\ngood film\tb a\nbad film\t\nbad dog\ta\n")
    raw, lines = read(folder, task="multilabel", label_separator=" ")
    assert raw.target.names == ("a", "b")
    assert sorted(raw.splits["train"].targets.tolist()) == [[0, 0], [1, 0], [1, 1]]
    assert "1 rows have no label: they are examples of none of the classes" in lines


def test_texts_with_several_numbers(folder, tmp_path):
    (folder / "train.csv").write_text("text,joy,anger\ngood film,0.5,-1\nbad film,-2,3\nbad,0,4\n")
    (folder / "test.csv").write_text("text\nthe film\n")
    raw, _ = read(folder, task="regression", label_columns=("joy", "anger"))
    writer.write(raw, str(tmp_path / "data"))
    data = dataset_info.load(str(tmp_path / "data"), "text_files")
    assert (data.target.kind, data.target.names) == ("regression", ("joy", "anger"))
    assert data.target.mean == pytest.approx((-0.5, 2))
    pipeline = TokenPipeline(data)
    features, labels = next(pipeline.host_examples("train", 3))
    found = [pipeline.tokenizer.decode(ids.tolist()) for ids in features["input_ids"]]
    assert dict(zip(found, labels.tolist())) == {
        "[CLS] good film [SEP]": [0.5, -1],
        "[CLS] bad film [SEP]": [-2, 3],
        "[CLS] bad [SEP]": [0, 4],
    }
    assert not data.splits["test"].has_labels


def test_a_missing_number_is_an_error(folder):
    (folder / "train.csv").write_text("text,joy,anger\ngood film,0.5,\nbad film,-2,3\n")
    with pytest.raises(DataError, match=r"line 2: no number in column 'anger'\. Add it, or remove"):
        read(folder, task="regression", label_columns=("joy", "anger"))


def test_several_label_columns_need_a_task(folder):
    (folder / "train.csv").write_text(COMMENTS)
    with pytest.raises(DataError, match=r"one label with --task=classification. Use --task=multil"):
        read(folder, label_columns=("toxic", "insult"))
