"""Masked pairs for pre-training."""

import gzip
import json
import random
import re

import numpy as np
import pytest

from input_fns import DataError
from input_fns.convert import files, runners
from input_fns.convert.options import Options
from input_fns.convert.shared_array import SharedArray
from input_fns.text.sources import (
    document_forms,
    documents,
    pretraining_pairs,
    pretraining_rows,
    pretraining_text,
)
from tests import google_bert
from tests.input_fns.text.sources import text_data
from tests.input_fns.text.sources.text_data import TOKENIZER

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def write_text(path, num_documents, seed=0):
    """Writes documents of 1 to 6 sentences of 1 to 9 words; returns the words of each document."""
    rng = random.Random(seed)
    documents = [
        [
            [rng.choice(LETTERS) + rng.choice(["", "dog", "s"]) for _ in range(rng.randint(1, 9))]
            for _ in range(rng.randint(1, 6))
        ]
        for _ in range(num_documents)
    ]
    text = "\n\n".join("\n".join(map(" ".join, document)) for document in documents)
    path.write_text(text + "\n")
    return documents


def read(folder, **options):
    options = {"validation_fraction": 0.0, "max_length": 24, "dupe_factor": 2, **options}
    vocabulary = options.pop("vocabulary", text_data.vocab_file(folder))
    return text_data.read("pretraining_text", folder / "text", vocabulary, **options)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "text").mkdir()
    return tmp_path


def unmasked(values):
    """Returns the ids of a row without masks, and of its two texts."""
    ids = values["input_ids"].astype(int)
    count = int(values["masked_lm_weights"].sum())
    ids[values["masked_lm_positions"][:count]] = values["masked_lm_ids"][:count]
    ids = ids[: int(values["input_mask"].sum())].tolist()
    end = ids.index(TOKENIZER.sep_id)
    assert ids[-1] == TOKENIZER.sep_id
    return ids, ids[1:end], ids[end + 1 : -1]


def test_a_row_is_two_texts_of_the_documents(folder):
    documents = write_text(folder / "text" / "train.txt", 9)
    raw, _ = read(folder)
    words = [" ".join(map(" ".join, document)) for document in documents]
    texts = [f" {' '.join(map(str, ids))} " for ids in TOKENIZER.encode_ids(words)]
    labels = set()
    for row in raw.splits["train"]:
        values = text_data.decoded(row)
        label = int(values["next_sentence_labels"][0])
        labels.add(label)
        of = [
            {number for number, text in enumerate(texts) if f" {' '.join(map(str, part))} " in text}
            for part in unmasked(values)[1:]
        ]
        assert of[0]
        assert of[1]
        assert label or of[0] & of[1]
    assert labels == {0, 1}


def test_the_metadata_counts_what_is_stored(folder):
    documents = write_text(folder / "text" / "train.txt", 5)
    raw, lines = read(folder, max_length=12)
    described, split = raw.kind.splits["train"], raw.splits["train"]
    assert described.num_texts == sum(map(len, documents))
    masks = [text_data.decoded(row)["input_mask"] for row in split]
    assert described.num_tokens == np.sum(masks)
    assert described.num_truncated > 0
    assert raw.kind.task == "pretraining"
    assert "5 documents, each 2 times" in lines[-1]


def test_masks_are_80_10_10_of_15_percent(folder):
    write_text(folder / "text" / "train.txt", 60)
    raw, _ = read(folder, max_length=64, dupe_factor=5)
    total = masked = kept = 0
    for row in raw.splits["train"]:
        values = text_data.decoded(row)
        count = int(values["masked_lm_weights"].sum())
        length = int(values["input_mask"].sum())
        assert count == max(1, round(0.15 * length))
        positions = values["masked_lm_positions"][:count]
        assert (np.diff(positions) > 0).all()
        shown = values["input_ids"][positions]
        total += count
        masked += (shown == TOKENIZER.mask_id).sum()
        kept += (shown == values["masked_lm_ids"][:count]).sum()
        special = np.isin(values["masked_lm_ids"][:count], [TOKENIZER.cls_id, TOKENIZER.sep_id])
        assert not special.any()
    # Five standard deviations of a binomial; a random token is the same one in 1 of vocab_size.
    deviation = 5 * np.sqrt(0.8 * 0.2 / total)
    assert abs(masked / total - 0.8) < deviation
    assert abs(kept / total - 0.1) < deviation + 0.1 / TOKENIZER.vocab_size


