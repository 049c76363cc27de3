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

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

from common import files
from common.errors import UsageError
from engine.checkpoints import find, writer
from engine.cli import hparams, runtime
from input_fns import dataset_info
from models import registry
from models.model import ModelError
from models.text import bert, bert_pretraining

CHECKPOINT, CONFIG, VOCABULARY = "bert_model.ckpt", "bert_config.json", "vocab.txt"
# Our hyperparameter: the name in bert_config.json and config.json.
_PARAMS = {
    "vocab_size": "vocab_size",
    "num_layers": "num_hidden_layers",
    "hidden_size": "hidden_size",
    "num_heads": "num_attention_heads",
    "ffn_size": "intermediate_size",
    "max_positions": "max_position_embeddings",
    "type_vocab_size": "type_vocab_size",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "initializer_range": "initializer_range",
}
_MODEL_VARIABLE = re.compile(r"(bert|cls)/.+|output_weights|output_bias")
# Variables of heads whose names in Hugging Face follow no rule.
_HEADS = {
    "cls/predictions/output_bias": "cls.predictions.bias",
    "cls/seq_relationship/output_weights": "cls.seq_relationship.weight",
    "cls/seq_relationship/output_bias": "cls.seq_relationship.bias",
    "cls/squad/output_weights": "qa_outputs.weight",
    "cls/squad/output_bias": "qa_outputs.bias",
    "output_weights": "classifier.weight",
    "output_bias": "classifier.bias",
}
_TIED = {
    "cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}
_DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}


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
    params = _read_params(folder, "config.json")
    tokens = _read_vocabulary(folder)
    variables, left_out = to_variables(_read_safetensors(folder), params, len(tokens))
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
    import safetensors.numpy

    variables, params, tokens, found = _read_source(source)
    architecture = _architecture(variables, found)
    tensors = {}
    for name, value in variables.items():
        in_encoder = name.startswith("bert/") and architecture != "BertModel"
        key = ("bert." if in_encoder else "") + hugging_face_name(name)
        tensors[key] = np.ascontiguousarray(value.T if name.endswith("/kernel") else value)
    config = {
        "architectures": [architecture],
        "model_type": "bert",
        **{theirs: params[ours] for ours, theirs in _PARAMS.items()},
        "hidden_act": "gelu_new",  # the tanh form, which google-research/bert names gelu
        "layer_norm_eps": 1e-12,
        "pad_token_id": 0,
    }
    if "output_bias" in variables:
        labels = found.get("labels") or range(len(variables["output_bias"]))
        config["id2label"] = {str(i): str(label) for i, label in enumerate(labels)}
        config["label2id"] = {label: int(i) for i, label in config["id2label"].items()}
    tokenizer = {"tokenizer_class": "BertTokenizer", "model_max_length": params["max_positions"]}
    if "lower_case" in found:
        tokenizer["do_lower_case"] = found["lower_case"]
    else:
        print("set do_lower_case in tokenizer_config.json: whether the vocabulary is lower-case")
    texts = {"config.json": config, "tokenizer_config.json": tokenizer}
    content = safetensors.numpy.save(tensors, {"format": "pt"})
    _write(out, texts, tokens, lambda path: _write_bytes(f"{path}/model.safetensors", content))
    print(f"{len(tensors)} tensors of {architecture}: {out}")


_COMMANDS = {
    "from_hugging_face": from_hugging_face,
    "to_google": to_google,
    "to_hugging_face": to_hugging_face,
}


def hugging_face_name(variable: str) -> str:
    """Returns the name of a variable in Hugging Face, without the prefix "bert."."""
    if variable in _HEADS:
        return _HEADS[variable]
    name = re.sub(r"/layer_(\d+)/", r"/layer/\1/", variable.removeprefix("bert/"))
    if name.endswith("_embeddings"):
        name += "/weight"
    name = re.sub("/(kernel|gamma)$", "/weight", name)
    return re.sub("/beta$", "/bias", name).replace("/", ".")


