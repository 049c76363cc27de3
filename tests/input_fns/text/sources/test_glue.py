"""GLUE's tasks, TREC and IMDB, from files like the published ones."""

import gzip

import pytest

from input_fns import DataError
from input_fns.text.sources import glue
from tests.input_fns.text.sources import text_data

# One line of each file, in the columns of the official archives.
MNLI = "index\tpromptID\tpairID\tgenre\t{parses}\tsentence1\tsentence2\tlabel1\tgold_label"
MNLI = MNLI.format(parses="sentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\ts2")
STSB = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore"
FILES = {
    "cola": ["gj04\t1\t\tthe dog", "gj04\t0\t*\tdog the"],
    "sst2": ["sentence\tlabel", "good \t1", '"bad\t0'],
    "mrpc": [
        "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String",
        '1\t70\t71\tthe "dog\tdog',
        "0\t8\t9\tfilm\tbad",
    ],
    "stsb": [
        STSB,
        "0\tg\tf\t2012\t1\tn\tn\tgood\tbad\t5.0",
        "1\tg\tf\t2012\t2\tn\tn\tdog\tfilm\t1.75",
    ],
    "qqp": [
        "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate",
        "0\t1\t2\tdog?\tdogs?\t1",
        "cut off",
        "1\t3\t4\t\tfilm?\t0",
    ],
    "mnli": [
        MNLI,
        "0\t1\t1\tg\ta\tb\tc\td\tgood\tbad\tneutral\tcontradiction",
        "1\t1\t1\tg\ta\tb\tc\td\tgood\tdog\tneutral\t-",
        "2\t1\t1\tg\ta\tb\tc\td\tdog\tdogs\tneutral\tneutral",
    ],
    "qnli": [
        "index\tquestion\tsentence\tlabel",
        "0\tdog?\tdog\tentailment",
        "1\ta\tb\tnot_entailment",
    ],
    "rte": [
        "index\tsentence1\tsentence2\tlabel",
        "0\ta\tb\tnot_entailment",
        "1\tdog\tdog\tentailment",
    ],
    "wnli": ["index\tsentence1\tsentence2\tlabel", "0\tdog\tdogs\t1", "1\ta\tb\t0"],
}
ROWS = {
    "cola": {("the dog", "acceptable"), ("dog the", "unacceptable")},
    "sst2": {("good", "positive"), ("[UNK] bad", "negative")},
    "mrpc": {("the [UNK] dog [SEP] dog", "equivalent"), ("film [SEP] bad", "not_equivalent")},
    "stsb": {("good [SEP] bad", 5.0), ("dog [SEP] film", 1.75)},
    "qqp": {("dog ? [SEP] dogs ?", "duplicate"), ("[SEP] film ?", "not_duplicate")},
    "mnli": {("good [SEP] bad", "contradiction"), ("dog [SEP] dogs", "neutral")},
    "qnli": {("dog ? [SEP] dog", "entailment"), ("a [SEP] b", "not_entailment")},
    "rte": {("a [SEP] b", "not_entailment"), ("dog [SEP] dog", "entailment")},
    "wnli": {("dog [SEP] dogs", "entailment"), ("a [SEP] b", "not_entailment")},
}
LEFT_OUT = {
    "qqp": {"rows with too few or too many columns": 1},
    "mnli": {"texts without a gold label": 1},
}


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "raw"
    path.mkdir()
    text_data.vocab_file(tmp_path)
    return path


def write(folder, name, lines):
    data = "".join(f"{line}\n" for line in lines).encode()
    (folder / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)


def read(dataset, folder, **options):
    vocabulary = folder.parent / "vocab.txt"
    return text_data.read(dataset, folder, vocabulary, validation_fraction=0.0, **options)


def rows(raw, split):
    """Returns the set of (text, class or score)."""
    split = raw.splits[split]
    if split.labels is None:
        labels = [float(text_data.decoded(row)["score"][0]) for row in split]
    else:
        labels = [raw.class_names[label] for label in split.labels]
    texts = [text[len("[CLS] ") : -len(" [SEP]")] for text in text_data.texts(split)]
    return set(zip(texts, labels))


@pytest.mark.parametrize("task", glue.TASKS)
def test_each_task_has_its_texts_and_labels(folder, task):
    write(folder, "train.tsv", FILES[task])
    raw, _ = read(task, folder)
    assert rows(raw, "train") == ROWS[task]
    assert raw.kind.task == ("regression" if task == "stsb" else "classification")
    described = raw.kind.splits["train"]
    assert described.left_out == LEFT_OUT.get(task, {})
    assert described.num_texts == 2 + sum(described.left_out.values())


