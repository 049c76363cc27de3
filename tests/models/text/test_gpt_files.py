"""Checkpoints of GPT-2 and the files beside them, compared with the run."""

import json
import types

import numpy as np
import pytest

from engine.checkpoints import writer
from models.model import ModelError
from models.text import gpt, gpt_files

VOCAB = {"a": 0, "b": 1, "<|endoftext|>": 2}
PARAMS = {
    **gpt.default_params(),
    "num_layers": 2,
    "hidden_size": 6,
    "num_heads": 3,
    "max_positions": 5,
    "vocab_size": 3,
    "num_tokens": 3,
    "end_of_text": 2,
}


@pytest.fixture
def checkpoint(tmp_path):
    """Function that writes a checkpoint of these variables, and returns its path."""

    def write(variables=None):
        names = [f"model/h{i}/ln_1/g" for i in range(2)]
        shapes = {"model/wte": [3, 6], "model/wpe": [5, 6], **{name: [6] for name in names}}
        path = str(tmp_path / "model.ckpt")
        writer.write(path, {n: np.zeros(s, "f4") for n, s in (variables or shapes).items()})
        return path

    return write


def check(path, tmp_path, vocabulary=VOCAB, include=".*", **changes):
    ours = tmp_path / "ours.json"
    ours.write_text(json.dumps({"model": {"vocab": vocabulary}}))
    pipeline = types.SimpleNamespace(vocabulary_path=str(ours))
    gpt_files.check_warm_start(path, include, {**PARAMS, **changes}, pipeline)


def test_the_same_model_is_valid(checkpoint, tmp_path):
    path = checkpoint()
    (tmp_path / "hparams.json").write_text(json.dumps({"n_head": 3, "n_embd": 6}))
    (tmp_path / "encoder.json").write_text(json.dumps(VOCAB))
    check(path, tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"num_layers": 3, "hidden_size": 12},
            "has num_layers=2 and hidden_size=6, but this model has num_layers=3 and "
            "hidden_size=12. Use --params=num_layers=2,hidden_size=6",
        ),
        ({"num_heads": 2}, "has num_heads=3, but this model has num_heads=2"),
        ({"vocab_size": 7, "num_tokens": 7}, "Prepare the data with the vocabulary"),
    ],
)
def test_another_size_is_one_line(checkpoint, tmp_path, changes, message):
    path = checkpoint()
    (tmp_path / "hparams.json").write_text(json.dumps({"n_head": 3}))
    with pytest.raises(ModelError) as error:
        check(path, tmp_path, **changes)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_another_family_is_named(checkpoint, tmp_path):
    path = checkpoint({"bert/embeddings/word_embeddings": [3, 6]})
    with pytest.raises(ModelError, match="is a checkpoint of BERT, but this model is GPT-2"):
        check(path, tmp_path)


def test_an_unknown_checkpoint_lacks_the_embeddings(checkpoint, tmp_path):
    with pytest.raises(ModelError, match="is not of GPT-2: it has no variable model/wte"):
        check(checkpoint({"x": [3, 6]}), tmp_path)


def test_other_tokens_are_an_error(checkpoint, tmp_path):
    path = checkpoint()
    (tmp_path / "vocab.json").write_text(json.dumps({"b": 0, "a": 1, "<|endoftext|>": 2}))
    with pytest.raises(ModelError, match=r"the token 'a' is 1 in .*vocab\.json, and 0 in"):
        check(path, tmp_path)


def test_layers_alone_may_be_of_a_model_with_other_tokens(checkpoint, tmp_path):
    check(checkpoint(), tmp_path, {"x": 0}, include="model/h.*", vocab_size=1)
