"""Files beside a checkpoint of an encoder, which say what the shapes of its variables do not.

bert_config.json, albert_config.json or electra_config.json has the number of attention heads, the
activation and, from tools.bert_checkpoint, the names of the classes; vocab.txt, or a *.model of
SentencePiece, has the tokens; trained_on.json, of a model_dir of this package, has a checksum of
the vocabulary. With others than those of the checkpoint a warm start succeeds, and the model
computes something else.
"""

from __future__ import annotations

import codecs
import hashlib
import json
import os
import re

import tensorflow as tf

from common.constants import SENTENCEPIECE
from models.model import ModelError
from models.text import checkpoint_families, encoders

# Hyperparameter: its name in bert_config.json.
_SIZES = {
    "num_layers": "num_hidden_layers",
    "hidden_size": "hidden_size",
    "num_heads": "num_attention_heads",
    "ffn_size": "intermediate_size",
    "embedding_size": "embedding_size",
}
# Fields of the configuration, also of other programs: their only values, the first the default.
_ARCHITECTURE = {
    "bert": {"hidden_act": ("gelu", "gelu_new"), "position_embedding_type": ("absolute",)},
    "albert": {
        "hidden_act": ("gelu", "gelu_new"),
        "position_embedding_type": ("absolute",),
        "num_hidden_groups": (1,),
        "inner_group_num": (1,),
    },
    "electra": {"hidden_act": ("gelu",), "position_embedding_type": ("absolute",)},
}
_GENERIC = re.compile(r"LABEL_\d+")  # a class without a name, in transformers
_UNUSED = re.compile(r"\[unused\d+\]")


def check_warm_start(checkpoint, include, params, pipeline):
    """Compares the files beside a checkpoint with the run; missing files are not compared.

    Args:
      checkpoint: path, local or gs://.
      include: regular expression of the variables that are restored.
      params: see `bert.default_params`.
      pipeline: the pipeline of the data set; its `vocabulary_path` is read, if it has one.

    Raises:
      ModelError: they differ, or a file is invalid.
    """
    folder, family = os.path.dirname(checkpoint), params["family"]
    config_path = os.path.join(folder, f"{family}_config.json")
    encoder = encoders.FAMILIES[family]
    embeddings = f"{encoder.SCOPE}/embeddings/word_embeddings"
    if any(re.fullmatch(include, name) for name in (embeddings, encoder.QUERY)):
        checkpoint_families.check(checkpoint, family)
    if re.fullmatch(include, encoder.QUERY):
        sizes = _SIZES if include == ".*" else {"num_heads": _SIZES["num_heads"]}
        _check_config(config_path, sizes, params)
    if re.fullmatch(include, "output_bias"):
        _check_class_names(config_path, encoder.SCOPE, pipeline)
    path = getattr(pipeline, "vocabulary_path", None)
    if path and re.fullmatch(include, embeddings):
        rows = dict(tf.train.list_variables(checkpoint)).get(embeddings, [0])[0]
        _check_tokens(folder, path, rows)
        _check_embeddings(checkpoint, rows, path, params["vocab_size"])
        for parent in (folder, os.path.dirname(folder)):  # of a model_dir, or of its folder best
            check_trained_on(os.path.join(parent, "trained_on.json"), path)


def _check_config(path, sizes, params):
    config = read_json(path)
    found = {name: config[key] for name, key in sizes.items() if key in config}
    params = {**params, "embedding_size": params["embedding_size"] or params["hidden_size"]}
    wrong = [name for name, value in found.items() if value != params[name]]
    if wrong:
        theirs = " and ".join(f"{sizes[name]}={found[name]!r}" for name in wrong)
        ours = " and ".join(f"{name}={params[name]}" for name in wrong)
        needed = ",".join(f"{name}={found[name]}" for name in wrong)
        raise ModelError(f"{path} has {theirs}, but this model has {ours}. Use --params={needed}")
    family = params["family"]
    for name, valid in {"model_type": (family,), **_ARCHITECTURE[family]}.items():
        if config.get(name, valid[0]) not in valid:
            raise ModelError(
                f"{path} has {name}={config[name]!r}, but this model is of {name}={valid[0]!r}"
            )


def class_names(config: dict) -> list[str]:
    """Returns the names of the classes of a head in order; [] if its configuration has none."""
    found = config.get("id2label")
    found = found if isinstance(found, dict) else {}
    names = [found.get(str(i)) for i in range(len(found))]
    is_named = all(isinstance(name, str) for name in names)
    return names if is_named and not all(map(_GENERIC.fullmatch, names)) else []