def test_whole_words_are_masked_together(folder):
    write_text(folder / "text" / "train.txt", 9)
    raw, _ = read(folder, whole_word_mask=True, masked_lm_prob=0.3)
    for row in raw.splits["train"]:
        values = text_data.decoded(row)
        ids, _, _ = unmasked(values)
        chosen = set(values["masked_lm_positions"][: int(values["masked_lm_weights"].sum())])
        specials = (TOKENIZER.cls_id, TOKENIZER.sep_id)
        for i, token in enumerate(ids):
            if TOKENIZER.pieces[token].startswith("##") and ids[i - 1] not in specials:
                assert (i in chosen) == (i - 1 in chosen)


def test_the_seed_decides_pairs_and_masks(folder):
    write_text(folder / "text" / "train.txt", 9)
    first, again, other = (
        [row.values for row in read(folder, seed=seed)[0].splits["train"]] for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


def test_rows_do_not_depend_on_parts_and_processes(folder, monkeypatch):
    write_text(folder / "text" / "train.txt", 20)
    options = {"vocab_size": 128, "validation_fraction": 0.2}

    def rows(runner):
        with runner:
            raw, _ = text_data.read(
                "pretraining_text", folder / "text", "", runner=runner, max_length=24, **options
            )
            return {name: [row.values for row in split] for name, split in raw.splits.items()}

    whole = rows(runners.InProcess())
    assert len(whole["train"]) > 20
    monkeypatch.setattr(documents, "_PART_BYTES", 300)
    assert rows(runners.InProcess()) == whole
    assert rows(runners.Processes(2)) == whole


def test_a_vocabulary_is_learnt_from_some_parts_of_a_large_text(folder, monkeypatch):
    write_text(folder / "text" / "train.txt", 20)
    monkeypatch.setattr(documents, "_PART_BYTES", 200)
    monkeypatch.setattr(pretraining_rows, "_LEARN_BYTES", 500)
    raw, lines = read(folder, vocabulary="", vocab_size=96)
    assert re.search(r"each \d+\. of \d+ parts is used", " ".join(lines))
    assert raw.kind.vocab_size <= 96


def test_a_held_out_split_has_other_documents_and_is_read_once(folder):
    write_text(folder / "text" / "train.txt", 20)
    _, lines = read(folder, validation_fraction=0.25)
    assert lines[-1].startswith("validation: 5 documents, each 1 times")
    assert "train: 15 documents, each 2 times" in "".join(lines)


def test_files_are_splits_or_all_training(folder):
    for name in ("part1.txt", "part2.txt"):
        write_text(folder / "text" / name, 3)
    options = Options("pretraining_text", source=str(folder / "text"))
    raw = pretraining_text.read(options, runners.InProcess())
    assert {name: len(split) for name, split in raw.splits.items()} == {"train": 6}
    (folder / "text" / "dev").mkdir()
    write_text(folder / "text" / "dev" / "a.txt", 2)
    with pytest.raises(DataError, match=r"part1\.txt belongs to no split"):
        read(folder)
    (folder / "text" / "part1.txt").rename(folder / "text" / "train.txt")
    packed = (folder / "text" / "part2.txt").read_bytes()
    (folder / "text" / "part2.txt").unlink()
    (folder / "text" / "test.txt.gz").write_bytes(gzip.compress(packed))
    assert set(read(folder)[0].splits) == {"train", "validation", "test"}


def wiki(documents, as_json):
    """Documents, each a title and paragraphs, as WikiExtractor writes them."""
    if as_json:
        lines = ({"title": title, "text": "\n".join(text)} for title, *text in documents)
        return "".join(json.dumps(line) + "\n" for line in lines)
    return "".join(
        f'<doc id="1" url="u" title="{title}">\n{title}\n\n' + "\n".join(text) + "\n\n</doc>\n"
        for title, *text in documents
    )


@pytest.mark.parametrize("as_json", [False, True])
def test_wikipedia_by_wikiextractor(folder, monkeypatch, as_json):
    monkeypatch.setattr(documents, "_PART_BYTES", 50)
    text = wiki(
        [("A dog", "A dog. It is 1 &lt; 2.", "Good."), ("Empty",), ("Cats", "Cats are good!")],
        as_json,
    )
    for name in ("AA/wiki_00", "AA/wiki_01", "AB/wiki_00"):
        path = folder / "text" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    (folder / "text" / "books.txt").write_text("a book\n\nof dogs\n")
    options = Options("pretraining_text", source=str(folder / "text"))
    lines: list[str] = []
    with files.recording(lines.append):
        train = pretraining_text.read(options, runners.InProcess()).splits["train"]
    parts = documents.cut_split(train.pieces, train.indices)
    one = [["A dog.", "It is 1 < 2.", "Good."], ["Cats are good!"]]
    assert [document for part in parts for document in part] == [*one * 3, ["a book"], ["of dogs"]]
    assert len(train.pieces) > 4
    assert lines == [document_forms._NOTE]


def test_a_line_that_is_no_json(folder):
    (folder / "text" / "wiki_00").write_text(wiki([("A", "a b")], True) + "\n{broken\n")
    with pytest.raises(DataError, match=r'wiki_00, line 3: it is no JSON object with a "text"'):
        read(folder)


@pytest.mark.parametrize(
    "sentences",
    [
        [
            "Dr. A. B. Smith left in 1990.",
            "He (c. 50) had No. 5 vs. Jones!",
            '"Why?"',
            "Nobody knew.",
        ],
        ["It cost 3.5 dollars, e.g. here.", "\u201cYes.\u201d", "\xc9t\xe9 follows\u2026", "Ende."],
        ["one without an end and without capitals. and so on"],
    ],
)
def test_sentences_of_a_paragraph(sentences):
    assert document_forms.split(" ".join(sentences)) == sentences


def test_chinese_sentences_have_no_spaces_between_them():
    text = "\u72d7\u597d\u3002\u732b\u5462\uff1f"
    assert document_forms.split(text) == [text[:3], text[3:]]


def test_one_document_is_an_error(folder):
    (folder / "text" / "train.txt").write_text("a dog\nis good\n")
    with pytest.raises(DataError, match=r"'train' .* is one document, and needs two"):
        read(folder)
    (folder / "text" / "train.txt").write_text("a dog\n\n\u200b\n\n\u200b\n")
    with pytest.raises(DataError, match=r"'train' has 1 document.* needs 2 at least"):
        read(folder)


def test_two_documents_are_held_out_at_least(folder):
    write_text(folder / "text" / "train.txt", 12)
    _, lines = read(folder, validation_fraction=None)
    assert any(line.startswith("validation: 2 documents, each 1 times") for line in lines)
    with pytest.raises(DataError, match="'validation' would have 1 example of 12, and needs 2"):
        read(folder, validation_fraction=0.1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"masked_lm_prob": 0.0}, "--masked_lm_prob=0 masks no token"),
        ({"max_predictions_per_seq": 25}, "--max_predictions_per_seq=25 is more than"),
    ],
)
def test_a_row_needs_predictions_that_fit(folder, options, message):
    write_text(folder / "text" / "train.txt", 3)
    with pytest.raises(DataError, match=message):
        read(folder, **options)


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"\n\n", "has no text"), (b"a\n\nb\n\xff\n", r"train\.txt, line 4: no UTF-8")],
)
def test_a_bad_file_is_an_error(folder, content, message):
    (folder / "text" / "train.txt").write_bytes(content)
    with pytest.raises(DataError, match=message):
        read(folder)