def to_variables(tensors, params, num_tokens):
    """Returns variables of google-research/bert, and the names of tensors that are none.

    Args:
      tensors: `{name in Hugging Face: array}`.
      params: hyperparameters.
      num_tokens: tokens of the vocabulary; rows of the word embeddings after these are left out.

    Returns:
      `({name: float32 array}, [name])`.

    Raises:
      UsageError: tensors are missing, unknown in the encoder, or have another shape.
    """
    named = {}
    for name, value in tensors.items():
        name = re.sub(r"\.gamma$", ".weight", re.sub(r"\.beta$", ".bias", name))
        named[name.removeprefix("bert.")] = value
    named.pop("embeddings.position_ids", None)  # a constant
    named.setdefault("cls.predictions.bias", named.get("cls.predictions.decoder.bias"))
    for name, source in _TIED.items():
        if name in named and not np.array_equal(named.pop(name), named.get(source)):
            raise UsageError(f"{name} differs from {source}: weights that are not tied do not fit")
    named = {name: value for name, value in named.items() if value is not None}
    variables, wrong = {}, []
    for name, shape in _expected(params, named).items():
        value = named.pop(hugging_face_name(name), None)
        if value is None:
            wrong.append(f"{hugging_face_name(name)} is missing")
            continue
        value = value.T if name.endswith("/kernel") else value
        if list(value.shape) != shape:
            wrong.append(f"{hugging_face_name(name)} is {list(value.shape)} instead of {shape}")
        elif name in ("bert/embeddings/word_embeddings", "cls/predictions/output_bias"):
            value = value[:num_tokens]
        variables[name] = value
    wrong += [f"{name} is unknown" for name in named if re.match("embeddings|encoder|pooler", name)]
    if wrong:
        raise UsageError(
            f"the weights are not those of the BERT that config.json describes: "
            f"{'; '.join(sorted(wrong)[:5])}"
        )
    return variables, sorted(named)


def _expected(params, tensors):
    """Returns `{variable: shape}` of the encoder, and of those heads of which there is a tensor."""
    with tf.Graph().as_default():
        names = (*bert.FEATURES, "masked_lm_positions")
        features = {name: tf.zeros([1, 1], tf.int32) for name in names}
        bert_pretraining.inference(features, params, training=False)
        shapes = {v.op.name: v.shape.as_list() for v in tf.compat.v1.global_variables()}
    for name in _HEADS:
        tensor = tensors.get(_HEADS[name])
        if name not in shapes and tensor is not None:
            rows = [2] if "squad" in name else list(tensor.shape[:1])
            shapes[name] = rows + [params["hidden_size"]] * name.endswith("weights")
    optional = ("bert/pooler/", "cls/predictions/", "cls/seq_relationship/")
    absent = tuple(
        scope
        for scope in optional
        if not any(hugging_face_name(n) in tensors for n in shapes if n.startswith(scope))
    )
    return {name: shape for name, shape in shapes.items() if not name.startswith(absent)}


def _read_json(path):
    try:
        value = json.loads(files.read_text(path))
    except (OSError, tf.errors.OpError, ValueError, RecursionError) as error:
        raise UsageError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(value, dict):
        raise UsageError(f"{path} is not a JSON object")
    return value


def _read_params(folder, name):
    """Returns the hyperparameters of bert_config.json or of Hugging Face's config.json.

    Raises:
      UsageError: one is missing or invalid, or the encoder is not that of google-research/bert.
    """
    path = f"{folder}/{name}"
    config, params = _read_json(path), {"precision": "float32"}
    for ours, default in bert.default_params("base").items():
        if ours not in _PARAMS:
            continue
        value = config.get(_PARAMS[ours], default if isinstance(default, float) else None)
        if isinstance(value, bool) or not isinstance(value, (int, type(default))):
            raise UsageError(f"{path}: {_PARAMS[ours]}={value!r} is not a number")
        params[ours] = type(default)(value)
    try:
        bert.check_params(params)
    except ModelError as error:
        raise UsageError(f"{path}: {error}") from error
    # The exact GELU differs from the tanh form by less than 5e-4.
    for key, valid in {
        "model_type": ("bert",),
        "hidden_act": ("gelu", "gelu_new", "gelu_pytorch_tanh", "gelu_python"),
        "layer_norm_eps": (1e-12,),
        "position_embedding_type": ("absolute",),
        "is_decoder": (False,),
        "add_cross_attention": (False,),
    }.items():
        if key in config and config[key] not in valid:
            raise UsageError(f"{path}: {key}={config[key]!r} is unsupported. Valid: {valid}")
    return params


