"""Words with tags."""

import pytest

from input_fns import DataError
from tests.input_fns.text.sources import text_data

CONLL = """-DOCSTART- -X- -X- O

The DT B-NP O
dog NN I-NP B-ANIMAL
is VB O O

good JJ O O
"""


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "raw"
    path.mkdir()
    text_data.vocab_file(tmp_path)
    return path


def read(folder, **options):
    options = {"validation_fraction": 0.0, **options}
    return text_data.read("token_files", folder, folder.parent / "vocab.txt", **options)


def tagged(raw, split="train"):
    """Returns the set of sentences, as tuples of (token, tag or "")."""
    sentences = set()
    for row in raw.splits[split]:
        values = text_data.decoded(row)
        tokens = [text_data.TOKENIZER.pieces[i] for i in values["input_ids"]]
        names = [*raw.properties["tag_names"], ""]
        tags = [names[i] for i in values["tag_ids"]]
        length = int(values["input_mask"].sum())
        assert set(tags[length:]) <= {""}
        sentences.add(tuple(zip(tokens[:length], tags)))
    return sentences


def test_the_first_token_of_a_word_has_its_tag(folder):
    (folder / "train.txt").write_text(CONLL.replace("dog NN", "dogs NN"))
    raw, _ = read(folder)
    assert raw.properties == {"num_tags": 2, "tag_names": ["B-ANIMAL", "O"]}
    assert raw.labels == ("tag_ids",)
    assert tagged(raw) == {
        (
            *(("[CLS]", ""), ("the", "O"), ("dog", "B-ANIMAL"), ("##s", ""), ("is", "O")),
            ("[SEP]", ""),
        ),
        (("[CLS]", ""), ("good", "O"), ("[SEP]", "")),
    }


def test_files_may_have_the_names_of_conll_2003(folder):
    for name in ("eng.train", "eng.testa", "eng.testb"):
        (folder / name).write_text(CONLL)
    assert list(read(folder)[0].splits) == ["train", "validation", "test"]


@pytest.mark.parametrize(
    "names",
    [
        ("NER-de-train.tsv", "NER-de-dev.tsv", "NER-de-test.tsv"),
        ("wnut17train.conll", "emerging.dev.conll", "emerging.test.annotated"),
        ("en_train.conll", "en_dev.conll", "en_test.conll"),
        ("esp.train", "esp.testa", "esp.testb"),
        ("Train.TXT", "Devel.TXT", "Test.TXT"),
    ],
)
def test_files_have_the_names_of_shared_tasks(folder, names):
    for name in names:
        (folder / name).write_text(CONLL)
    (folder / "README.txt").write_text("about the data")
    assert list(read(folder)[0].splits) == ["train", "validation", "test"]


def sentence(*pairs):
    return (("[CLS]", ""), *pairs, ("[SEP]", ""))


def counts(raw):
    return raw.left_out.counts


@pytest.mark.parametrize(
    "comment",
    [
        "# id 7 x domain=en",  # MultiCoNER: as many columns as the words
        "# sent_id = 7",
        "# text = the dog",
        "#\thttp://de.wikipedia.org/wiki/A\t[2009-10-17]",
        "#end document",
        "# O O O O O O",
    ],
)
def test_comments_before_a_sentence_are_skipped_and_counted(folder, comment):
    rows = "the _ _ _ O\ndog _ _ _ A\n"
    (folder / "train.conll").write_text(f"{comment}\n{rows}\n{comment}\n\n{comment}\n{rows}")
    raw, _ = read(folder)
    assert tagged(raw) == {sentence(("the", "O"), ("dog", "A"))}
    assert raw.properties["tag_names"] == ["A", "O"]
    assert counts(raw) == {"comment lines": 3}


@pytest.mark.parametrize("separator", [" ", "\t"])
def test_the_word_of_a_number_sign_is_no_comment(folder, separator):
    rows = [("#", "O"), ("dog", "A"), ("#", "O"), ("#film", "A"), ("", ""), ("#", "A"), ("is", "O")]
    rows += [("", ""), ("the", "O"), ("#", "HT"), ("", ""), ("#", "HT"), ("dog", "A")]
    lines = [separator.join(row).strip() for row in rows]
    (folder / "train.conll").write_text("\n".join(lines))
    raw, _ = read(folder)
    unknown = "[UNK]"
    assert tagged(raw) == {
        sentence((unknown, "O"), ("dog", "A"), (unknown, "O"), (unknown, "A"), ("film", "")),
        sentence((unknown, "A"), ("is", "O")),
        sentence(("the", "O"), (unknown, "HT")),
        sentence((unknown, "HT"), ("dog", "A")),
    }
    assert not counts(raw)


@pytest.mark.parametrize("header", ["word\ttag\n", "Token\tNER\n\n"])
def test_a_header_line_is_no_word(folder, header):
    (folder / "train.tsv").write_text(f"{header}the\tO\ndog\tA\n\ndog\tA\n")
    raw, _ = read(folder)
    assert tagged(raw) == {sentence(("the", "O"), ("dog", "A")), sentence(("dog", "A"))}
    assert raw.properties["tag_names"] == ["A", "O"]
    assert counts(raw) == {"header lines": 1}


