"""Converts checkpoints of GPT-2 from and to Hugging Face.

python -m tools.gpt_checkpoint from_hugging_face FOLDER OUT
python -m tools.gpt_checkpoint to_hugging_face SOURCE OUT

FOLDER holds model.safetensors, config.json, vocab.json and merges.txt. SOURCE is a model_dir, or a
folder of OpenAI's releases with hparams.json. OUT is a new folder: with model.ckpt, hparams.json,
encoder.json and vocab.bpe, as OpenAI releases them and --warm_start_from and --vocabulary read
them; or with the files of FOLDER, for a data set of characters with tokenizer.json. Written are the
weights of the model, or their moving average if there is one.
"""

from __future__ import annotations

import json
import os
import re
import sys

from engine.cli import startup

if __name__ == "__main__":
    startup.hide_logs()
    startup.check(startup.check_environment)

import numpy as np
import tensorflow as tf

from common import files
from common.constants import END_OF_TEXT
from common.errors import UsageError
from engine.checkpoints import ema, find, writer
from engine.cli import runtime
from input_fns import dataset_info
from models import registry
from models.text import gpt_files
from tools import bert_hugging_face as hugging_face
from tools import checkpoint_folders

CHECKPOINT, CONFIG = "model.ckpt", "hparams.json"
# Our hyperparameter: the names in hparams.json and config.json.
PARAMS = {
    "vocab_size": ("n_vocab", "vocab_size"),
    "max_positions": ("n_ctx", "n_positions"),
    "hidden_size": ("n_embd", "n_embd"),
    "num_heads": ("n_head", "n_head"),
    "num_layers": ("n_layer", "n_layer"),
}
# Values of config.json that the model has, the default of Hugging Face first.
_ARCHITECTURE = {
    "model_type": ("gpt2",),
    "activation_function": ("gelu_new", "gelu_pytorch_tanh"),
    "layer_norm_epsilon": (1e-5,),
    "n_inner": (None,),
    "scale_attn_weights": (True,),
    "scale_attn_by_inverse_layer_idx": (False,),
    "tie_word_embeddings": (True,),
}
_BUFFERS = r"(transformer\.)?h\.\d+\.attn\.(masked_)?bias"  # of masks


def main(command: str, source: str, out: str) -> None:
    """Converts `source` into the new folder `out`, and prints how to use it."""
    runtime.prepare()
    commands = {"from_hugging_face": from_hugging_face, "to_hugging_face": to_hugging_face}
    if command not in commands:
        raise UsageError(f"'{command}' is unknown. Valid: {', '.join(commands)}")
    if tf.io.gfile.exists(out):
        raise UsageError(f"{out} exists. Choose a new folder, or remove it")
    commands[command](source.rstrip("/"), out.rstrip("/"))


def name_of(variable: str) -> str:
    """Returns the name of a variable in Hugging Face, without the prefix "transformer."."""
    name = re.sub(r"^h(\d+)/", r"h/\1/", variable.removeprefix("model/"))
    if name in ("wte", "wpe"):
        return f"{name}.weight"
    return re.sub("/b$", "/bias", re.sub("/[gw]$", "/weight", name)).replace("/", ".")


def variables_of(params: dict[str, int]) -> dict[str, list[int]]:
    """Returns the shapes of the variables of a model."""
    model = registry.find("gpt")
    with tf.Graph().as_default():
        tokens = tf.zeros([1, 2], tf.int32)
        model.inference({"tokens": tokens}, {**model.default_params(), **params}, False)
        variables = tf.compat.v1.global_variables()
        return {variable.op.name: variable.shape.as_list() for variable in variables}


def from_hugging_face(folder: str, out: str) -> None:
    """Converts a folder of Hugging Face to model.ckpt and the files beside it."""
    params = _read_config(f"{folder}/config.json")
    tensors = {
        name.removeprefix("transformer."): value
        for name, value in hugging_face.read_safetensors(folder, _BUFFERS).items()
    }
    head = tensors.pop("lm_head.weight", tensors.get("wte.weight"))
    if not np.array_equal(head, tensors.get("wte.weight")):
        raise UsageError("lm_head.weight differs from wte.weight: untied weights do not fit")
    variables, wrong = {}, []
    for name, shape in variables_of(params).items():
        value = tensors.pop(name_of(name), None)
        found = None if value is None else list(value.shape)
        if found != (shape[1:] if name.endswith("/w") else shape):
            wrong.append(f"{name_of(name)} is {found or 'missing'} instead of {shape}")
        else:
            variables[name] = value.reshape(shape)
    wrong += [f"{name} is unknown" for name in tensors]
    if wrong:
        raise UsageError(
            f"the weights are not those that config.json describes: {'; '.join(sorted(wrong)[:5])}"
        )
    contents = {CONFIG: _json({PARAMS[name][0]: value for name, value in params.items()})}
    for theirs, ours in (("vocab.json", "encoder.json"), ("merges.txt", "vocab.bpe")):
        contents[ours] = _read(f"{folder}/{theirs}")
    checkpoint_folders.write(
        out, contents, lambda path: writer.write(f"{path}/{CHECKPOINT}", variables)
    )
    sizes = ",".join(
        f"{name}={params[name]}" for name in params if name not in ("vocab_size", "max_positions")
    )
    print(f"{len(variables)} variables: {out}")
    print(f"prepare_data.py --dataset=lm_text --vocabulary={out}")
    print(f"--model=gpt --params={sizes} --warm_start_from={out}/{CHECKPOINT}")


