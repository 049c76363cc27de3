"""Converts checkpoints of BERT, ALBERT and ELECTRA from and to Hugging Face, and to Google's code.

python -m tools.bert_checkpoint from_hugging_face FOLDER OUT
python -m tools.bert_checkpoint to_google SOURCE OUT
python -m tools.bert_checkpoint to_hugging_face SOURCE OUT

FOLDER holds model.safetensors, config.json, and vocab.txt, tokenizer.json or spiece.model. SOURCE
is a model_dir, a checkpoint of one, or a folder or checkpoint with bert_config.json and vocab.txt
beside it; of ALBERT albert_config.json and a *.model, of ELECTRA vocab.txt alone. OUT is a new
folder: with the files of FOLDER; or with bert_model.ckpt, bert_config.json and vocab.txt, as
google-research/bert, albert and electra release them and --warm_start_from reads them. Written are
the weights of the model, or their moving average if there is one, without slots of the optimizer.
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

from common.errors import UsageError
from engine.checkpoints import ema, find, writer
from engine.cli import runtime
from input_fns import dataset_info
from models import registry
from models.text import bert_files, checkpoint_families, encoders
from tools import bert_hugging_face as hugging_face
from tools import checkpoint_folders
from tools.encoder_formats import FORMATS, architecture

_MODEL_VARIABLE = re.compile(
    r"(bert|electra|cls)/.+|output_weights|output_bias|target/(mean|scale)"
)
_PROBLEM_TYPES = {  # of transformers, by target
    "classification": "single_label_classification",
    "soft_labels": "single_label_classification",
    "multilabel": "multi_label_classification",
    "regression": "regression",
}
_HEAD_SIZE = 64  # hidden_size / num_heads of the releases of ELECTRA, which have no configuration


def main(command: str, source: str, out: str) -> None:
    """Converts `source` into the new folder `out`, and prints how to use it."""
    runtime.prepare()
    if command not in _COMMANDS:
        raise UsageError(f"'{command}' is unknown. Valid: {', '.join(_COMMANDS)}")
    if tf.io.gfile.exists(out):
        raise UsageError(f"{out} exists. Choose a new folder, or remove it")
    _COMMANDS[command](source.rstrip("/"), out.rstrip("/"))


def from_hugging_face(folder: str, out: str) -> None:
    """Converts a folder of Hugging Face to the files of the paper's code."""
    params = hugging_face.read_params(folder, "config.json")
    vocabulary = hugging_face.read_any_vocabulary(folder)
    tensors = hugging_face.read_safetensors(folder)
    variables, left_out = hugging_face.to_variables(tensors, params, vocabulary.size)
    head = _head_of(bert_files.read_json(f"{folder}/config.json"))
    count = len(variables.get("output_bias", ()))
    if count == 1 or (count and head["problem_type"] == "regression"):
        # Else a model starts with those of its data set.
        variables["target/mean"] = np.zeros(count, np.float32)
        variables["target/scale"] = np.ones(count, np.float32)
    if left_out:
        title = FORMATS[params["family"]].title.upper()
        print(f"left out, unknown to {title}: {', '.join(left_out)}")
    if params["vocab_size"] != vocabulary.size:
        print(f"{params['vocab_size'] - vocabulary.size} rows of the word embeddings have no token")
    _write_google(out, variables, {**params, "vocab_size": vocabulary.size}, vocabulary, head)


def to_google(source: str, out: str) -> None:
    """Writes the weights of `source` as the paper's code released its own."""
    _write_google(out, *_read_source(source))


def to_hugging_face(source: str, out: str) -> None:
    """Writes the weights of `source` as a folder that `transformers` loads."""
    safetensors = hugging_face.import_safetensors()
    variables, params, vocabulary, found = _read_source(source)
    variables = _with_scaled_head(variables)
    form = FORMATS[params["family"]]
    name_of_class = architecture(form, variables, found)
    if name_of_class == f"{form.title}Model" and "output_weights" in variables:
        print(f"left out: output_weights and output_bias, which {form.title}Model lacks")
        variables = {n: v for n, v in variables.items() if not n.startswith("output_")}
    tensors = {}
    for name, value in variables.items():
        is_encoder = name.startswith(("bert/", "electra/"))
        has_prefix = is_encoder and name_of_class != f"{form.title}Model"
        key = (f"{form.family}." if has_prefix else "") + form.name_of(name)
        tensors[key] = np.ascontiguousarray(value.T if name.endswith("/kernel") else value)
    config = {
        "architectures": [name_of_class],
        "model_type": form.family,
        **_config_of(params, form),
        **_head_config(variables, found),
        "hidden_act": form.activations[0],
        "layer_norm_eps": 1e-12,
        "pad_token_id": 0,
    }
    tokenizer = _tokenizer_config(vocabulary, params, form, found)
    files_of = _contents({"config.json": config, "tokenizer_config.json": tokenizer})
    files_of[hugging_face.PIECES if vocabulary.is_pieces else hugging_face.VOCABULARY] = (
        vocabulary.content
    )
    content = safetensors.numpy.save(tensors, {"format": "pt"})
    checkpoint_folders.write(out, {"model.safetensors": content, **files_of})
    print(f"{len(tensors)} tensors of {name_of_class}: {out}")