def _read_vocabulary(folder):
    """Returns the tokens of vocab.txt, or of tokenizer.json."""
    path = f"{folder}/{VOCABULARY}"
    try:
        if tf.io.gfile.exists(path):
            tokens = files.read_text(path).splitlines()
        else:
            path = f"{folder}/tokenizer.json"
            model = _read_json(path).get("model")
            if not isinstance(model, dict) or model.get("type") != "WordPiece":
                raise ValueError("its model is not WordPiece")
            ids = model["vocab"]
            tokens = sorted(ids, key=ids.get)
            if [ids[token] for token in tokens] != list(range(len(tokens))):
                raise ValueError("the ids of its vocabulary are not 0, 1, 2, ...")
    except (OSError, tf.errors.OpError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{path} is not a vocabulary: {error}") from error
    return tokens


def _read_safetensors(folder):
    """Returns `{name: float32 array}` of model.safetensors.

    Pickles are refused: a file of PyTorch can execute any code.
    """
    path = f"{folder}/model.safetensors"
    if not tf.io.gfile.exists(path):
        raise UsageError(
            f"{path} is missing. Weights in other formats, such as pytorch_model.bin, can execute "
            "code when they are read. If you trust them, convert them with transformers: "
            "AutoModelForPreTraining.from_pretrained(FOLDER).save_pretrained(NEW_FOLDER)"
        )
    try:
        import safetensors
    except ImportError as error:
        raise UsageError(
            "safetensors is not installed. Install it: pip install safetensors"
        ) from error
    with tf.io.gfile.GFile(path, "rb") as file:
        content = file.read()
    try:
        tensors = safetensors.deserialize(content)
    except safetensors.SafetensorError as error:
        raise UsageError(f"{path} cannot be read as safetensors: {error}") from error
    arrays = {}
    for name, tensor in tensors:
        if tensor["dtype"] in _DTYPES:
            array = np.frombuffer(tensor["data"], _DTYPES[tensor["dtype"]])
            if tensor["dtype"] == "BF16":  # the upper half of a float32
                array = (array.astype(np.uint32) << 16).view(np.float32)
            arrays[name] = array.astype(np.float32).reshape(tensor["shape"])
        elif not name.endswith("position_ids"):
            raise UsageError(f"{path}: {name} is {tensor['dtype']}, not floating point")
    return arrays


def _read_source(source):
    """Reads a model_dir, or a checkpoint with flags.cfg or bert_config.json in its folder.

    Returns:
      `{variable: array}`, hyperparameters, tokens, and what else flags.cfg and the data set say:
      `{"model": value of --model, "lower_case": bool, "labels": [name]}`, or {}.
    """
    checkpoint = find.find_in(source, is_trained=False)
    if checkpoint is None:
        raise UsageError(f"no checkpoint in {source}")
    reader = tf.train.load_checkpoint(checkpoint)
    stored = reader.get_variable_to_shape_map()
    variables = {}
    for name in sorted(filter(_MODEL_VARIABLE.fullmatch, stored)):
        if name.rpartition("/")[0] not in stored:  # a slot is <variable>/<slot>
            average = f"{name}/ExponentialMovingAverage"
            variables[name] = reader.get_tensor(average if average in stored else name)
    if "bert/embeddings/word_embeddings" not in variables:
        raise UsageError(f"{checkpoint} is not a checkpoint of BERT: it has no word embeddings")
    folder = os.path.dirname(checkpoint)
    for candidate in (folder, os.path.dirname(folder)):
        if tf.io.gfile.exists(f"{candidate}/{CONFIG}"):
            params, found = _read_params(candidate, CONFIG), {}
            tokens = _read_vocabulary(candidate)
            break
        if tf.io.gfile.exists(f"{candidate}/flags.cfg"):
            params, tokens, found = _read_run(candidate)
            break
    else:
        raise UsageError(f"{folder} has neither {CONFIG} and {VOCABULARY} nor flags.cfg")
    rows = len(variables["bert/embeddings/word_embeddings"])
    if not rows == len(tokens) == params["vocab_size"]:
        raise UsageError(
            f"{checkpoint} has {rows} word embeddings, but its vocabulary {len(tokens)} tokens and "
            f"its configuration vocab_size={params['vocab_size']}"
        )
    return variables, params, tokens, found


def _read_run(model_dir):
    """Returns hyperparameters, tokens and other properties of the run in `model_dir`."""
    lines = files.read_text(f"{model_dir}/flags.cfg").splitlines()
    flags = [line.lstrip("-").partition("=")[::2] for line in lines]
    given = dict(flags)
    model = registry.find(given.get("model", ""))
    params = hparams.resolve(model, [v for name, v in flags if name == "params"], None)
    data = dataset_info.read(given.get("data_dir", ""))
    if data.wordpiece is None or "num_heads" not in params:
        raise UsageError(f"{model_dir} is not the model_dir of a BERT")
    found = {"model": given["model"], "lower_case": data.wordpiece.lower_case}
    found["labels"] = data.class_names or data.properties.get("tag_names", ())
    path = os.path.join(data.data_dir, data.wordpiece.vocabulary)
    tokens = files.read_text(path).splitlines()
    return {**params, "vocab_size": data.wordpiece.vocab_size}, tokens, found


def _architecture(variables, found):
    """Returns the class of `transformers` that has these variables."""
    if "cls/predictions/output_bias" in variables:
        return "BertForPreTraining" if _has_next_sentence(variables) else "BertForMaskedLM"
    if "cls/squad/output_weights" in variables:
        return "BertForQuestionAnswering"
    if "output_weights" in variables:
        is_token = found.get("model", "").endswith("token_classifier")
        return f"BertFor{'Token' if is_token else 'Sequence'}Classification"
    return "BertModel"


def _has_next_sentence(variables):
    return "cls/seq_relationship/output_weights" in variables


def _write_google(out, variables, params, tokens):
    config = {theirs: params[ours] for ours, theirs in _PARAMS.items()}
    _write(
        out,
        {CONFIG: {**config, "hidden_act": "gelu"}},
        tokens,
        lambda path: writer.write(f"{path}/{CHECKPOINT}", variables),
    )
    sizes = {name: params[name] for name in bert.SIZES["base"]}
    size = next((name for name in bert.SIZES if bert.SIZES[name] == sizes), None)
    more = "" if size else f" --params={','.join(f'{k}={v}' for k, v in sizes.items())}"
    print(f"{len(variables)} variables, {len(tokens)} tokens: {out}")
    print(f"--model=bert_{size or 'base'}_TASK{more} --warm_start_from={out}/{CHECKPOINT}")


def _write(out, texts, tokens, write_weights):
    """Writes a folder; it appears under its name when it is complete."""
    partial = files.partial_name(out)
    try:
        tf.io.gfile.makedirs(partial)
        write_weights(partial)
        content = {name: json.dumps(value, indent=2) for name, value in texts.items()}
        content[VOCABULARY] = "\n".join(tokens)
        for name, text in content.items():
            _write_bytes(f"{partial}/{name}", f"{text}\n".encode())
        tf.io.gfile.rename(partial, out)
    except BaseException:
        if tf.io.gfile.exists(partial):
            tf.io.gfile.rmtree(partial)
        raise


def _write_bytes(path, content):
    with tf.io.gfile.GFile(path, "wb") as file:
        file.write(content)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    try:
        main(*sys.argv[1:])
    except UsageError as error:
        sys.exit(f"bert_checkpoint: error: {error}")