def test_lines_do_not_depend_on_the_size_of_the_pieces_that_are_read(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    path.write_bytes("\ufeffä\u2028b\r\n\n\nc\rd\nend".encode())
    wanted = ["ä\u2028b", "", "", "c\rd", "end"]
    for size in range(1, 9):
        monkeypatch.setattr(files, "_PIECE_BYTES", size)
        assert list(files.iterate_lines(str(path))) == wanted
    monkeypatch.setattr(files, "_MAX_LINE_BYTES", 2)
    with pytest.raises(DataError, match="line 1: over"):
        list(files.iterate_lines(str(path)))


def stored(folder, documents, in_part=7):
    """Returns the `Tokens` of ids of sentences of documents."""
    parts = []
    for begin in range(0, len(documents), in_part):
        some = documents[begin : begin + in_part]
        sentences = [ids for document in some for ids in document]
        values = (
            [piece_id for ids in sentences for piece_id in ids],
            np.cumsum([0, *map(len, sentences)]),
            np.cumsum([0, *map(len, some)]),
        )
        arrays = (SharedArray.write(str(folder), [np.array(value)]) for value in values)
        parts.append(pretraining_pairs.TokenPart(*arrays))
    return pretraining_pairs.Tokens(parts)


@google_bert.needs_checkout
@pytest.mark.parametrize("max_length", [8, 24, 64])
def test_pairs_are_those_of_google_with_the_same_random_numbers(folder, max_length):
    google = google_bert.load("create_pretraining_data")
    google.create_masked_lm_predictions = lambda tokens, *rest: (tokens, [], [])
    documents = [
        TOKENIZER.encode_ids(map(" ".join, document))
        for document in write_text(folder / "text" / "train.txt", 30)
    ]
    tokens = stored(folder, documents)
    options = Options("pretraining_text", max_length=max_length, short_seq_prob=0.3)
    ours, theirs = [], []
    for number in range(len(documents)):
        for seed in range(3):
            drawn = pretraining_pairs.pairs_of_document(
                tokens, number, options, random.Random(seed)
            )
            for (part, a, n, other_part, b, m, is_random), _ in drawn:
                first, second = tokens.parts[part].ids.array, tokens.parts[other_part].ids.array
                ours.append((first[a : a + n].tolist(), second[b : b + m].tolist(), is_random))
            theirs.append(
                google.create_instances_from_document(
                    documents, number, max_length, 0.3, 0.15, 20, [], random.Random(seed)
                )
            )
    middle = [(pair, pair.segment_ids.index(1)) for pairs in theirs for pair in pairs]
    assert ours == [
        (pair.tokens[1 : start - 1], pair.tokens[start:-1], pair.is_random_next)
        for pair, start in middle
    ]


@google_bert.needs_checkout
@pytest.mark.parametrize("is_whole_word", [True, False])
def test_masks_are_those_of_google_with_the_same_random_numbers(is_whole_word):
    google = google_bert.load("create_pretraining_data")
    google.FLAGS.do_whole_word_mask = is_whole_word
    pieces = TOKENIZER.pieces
    continues = [piece.startswith("##") for piece in pieces] if is_whole_word else None
    for seed in range(50):
        rng = random.Random(seed)
        size_a, size_b = rng.randint(1, 30), rng.randint(1, 30)
        ids = [rng.randint(5, len(pieces) - 1) for _ in range(size_a + size_b)]
        tokens = [pieces[i] for i in ids]
        tokens = ["[CLS]", *tokens[:size_a], "[SEP]", *tokens[size_a:], "[SEP]"]
        theirs = google.create_masked_lm_predictions(tokens, 0.15, 6, pieces, random.Random(seed))
        words = pretraining_pairs.words_of(ids, continues)
        count = min(6, max(1, round(0.15 * len(tokens))))
        chosen, masked = pretraining_pairs.mask(ids, words, count, TOKENIZER, random.Random(seed))
        masked = [pieces[i] for i in masked]
        assert theirs[0] == ["[CLS]", *masked[:size_a], "[SEP]", *masked[size_a:], "[SEP]"]
        assert theirs[1] == [i + 1 + (i >= size_a) for i in chosen]
        assert theirs[2] == [pieces[ids[i]] for i in chosen]


def test_masks_are_shuffled_as_by_python():
    for size in range(70):
        ours, theirs = list(range(size)), list(range(size))
        rngs = random.Random(size), random.Random(size)
        pretraining_pairs._shuffle(ours, rngs[0])
        rngs[1].shuffle(theirs)
        assert ours == theirs
        assert rngs[0].random() == rngs[1].random()
