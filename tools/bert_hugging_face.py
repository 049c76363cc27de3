"""Configurations and files of encoders in Hugging Face; see `bert_checkpoint`."""

from __future__ import annotations

import json
import re
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from common import files
from common.constants import SENTENCEPIECE
from common.errors import UsageError
from common.names import is_plain_name, printable
from input_fns.text import encoder_vocabulary
from models.model import ModelError
from models.text import bert, bert_pretraining, encoders
from tools.encoder_formats import FORMATS

VOCABULARY, PIECES = "vocab.txt", "spiece.model"
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
_TIED = {
    "cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}


def to_variables(tensors, params, num_tokens):
    """Returns variables as the paper's code names them, and the names of tensors that are none.

    Args:
      tensors: `{name in Hugging Face: array}`.
      params: hyperparameters.
      num_tokens: tokens of the vocabulary; rows of the word embeddings after these are left out.

    Returns:
      `({name: float32 array}, [name])`.

    Raises:
      UsageError: tensors are missing, unknown in the encoder, or have another shape.
    """
    form, named = FORMATS[params["family"]], {}
    for name, value in tensors.items():
        name = re.sub(r"\.gamma$", ".weight", re.sub(r"\.beta$", ".bias", name))
        named[name.removeprefix(f"{form.family}.")] = value
    named.pop("embeddings.position_ids", None)  # a constant
    named.setdefault("cls.predictions.bias", named.get("cls.predictions.decoder.bias"))
    for name, source in _TIED.items():
        if name in named and not np.array_equal(named.pop(name), named.get(source)):
            raise UsageError(f"{name} differs from {source}: weights that are not tied do not fit")
    named = {name: value for name, value in named.items() if value is not None}
    numbers = {
        match[1] for match in map(re.compile(r"encoder\.layer\.(\d+)\.").match, named) if match
    }
    if numbers and len(numbers) != params["num_layers"]:  # ALBERT has one for all
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
        value = named.pop(form.name_of(name), None)
        if value is None:
            wrong.append(f"{form.name_of(name)} is missing")
            continue
        value = value.T if name.endswith("/kernel") else value
        if list(value.shape) != shape:
            wrong.append(f"{form.name_of(name)} is {list(value.shape)} instead of {shape}")
        elif name.endswith(("embeddings/word_embeddings", "cls/predictions/output_bias")):
            value = value[:num_tokens]
        variables[name] = value
    wrong += [f"{name} is unknown" for name in named if re.match("embeddings|encoder|pooler", name)]
    if wrong:
        raise UsageError(
            f"the weights are not those of the {form.title.upper()} that config.json describes: "
            f"{'; '.join(sorted(wrong)[:5])}"
        )
    return variables, sorted(named)


def _expected(params, tensors):
    """Returns `{variable: shape}` of the encoder, and of those heads of which there is a tensor."""
    form = FORMATS[params["family"]]
    with tf.Graph().as_default():
        names = (*bert.FEATURES, "masked_lm_positions")
        features = {name: tf.zeros([1, 1], tf.int32) for name in names}
        if params["family"] == "bert":
            bert_pretraining.inference(features, params, training=False)
        else:  # without the heads of pre-training
            encoders.pool(encoders.encode(features, params, training=False), params)
        shapes = {v.op.name: v.shape.as_list() for v in tf.compat.v1.global_variables()}
    for name, key in form.heads.items():
        tensor = tensors.get(key)
        if name not in shapes and tensor is not None and not name.startswith("cls/pre"):
            rows = [2] if "squad" in name else list(tensor.shape[:1])
            shapes[name] = rows + [params["hidden_size"]] * name.endswith("weights")
    optional = ("bert/pooler/", "cls/predictions/", "cls/seq_relationship/")
    absent = tuple(
        scope
        for scope in optional
        if not any(form.name_of(n) in tensors for n in shapes if n.startswith(scope))
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
    """Returns the hyperparameters of bert_config.json, ..., or of Hugging Face's config.json.

    Raises:
      UsageError: one is missing or invalid, or the encoder is not that of its family's paper.
    """
    path = f"{folder}/{name}"
    config = _read_json(path)
    of_file = {form.config: form.family for form in FORMATS.values()}.get(name, "bert")
    family = config.get("model_type", of_file)
    if family not in FORMATS:
        raise UsageError(f"{path}: model_type={family!r} is unsupported. Valid: {tuple(FORMATS)}")
    params = {"precision": "float32", "family": family, "embedding_size": 0}
    _check_architecture(path, config, FORMATS[family])
    names = {**PARAMS, "embedding_size": "embedding_size"} if family != "bert" else PARAMS
    for ours, default in bert.default_params().items():
        if ours not in names:
            continue
        value = config.get(names[ours], default if isinstance(default, float) else None)
        if isinstance(value, bool) or not isinstance(value, (int, type(default))):
            raise UsageError(f"{path}: {names[ours]}={value!r:.40} is not a number")
        try:
            params[ours] = type(default)(value)
        except OverflowError as error:
            raise UsageError(f"{path}: {names[ours]}={value!r:.40}... is too large") from error
    try:
        encoders.check_params(params)
    except ModelError as error:
        raise UsageError(f"{path}: {error}") from error
    return params


def _check_architecture(path, config, form):
    """Raises `UsageError` unless a configuration is that of the encoder of the paper."""
    # The exact GELU differs from the tanh form by less than 5e-4.
    for key, valid in {
        "hidden_act": form.activations,
        "layer_norm_eps": (1e-12,),
        "position_embedding_type": ("absolute",),
        "is_decoder": (False,),
        "add_cross_attention": (False,),
        **{name: (value,) for name, value in form.config_fields.items()},
    }.items():
        if key in config and config[key] not in valid:
            raise UsageError(f"{path}: {key}={config[key]!r} is unsupported. Valid: {valid}")


class Vocabulary(NamedTuple):
    """The content of a vocabulary file, its number of tokens, and whether it is SentencePiece's."""

    content: bytes
    size: int
    is_pieces: bool


def vocabulary_at(path):
    """Returns the vocabulary in a file, by the ending of its name."""
    try:
        if path.endswith(SENTENCEPIECE):
            found = encoder_vocabulary.load(path, lower_case=True)
            return Vocabulary(found.vocab, found.vocab_size, is_pieces=True)
        return _of_tokens(parse_vocabulary(files.read_text(path)))
    except (OSError, tf.errors.OpError, ValueError) as error:
        raise UsageError(f"{path} is not a vocabulary: {error}") from error


def read_any_vocabulary(folder):
    """Returns the vocabulary of a folder: *.model of SentencePiece, vocab.txt or tokenizer.json."""
    pieces = sorted(tf.io.gfile.glob(f"{folder}/*{SENTENCEPIECE}"))
    return vocabulary_at(pieces[0]) if pieces else _of_tokens(read_vocabulary(folder))


def _of_tokens(tokens):
    content = "".join(f"{token}\n" for token in tokens).encode()
    return Vocabulary(content, len(tokens), is_pieces=False)


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


def read_safetensors(folder, buffers="(.*[.])?position_ids"):
    """Returns `{name: float32 array}` of model.safetensors, or of the files that its index names.

    Pickles are refused: a file of PyTorch can execute any code.

    Args:
      folder: local or gs://.
      buffers: regular expression of the names of tensors that are no weights, and are left out.
    """
    arrays = {}
    for name in _weight_files(folder):
        arrays.update(_read_weights(f"{folder}/{name}", buffers))
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


def _read_weights(path, buffers):
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
        if re.fullmatch(buffers, name):
            continue
        if tensor["dtype"] in _DTYPES:
            array = np.frombuffer(tensor["data"], _DTYPES[tensor["dtype"]])
            if tensor["dtype"] == "BF16":  # the upper half of a float32
                array = (array.astype(np.uint32) << 16).view(np.float32)
            with np.errstate(over="ignore"):  # infinite values are an error
                arrays[name] = array.astype(np.float32).reshape(tensor["shape"])
            if not np.isfinite(arrays[name]).all():
                raise UsageError(f"{path}: {printable(name)} has values that are not finite")
        else:
            raise UsageError(f"{path}: {printable(name)} is {tensor['dtype']}, not floating point")
    return arrays