def test_mnli_has_two_validation_splits_and_its_tests_have_no_labels(folder):
    for name in ("train.tsv", "dev_matched.tsv.gz", "dev_mismatched.tsv"):
        write(folder, name, FILES["mnli"])
    for name in ("test_matched.tsv", "test_mismatched.tsv"):
        write(folder, name, ["index\tsentence1\tsentence2", "0\tdog\tdogs"])
    raw, lines = read("mnli", folder)
    assert {name: split.has_labels for name, split in raw.splits.items()} == {
        "train": True,
        "validation": True,
        "test": False,
        "test_mismatched": False,
        "validation_mismatched": True,
    }
    assert raw.class_names == ("contradiction", "entailment", "neutral")
    assert [line for line in lines if "no labels" in line] == [
        "test: no labels, so only --mode=predict can use it",
        "test_mismatched: no labels, so only --mode=predict can use it",
    ]


def test_a_row_to_predict_is_not_left_out(folder):
    write(folder, "test.tsv", ["id\tquestion1\tquestion2", "0\tdog\tdogs", "1\tdog"])
    with pytest.raises(
        DataError, match=r"test\.tsv, line 3: rows with too few or too many columns"
    ):
        read("qqp", folder)


def test_cola_is_read_from_the_archive_before_glue_too(folder):
    for name in ("in_domain_train", "in_domain_dev", "out_of_domain_dev"):
        write(folder, f"{name}.tsv", FILES["cola"])
    assert list(read("cola", folder)[0].splits) == [
        *("train", "validation", "validation_out_of_domain")
    ]


def test_files_before_glue_are_not_read_beside_those_of_glue(folder):
    """The official script leaves them in the folder of MRPC."""
    write(folder, "msr_paraphrase_train.txt", ["another", "file"])
    write(folder, "train.tsv", FILES["mrpc"])
    assert rows(read("mrpc", folder)[0], "train") == ROWS["mrpc"]


def test_the_files_of_sst2_may_have_no_header_line_and_labels_of_the_test(folder):
    for name in ("train", "dev", "test"):
        write(folder, f"{name}.tsv", FILES["sst2"][1:])
    assert rows(read("sst2", folder)[0], "test") == ROWS["sst2"]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["a\tb\tc"], r"train\.tsv, line 1: 3 columns without sentence"),
        (["sentence\tlabel", "dog\t2"], r"line 2: unknown label '2'; the 2 classes are 0, 1"),
        (["sentence\tlabel", "dog"], r"line 2: 1 values instead of 2"),
        ([], r"line 1: 1 columns without sentence"),
    ],
)
def test_a_file_of_another_kind_is_an_error(folder, lines, message):
    write(folder, "train.tsv", lines)
    with pytest.raises(DataError, match=message):
        read("sst2", folder)


def test_training_needs_labels(folder):
    write(folder, "train.tsv", ["index\tsentence1\tsentence2", "0\tdog\tdogs"])
    write(folder, "dev.tsv", FILES["rte"])
    with pytest.raises(DataError, match="'train' has no labels; its columns are index, sentence1"):
        read("rte", folder)


def test_an_empty_folder_is_an_error(folder):
    with pytest.raises(DataError, match="should have a folder for each class, and has 0"):
        read("text_folder", folder)
    with pytest.raises(DataError, match=r"has no train\.tsv"):
        read("rte", folder)


def test_trec_is_read_in_both_forms(folder):
    published = ["DESC:manner How d\xe9 ?", "NUM:date when ?"]
    (folder / "train_5500.label").write_bytes("\n".join(published).encode("latin-1"))
    write(folder, "TREC.test.all.gz", ["0 how ?", "5 when ?"])
    raw, _ = read("trec", folder)
    assert rows(raw, "train") == {("how de ?", "description"), ("when ?", "number")}
    assert rows(raw, "test") == {("how ?", "description"), ("when ?", "number")}
    write(folder, "TREC.test.all.gz", ["0 how ?", "6 when ?"])
    with pytest.raises(DataError, match=r"TREC\.test\.all\.gz, line 2: unknown label '6'"):
        read("trec", folder)


def test_imdb_is_read_from_folders_and_from_tables(folder):
    for split in ("train", "test"):
        for name in ("neg", "pos", "unsup"):
            (folder / "aclImdb" / split / name).mkdir(parents=True)
            text = "good\nfilm" if name == "pos" else "bad film"
            (folder / "aclImdb" / split / name / "0_1.txt").write_text(text)
    raw, _ = read("imdb", folder)
    wanted = {("good film", "pos"), ("bad film", "neg")}
    assert rows(raw, "train") == rows(raw, "test") == wanted
    tables = folder / "tables"
    tables.mkdir()
    text_data.vocab_file(folder)
    for split in ("train", "test"):
        write(tables, f"{split}.tsv.gz", ["neg\t0_1\tbad film", "pos\t0_2\tgood film"])
    assert rows(read("imdb", tables)[0], "train") == wanted


