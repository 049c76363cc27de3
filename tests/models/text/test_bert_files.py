"""Files beside a BERT checkpoint: other heads and other vocabularies are errors."""

import hashlib
import json
import re
import types

import numpy as np
import pytest

from engine.checkpoints import writer
from models.model import ModelError
from models.text import bert, bert_files

PARAMS = {**bert.default_params(), **bert.SIZES["tiny"]}
EMBEDDINGS = "bert/embeddings/word_embeddings"
TOKENS = ["[PAD]", "[unused0]", "[unused1]", "[CLS]", "a", "##b"]


@pytest.fixture
def check(tmp_path):
    """Checks a warm start with a vocabulary: `check(tokens, include, rows, vocab_size)`."""
    (tmp_path / "data").mkdir()
    (tmp_path / "released").mkdir()

    def check_with(tokens=TOKENS, include=".*", rows=None, vocab_size=None):
        path = tmp_path / "data" / "vocab-0123.txt"
        path.write_text("".join(f"{token}\n" for token in tokens))
        pipeline = types.SimpleNamespace(vocabulary_path=str(path))
        checkpoint = str(tmp_path / "released" / "bert_model.ckpt")
        writer.write(checkpoint, {EMBEDDINGS: np.zeros([rows or len(tokens), 2], np.float32)})
        params = {**PARAMS, "vocab_size": vocab_size or len(tokens)}
        bert_files.check_warm_start(checkpoint, include, params, pipeline)

    return check_with


@pytest.fixture
def released(tmp_path, check):
    """The folder of the checkpoint, with its vocabulary."""
    folder = tmp_path / "released"
    (folder / "vocab.txt").write_text("\r\n".join(TOKENS))
    return folder


def test_missing_files_are_not_compared(check):
    check()


def test_another_number_of_heads(check, released):
    (released / "bert_config.json").write_text('{"num_attention_heads": 4, "hidden_act": "gelu"}')
    with pytest.raises(ModelError, match="num_attention_heads=4, but this model has num_heads=2"):
        check()
    with pytest.raises(ModelError, match="--params=num_heads=4"):
        check(include="bert/encoder/layer_0/.*")
    check(include="bert/embeddings/.*")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"model_type": "roberta"}', "model_type='roberta', but this model is of .*='bert'"),
        ('{"position_embedding_type": "relative_key"}', "position_embedding_type='relative_key'"),
        ("[]", r"bert_config\.json is not a JSON object"),
    ],
)
def test_another_architecture(check, released, content, message):
    (released / "bert_config.json").write_text(content)
    with pytest.raises(ModelError, match=message):
        check()


def test_another_depth_and_width(check, released):
    (released / "bert_config.json").write_text('{"num_hidden_layers": 12, "hidden_size": 768}')
    message = "has num_hidden_layers=12 and hidden_size=768, but .* has num_layers=2 and hidden_"
    with pytest.raises(ModelError, match=re.compile(message)):
        check()
    check(include="bert/encoder/layer_[01]/.*")


def test_another_activation(check, released):
    (released / "bert_config.json").write_text('{"num_attention_heads": 2, "hidden_act": "relu"}')
    with pytest.raises(ModelError, match="hidden_act='relu'"):
        check()


@pytest.mark.parametrize("content", ["{", "[" * 100_000, "\x00"])
def test_an_invalid_configuration(check, released, content):
    (released / "bert_config.json").write_text(content)
    with pytest.raises(ModelError, match=r"bert_config\.json cannot be read as JSON"):
        check()


def test_another_vocabulary_of_the_same_size(check, released):
    check()
    with pytest.raises(
        ModelError, match=r"token 4 is 'a' in .*vocab\.txt, and 'c' in .*vocab-0123"
    ):
        check([*TOKENS[:4], "c", "##b"])
    check([*TOKENS[:4], "c", "##b"], include="bert/encoder/.*")


def test_a_vocabulary_of_another_size(check, released):
    with pytest.raises(
        ModelError, match=r"vocab\.txt has 6 tokens, and .*vocab-0123\.txt 7\. Prep"
    ):
        check([*TOKENS, "c"], rows=6)


def test_padded_embeddings(check, released):
    """They have rows without a token, which may be used as the unused tokens are."""
    with pytest.raises(ModelError, match=r"has 8 word embeddings.* use --params=vocab_size=8"):
        check(rows=8)
    check(rows=8, vocab_size=8)
    check([*TOKENS, "c", "d"], rows=8)
    with pytest.raises(ModelError, match=r"vocab\.txt has 6 tokens, and .*vocab-0123\.txt 9"):
        check([*TOKENS, "c", "d", "e"], rows=8)


@pytest.mark.parametrize("multiple", [8, 64, 128])
def test_embeddings_padded_to_a_multiple(check, released, multiple):
    """Tables are padded to the tiles of a TPU or of a GPU; vocab_size accepts their rows."""
    check(rows=multiple, vocab_size=multiple)
    with pytest.raises(ModelError, match=f"use --params=vocab_size={multiple}"):
        check(rows=multiple)


