"""Tests of rows of tokens that an export answers as text."""

import numpy as np
import pytest

from input_fns import convert, dataset_info
from input_fns.convert import writer
from input_fns.convert.options import Options
from input_fns.core import serving
from input_fns.text.token_pipeline import TokenPipeline
from tests import bert_data, sentencepiece_data

ROWS = [("the film \U0001f600 was good", "a"), ("dull\U0001f600 plots!", "b"), ("the 中 film", "a")]


@pytest.fixture(params=["WordPiece", "SentencePiece"])
def data(request, tmp_path):
    """Rows of words, of which some are not in the vocabulary."""
    source, vocabulary = tmp_path / "source", tmp_path / "vocab.txt"
    source.mkdir()
    lines = "".join(f"{text},{label}\n" for text, label in ROWS)
    (source / "train.csv").write_text(f"text,label\n{lines}")
    vocabulary.write_bytes(bert_data.VOCAB)
    if request.param == "SentencePiece":
        pytest.importorskip("sentencepiece")
        vocabulary = tmp_path / "spm.model"
        vocabulary.write_bytes(sentencepiece_data.model())
    columns = {"text_columns": ("text",), "label_columns": ("label",)}
    options = {"vocabulary": str(vocabulary), "max_length": 24, "validation_fraction": 0.0}
    raw = convert.read(Options("text_files", source=str(source), **columns, **options))
    writer.write(raw, str(tmp_path / "data"))
    return dataset_info.read(str(tmp_path / "data"))


@pytest.mark.slow(cost=0.1)
def test_sample_texts_become_the_stored_tokens(data):
    """Those with unknown words too, although no text becomes the name of the unknown token."""
    receiver = TokenPipeline(data, serves_text=True).receivers()[serving.TEXT]
    ids = TokenPipeline(data)._first_features("train", 3)["input_ids"]
    tokenizer = TokenPipeline(data).tokenizer
    assert (ids == tokenizer.unk_id).sum() >= 3
    texts = [text.decode() for text in receiver.requests("train", 3)["text"]]
    expected = np.zeros_like(ids)
    for row, found in zip(expected, tokenizer.encode_ids(texts)):
        row[: len(found) + 2] = [tokenizer.cls_id, *found, tokenizer.sep_id]
    np.testing.assert_array_equal(expected, ids)