def test_a_sentence_may_start_with_the_word_word(folder):
    (folder / "train.tsv").write_text("text\tlabel\ndog\tA\n\ndog\tlabel\n")
    assert read(folder)[0].properties["tag_names"] == ["A", "label"]


def test_a_comment_inside_a_sentence_is_an_error(folder):
    (folder / "train.conll").write_text("the O\n# a comment\ndog A\n")
    with pytest.raises(DataError, match=r"train\.conll, line 2: 3 columns instead of 2"):
        read(folder)


CONLLU = """# sent_id = 1
# text = The dog's.
1\tThe\tthe\tDET\tDT\t_\t2\tdet\t_\t_
2-3\tdogs\t_\t_\t_\t_\t_\t_\t_\t_
2\tdog\tdog\tNOUN\tNN\t_\t0\troot\t_\t_
3\ts\tbe\tAUX\tVB\t_\t2\tcop\t_\t_
3.1\tgood\tgood\tADJ\t_\t_\t_\t_\t_\t_

"""


def test_conllu_has_known_columns(folder):
    (folder / "en-ud-train.conllu").write_text(CONLLU)
    raw, _ = read(folder)
    assert tagged(raw) == {sentence(("the", "DET"), ("dog", "NOUN"), ("s", "AUX"))}
    assert counts(raw) == {
        "comment lines": 2,
        "multiword ranges (1-2) and empty nodes (1.1)": 2,
    }
    raw, _ = read(folder, label_columns=("deprel",))
    assert raw.properties["tag_names"] == ["cop", "det", "root"]


def test_numbers_of_words_are_no_words(folder):
    """Without the names of the columns, the first would be the words."""
    (folder / "train.tsv").write_text("1\tthe\tO\n2\tdog\tA\n\n1\tis\tO\n")
    with pytest.raises(DataError, match=r"first column numbers the words.*--text_columns=word"):
        read(folder)


def test_text_of_another_encoding(folder):
    content = "the O\nd\xf6g O\nfilm A\nis O\ngood O\n"
    (folder / "train.txt").write_bytes(content.encode("cp1252"))
    raw, _ = read(folder)
    words = (("the", "O"), ("dog", "O"), ("film", "A"), ("is", "O"), ("good", "O"))
    assert tagged(raw) == tagged(read(folder, encoding="latin-1")[0]) == {sentence(*words)}


def test_columns_may_be_named(folder):
    (folder / "train.tsv").write_text("1\tthe\tO\t_\n2\tdog \tA\t_\n")
    options = {"columns": ("id", "word", "tag", "rest")}
    raw, _ = read(folder, text_columns=("word",), label_columns=("tag",), **options)
    assert tagged(raw) == {(("[CLS]", ""), ("the", "O"), ("dog", "A"), ("[SEP]", ""))}
    with pytest.raises(DataError, match=r"--label_columns=tags must be one of --columns=id,word"):
        read(folder, label_columns=("tags",), **options)


def test_words_at_the_end_of_a_truncated_sentence_are_counted(folder):
    (folder / "train.conll").write_text("".join(f"dogs {i % 2}\n" for i in range(5)))
    raw, lines = read(folder, max_length=8)
    ((sentence),) = tagged(raw)
    assert [tag for _, tag in sentence] == ["", "0", "", "1", "", "0", "", ""]
    assert raw.kind.splits["train"].num_truncated == 1
    assert lines[-1] == "train: 2 words at the ends of truncated sentences have no tag"


def test_a_word_without_tokens_keeps_its_tag(folder):
    (folder / "train.txt").write_text("\u200b A\nx B\n")
    assert tagged(read(folder)[0]) == {
        (("[CLS]", ""), ("[UNK]", "A"), ("x", "B"), ("[SEP]", "")),
    }


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a O\nb\n", r"train\.txt, line 2: 1 columns instead of 2"),
        ("a O\nb O O\n", r"train\.txt, line 2: 3 columns instead of 2"),
        ("alone\n", r"train\.txt, line 1: 1 columns instead of 2"),
        ("a\tO\n\tO\n", r"line 2: the word is empty"),
        ("a\tO\nb\t\n", r"line 2: the tag is empty"),
        ("a O\n\nb O\n", r"train\.txt, line 1 on have the tag 'O': a classifier needs two"),
        ("a O\nb \x07\n", r"line 2: the tag '\\x07' has control characters"),
        ("\n\n", r"train\.txt has no words"),
        (b"a O\n\xff O\n", r"train\.txt, line 2: no UTF-8"),
    ],
)
def test_a_bad_file_is_an_error(folder, content, message):
    data = content if isinstance(content, bytes) else content.encode()
    (folder / "train.txt").write_bytes(data)
    with pytest.raises(DataError, match=message):
        read(folder)


def test_a_tag_that_training_does_not_have_is_an_error(folder):
    (folder / "train.txt").write_text(CONLL)
    (folder / "dev.txt").write_text("is O\n\ngood O\ndog B-DOG\n")
    message = r"from .*dev\.txt, line 3 on: unknown tag 'B-DOG' of 'dog'; .* are B-ANIMAL, O"
    with pytest.raises(DataError, match=message):
        read(folder)
