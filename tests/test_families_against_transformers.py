"""ALBERT and ELECTRA in `transformers`: the same outputs, loss and gradients, by the converters.

Needs transformers, PyTorch and safetensors, which no part of this package needs.
"""

import importlib.util
import json

import numpy as np
import pytest
import tensorflow as tf

from engine.checkpoints import writer
from models import registry
from models.text import encoders
from tests import encoder_data
from tools import bert_checkpoint
from tools.encoder_formats import FORMATS

pytestmark = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("torch", "transformers", "safetensors"))),
    reason="torch, transformers or safetensors is not installed",
)
# Largest difference, relative to the largest number of an array, but at least to 1.
TOLERANCE = 1e-4
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
NAMES = {
    "num_hidden_layers": "num_layers",
    "hidden_size": "hidden_size",
    "num_attention_heads": "num_heads",
    "intermediate_size": "ffn_size",
    "vocab_size": "vocab_size",
    "max_position_embeddings": "max_positions",
}


def write_release(folder, params, values):
    """Writes a checkpoint, configuration and vocabulary as the paper's code has them."""
    form = FORMATS[params["family"]]
    config = {theirs: params[ours] for theirs, ours in NAMES.items()}
    size = params["embedding_size"] or params["hidden_size"]
    config = {**config, "type_vocab_size": 2, "embedding_size": size, "hidden_act": "gelu"}
    writer.write(str(folder / form.checkpoint), values)
    (folder / form.config).write_text(json.dumps(config))
    tokens = [*SPECIAL, *(f"t{i}" for i in range(params["vocab_size"] - len(SPECIAL)))]
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens))


def inputs():
    import torch

    names = {"input_ids": "input_ids", "input_mask": "attention_mask"}
    names["segment_ids"] = "token_type_ids"
    return {names[n]: torch.tensor(v).long() for n, v in encoder_data.features().items()}


def run_theirs(model, family, variables):
    """Outputs, loss and gradients of a model of transformers, by our names."""
    import torch

    sequence_output = model.eval()(**inputs()).last_hidden_state
    albert = family == "albert"
    pooled = model.pooler_activation(model.pooler(sequence_output[:, 0])) if albert else None
    pooled = sequence_output[:, 0] if pooled is None else pooled
    weights = np.random.default_rng(7).normal(size=sequence_output.shape).astype(np.float32)
    loss = (sequence_output * torch.tensor(weights)).sum() + (pooled**2).sum()
    loss.backward()
    tensors = dict(model.named_parameters())
    found = {"sequence_output": sequence_output, "pooled_output": pooled, "loss": loss}
    found = {name: value.detach().numpy() for name, value in found.items()}
    for name in variables:
        gradient = tensors[FORMATS[family].name_of(name)].grad.numpy()
        found[name] = gradient.T if name.endswith("/kernel") else gradient
    return found


@pytest.mark.parametrize("size", ["albert", "electra", "electra_wide", "electra_small"])
def test_outputs_loss_and_gradients_equal_and_weights_return(tmp_path, size):
    import transformers

    scale = 0.2
    params = encoder_data.params(size if size in encoder_data.FAMILIES else "electra")
    if size == "electra_small":
        params, scale = {**params, **encoders.SIZES[size]}, 0.02
        params = {**params, "dropout": 0.0, "attention_dropout": 0.0}
    ours, values = encoder_data.run(lambda: encoder_data.encode(params), scale=scale)
    write_release(tmp_path, params, values)
    theirs = str(tmp_path / "theirs")
    bert_checkpoint.main("to_hugging_face", str(tmp_path), theirs)
    form = FORMATS[params["family"]]
    model, report = getattr(transformers, f"{form.title}Model").from_pretrained(
        theirs, output_loading_info=True
    )
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    found = run_theirs(model, params["family"], values)
    for gradients in (ours, found):  # PyTorch gives the embedding of [PAD] none
        table = f"{encoders.FAMILIES[params['family']].SCOPE}/embeddings/word_embeddings"
        gradients[table] = gradients[table][1:]
    assert encoder_data.largest_difference(ours, found) < TOLERANCE
    bert_checkpoint.main("from_hugging_face", theirs, str(tmp_path / "again"))
    for name, value in values.items():
        again = tf.train.load_variable(str(tmp_path / "again" / form.checkpoint), name)
        np.testing.assert_array_equal(again, value, name)


@pytest.mark.parametrize(
    ("family", "task", "head"),
    [
        ("albert", "classifier", "SequenceClassification"),
        ("albert", "token_classifier", "TokenClassification"),
        ("albert", "squad", "QuestionAnswering"),
        ("electra", "token_classifier", "TokenClassification"),
        ("electra", "squad", "QuestionAnswering"),
    ],
)
def test_their_heads_have_our_logits(tmp_path, family, task, head):
    import torch
    import transformers

    params = encoder_data.params(family, num_classes=3, num_tags=3)
    sizes = {theirs: params[ours] for theirs, ours in NAMES.items()}
    sizes = {**sizes, "embedding_size": params["embedding_size"], "initializer_range": 0.2}
    form = FORMATS[family]
    config = getattr(transformers, f"{form.title}Config")(
        **sizes, num_labels=2 if task == "squad" else 3, hidden_act=form.activations[0]
    )
    model = getattr(transformers, f"{form.title}For{head}")(config)
    model.save_pretrained(tmp_path / "theirs")
    tokens = [*SPECIAL, *(f"t{i}" for i in range(params["vocab_size"] - len(SPECIAL)))]
    (tmp_path / "theirs" / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens))
    bert_checkpoint.main("from_hugging_face", str(tmp_path / "theirs"), str(tmp_path / "ours"))
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        features = {name: tf.constant(value) for name, value in encoder_data.features().items()}
        model_params = {**registry.find(f"bert_{task}").default_params(), **params}
        outputs = registry.find(f"bert_{task}").inference(features, model_params, False)
        variables = tf.compat.v1.trainable_variables()
        path = str(tmp_path / "ours" / form.checkpoint)
        tf.compat.v1.train.Saver(variables).restore(session, path)
        ours = session.run(outputs)
    with torch.no_grad():
        theirs = model.eval()(**inputs())
    if task == "squad":  # ours are masked
        mask = encoder_data.features()["input_mask"] > 0
        ours = {name: np.where(mask, value, 0) for name, value in ours.items()}
        theirs = {name: np.where(mask, theirs[name].numpy(), 0) for name in ours}
    else:
        theirs = {"logits": theirs.logits.numpy()}
    assert encoder_data.largest_difference(ours, theirs) < TOLERANCE
