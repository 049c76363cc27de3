"""The family of a checkpoint, by names of variables in released checkpoints."""

import numpy as np
import pytest

from engine.checkpoints import writer
from models import registry
from models.model import ModelError
from models.text import bert, checkpoint_families
from tests import encoder_data

EMBEDDINGS = "embeddings/word_embeddings"
NAMES = {
    "BERT": [f"bert/{EMBEDDINGS}", "bert/encoder/layer_0/output/dense/bias", "cls/x"],
    "ALBERT": [
        f"bert/{EMBEDDINGS}",
        "bert/encoder/transformer/group_0/inner_group_0/LayerNorm_1/beta",
    ],
    "MobileBERT": [
        f"bert/{EMBEDDINGS}",
        "bert/encoder/layer_0/output/dense/bias",
        "bert/encoder/layer_0/bottleneck/input/dense/kernel",
    ],
    "ELECTRA": [f"electra/{EMBEDDINGS}", "generator/encoder/layer_0/output/dense/bias"],
    "GPT-2": ["model/h0/attn/c_attn/w", "model/wte"],
    "T5": ["encoder/block_000/layer_000/SelfAttention/q", "shared/embedding"],
    "XLNet": ["model/transformer/layer_0/rel_attn/q/kernel", "model/lm_loss/bias"],
    "Keras (object-based names)": ["encoder/layer-0/bias/.ATTRIBUTES/VARIABLE_VALUE"],
    "RoBERTa of Hugging Face": ["tf_roberta_model/roberta/encoder/layer_._0/output/dense/bias"],
    "Hugging Face transformers": ["tf_bert_model/bert/encoder/layer_._0/output/dense/bias"],
    "a Transformer of this package": ["encoder/layer_1/self_attention/output/kernel"],
}


@pytest.mark.parametrize("family", NAMES)
def test_the_family_is_known_by_its_names(family):
    assert checkpoint_families.find(reversed(NAMES[family])).name == family


def test_other_networks_are_of_no_family():
    assert checkpoint_families.find(["conv2d/kernel", "dense/bias", "global_step"]) is None


@pytest.mark.parametrize("family", ["albert", "bert", "electra"])
def test_the_names_of_our_encoders_are_those_of_their_family(family):
    _, values = encoder_data.run(lambda: encoder_data.encode(encoder_data.params(family)))
    assert checkpoint_families.find(values) is checkpoint_families.FAMILIES[family]


@pytest.mark.parametrize(
    ("model", "params", "expected"),
    [
        ("bert_classifier", {}, "BERT"),
        ("bert_squad", {"family": "albert"}, "ALBERT"),
        ("bert_embedder", {"family": "electra"}, "ELECTRA"),
        ("gpt", {}, "GPT-2"),
        ("transformer", {}, "a Transformer of this package"),
    ],
)
@pytest.mark.parametrize("found", NAMES)
def test_another_family_is_one_line_that_names_both(tmp_path, model, params, expected, found):
    path = str(tmp_path / "model.ckpt")
    writer.write(path, {name: np.zeros(2, "f4") for name in NAMES[found]})
    model = registry.find(model)

    def check():
        model.check_warm_start(path, ".*", {**model.default_params(), **params}, None)

    if found == expected and model.name != "gpt":  # whose sizes are compared, too
        check()
    elif found != expected:
        with pytest.raises(ModelError) as error:
            check()
        message = str(error.value)
        assert f"{path} is a checkpoint of {found}, but this model is {expected}. " in message
        assert "\n" not in message


def test_a_head_alone_may_come_from_another_family(tmp_path):
    path = str(tmp_path / "model.ckpt")
    writer.write(path, {f"electra/{EMBEDDINGS}": np.zeros([2, 2]), "output_bias": np.zeros(2)})
    registry.find("bert_classifier").check_warm_start(
        path, "output_.*", bert.default_params(), None
    )
