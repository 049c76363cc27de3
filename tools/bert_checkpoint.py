"""Converts BERT checkpoints from Hugging Face, to Hugging Face and to google-research/bert.

python -m tools.bert_checkpoint from_hugging_face FOLDER OUT
python -m tools.bert_checkpoint to_google SOURCE OUT
python -m tools.bert_checkpoint to_hugging_face SOURCE OUT

FOLDER holds model.safetensors, config.json, and vocab.txt or tokenizer.json. SOURCE is a model_dir,
a checkpoint of one, or a folder or checkpoint with bert_config.json and vocab.txt beside it. OUT is
a new folder: with the files of FOLDER; or with bert_model.ckpt, bert_config.json and vocab.txt, as
google-research/bert releases them and --warm_start_from reads them. Written are the weights of the
model, or their moving average if there is one, without slots of the optimizer.
"""

from __future__ import annotations

import json
import os
import re
import sys

from engine.cli import startup

if __name__ == "__main__":
    startup.check(startup.check_environment)

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

from common import files
from common.errors import UsageError
from engine.checkpoints import ema, find, writer
from engine.cli import runtime
from input_fns import dataset_info
from models.text import bert
from tools import bert_hugging_face as hugging_face
from tools import checkpoint_folders

CHECKPOINT, CONFIG = "bert_model.ckpt", "bert_config.json"
_EMBEDDINGS = "bert/embeddings/word_embeddings"
_MODEL_VARIABLE = re.compile(r"(bert|cls)/.+|output_weights|output_bias")


def main(command: str, source: str, out: str) -> None:
    """Converts `source` into the new folder `out`, and prints how to use it."""
    runtime.prepare()
    if command not in _COMMANDS:
        raise UsageError(f"'{command}' is unknown. Valid: {', '.join(_COMMANDS)}")
    if tf.io.gfile.exists(out):
        raise UsageError(f"{out} exists. Choose a new folder, or remove it")
    _COMMANDS[command](source.rstrip("/"), out.rstrip("/"))


def from_hugging_face(folder: str, out: str) -> None:
    """Converts a folder of Hugging Face to bert_model.ckpt, bert_config.json and vocab.txt."""
    params = hugging_face.read_params(folder, "config.json")
    tokens = hugging_face.read_vocabulary(folder)
    tensors = hugging_face.read_safetensors(folder)
    variables, left_out = hugging_face.to_variables(tensors, params, len(tokens))
    if left_out:
        print(f"left out, unknown to BERT: {', '.join(left_out)}")
    if params["vocab_size"] != len(tokens):
        print(f"{params['vocab_size'] - len(tokens)} rows of the word embeddings have no token")
    _write_google(out, variables, {**params, "vocab_size": len(tokens)}, tokens)


def to_google(source: str, out: str) -> None:
    """Writes the weights of `source` as google-research/bert released its own."""
    variables, params, tokens, _ = _read_source(source)
    _write_google(out, variables, params, tokens)


def to_hugging_face(source: str, out: str) -> None:
    """Writes the weights of `source` as a folder that `transformers` loads."""
    safetensors = hugging_face.import_safetensors()
    variables, params, tokens, found = _read_source(source)
    architecture = hugging_face.architecture(variables, found)
    tensors = {}
    for name, value in variables.items():
        in_encoder = name.startswith("bert/") and architecture != "BertModel"
        key = ("bert." if in_encoder else "") + hugging_face.name_of(name)
        tensors[key] = np.ascontiguousarray(value.T if name.endswith("/kernel") else value)
    config = {
        "architectures": [architecture],
        "model_type": "bert",
        **{theirs: params[ours] for ours, theirs in hugging_face.PARAMS.items()},
        "hidden_act": "gelu_new",  # the tanh form, which google-research/bert names gelu
        "layer_norm_eps": 1e-12,
        "pad_token_id": 0,
    }
    if "output_bias" in variables:
        labels = found.get("labels") or range(len(variables["output_bias"]))  # of a regression: 1
        config["id2label"] = {str(i): str(label) for i, label in enumerate(labels)}
        config["label2id"] = {label: int(i) for i, label in config["id2label"].items()}
    tokenizer = {"tokenizer_class": "BertTokenizer", "model_max_length": params["max_positions"]}
    if "lower_case" in found:
        tokenizer["do_lower_case"] = found["lower_case"]
        tokenizer["strip_accents"] = found["lower_case"] and found["strip_accents"]
    else:
        print("set do_lower_case in tokenizer_config.json: whether the vocabulary is lower-case")
    texts = _contents({"config.json": config, "tokenizer_config.json": tokenizer}, tokens)
    content = safetensors.numpy.save(tensors, {"format": "pt"})
    checkpoint_folders.write(out, {"model.safetensors": content, **texts})
    print(f"{len(tensors)} tensors of {architecture}: {out}")


