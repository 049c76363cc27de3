"""WordPiece tokens of BERT."""

import pickle

import pytest

from input_fns import DataError
from input_fns.text import wordpiece

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECES = [*SPECIAL, "[", "]", "sep", "mask", "un", "##aff", "##able", "a", "##a", "##b", ",", "中"]
VOCAB = "".join(f"{piece}\n" for piece in PIECES).encode()


@pytest.fixture(scope="module")
def uncased():
    return wordpiece.WordPieceTokenizer(VOCAB, lower_case=True)


def pieces(tokenizer, text):
    return [tokenizer.pieces[i] for i in tokenizer.encode_ids([text])[0]]


def test_words_become_the_longest_pieces(uncased):
    assert pieces(uncased, "unaffable, unaab") == [
        *["un", "##aff", "##able", ",", "un", "##a", "##a", "##b"]
    ]


def test_a_word_with_an_unknown_piece_is_unknown(uncased):
    assert pieces(uncased, "unable unz") == ["un", "##able", "[UNK]"]


def test_lower_case_removes_accents_too(uncased):
    assert pieces(uncased, "ÁáB") == ["a", "##a", "##b"]
    cased = wordpiece.WordPieceTokenizer(VOCAB, lower_case=False)
    assert pieces(cased, "ÁáB a") == ["[UNK]", "a"]


def test_accents_may_stay_in_lower_case():
    vocab = VOCAB + "á\n##é\n".encode()
    kept = wordpiece.WordPieceTokenizer(vocab, lower_case=True, strip_accents=False)
    assert pieces(kept, "ÁÉ") == ["á", "##é"]
    assert pieces(pickle.loads(pickle.dumps(kept)), "ÁÉ") == ["á", "##é"]
    learnt = wordpiece.train(wordpiece.count_words(["É É"], True, False), 64, True, False)
    assert pieces(learnt, "é") == ["é"]


def test_text_never_yields_special_ids(uncased):
    assert pieces(uncased, "[SEP] [MASK]") == ["[", "sep", "]", "[", "mask", "]"]


def test_places_are_code_points_of_the_text(uncased):
    text = " \0Áb  中a\u0301b 😀"
    encoding = uncased.encode([text])[0]
    found = [text[start:end] for start, end in zip(encoding.starts, encoding.ends)]
    assert found == ["Á", "b", "中", "a", "b", "😀"]
    assert encoding.ids == uncased.encode_ids([text])[0]


def test_words_of_more_than_200_characters_are_unknown(uncased):
    assert pieces(uncased, "a" * 200) == ["a"] + ["##a"] * 199
    assert pieces(uncased, "a" * 201) == ["[UNK]"]


@pytest.mark.parametrize("limit", [2, 7, 30])
@pytest.mark.parametrize(
    "text",
    [
        "un\taffable a\n\n  unaffable,a,,b un[SEP]a",
        " 中中ab\u0301 a\u0301中\u0301,\u0301un ΑΣ Σ\x0cab\u2028un\u00a0aa ",
        "a" * 199 + " " + "a" * 201 + "中" * 40 + "a",
    ],
)
def test_a_long_text_in_parts_has_the_same_tokens(uncased, monkeypatch, text, limit):
    """The library needs 200 bytes per character at once, so a text is cut between words."""
    whole, short = uncased.encode([text, "a b"])
    sizes = []
    encode = wordpiece._encode
    monkeypatch.setattr(
        wordpiece, "_encode", lambda parts, f: sizes.append(len(parts)) or encode(parts, f)
    )
    monkeypatch.setattr(wordpiece, "_CALL_CHARACTERS", limit)
    assert uncased.encode([text, "a b"]) == [whole, short]
    assert uncased.encode_ids([text, "a b"]) == [whole.ids, short.ids]
    assert len(sizes) > 1


def test_a_text_without_words_of_a_million_characters_is_refused(uncased, monkeypatch):
    monkeypatch.setattr(wordpiece, "_CALL_CHARACTERS", 30)
    monkeypatch.setattr(wordpiece, "_LONGEST_WORD", 300)
    assert pieces(uncased, "a" * 300) == ["[UNK]"]
    with pytest.raises(DataError, match=r"a word of more than 300 characters, such as '\.\.\.aaa"):
        uncased.encode(["a " * 30 + "a" * 400])


def test_a_word_without_a_sigma_is_not_searched_from_each_of_its_letters(uncased):
    """A regular expression of words with a sigma takes quadratic time: minutes for this text."""
    assert len(uncased.encode_ids(["Σ " + "a" * 10**5])[0]) == 2


@pytest.mark.parametrize("text", ["", " \n", "\0\x7f\u200b"])
def test_text_without_words_has_no_tokens(uncased, text):
    assert uncased.encode_ids([text]) == [[]]


def test_a_surrogate_without_its_partner_is_an_unknown_word(uncased):
    assert pieces(uncased, "a \ud800") == ["a", "[UNK]"]


def test_decode_joins_the_pieces_of_a_word(uncased):
    ids = [uncased.cls_id, *uncased.encode_ids(["unaffable, a"])[0], uncased.sep_id]
    assert uncased.decode([*ids, uncased.pad_id]) == "[CLS] unaffable , a [SEP]"


