"""GPT-2 in `transformers` of Hugging Face and back: the same outputs and continuations.

Needs transformers and PyTorch, which no part of this package needs.
"""

import importlib.util
import json

import numpy as np
import pytest
import tensorflow as tf

from input_fns.text import tokenizer
from models.text import gpt
from tools import gpt_checkpoint

pytestmark = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("torch", "transformers", "safetensors"))),
    reason="torch, transformers or safetensors is not installed",
)
TOLERANCE = 1e-4  # largest difference of logits
VOCAB, LENGTH, END = 300, 23, 299
PARAMS = {
    **gpt.default_params(),
    "vocab_size": VOCAB,
    "num_tokens": VOCAB,
    "end_of_text": END,
    "max_positions": LENGTH,
    "num_layers": 2,
    "hidden_size": 24,
    "num_heads": 3,
    "temperature": 0.0,
}


@pytest.fixture
def theirs(tmp_path):
    """A random model, and its folder with a vocabulary."""
    import torch
    import transformers

    torch.manual_seed(0)
    names = {gpt_checkpoint.PARAMS[name][1]: PARAMS[name] for name in gpt_checkpoint.PARAMS}
    model = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(**names, bos_token_id=END, eos_token_id=END, pad_token_id=END)
    ).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    folder = tmp_path / "theirs"
    model.save_pretrained(folder)
    content = tokenizer.train(["the cat sat on the mat. " * 9], VOCAB).content
    for name, text in gpt_checkpoint._vocabulary_files(content).items():
        (folder / name).write_bytes(text)
    return model, folder


@pytest.fixture
def ours(theirs, tmp_path):
    """Function that runs a graph of ours with the weights of `theirs`."""
    gpt_checkpoint.main("from_hugging_face", str(theirs[1]), str(tmp_path / "ours"))
    reader = tf.train.load_checkpoint(str(tmp_path / "ours" / "model.ckpt"))

    def run(build):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            tensors = build()
            for variable in tf.compat.v1.global_variables():
                variable.load(reader.get_tensor(variable.op.name), session)
            return session.run(tensors)

    return run


def logits_of(model, tokens):
    import torch

    with torch.no_grad():
        return model(torch.tensor(tokens).long()).logits.numpy()


def test_logits_are_equal_in_both_directions(theirs, ours, tmp_path):
    import transformers

    model, _ = theirs
    tokens = np.random.default_rng(1).integers(0, VOCAB, [3, LENGTH]).astype(np.int32)
    expected = logits_of(model, tokens)

    def log_probs():
        rows = tf.constant(np.pad(tokens, [[0, 0], [0, 1]]))
        return gpt.inference({"tokens": rows}, PARAMS, training=False)["log_probs"]

    log_softmax = expected - np.log(np.exp(expected).sum(-1, keepdims=True))
    of_next = np.take_along_axis(log_softmax[:, :-1], tokens[:, 1:, np.newaxis], 2)[..., 0]
    np.testing.assert_allclose(ours(log_probs)[:, :-1], of_next, atol=TOLERANCE)
    gpt_checkpoint.main("to_hugging_face", str(tmp_path / "ours"), str(tmp_path / "back"))
    back = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "back").eval()
    np.testing.assert_array_equal(logits_of(back, tokens), expected)
    assert json.loads((tmp_path / "back" / "config.json").read_text())["n_head"] == 3


@pytest.mark.parametrize("changes", [{}, {"beam_size": 4}, {"beam_size": 3, "length_penalty": 2.0}])
def test_continuations_are_identical(theirs, ours, changes):
    import torch

    model, _ = theirs
    random, new = np.random.default_rng(2), 8
    lengths = random.integers(1, LENGTH - new, 20).astype(np.int32)
    prompts = random.integers(0, END, [20, LENGTH]).astype(np.int32)
    stops = (3, 17, 120, 210)

    def decode():
        features = {
            "prompt": tf.constant(prompts),
            "prompt_length": tf.constant(lengths),
            "max_tokens": tf.fill([20], LENGTH),
            "seed": tf.zeros([20], tf.int32),
        }
        params = {**PARAMS, **changes, "stop_tokens": stops, "max_new_tokens": new}
        return gpt.decode(features, params)

    found = ours(decode)
    width = lengths.max()
    padded = np.full([20, width], END)
    for row, prompt, length in zip(padded, prompts, lengths):
        row[width - length :] = prompt[:length]
    mask = np.arange(width) >= width - lengths[:, np.newaxis]
    expected = model.generate(
        torch.tensor(padded),
        attention_mask=torch.tensor(mask).long(),
        max_new_tokens=new,
        do_sample=False,
        num_beams=changes.get("beam_size", 1),
        length_penalty=changes.get("length_penalty", 1.0),
        eos_token_id=[END, *stops],
    ).numpy()
    for row, begin, end, theirs_row in zip(
        found["tokens"], lengths, found["length"], expected[:, width:]
    ):
        assert row[begin:end].tolist() == theirs_row[: end - begin].tolist()
        assert set(theirs_row[end - begin :]) <= {END}