_COMMANDS = {
    "from_hugging_face": from_hugging_face,
    "to_google": to_google,
    "to_hugging_face": to_hugging_face,
}


def _read_source(source):
    """Reads a model_dir, or a checkpoint with flags.cfg or bert_config.json in its folder.

    Returns:
      `{variable: array}`, hyperparameters, tokens, and what else flags.cfg and the data set say:
      `{"model": value of --model, "lower_case", "strip_accents": bool, "labels": [name]}`, or {}.
    """
    checkpoint = find.find_in(source, is_trained=False)
    if checkpoint is None:
        raise UsageError(f"no checkpoint in {source}")
    reader = tf.train.load_checkpoint(checkpoint)
    stored = reader.get_variable_to_shape_map()
    variables = {}
    for name in sorted(filter(_MODEL_VARIABLE.fullmatch, stored)):
        if name.rpartition("/")[0] not in stored:  # a slot is <variable>/<slot>
            average = ema.average_name(name)
            variables[name] = reader.get_tensor(average if average in stored else name)
    if _EMBEDDINGS not in variables:
        raise UsageError(f"{checkpoint} is not a checkpoint of BERT: it has no word embeddings")
    folder = os.path.dirname(checkpoint)
    for candidate in (folder, os.path.dirname(folder)):
        if tf.io.gfile.exists(f"{candidate}/{CONFIG}"):
            params, found = hugging_face.read_params(candidate, CONFIG), {}
            tokens = hugging_face.read_vocabulary(candidate)
            break
        if tf.io.gfile.exists(f"{candidate}/flags.cfg"):
            params, tokens, found = _read_run(candidate)
            params["vocab_size"] = len(variables[_EMBEDDINGS])
            break
    else:
        raise UsageError(f"{folder} has neither {CONFIG} and vocab.txt nor flags.cfg")
    rows = len(variables[_EMBEDDINGS])
    if not len(tokens) <= rows == params["vocab_size"]:  # rows without a token are padding
        raise UsageError(
            f"{checkpoint} has {rows} word embeddings, but its vocabulary {len(tokens)} tokens and "
            f"its configuration vocab_size={params['vocab_size']}"
        )
    return variables, params, tokens, found


def _read_run(model_dir):
    """Returns hyperparameters, tokens and other properties of the run in `model_dir`."""
    flags = checkpoint_folders.flags_of(model_dir)
    given, params = dict(flags), checkpoint_folders.params_of(flags)
    data = dataset_info.read(given.get("data_dir", ""))
    if data.kind.name != "wordpiece" or "num_heads" not in params:
        raise UsageError(f"{model_dir} is not the model_dir of a BERT")
    found = {name: getattr(data.kind, name) for name in ("lower_case", "strip_accents")}
    found["model"] = given["model"]
    found["labels"] = data.class_names or data.properties.get("tag_names", ())
    path = os.path.join(data.data_dir, data.kind.vocabulary)
    tokens = hugging_face.parse_vocabulary(files.read_text(path))
    return params, tokens, found


def _write_google(out, variables, params, tokens):
    config = {theirs: params[ours] for ours, theirs in hugging_face.PARAMS.items()}
    texts = _contents({CONFIG: {**config, "hidden_act": "gelu"}}, tokens)
    checkpoint_folders.write(
        out, texts, lambda path: writer.write(f"{path}/{CHECKPOINT}", variables)
    )
    sizes = {name: params[name] for name in bert.SIZES["base"]}
    size = next((name for name in bert.SIZES if bert.SIZES[name] == sizes), None)
    shown = f"size={size}" if size else ",".join(f"{name}={sizes[name]}" for name in sizes)
    print(f"{len(variables)} variables, {len(tokens)} tokens: {out}")
    print(f"--model=bert_TASK --params={shown} --warm_start_from={out}/{CHECKPOINT}")


def _contents(objects, tokens):
    """Returns `{name of a file: content}` of objects, as JSON, and of the vocabulary."""
    texts = {name: json.dumps(value, indent=2) for name, value in objects.items()}
    texts[hugging_face.VOCABULARY] = "\n".join(tokens)
    return {name: f"{text}\n".encode() for name, text in texts.items()}


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    startup.run(lambda: main(*sys.argv[1:]))