def _with_scaled_head(variables):
    """Returns the variables with mean and scale of a regression in its last layer.

    The outputs are then the numbers in the units of the labels, as `transformers` has them.
    """
    if "target/scale" not in variables:
        return variables
    mean, scale = variables["target/mean"], variables["target/scale"]  # [num_classes]
    return {
        **{name: value for name, value in variables.items() if not name.startswith("target/")},
        "output_weights": variables["output_weights"] * scale[:, np.newaxis],
        "output_bias": variables["output_bias"] * scale + mean,
    }


def _config_of(params, form):
    """Returns the sizes and the fields that the configurations of both programs have."""
    config = {theirs: params[ours] for ours, theirs in hugging_face.PARAMS.items()}
    if form.family != "bert":
        config["embedding_size"] = params["embedding_size"] or params["hidden_size"]
    return {**config, **form.config_fields}


def _head_config(variables, found):
    """Returns the fields of a configuration that say what the outputs of a head are."""
    if "output_bias" not in variables:
        return {}
    count = len(variables["output_bias"])
    labels = found.get("labels", ())
    labels = labels if len(labels) == count else [f"LABEL_{i}" for i in range(count)]
    config = {
        "id2label": dict(enumerate(labels)),
        "label2id": {label: i for i, label in enumerate(labels)},
    }
    if found.get("problem_type") in _PROBLEM_TYPES.values():
        config["problem_type"] = found["problem_type"]
    return config


def _head_of(config):
    """Returns what `_head_config` wrote, or transformers."""
    return {
        "labels": bert_files.class_names(config),
        "problem_type": config.get("problem_type"),
    }


def _tokenizer_config(vocabulary, params, form, found):
    title = form.title if vocabulary.is_pieces else "Bert"
    config = {
        "tokenizer_class": f"{title}Tokenizer",
        "model_max_length": params["max_positions"],
    }
    if "lower_case" not in found:
        print("set do_lower_case in tokenizer_config.json: whether the vocabulary is lower-case")
        return config
    config["do_lower_case"] = found["lower_case"]
    if vocabulary.is_pieces:
        config["keep_accents"] = not found["strip_accents"]
    else:
        config["strip_accents"] = found["lower_case"] and found["strip_accents"]
    return config


_COMMANDS = {
    "from_hugging_face": from_hugging_face,
    "to_google": to_google,
    "to_hugging_face": to_hugging_face,
}


def _read_source(source):
    """Reads a model_dir, or a checkpoint with flags.cfg or the paper's files in its folder.

    Returns:
      `{variable: array}`, hyperparameters, `hugging_face.Vocabulary`, and what else flags.cfg and
      the data set say: `{"model": value of --model, "lower_case", "strip_accents": bool,
      "labels": [name], "problem_type": of transformers}`; without a run, the last two or {}.
    """
    checkpoint = find.find_in(source, is_trained=False)
    if checkpoint is None:
        raise UsageError(f"no checkpoint in {source}")
    variables = _read_variables(checkpoint)
    family = next(
        (key for key in FORMATS if checkpoint_families.find(variables) == _family(key)), None
    )
    embeddings = f"{encoders.FAMILIES[family].SCOPE}/embeddings/word_embeddings" if family else ""
    if embeddings not in variables:
        raise UsageError(
            f"{checkpoint} is not a checkpoint of BERT, ALBERT or ELECTRA: it has no word "
            "embeddings"
        )
    rows = len(variables[embeddings])
    params, vocabulary, found = _read_beside(os.path.dirname(checkpoint), family, variables, rows)
    if params["family"] != family:
        raise UsageError(
            f"{checkpoint} is of family={family}, and its configuration of {params['family']}"
        )
    if not vocabulary.size <= rows == params["vocab_size"]:  # rows without a token are padding
        raise UsageError(
            f"{checkpoint} has {rows} word embeddings, but its vocabulary {vocabulary.size} tokens "
            f"and its configuration vocab_size={params['vocab_size']}"
        )
    return variables, params, vocabulary, found


def _family(key):
    return checkpoint_families.FAMILIES[key]


