"""ALBERT and ELECTRA by tools.bert_checkpoint; the outputs: tests/test_families_against_*."""

import importlib.util
import json

import numpy as np
import pytest
import tensorflow as tf

from common.errors import UsageError
from engine.checkpoints import writer
from tests import encoder_data, sentencepiece_data
from tools import bert_checkpoint, bert_hugging_face
from tools.encoder_formats import FORMATS

ALBERT = "encoder.albert_layer_groups.0.albert_layers.0"
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
CONFIG = {
    "vocab_size": 101,
    "num_hidden_layers": 3,
    "hidden_size": 24,
    "num_attention_heads": 3,
    "intermediate_size": 50,
    "max_position_embeddings": 40,
    "type_vocab_size": 2,
    "embedding_size": 10,
}
needs_safetensors = pytest.mark.skipif(
    not importlib.util.find_spec("safetensors"), reason="safetensors is not installed"
)


@pytest.fixture
def release(tmp_path):
    """Function that writes a release; returns its folder and the variables."""

    def write(family, has_config=True, **more):
        _, values = encoder_data.run(lambda: encoder_data.encode(encoder_data.params(family)))
        values = {**values, **more}
        form, folder = FORMATS[family], tmp_path / "released"
        writer.write(str(folder / form.checkpoint), values)
        if has_config:
            (folder / form.config).write_text(json.dumps({**CONFIG, "hidden_act": "gelu"}))
        tokens = [*SPECIAL, *(f"t{i}" for i in range(96))]
        (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens))
        return str(folder), values

    return write


def assert_equal(folder, form, expected):
    found = tf.train.load_checkpoint(f"{folder}/{form.checkpoint}")
    assert found.get_variable_to_shape_map().keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found.get_tensor(name), value, name)


def test_names_in_transformers():
    layer = "bert/encoder/transformer/group_0/inner_group_0"
    names = {
        "bert/embeddings/LayerNorm/gamma": "embeddings.LayerNorm.weight",
        "bert/encoder/embedding_hidden_mapping_in/bias": "encoder.embedding_hidden_mapping_in.bias",
        f"{layer}/attention_1/self/query/kernel": f"{ALBERT}.attention.query.weight",
        f"{layer}/attention_1/output/dense/bias": f"{ALBERT}.attention.dense.bias",
        f"{layer}/LayerNorm/beta": f"{ALBERT}.attention.LayerNorm.bias",
        f"{layer}/LayerNorm_1/beta": f"{ALBERT}.full_layer_layer_norm.bias",
        f"{layer}/ffn_1/intermediate/dense/kernel": f"{ALBERT}.ffn.weight",
        f"{layer}/ffn_1/intermediate/output/dense/kernel": f"{ALBERT}.ffn_output.weight",
        "bert/pooler/dense/kernel": "pooler.weight",
        "output_weights": "classifier.weight",
    }
    assert {name: FORMATS["albert"].name_of(name) for name in names} == names
    name = FORMATS["electra"].name_of("electra/encoder/layer_11/attention/self/key/bias")
    assert name == "encoder.layer.11.attention.self.key.bias"


@pytest.mark.slow(cost=0.1)
@needs_safetensors
@pytest.mark.parametrize("family", ["albert", "electra"])
def test_there_and_back(tmp_path, release, family):
    folder, variables = release(family)
    theirs, again = str(tmp_path / "theirs"), str(tmp_path / "again")
    bert_checkpoint.main("to_hugging_face", folder, theirs)
    with open(f"{theirs}/config.json") as file:
        config = json.load(file)
    assert (config["model_type"], config["embedding_size"]) == (family, 10)
    bert_checkpoint.main("from_hugging_face", theirs, again)
    assert_equal(again, FORMATS[family], variables)


@pytest.mark.slow(cost=0.1)
def test_a_training_checkpoint_of_electra_becomes_a_release(tmp_path, release, capsys):
    slots = {"electra/embeddings/LayerNorm/beta/adam_m": np.ones(10, "f4")}
    others = {"generator/x": np.ones(2, "f4"), **slots}
    folder, variables = release("electra", **others)
    bert_checkpoint.main("to_google", folder, str(tmp_path / "out"))
    kept = {name: value for name, value in variables.items() if name not in others}
    assert_equal(tmp_path / "out", FORMATS["electra"], kept)
    assert tf.train.latest_checkpoint(str(tmp_path / "out")).endswith("electra_model.ckpt")
    assert "--params=family=electra,embedding_size=10,num_layers=3" in capsys.readouterr().out


@pytest.mark.slow(cost=0.1)
def test_a_release_of_electra_has_no_configuration():
    _, values = encoder_data.run(
        lambda: encoder_data.encode(encoder_data.params("electra", hidden_size=128, num_heads=2))
    )
    found = bert_checkpoint._sizes_of_electra(values)
    expected = {"num_layers": 3, "hidden_size": 128, "num_heads": 2, "ffn_size": 50}
    assert {name: found[name] for name in expected} == expected
    assert (found["embedding_size"], found["vocab_size"], found["max_positions"]) == (10, 101, 40)


@pytest.mark.slow(cost=0.1)
@needs_safetensors
def test_the_head_of_classes_of_electra_is_left_out(tmp_path, release, capsys):
    head = {"output_weights": np.ones([2, 24], "f4"), "output_bias": np.ones(2, "f4")}
    folder, _ = release("electra", **head)
    bert_checkpoint.main("to_hugging_face", folder, str(tmp_path / "theirs"))
    out = capsys.readouterr().out
    assert "left out: output_weights and output_bias, which ElectraModel lacks" in out


def test_a_vocabulary_of_sentencepiece(tmp_path):
    (tmp_path / "30k-clean.model").write_bytes(sentencepiece_data.model())
    (tmp_path / "30k-clean.vocab").write_text("<pad>\t0\n")
    found = bert_hugging_face.read_any_vocabulary(str(tmp_path))
    assert found.is_pieces
    assert found.content == sentencepiece_data.model()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_hidden_groups": 12}, "num_hidden_groups=12 is unsupported"),
        ({"inner_group_num": 2}, "inner_group_num=2 is unsupported"),
        ({"hidden_act": "relu"}, "hidden_act='relu' is unsupported"),
        ({"embedding_size": None}, "embedding_size=None is not a number"),
    ],
)
def test_an_invalid_configuration(tmp_path, changes, message):
    (tmp_path / "albert_config.json").write_text(json.dumps({**CONFIG, **changes}))
    with pytest.raises(UsageError, match=message):
        bert_hugging_face.read_params(str(tmp_path), "albert_config.json")
