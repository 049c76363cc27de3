"""Checkpoints of GPT-2, ours and OpenAI's, and the files beside them.

hparams.json has the number of attention heads; encoder.json, vocab.json or tokenizer.json the
tokens; trained_on.json, of a model_dir of this package, a checksum of the vocabulary.
"""

from __future__ import annotations

import os
import re

import tensorflow as tf

from models.model import ModelError
from models.text import checkpoint_families
from models.text.bert_files import check_trained_on, read_json

EMBEDDING = "model/wte"


def sizes_of(shapes: dict[str, list[int]]) -> dict[str, int]:
    """Returns the hyperparameters that the shapes of the variables of GPT-2 say."""
    layers = {match[1] for match in map(re.compile(r"model/h(\d+)/").match, shapes) if match}
    rows, hidden_size = shapes[EMBEDDING]
    return {
        "vocab_size": rows,
        "max_positions": shapes.get("model/wpe", [0])[0],
        "num_layers": len(layers),
        "hidden_size": hidden_size,
    }


def check_warm_start(checkpoint, include, params, pipeline):
    """Compares a checkpoint and the files beside it with the run; missing files are not compared.

    Args:
      checkpoint: path, local or gs://.
      include: regular expression of the variables that are restored.
      params: see `gpt.default_params`.
      pipeline: the pipeline of the data set; its `vocabulary_path` is read, if it has one.

    Raises:
      ModelError: it is of another family or size, has other tokens, or a file is invalid.
    """
    if not re.fullmatch(include, EMBEDDING):
        return
    folder, shapes = os.path.dirname(checkpoint), dict(tf.train.list_variables(checkpoint))
    if EMBEDDING not in shapes:
        checkpoint_families.check(checkpoint, "gpt")
        raise ModelError(f"{checkpoint} is not of GPT-2: it has no variable {EMBEDDING}")
    _check_sizes(checkpoint, folder, sizes_of(shapes), include, params)
    path = getattr(pipeline, "vocabulary_path", None)
    if path and tf.io.gfile.exists(path):
        _check_tokens(folder, path)
        for parent in (folder, os.path.dirname(folder)):  # of a model_dir, or of its folder best
            check_trained_on(os.path.join(parent, "trained_on.json"), path)


def _check_sizes(checkpoint, folder, found, include, params):
    heads = read_json(os.path.join(folder, "hparams.json")).get("n_head")
    found = {**found, "num_heads": heads or params["num_heads"]}
    if include != ".*":  # some of the variables of a larger model may be restored
        found = {name: found[name] for name in ("hidden_size", "num_heads")}
    wrong = [name for name, value in found.items() if value != params[name]]
    if not wrong:
        return
    theirs, ours = (
        " and ".join(f"{name}={values[name]}" for name in wrong) for values in (found, params)
    )
    if "vocab_size" in wrong and found["vocab_size"] < params["num_tokens"]:
        advice = "Prepare the data with the vocabulary of the checkpoint (--vocabulary)"
    else:
        advice = "Use --params=" + ",".join(f"{name}={found[name]}" for name in wrong)
    raise ModelError(f"{checkpoint} has {theirs}, but this model has {ours}. {advice}")


def _check_tokens(folder, path):
    """Compares the ids of tokens with those of the data set."""
    ours = read_json(path)["model"]["vocab"]
    for name in ("encoder.json", "vocab.json", "tokenizer.json"):
        theirs = read_json(os.path.join(folder, name))
        theirs = theirs.get("model", {}).get("vocab", {}) if name == "tokenizer.json" else theirs
        if theirs and theirs != ours:
            different = next((t for t in ours if theirs.get(t) != ours[t]), next(iter(theirs)))
            raise ModelError(
                f"the token {different!a} is {theirs.get(different)} in "
                f"{folder}/{name}, and {ours.get(different)} in {path}. Prepare the data with the "
                "vocabulary of the checkpoint (--vocabulary)"
            )