def _read_variables(checkpoint):
    """Returns `{name: array}` of the model, or of its moving averages."""
    reader = tf.train.load_checkpoint(checkpoint)
    stored = reader.get_variable_to_shape_map()
    variables = {}
    for name in sorted(filter(_MODEL_VARIABLE.fullmatch, stored)):
        if name.rpartition("/")[0] not in stored:  # a slot is <variable>/<slot>
            average = ema.average_name(name)
            variables[name] = reader.get_tensor(average if average in stored else name)
    return variables


def _read_beside(folder, family, variables, rows):
    """Returns hyperparameters, vocabulary and other properties, of the files of a checkpoint."""
    config = FORMATS[family].config
    for candidate in (folder, os.path.dirname(folder)):
        if tf.io.gfile.exists(f"{candidate}/{config}"):
            params = hugging_face.read_params(candidate, config)
            found = _head_of(bert_files.read_json(f"{candidate}/{config}"))
            return params, hugging_face.read_any_vocabulary(candidate), found
        if tf.io.gfile.exists(f"{candidate}/flags.cfg"):
            params, vocabulary, found = _read_run(candidate)
            return {**params, "vocab_size": rows}, vocabulary, found
    if family == "electra":
        vocabulary = hugging_face.read_any_vocabulary(folder)
        return _sizes_of_electra(variables), vocabulary, {}
    raise UsageError(f"{folder} has neither {config} and vocab.txt nor flags.cfg")


def _sizes_of_electra(variables):
    """Returns the hyperparameters that the shapes of the variables of ELECTRA say."""
    layers = {m[1] for m in map(re.compile(r"electra/encoder/layer_(\d+)/").match, variables) if m}
    rows, columns = variables["electra/embeddings/word_embeddings"].shape
    hidden, ffn = variables["electra/encoder/layer_0/intermediate/dense/kernel"].shape
    return {
        **registry.find("bert_classifier").default_params(),
        "family": "electra",
        "embedding_size": columns,
        "num_layers": len(layers),
        "hidden_size": hidden,
        "ffn_size": ffn,
        "num_heads": max(1, hidden // _HEAD_SIZE),
        "vocab_size": rows,
        "max_positions": len(variables["electra/embeddings/position_embeddings"]),
    }


def _read_run(model_dir):
    """Returns hyperparameters, vocabulary and other properties of the run in `model_dir`."""
    flags = checkpoint_folders.flags_of(model_dir)
    given, params = dict(flags), checkpoint_folders.params_of(flags)
    data = dataset_info.read(given.get("data_dir", ""))
    if data.kind.name != "wordpiece" or "num_heads" not in params:
        raise UsageError(f"{model_dir} is not the model_dir of a BERT")
    found = {name: getattr(data.kind, name) for name in ("lower_case", "strip_accents")}
    found["model"] = given["model"]
    names = data.target.names if data.target else data.class_names
    found["labels"] = names or data.properties.get("tag_names", ())
    kind = data.target.kind if data.target else data.kind.task
    found["problem_type"] = _PROBLEM_TYPES.get(kind)
    path = os.path.join(data.data_dir, data.kind.vocabulary)
    return params, hugging_face.vocabulary_at(path), found


def _write_google(out, variables, params, vocabulary, found):
    form = FORMATS[params["family"]]
    config = {**_config_of(params, form), **_head_config(variables, found), "hidden_act": "gelu"}
    contents = _contents({form.config: config})
    contents["checkpoint"] = f'model_checkpoint_path: "{form.checkpoint}"\n'.encode()
    name = form.pieces if vocabulary.is_pieces else hugging_face.VOCABULARY
    contents[name] = vocabulary.content
    checkpoint_folders.write(
        out, contents, lambda path: writer.write(f"{path}/{form.checkpoint}", variables)
    )
    sizes = _shown_sizes(params)
    print(f"{len(variables)} variables, {vocabulary.size} tokens: {out}")
    print(f"--model=bert_TASK --params={sizes} --warm_start_from={out}/{form.checkpoint}")


def _shown_sizes(params):
    """Returns the size with the name of these hyperparameters, or each of them."""
    values = {**params, "embedding_size": params["embedding_size"] or params["hidden_size"]}
    for name, size in encoders.SIZES.items():
        size = {**size, "embedding_size": size["embedding_size"] or size["hidden_size"]}
        if all(values.get(key, value) == value for key, value in size.items()):
            return f"size={name}"
    names = ["num_layers", "hidden_size", "num_heads", "ffn_size"]
    names = names if params["family"] == "bert" else ["family", "embedding_size", *names]
    return ",".join(f"{name}={params[name]}" for name in names)


def _contents(objects):
    """Returns `{name of a file: content}` of objects, as JSON."""
    return {name: f"{json.dumps(value, indent=2)}\n".encode() for name, value in objects.items()}


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    startup.run(lambda: main(*sys.argv[1:]))
