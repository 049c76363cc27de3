"""Names, configurations and files of BERT in Hugging Face; see `bert_checkpoint`."""

from __future__ import annotations

import json
import re

import numpy as np
import tensorflow as tf

from common import files
from common.errors import UsageError
from common.names import is_plain_name, printable
from models.model import ModelError
from models.text import bert, bert_pretraining

VOCABULARY = "vocab.txt"
# Our hyperparameter: the name in bert_config.json and config.json.
PARAMS = {
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
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}


def name_of(variable: str) -> str:
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
    numbers = {
        match[1] for match in map(re.compile(r"encoder\.layer\.(\d+)\.").match, named) if match
    }
    if len(numbers) != params["num_layers"]:
        raise UsageError(
            f"config.json says num_hidden_layers={params['num_layers']}, but the number of layers "
            f"in the weights is {len(numbers)}"
        )
    if num_tokens > params["vocab_size"]:
        raise UsageError(
            f"config.json says vocab_size={params['vocab_size']}, but the vocabulary has "
            f"{num_tokens} tokens"
        )
    variables, wrong = {}, []
    for name, shape in _expected(params, named).items():
        value = named.pop(name_of(name), None)
        if value is None:
            wrong.append(f"{name_of(name)} is missing")
            continue
        value = value.T if name.endswith("/kernel") else value
        if list(value.shape) != shape:
            wrong.append(f"{name_of(name)} is {list(value.shape)} instead of {shape}")
        elif name in ("bert/embeddings/word_embeddings", "cls/predictions/output_bias"):
            value = value[:num_tokens]
        variables[name] = value
    wrong += [f"{name} is unknown" for name in named if re.match("embeddings|encoder|pooler", name)]
    if wrong:
        raise UsageError(
            "the weights are not those of the BERT that config.json describes: "
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
        if not any(name_of(n) in tensors for n in shapes if n.startswith(scope))
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


def read_params(folder, name):
    """Returns the hyperparameters of bert_config.json or of Hugging Face's config.json.

    Raises:
      UsageError: one is missing or invalid, or the encoder is not that of google-research/bert.
    """
    path = f"{folder}/{name}"
    config, params = _read_json(path), {"precision": "float32"}
    _check_architecture(path, config)
    for ours, default in bert.default_params().items():
        if ours not in PARAMS:
            continue
        value = config.get(PARAMS[ours], default if isinstance(default, float) else None)
        if isinstance(value, bool) or not isinstance(value, (int, type(default))):
            raise UsageError(f"{path}: {PARAMS[ours]}={value!r:.40} is not a number")
        try:
            params[ours] = type(default)(value)
        except OverflowError as error:
            raise UsageError(f"{path}: {PARAMS[ours]}={value!r:.40}... is too large") from error
    try:
        bert.check_params(params)
    except ModelError as error:
        raise UsageError(f"{path}: {error}") from error
    return params


def _check_architecture(path, config):
    """Raises `UsageError` unless a configuration is that of the encoder of google-research/bert."""
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


def read_vocabulary(folder):
    """Returns the tokens of vocab.txt, or of tokenizer.json."""
    path = f"{folder}/{VOCABULARY}"
    try:
        if tf.io.gfile.exists(path):
            tokens = parse_vocabulary(files.read_text(path))
        else:
            path = f"{folder}/tokenizer.json"
            if not tf.io.gfile.exists(path):
                raise UsageError(f"{folder} has neither {VOCABULARY} nor tokenizer.json")
            model = _read_json(path).get("model")
            if not isinstance(model, dict) or model.get("type") != "WordPiece":
                raise ValueError("its model is not WordPiece")
            ids = model["vocab"]
            tokens = sorted(ids, key=ids.get)
            if [ids[token] for token in tokens] != list(range(len(tokens))):
                raise ValueError("the ids of its vocabulary are not 0, 1, 2, ...")
    except (OSError, tf.errors.OpError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{path} is not a vocabulary: {error}") from error
    missing = [token for token in _SPECIAL if token not in tokens]
    if missing:
        raise UsageError(f"{path} is not a vocabulary of BERT: it lacks {', '.join(missing)}")
    return tokens


def parse_vocabulary(text):
    """Returns the tokens of the content of a vocab.txt, one per line."""
    lines = text.removeprefix("\ufeff").split("\n")
    return [line.strip() for line in (lines if lines[-1] else lines[:-1])]


def import_safetensors():
    """Returns the module safetensors, an optional dependency.

    Raises:
      UsageError: it is not installed.
    """
    try:
        import safetensors.numpy
    except ImportError as error:
        raise UsageError("safetensors is missing. Install it: pip install safetensors") from error
    return safetensors


def read_safetensors(folder):
    """Returns `{name: float32 array}` of model.safetensors, or of the files that its index names.

    Pickles are refused: a file of PyTorch can execute any code.
    """
    arrays = {}
    for name in _weight_files(folder):
        arrays.update(_read_weights(f"{folder}/{name}"))
    return arrays


def _weight_files(folder):
    """Returns the names of the files in a folder that hold the weights."""
    name = "model.safetensors"
    if tf.io.gfile.exists(f"{folder}/{name}"):
        return [name]
    index = f"{folder}/{name}.index.json"
    if not tf.io.gfile.exists(index):
        raise UsageError(
            f"{folder}/{name} is missing. Weights in other formats, such as pytorch_model.bin, can "
            "execute code when they are read. If you trust them, convert them with transformers: "
            "AutoModelForPreTraining.from_pretrained(FOLDER).save_pretrained(NEW_FOLDER)"
        )
    weight_map = _read_json(index).get("weight_map")
    found = list(weight_map.values()) if isinstance(weight_map, dict) else []
    wrong = [name for name in found if not is_plain_name(name)]
    if wrong or not found:
        raise UsageError(f"{index}: weight_map does not name files of this folder")
    return sorted(set(found))


def _read_weights(path):
    safetensors = import_safetensors()
    if not tf.io.gfile.exists(path):
        raise UsageError(f"{path} is missing")
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
            with np.errstate(over="ignore"):  # infinite values are an error
                arrays[name] = array.astype(np.float32).reshape(tensor["shape"])
            if not np.isfinite(arrays[name]).all():
                raise UsageError(f"{path}: {printable(name)} has values that are not finite")
        elif not name.endswith("position_ids"):
            raise UsageError(f"{path}: {printable(name)} is {tensor['dtype']}, not floating point")
    return arrays


def architecture(variables, found):
    """Returns the class of `transformers` that has these variables."""
    if "cls/predictions/output_bias" in variables:
        has_pairs = "cls/seq_relationship/output_bias" in variables
        return "BertForPreTraining" if has_pairs else "BertForMaskedLM"
    if "cls/squad/output_weights" in variables:
        return "BertForQuestionAnswering"
    if "output_weights" in variables:
        is_token = found.get("model", "").endswith("token_classifier")
        return f"BertFor{'Token' if is_token else 'Sequence'}Classification"
    return "BertModel"
