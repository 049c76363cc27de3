"""WordPiece tokens in a graph are those of prepare_data.py."""

import numpy as np
import pytest
import tensorflow as tf

from input_fns.text import wordpiece
from tests.marks import slow

wordpiece_ops = pytest.importorskip("input_fns.text.wordpiece_ops")

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
VOCABULARY = wordpiece.WordPieceTokenizer(
    "".join(f"{piece}\n" for piece in [*SPECIAL, "[", "]", "sep", "a", "##b", ",", "é"]).encode(),
    lower_case=True,
)
CLS, SEP = VOCABULARY.cls_id, VOCABULARY.sep_id


def rows(texts, max_length, truncate="end"):
    """Rows in Python; pairs are truncated token by token."""
    whole = [VOCABULARY.encode_ids([text])[0] for text in texts]
    segments = [list(segment) for segment in whole]
    while sum(map(len, segments)) > max_length - 1 - len(segments):
        longest = segments[0] if len(segments[0]) > len(segments[-1]) else segments[-1]
        longest.pop()
    if truncate == "middle":
        heads = [
            len(kept) // 4 if len(kept) < len(w) else len(w) for kept, w in zip(segments, whole)
        ]
        segments = [
            w[:head] + w[len(w) - len(kept) + head :]
            for w, kept, head in zip(whole, segments, heads)
        ]
    ids, segment_ids = [CLS], [0]
    for number, segment in enumerate(segments):
        ids += [*segment, SEP]
        segment_ids += [number] * (len(segment) + 1)
    padding = [0] * (max_length - len(ids))
    return ids + padding, [1] * len(ids) + padding, segment_ids + padding


TEXTS = [
    *("A ab, é [SEP]", "", "a " * 9, "x" * 300, "ABAB", "aab,", "a", ","),
    # Neither case folding nor spaces in place of control characters.
    *("a\x85b a\0b", "½ ß", "É e\u0301\xad", "\ufffda\u200bb", "a\tb\nab"),
    # Words of 200 and of 201 characters.
    *("a" + "b" * 199, "a" + "b" * 200 + " a"),
]


def test_a_text_has_the_tokens_of_prepare_data(session):
    found = session.run(wordpiece_ops.to_rows([tf.constant(TEXTS)], VOCABULARY, 7))
    expected = [rows([text], 7) for text in TEXTS]
    for name, wanted in zip(("input_ids", "input_mask", "segment_ids"), zip(*expected)):
        np.testing.assert_array_equal(found[name], wanted)


def test_the_last_of_equal_pieces_counts(session):
    repeated = wordpiece.WordPieceTokenizer(VOCABULARY.vocab + b"a\n[SEP]\n", lower_case=True)
    found = session.run(wordpiece_ops.to_rows([tf.constant(["ab a"])], repeated, 7))
    (ids,) = repeated.encode_ids(["ab a"])
    assert ids[0] == len(repeated.pieces) - 2
    assert found["input_ids"][0, :5].tolist() == [CLS, *ids, len(repeated.pieces) - 1]


@pytest.mark.slow(cost=0.1)
def test_accents_may_stay_in_lower_case(session):
    kept = wordpiece.WordPieceTokenizer(VOCABULARY.vocab, lower_case=True, strip_accents=False)
    found = session.run(wordpiece_ops.to_rows([tf.constant(["É A e\u0301"])], kept, 7))
    (ids,) = kept.encode_ids(["É A e\u0301"])
    assert found["input_ids"][0, 1 : 1 + len(ids)].tolist() == ids
    assert kept.pieces[ids[0]] == "é"


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize(
    ("max_length", "truncate"), [slow(7, "end"), slow(8, "end"), (9, "middle")]
)
def test_pairs_are_truncated_like_google_research_bert(session, max_length, truncate):
    pairs = [("a " * i + "é" * i, ", " + "ab " * j) for i in range(8) for j in range(8)]
    first, second = map(tf.constant, zip(*pairs))
    found = session.run(wordpiece_ops.to_rows([first, second], VOCABULARY, max_length, truncate))
    expected = [rows(pair, max_length, truncate) for pair in pairs]
    for name, wanted in zip(("input_ids", "input_mask", "segment_ids"), zip(*expected)):
        np.testing.assert_array_equal(found[name], wanted)