def test_fewer_embeddings_than_tokens(check):
    with pytest.raises(ModelError, match=r"has 4 word embeddings, .* of at most 4 lines"):
        check(rows=4)


def test_unused_tokens_at_the_end_may_be_missing(check, released):
    (released / "vocab.txt").write_text("\n".join([*TOKENS, "[unused2]"]))
    check(rows=7, vocab_size=7)


def test_a_byte_order_mark_is_not_part_of_the_first_token(check, released):
    (released / "vocab.txt").write_text("\ufeff" + "\r\n".join(TOKENS), "utf-8")
    check()


def test_another_sentencepiece_model_beside_the_checkpoint(tmp_path):
    released, ours = tmp_path / "30k-clean.model", tmp_path / "data" / "spiece-0123.model"
    ours.parent.mkdir()
    ours.write_bytes(b"a")
    released.write_bytes(b"a")
    embeddings = {EMBEDDINGS: np.zeros([7, 2], np.float32)}
    writer.write(str(tmp_path / "model.ckpt-best"), embeddings)
    pipeline = types.SimpleNamespace(vocabulary_path=str(ours))
    params = {**PARAMS, "family": "albert", "vocab_size": 7}
    checkpoint = str(tmp_path / "model.ckpt-best")
    include = "bert/embeddings/.*"
    with pytest.raises(ModelError, match="is a checkpoint of BERT, but this model is ALBERT"):
        bert_files.check_warm_start(checkpoint, include, params, pipeline)
    more = {"bert/encoder/embedding_hidden_mapping_in/bias": np.zeros(2, np.float32)}
    writer.write(checkpoint, {**embeddings, **more})
    bert_files.check_warm_start(checkpoint, include, params, pipeline)
    released.write_bytes(b"b")
    with pytest.raises(ModelError, match=r"30k-clean\.model is another vocabulary than .*spiece"):
        bert_files.check_warm_start(checkpoint, include, params, pipeline)


def test_unused_tokens_may_become_words(check, released):
    check(["[PAD]", "word", *TOKENS[2:]])


def test_the_vocabulary_of_another_training(check, tmp_path):
    text = "".join(f"{token}\n" for token in TOKENS)
    record = {"assets": [hashlib.sha256(text.encode()).hexdigest()]}
    (tmp_path / "released" / "trained_on.json").write_text(json.dumps(record))
    check()
    with pytest.raises(ModelError, match=r"trained_on\.json lists another vocabulary than"):
        check([*TOKENS, "c"])


@pytest.fixture
def check_classes(tmp_path):
    """Checks the restoring of a head: `check_classes(id2label, names)`."""

    def check_with(id2label, class_names=(), target=None, tags=(), include=".*"):
        (tmp_path / "bert_config.json").write_text(json.dumps({"id2label": id2label}))
        checkpoint = str(tmp_path / "bert_model.ckpt")
        writer.write(checkpoint, {"output_bias": np.zeros([3], np.float32)})
        data = types.SimpleNamespace(
            class_names=class_names, target=target, properties={"tag_names": tags} if tags else {}
        )
        pipeline = types.SimpleNamespace(data=data)
        bert_files.check_warm_start(checkpoint, include, PARAMS, pipeline)

    return check_with


ID2LABEL = {"0": "Entailment", "1": "neutral", "2": "contradiction"}
NAMES = ("contradiction", "entailment", "neutral")


def test_another_order_of_classes(check_classes):
    check_classes(ID2LABEL, ("entailment", "neutral", "contradiction"))
    message = (
        r"has the classes Entailment,neutral,contradiction \(id2label\), but the data set "
        "contradiction,entailment,neutral.*: --class_names=entailment,neutral,contradiction. Or "
        r"train a new head: --warm_start_include=bert/\.\*"
    )
    with pytest.raises(ModelError, match=message):
        check_classes(ID2LABEL, NAMES)
    check_classes(ID2LABEL, NAMES, include="bert/.*")


def test_another_order_of_tags_or_labels(check_classes):
    with pytest.raises(ModelError, match="order of the checkpoint, entailment,neutral,contra"):
        check_classes(ID2LABEL, tags=NAMES)
    with pytest.raises(ModelError, match="order of the checkpoint, entailment,neutral,contra"):
        check_classes(ID2LABEL, target=types.SimpleNamespace(names=NAMES))


@pytest.mark.parametrize(
    "id2label",
    [
        {"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"},
        {"0": "sports", "1": "neutral", "2": "contradiction"},
        {"0": "entailment", "1": "neutral"},
        {"1": "entailment", "2": "neutral", "3": "contradiction"},
        ["entailment", "neutral", "contradiction"],
        {},
    ],
)
def test_names_that_say_no_order_of_these_classes(check_classes, id2label):
    check_classes(id2label, NAMES)
