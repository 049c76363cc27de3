"""Pieces of ALBERT: ids as google-research/albert's tokenization.py, and places."""

import pickle
import re
import unicodedata

import numpy as np
import pytest

from common.errors import UsageError
from input_fns import DataError, dataset_info
from input_fns.convert.options import Options
from input_fns.text import sentencepieces
from tests import bert_data
from tests.sentencepiece_data import TEXTS, model


def tokenizer(lower_case=True, strip_accents=True):
    return sentencepieces.SentencePieceTokenizer(model(), lower_case, "m", strip_accents)


def pieces_of_google(text):
    """The rules of preprocess_text and encode_pieces of google-research/albert."""
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_proto=model())
    text = unicodedata.normalize("NFKD", " ".join(text.split()))
    text = "".join(c for c in text if not unicodedata.combining(c)).lower()
    found = []
    for piece in processor.encode(text, out_type=str):
        if not re.search(r"\d,$", piece):
            found.append(piece)
            continue
        digits = processor.encode(piece[:-1].replace("\u2581", ""), out_type=str)
        if piece[0] != "\u2581" and digits[0][0] == "\u2581":
            digits = digits[1:] if digits[0] == "\u2581" else [digits[0][1:], *digits[1:]]
        found += [*digits, ","]
    return processor.piece_to_id(found)


@pytest.mark.parametrize(
    "text",
    [
        "the café cost 12,012 in 1999, says a.",
        "  Tabs\tand \n lines,  9,",
        "Ünïcode ﬁ ½ 中文 \U0001f600",
        "[CLS] [MASK] <pad>",
        "",
    ],
)
def test_ids_are_those_of_google(text):
    (ids,) = tokenizer().encode_ids([text])
    assert ids == pieces_of_google(text)
    assert not {*ids} & {tokenizer().pad_id, tokenizer().cls_id, tokenizer().mask_id}
    assert tokenizer().encode([text])[0].ids == ids


@pytest.mark.parametrize("strip_accents", [True, False])
def test_a_sigma_is_lower_case_by_its_word(strip_accents):
    text = "aΣ ΣΟΣ. aΣ'b Σ \U0001d6baΣ\u0301 İΣ"
    decomposed = unicodedata.normalize("NFKD", text) if strip_accents else text
    stripped = "".join(c for c in decomposed if not unicodedata.combining(c) or not strip_accents)
    one = tokenizer(strip_accents=strip_accents)
    assert "".join(c for c, _ in one._characters(text)) == stripped.lower()
    assert one.encode([text])[0].ends[-1] == len(text)


def test_a_comma_after_a_digit_is_a_token():
    """Some piece of the model holds both, which the rule splits."""
    assert tokenizer()._split
    found = [tokenizer().pieces[i] for i in tokenizer().encode_ids(["in 1999, says"])[0]]
    assert "," in found
    assert not [piece for piece in found if re.search(r"\d,$", piece)]


def test_places_hold_the_text_of_the_tokens():
    text = "  The  café cost\t1,001 in 1999, says B."
    one = tokenizer().encode([text])[0]
    joined = "".join(text[start:end] for start, end in zip(one.starts, one.ends))
    assert joined == "".join(text.split())
    assert one.starts == sorted(one.starts)
    assert [text[s:e] for s, e in zip(one.starts, one.ends) if text[s:e] == ","]


@pytest.mark.parametrize(("strip_accents", "known"), [(True, False), (False, True)])
def test_accents_are_kept_if_wanted(strip_accents, known):
    (ids,) = tokenizer(strip_accents=strip_accents).encode_ids(["café"])
    assert (ids[-1] == tokenizer().pieces.index("é")) == known


def test_a_process_gets_the_same_tokenizer():
    again = pickle.loads(pickle.dumps(tokenizer(lower_case=False)))
    assert not again.lower_case
    assert again.encode_ids(TEXTS[:3]) == tokenizer(lower_case=False).encode_ids(TEXTS[:3])


def test_text_is_readable_again():
    one = tokenizer()
    ids = [one.cls_id, *one.encode_ids(["the cost, says a."])[0], one.sep_id, one.pad_id]
    assert one.decode(ids) == "[CLS] the cost, says a. [SEP]"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[PAD]\n[UNK]\n", "x is not a SentencePiece model"),
        (None, r"x is a SentencePiece model without \[SEP\], \[MASK\]: use that of ALBERT"),
    ],
)
def test_another_file_is_an_error(content, message):
    content = content or model("[CLS]")
    with pytest.raises(DataError, match=message):
        sentencepieces.SentencePieceTokenizer(content, True, "x")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """The folder of sentences, and the data set prepared with the model."""
    folder = tmp_path_factory.mktemp("pieces")
    (folder / "30k-clean.model").write_bytes(model())
    (folder / "source").mkdir()
    rows = "".join(f"{text}\t{i % 2}\n" for i, text in enumerate(TEXTS[:40]))
    (folder / "source" / "train.tsv").write_text(f"sentence\tlabel\n{rows}")
    options = Options(
        "sst2",
        source=str(folder / "source"),
        vocabulary=str(folder / "30k-clean.model"),
        max_length=16,
    )
    return dataset_info.read(bert_data._write(folder, options))


def test_a_data_set_holds_the_model(prepared):
    kind = prepared.kind
    assert kind.vocabulary.startswith("spiece-")
    assert kind.vocab_size == tokenizer().vocab_size
    pipeline = kind.pipeline(prepared, options_of_a_run())
    assert pipeline.tokenizer.vocab == model()
    features = pipeline._first_features("train", 2)
    assert (features["input_ids"][:, 0] == tokenizer().cls_id).all()
    expected = tokenizer().encode_ids(TEXTS[:1])[0][:14]
    np.testing.assert_array_equal(features["input_ids"][0, 1 : 1 + len(expected)], expected)


def test_a_text_signature_needs_wordpiece(prepared):
    with pytest.raises(UsageError, match=r"--export_text needs a vocab\.txt of WordPiece"):
        prepared.kind.pipeline(prepared, options_of_a_run(export_text=True))


def options_of_a_run(**changes):
    import types

    values = {
        "cache": "auto",
        "export_text": False,
        "dynamic_padding": False,
        "group_by_length": False,
        "join_windows": "mean",
    }
    return types.SimpleNamespace(**{**values, **changes})