def test_the_vocabulary_has_as_many_ids_as_lines():
    assert wordpiece.WordPieceTokenizer(VOCAB, True).vocab_size == len(PIECES)
    assert wordpiece.WordPieceTokenizer(VOCAB.rstrip(b"\n"), True).vocab_size == len(PIECES)
    with_carriage_returns = VOCAB.replace(b"\n", b"\r\n")
    assert wordpiece.WordPieceTokenizer(with_carriage_returns, True).pieces == PIECES
    with_byte_order_mark = b"\xef\xbb\xbf" + VOCAB
    assert wordpiece.WordPieceTokenizer(with_byte_order_mark, True).pieces == PIECES


@pytest.mark.parametrize(
    ("vocab", "message"),
    [
        (VOCAB.replace(b"[MASK]\n", b""), r"is a file of 16 lines without \[MASK\]"),
        (b"", r"is a file of 0 lines without \[PAD\], \[UNK\], \[CLS\], \[SEP\], \[MASK\]"),
        (b"\x80\n" + VOCAB, "is not UTF-8 text"),
    ],
)
def test_a_file_that_is_no_vocabulary_is_an_error(tmp_path, vocab, message):
    path = tmp_path / "vocab.txt"
    path.write_bytes(vocab)
    with pytest.raises(DataError, match=f"vocab.txt {message}"):
        wordpiece.load(str(path), lower_case=True)


def test_a_missing_vocabulary_is_an_error(tmp_path):
    with pytest.raises(DataError, match="is not there"):
        wordpiece.load(str(tmp_path / "vocab.txt"), lower_case=True)


def learn(texts, size=64, lower_case=True):
    return wordpiece.train(wordpiece.count_words(texts, lower_case), size, lower_case)


def test_a_lone_surrogate_is_of_no_piece():
    found = learn(["the weather \ud83d is fine"] * 3)
    assert not {piece for piece in found.pieces if "\ud800" <= piece[-1:] <= "\udfff"}


def test_a_vocabulary_is_learnt_from_text():
    texts = ["the weather, the weather", "The WEATHER is Fine"] * 3
    learnt = learn(texts)
    assert learnt.pieces[:5] == SPECIAL
    assert learnt.vocab_size <= 64
    assert pieces(learnt, "the weather") == ["the", "weather"]
    assert learn(texts).vocab == learnt.vocab
    cased = learn(texts, 64, False)
    assert {"W", "F"} <= set(cased.pieces)
    assert not {"W", "F"} & set(learnt.pieces)


def test_a_learnt_vocabulary_has_the_characters_that_the_text_needs():
    learnt = learn(["ab!", "中 É"])
    assert learnt.pieces[5:] == [*["!", "a", "b", "e", "中"], *["##a", "##b", "##e"], "ab"]
    with pytest.raises(DataError, match=r"has 13 special tokens, .* room for 12"):
        learn(["ab!", "中 É"], 12)


def test_nothing_is_learnt_from_a_word_that_becomes_unk():
    longest = "ab" * 100
    assert longest in learn([longest]).pieces
    learnt = learn([f"{longest}a"])
    assert learnt.pieces[5:] == ["a", "b", "##a", "##b"]


def test_without_text_there_is_no_vocabulary():
    with pytest.raises(DataError, match="no text"):
        learn(["", "  "])


@pytest.mark.parametrize("lower_case", [True, False])
def test_ids_do_not_depend_on_what_was_encoded_before(monkeypatch, lower_case):
    """Ids of chunks between spaces and punctuation are kept; `encode` looks at whole texts."""
    texts = [
        *("Una un.una, [SEP]un", "U\u0301n\u00a0un \u0301a a\u0301\u0301,\u0301b", "中un中,a"),
        *("aΣ. bΣ'b aΣ", "a\0b \xad a\x1cb\x85a\u2028b", "\ue000a \u200bA\ufffd", "a" * 201 + "!"),
    ]
    characters = {character for text in texts for character in text + text.lower()}
    vocab = [*SPECIAL, *sorted(characters), *(f"##{c}" for c in sorted(characters))]
    tokenizer = wordpiece.WordPieceTokenizer("\n".join(vocab).encode(), lower_case)
    wanted = [one.ids for one in tokenizer.encode(texts)]
    monkeypatch.setattr(wordpiece, "_MAX_KNOWN", 5)
    assert tokenizer.encode_ids(texts) == wanted
    assert pickle.loads(pickle.dumps(tokenizer)).encode_ids(texts[::-1]) == wanted[::-1]


def test_words_are_counted_as_the_tokenizer_splits_text():
    texts = ["The the, (THE)", "cafe\u0301 Café", "a中b\u200b \0"]
    counts = {"the": 3, ",": 1, "(": 1, ")": 1, "cafe": 2, "a": 1, "中": 1, "b": 1}
    assert wordpiece.count_words(texts, lower_case=True) == counts
    assert wordpiece.count_words(texts, lower_case=False)["THE"] == 1