def test_classes_of_a_text_folder_that_are_numbers_are_in_their_order(folder):
    for name in ("1", "2", "10"):
        (folder / "train" / name).mkdir(parents=True)
        (folder / "train" / name / "a.txt").write_text("good film")
    assert read("text_folder", folder)[0].class_names == ("1", "2", "10")


def test_texts_of_20_newsgroups_have_no_extension(folder):
    for split in ("train", "test"):
        for name, text in (("alt.atheism", "bad film"), ("sci.med", "good dog")):
            (folder / f"20news-bydate-{split}" / name).mkdir(parents=True)
            (folder / f"20news-bydate-{split}" / name / "49960").write_text(text)
    raw, _ = read("text_folder", folder)
    assert set(raw.splits) == {"train", "test"}
    assert text_data.texts(raw.splits["test"]) == [
        "[CLS] bad film [SEP]",
        "[CLS] good dog [SEP]",
    ]


def test_a_folder_around_a_text_folder_is_named(folder):
    (folder / "bbc" / "sport").mkdir(parents=True)
    with pytest.raises(DataError, match="has 1: bbc"):
        read("text_folder", folder)


def test_a_text_folder_has_a_class_per_folder(folder):
    for name, text in {"b/1.txt": "dog", "a/1.txt": "film", "a/2.txt.gz": "dogs"}.items():
        (folder / name).parent.mkdir(exist_ok=True)
        data = text.encode()
        (folder / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    (folder / ".git").mkdir()
    raw, _ = read("text_folder", folder)
    assert rows(raw, "train") == {("dog", "b"), ("film", "a"), ("dogs", "a")}
    (folder / "a" / "3.txt").write_text(" \n")
    (folder / "a" / "notes.doc").write_text("not a text file")
    assert read("text_folder", folder)[0].left_out.counts == {
        "files without a text": 1,
        ".doc files that are not used": 1,
    }
    (folder / "a" / "3.txt").write_bytes(b"\xff")
    with pytest.raises(DataError, match=r"a/3\.txt, line 1, byte 0: no UTF-8"):
        read("text_folder", folder)


@pytest.mark.parametrize("names", [("Train", "Test"), ("20news-bydate-train", "20news-test")])
def test_folders_of_splits_have_many_names(folder, names):
    for split in names:
        for name in ("a", "b"):
            (folder / split / name).mkdir(parents=True)
            (folder / split / name / "1.TXT").write_text(f"dog {name}")
    raw, _ = read("text_folder", folder)
    assert list(raw.splits) == ["train", "test"]
    assert rows(raw, "test") == {("dog a", "a"), ("dog b", "b")}
    (folder / "more").mkdir()
    if names[0] == "Train":
        with pytest.raises(DataError, match=r"folders Test, Train of splits, and 'more'"):
            read("text_folder", folder)


def test_folders_whose_names_differ_in_spaces_are_one_class(folder):
    for name in ("cat", "cat ", "cafe\u0301", "caf\u00e9"):
        (folder / name).mkdir()
        (folder / name / "1.txt").write_text(f"dog {len(name)}")
    raw, _ = read("text_folder", folder)
    assert raw.class_names == ("caf\u00e9", "cat")
    assert rows(raw, "train") == {
        ("dog 3", "cat"),
        ("dog 4", "cat"),
        ("dog 4", "caf\u00e9"),
        ("dog 5", "caf\u00e9"),
    }


def test_texts_without_folders_of_classes_can_be_predicted(folder):
    for name in ("train/a/1.txt", "train/b/1.txt", "test/2.txt", "test/10.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("dog")
    raw, _ = read("text_folder", folder)
    assert [split.has_labels for split in raw.splits.values()] == [True, False]
    (folder / "test" / "3.txt").write_text("")
    with pytest.raises(DataError, match=r"test/3\.txt: no text"):
        read("text_folder", folder)


def test_a_text_file_of_another_encoding_needs_the_flag(folder):
    for name in ("a", "b"):
        (folder / name).mkdir()
        (folder / name / "1.txt").write_bytes(f"dog {name}".encode("utf-16-le"))
    with pytest.raises(DataError, match=r"a/1\.txt has 5 NUL bytes .*--encoding=utf-16-le"):
        read("text_folder", folder)
    raw, _ = read("text_folder", folder, encoding="utf-16-le")
    assert rows(raw, "train") == {("dog a", "a"), ("dog b", "b")}


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_trec_is_utf8_or_as_published(folder, encoding):
    content = "DESC:manner How d\xe9 ?\nNUM:date when ?\n".encode(encoding)
    for name in ("train_5500.label", "TREC_10.label"):
        (folder / name).write_bytes(content)
    raw, _ = read("trec", folder)
    assert rows(raw, "train") == {("how de ?", "description"), ("when ?", "number")}