def to_hugging_face(source: str, out: str) -> None:
    """Writes the weights of `source` as a folder that `transformers` loads."""
    safetensors = hugging_face.import_safetensors()
    checkpoint = find.find_in(source, is_trained=False)
    if checkpoint is None:
        raise UsageError(f"no checkpoint in {source}")
    reader = tf.train.load_checkpoint(checkpoint)
    stored = reader.get_variable_to_shape_map()
    if gpt_files.EMBEDDING not in stored:
        raise UsageError(f"{checkpoint} is not a checkpoint of GPT-2: it has no model/wte")
    params, vocabulary = _read_source(os.path.dirname(checkpoint), gpt_files.sizes_of(stored))
    tensors = {}
    for name in variables_of(params):
        average = ema.average_name(name)
        value = reader.get_tensor(average if average in stored else name)
        value = value[0] if name.endswith("/w") else value
        tensors[f"transformer.{name_of(name)}"] = np.ascontiguousarray(value)
    config = {
        "architectures": ["GPT2LMHeadModel"],
        **{name: valid[0] for name, valid in _ARCHITECTURE.items()},
        **{PARAMS[name][1]: value for name, value in params.items()},
        **dict.fromkeys(("bos_token_id", "eos_token_id"), vocabulary.pop("end_of_text")),
    }
    content = safetensors.numpy.save(tensors, {"format": "pt"})
    contents = {"config.json": _json(config), "model.safetensors": content, **vocabulary}
    checkpoint_folders.write(out, contents)
    print(f"{len(tensors)} tensors of GPT2LMHeadModel: {out}")


def _read_source(folder, found):
    """Returns hyperparameters, and `{file: content}` of the vocabulary with its end of text."""
    for candidate in (folder, os.path.dirname(folder)):
        if tf.io.gfile.exists(f"{candidate}/{CONFIG}"):
            heads = json.loads(_read(f"{candidate}/{CONFIG}"))["n_head"]
            encoder = _read(f"{candidate}/encoder.json")
            texts = {"vocab.json": encoder, "merges.txt": _read(f"{candidate}/vocab.bpe")}
            end = json.loads(encoder).get(END_OF_TEXT)
            return {**found, "num_heads": heads}, {**texts, "end_of_text": end}
        if tf.io.gfile.exists(f"{candidate}/flags.cfg"):
            flags = checkpoint_folders.flags_of(candidate)
            params = checkpoint_folders.params_of(flags)
            data = dataset_info.read(dict(flags).get("data_dir", ""))
            if data.kind.name != "tokens" or "num_heads" not in params:
                raise UsageError(f"{candidate} is not the model_dir of a GPT-2")
            path = os.path.join(data.data_dir, data.kind.vocabulary)
            vocabulary = {"end_of_text": data.kind.end_of_text, **_vocabulary_files(_read(path))}
            return {**found, "num_heads": params["num_heads"]}, vocabulary
    raise UsageError(f"{folder} has neither {CONFIG} nor flags.cfg")


def _vocabulary_files(content):
    """Returns vocab.json and merges.txt of a tokenizer.json; that file itself of characters."""
    model = json.loads(content)["model"]
    if model["type"] != "BPE":
        return {"tokenizer.json": content}
    merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    text = "\n".join(["#version: 0.2", *merges, ""])
    return {"vocab.json": _json(model["vocab"]), "merges.txt": text.encode()}


def _read_config(path):
    """Returns the hyperparameters of Hugging Face's config.json."""
    try:
        config = json.loads(_read(path))
        params = {ours: config[theirs] for ours, (_, theirs) in PARAMS.items()}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UsageError(f"{path} is not a configuration of GPT-2: {error!r}") from error
    for name, valid in _ARCHITECTURE.items():
        if config.get(name, valid[0]) not in valid:
            raise UsageError(f"{path}: {name}={config[name]!r} is unsupported. Valid: {valid}")
    if not all(type(value) is int and 0 < value < 2**31 for value in params.values()):
        raise UsageError(f"{path}: {params} are not positive integers")
    if params["hidden_size"] % params["num_heads"]:
        raise UsageError(f"{path}: n_embd is not a multiple of n_head")
    return params


def _json(value):
    return json.dumps(value, ensure_ascii=False, indent=1).encode() + b"\n"


def _read(path):
    try:
        with files.open_bytes(path) as file:
            return file.read()
    except (OSError, tf.errors.OpError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    startup.run(lambda: main(*sys.argv[1:]))
