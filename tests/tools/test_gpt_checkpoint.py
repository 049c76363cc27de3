"""Conversion of checkpoints of GPT-2 from and to Hugging Face."""

import importlib.util
import json

import numpy as np
import pytest
import tensorflow as tf

from common.errors import UsageError
from engine.checkpoints import writer
from input_fns.text import tokenizer
from tools import gpt_checkpoint

pytestmark = pytest.mark.skipif(
    not importlib.util.find_spec("safetensors"), reason="safetensors is not installed"
)
PARAMS = {"vocab_size": 300, "max_positions": 7, "hidden_size": 6, "num_heads": 3, "num_layers": 2}


@pytest.fixture
def variables():
    random = np.random.default_rng(1)
    shapes = gpt_checkpoint.variables_of(PARAMS)
    return {name: random.normal(size=s).astype(np.float32) for name, s in shapes.items()}


@pytest.fixture
def released(tmp_path, variables):
    """A folder as OpenAI releases them."""
    folder = tmp_path / "released"
    folder.mkdir()
    writer.write(str(folder / "model.ckpt"), variables)
    sizes = {gpt_checkpoint.PARAMS[name][0]: value for name, value in PARAMS.items()}
    (folder / "hparams.json").write_text(json.dumps(sizes))
    content = tokenizer.train(["the cat sat on the mat. " * 9], PARAMS["vocab_size"]).content
    for name, text in gpt_checkpoint._vocabulary_files(content).items():
        ours = {"vocab.json": "encoder.json", "merges.txt": "vocab.bpe"}[name]
        (folder / ours).write_bytes(text)
    return folder


def read(folder):
    reader = tf.train.load_checkpoint(str(folder / "model.ckpt"))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def test_there_and_back(tmp_path, variables, released):
    import safetensors.numpy

    gpt_checkpoint.main("to_hugging_face", str(released), str(tmp_path / "theirs"))
    tensors = safetensors.numpy.load_file(str(tmp_path / "theirs" / "model.safetensors"))
    # transformers' Conv1D has [size, units], as openai/gpt-2.
    np.testing.assert_array_equal(
        tensors["transformer.h.1.attn.c_attn.weight"], variables["model/h1/attn/c_attn/w"][0]
    )
    config = json.loads((tmp_path / "theirs" / "config.json").read_text())
    end = tokenizer.load(str(released)).end_of_text
    assert (config["n_layer"], config["n_head"], config["eos_token_id"]) == (2, 3, end)
    gpt_checkpoint.main("from_hugging_face", str(tmp_path / "theirs"), str(tmp_path / "ours"))
    found = read(tmp_path / "ours")
    assert found.keys() == variables.keys()
    for name, value in variables.items():
        np.testing.assert_array_equal(found[name], value)
    (ids,) = tokenizer.load(str(tmp_path / "ours")).encode(["the cat"])
    assert ids.tolist() == tokenizer.load(str(released)).encode(["the cat"])[0].tolist()


def test_masks_that_transformers_kept_are_no_weights(tmp_path, released):
    import safetensors.numpy

    gpt_checkpoint.main("to_hugging_face", str(released), str(tmp_path / "theirs"))
    path = tmp_path / "theirs" / "model.safetensors"
    tensors = safetensors.numpy.load_file(str(path))
    tensors["transformer.h.0.attn.bias"] = np.ones([1, 1, 7, 7], np.uint8)
    tensors["transformer.h.0.attn.masked_bias"] = np.array(-1e4, np.float32)
    safetensors.numpy.save_file(tensors, str(path))
    gpt_checkpoint.main("from_hugging_face", str(tmp_path / "theirs"), str(tmp_path / "ours"))
    assert read(tmp_path / "ours").keys() == read(released).keys()


def change_config(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_layer": 3}, "is missing instead of"),
        ({"n_layer": 1}, "is unknown"),
        ({"n_head": 4}, "n_embd is not a multiple of n_head"),
        ({"activation_function": "relu"}, "activation_function='relu' is unsupported"),
        ({"n_embd": "6"}, "are not positive integers"),
    ],
)
def test_another_configuration_is_one_line(tmp_path, released, changes, message):
    gpt_checkpoint.main("to_hugging_face", str(released), str(tmp_path / "theirs"))
    change_config(tmp_path / "theirs", **changes)
    with pytest.raises(UsageError) as error:
        gpt_checkpoint.main("from_hugging_face", str(tmp_path / "theirs"), str(tmp_path / "ours"))
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "ours").exists()


def test_another_checkpoint_is_an_error(tmp_path):
    writer.write(str(tmp_path / "model.ckpt"), {"bert/x": np.zeros(3, "f4")})
    with pytest.raises(UsageError, match="is not a checkpoint of GPT-2"):
        gpt_checkpoint.main("to_hugging_face", str(tmp_path), str(tmp_path / "out"))
