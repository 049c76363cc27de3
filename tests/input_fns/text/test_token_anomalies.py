"""Text that the vocabulary does not know is an error or a warning, whatever its source."""

import json

import pytest

from input_fns import DataError, anomalies, dataset_info
from input_fns.convert.options import Options
from input_fns.text import vocabulary
from tests import written
from tests.input_fns.text.sources import text_data

# Letters of text_data.VOCAB only.
KNOWN = "the good dog is a bad film , 7 !"
UNKNOWN = "сегодня хорошая погода , 7 !"


@pytest.fixture
def prepare(tmp_path):
    """`prepare(dataset, files, **options)` returns the warnings, as prepare_data.py prints them."""

    def write_all(dataset, files, **options):
        source = tmp_path / "raw"
        source.mkdir()
        for name, content in files.items():
            (source / name).write_text(content)
        vocab = options.pop("vocabulary", text_data.vocab_file(tmp_path))
        options = {"max_length": 24, "validation_fraction": 0.0, **options}
        options = Options(dataset, source=str(source), vocabulary=str(vocab), **options)
        return written.with_warnings(options, tmp_path / "data")

    return write_all


def table(*texts):
    return "text,label\n" + "".join(f'"{text} {i}",{i % 2}\n' for i, text in enumerate(texts))


def conll(text):
    return "\n\n".join("\n".join(f"{w} {w in ',7!'}" for w in text.split()) for _ in range(4))


def documents(text):
    return "\n\n".join([f"{text}\n{text}"] * 5)


def squad(text):
    start = len(text.split()[0]) + 1
    answer = {"text": text.split()[1], "answer_start": start}
    entry = {"id": "a", "question": text, "answers": [answer]}
    return json.dumps({"data": [{"paragraphs": [{"context": text, "qas": [entry]}]}]})


SOURCES = {
    "text_files": ("train.csv", lambda text: table(*[text] * 6)),
    "token_files": ("train.txt", conll),
    "pretraining_text": ("train.txt", documents),
    "squad": ("train.json", squad),
}
OPTIONS = {
    "text_files": {"text_columns": ("text",), "label_columns": ("label",)},
    "squad": {"max_query_length": 12},
    "pretraining_text": {"dupe_factor": 2},
}


@pytest.mark.parametrize("dataset", SOURCES)
def test_text_of_another_script_is_an_error(tmp_path, prepare, dataset):
    name, content = SOURCES[dataset]
    message = (
        r"(9\d|100)% of the words of 'train' are \[UNK\]: the vocabulary is of text in another"
    )
    with pytest.raises(DataError, match=message):
        prepare(dataset, {name: content(UNKNOWN)}, **OPTIONS.get(dataset, {}))
    assert not (tmp_path / "data" / "dataset.json").exists()


@pytest.mark.parametrize("dataset", SOURCES)
def test_known_text_is_none(prepare, dataset):
    name, content = SOURCES[dataset]
    assert prepare(dataset, {name: content(KNOWN)}, **OPTIONS.get(dataset, {})) == []


def test_a_part_of_the_texts_is_a_warning_that_inspect_repeats(tmp_path, prepare):
    files = {"train.csv": table(*[KNOWN] * 4, *[UNKNOWN] * 4)}
    (warning,) = prepare("text_files", files, **OPTIONS["text_files"])
    assert warning.startswith("30% of the words of 'train' are [UNK]")  # 3 of 7 + 3
    data = dataset_info.read(str(tmp_path / "data"))
    assert [str(found) for found in anomalies.find(data)] == [f"warning: {warning}"]


def test_each_split_is_checked(prepare):
    files = {"train.csv": table(*[KNOWN] * 4), "test.csv": table(*[UNKNOWN] * 4)}
    (warning,) = prepare("text_files", files, **OPTIONS["text_files"])
    assert warning.startswith("100% of the words of 'test' are [UNK]")


def test_texts_to_predict_alone_must_be_known(prepare):
    options = {"text_columns": ("text",), "class_names": ("a", "b")}
    with pytest.raises(DataError, match=r"100% of the words of 'test' are \[UNK\]"):
        prepare("text_files", {"test.csv": f'text\n"{UNKNOWN}"\n'}, **options)


@pytest.mark.parametrize(("share", "is_error"), [(1, True), (0.5, False)])
def test_translations_that_are_their_source(tmp_path, prepare, share, is_error):
    lines = ["the good dog is a bad film", "das schlechte wetter"] * 20
    path = tmp_path / "v.model"
    path.write_bytes(vocabulary.train(map(str.encode, lines), 384, "unigram", 0).model)
    number = round(share * 20)
    german = [*lines[::2][:number], *lines[1::2][number:]]
    files = {"train.en": "\n".join(lines[::2]), "train.de": "\n".join(german)}
    options = {"languages": ("en", "de"), "vocabulary": path, "max_length": 28}
    if is_error:
        with pytest.raises(
            DataError, match="100% of the rows of 'train' have equal source and target"
        ):
            prepare("parallel_text", files, **options)
    else:
        (warning,) = prepare("parallel_text", files, **options)
        assert "of the rows of 'train' have equal source and target" in warning


def test_rare_unknown_signs_do_not_matter(prepare):
    files = {"train.csv": table(*["1 2 3 4 5 6 7 8 9 0 , ☀"] * 6)}
    assert prepare("text_files", files, **OPTIONS["text_files"]) == []


def pairs(english, german):
    return {"train.en": f"{english}\n" * 9, "train.de": f"{german}\n" * 9}


@pytest.mark.parametrize(
    ("german", "is_error"), [("погода хорошая , 7", True), ("das schlechte wetter , 7", False)]
)
def test_a_sentencepiece_vocabulary_of_another_script(tmp_path, prepare, german, is_error):
    lines = ["the good dog is a bad film , 7", "das schlechte wetter , 7"] * 20
    path = tmp_path / "v.model"
    path.write_bytes(vocabulary.train(map(str.encode, lines), 384, "unigram", 0).model)
    options = {"languages": ("en", "de"), "vocabulary": path, "max_length": 128}
    files = pairs("the good dog is a bad film , 7", german)
    if is_error:
        with pytest.raises(DataError, match=r"of the words of the target of 'train' are unknown"):
            prepare("parallel_text", files, **options)
    else:
        assert prepare("parallel_text", files, **options) == []