def _check_class_names(path, scope, pipeline):
    """Compares the order of classes; other names may be another task, whose head is trained."""
    theirs = class_names(read_json(path))
    if not theirs:
        return
    data = pipeline.data
    ours = data.target.names if data.target else data.class_names
    ours = ours or data.properties.get("tag_names", ())
    order = [name.casefold() for name in theirs]
    folded = [name.casefold() for name in ours]
    if folded == order or sorted(folded) != sorted(order):
        return
    wanted = ",".join(sorted(ours, key=lambda name: order.index(name.casefold())))
    how = f": --class_names={wanted}" if data.class_names else f", {wanted}"
    raise ModelError(
        f"{path} has the classes {','.join(theirs)} (id2label), but the data set {','.join(ours)}. "
        f"Prepare the data in the order of the checkpoint{how}. Or train a new head: "
        f"--warm_start_include={scope}/.*"
    )


def _check_embeddings(checkpoint, rows, path, vocab_size):
    if rows > vocab_size:
        raise ModelError(
            f"{checkpoint} has {rows} word embeddings, but this model "
            f"vocab_size={vocab_size}, of {path}. If the others are padding, use --params="
            f"vocab_size={rows}"
        )
    if 0 < rows < vocab_size:
        raise ModelError(
            f"{checkpoint} has {rows} word embeddings, but this model "
            f"vocab_size={vocab_size}, and {path} is its vocabulary. Prepare the data with the "
            f"vocabulary of the checkpoint (--vocabulary), of at most {rows} lines"
        )


def _check_tokens(folder, path, rows):
    """Compares the vocabulary of the data set with that beside the checkpoint."""
    pieces = sorted(tf.io.gfile.glob(os.path.join(folder, f"*{SENTENCEPIECE}")))
    if not path.endswith(SENTENCEPIECE):
        _check_vocabulary(os.path.join(folder, "vocab.txt"), path, rows)
        pieces = [] if tf.io.gfile.exists(os.path.join(folder, "vocab.txt")) else pieces
    if pieces and all(_read(name) != _read(path) for name in pieces):
        raise ModelError(
            f"{pieces[0]} is another vocabulary than {path}. Prepare the data with the vocabulary "
            f"of the checkpoint: --vocabulary={pieces[0]}"
        )


def _check_vocabulary(theirs_path, ours_path, rows):
    """Compares the tokens; those that the checkpoint did not use may have been given a meaning.

    Its embeddings may have more rows than tokens: those are padding, and not used either.
    """
    if not tf.io.gfile.exists(theirs_path):
        return
    contents = _read(theirs_path), _read(ours_path)
    theirs, ours = (
        [line.strip().decode(errors="replace") for line in content.rstrip(b"\r\n").split(b"\n")]
        for content in (content.removeprefix(codecs.BOM_UTF8) for content in contents)
    )
    advice = "Prepare the data with the vocabulary of the checkpoint (--vocabulary)"
    if len(theirs) < len(ours):
        is_same_size = len(ours) <= rows
    else:
        is_same_size = all(map(_UNUSED.fullmatch, theirs[len(ours) :]))
    if not is_same_size:
        raise ModelError(
            f"{theirs_path} has {len(theirs)} tokens, and {ours_path} {len(ours)}. {advice}"
        )
    for number, (their, our) in enumerate(zip(theirs, ours)):
        if their != our and not _UNUSED.fullmatch(their):
            raise ModelError(
                f"--warm_start_from: token {number} is {their!r} in {theirs_path}, and {our!r} in "
                f"{ours_path}. {advice}"
            )


def check_trained_on(theirs_path: str, ours_path: str) -> None:
    """Raises `ModelError` if trained_on.json of a model_dir lists another vocabulary."""
    known = read_json(theirs_path).get("assets")
    if known and hashlib.sha256(_read(ours_path)).hexdigest() not in known:
        raise ModelError(
            f"{theirs_path} lists another vocabulary than {ours_path}. Prepare "
            "the data with the vocabulary of the checkpoint"
        )


def read_json(path: str) -> dict:
    """Returns the object in a file; {} if it is missing."""
    if not tf.io.gfile.exists(path):
        return {}
    try:
        value = json.loads(_read(path))
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(value, dict):
        raise ModelError(f"{path} is not a JSON object")
    return value


def _read(path):
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            return file.read()
    except tf.errors.OpError as error:
        raise ModelError(f"{path} cannot be read: {error.message}") from error
