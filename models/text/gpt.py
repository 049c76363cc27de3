"""GPT-2, a decoder-only Transformer (Radford et al. 2019, Language Models are Unsupervised ...).

    inference({"tokens": tokens, ...}, params, training=True)["log_probs"]  # [batch, length]
    decode({"prompt": prompt, ...}, params)["tokens"]  # [batch, length]

Layer norm before each sublayer, learned positions, causal mask, GELU, and one embedding for input
and output. Variables have the names and shapes of openai/gpt-2, so that its released checkpoints
can be fine-tuned as they are.

Sizes: batch; length, tokens of a row; hidden_size. Tensors are of `params["precision"]` unless
stated otherwise.
"""

from __future__ import annotations

import functools

import tensorflow as tf

from models.layers import attention, dense, device
from models.layers.dropout import dropout
from models.layers.losses import cross_entropy
from models.layers.normalization import layer_norm
from models.layers.recompute import recompute
from models.model import ModelError, check_fractions, check_not_negative, check_positive
from models.text import generation, gpt_files, language_model
from models.text.bert import gelu

# nano: nanoGPT's configuration for a CPU; the others are OpenAI's releases, of 124, 355, 774 and
# 1,558 million parameters with 50,257 tokens.
SIZES = {
    "nano": {"num_layers": 4, "hidden_size": 128, "num_heads": 4},
    "small": {"num_layers": 12, "hidden_size": 768, "num_heads": 12},
    "medium": {"num_layers": 24, "hidden_size": 1024, "num_heads": 16},
    "large": {"num_layers": 36, "hidden_size": 1280, "num_heads": 20},
    "xl": {"num_layers": 48, "hidden_size": 1600, "num_heads": 25},
}
_STDDEV = 0.02
_NORM_EPSILON = 1e-5


def default_params():
    """Returns the hyperparameters of `inference` and `decode`."""
    return {
        **language_model.default_params(),
        "size": "small",  # one of SIZES, which sets:
        **SIZES["small"],
        "max_positions": 1024,  # rows of the position embeddings: the longest row of tokens
        "dropout": 0.1,  # of embeddings and sublayers
        "attention_dropout": 0.1,  # of attention weights
        # Attention within documents only, with positions from their starts; else within the row.
        "document_mask": False,
        "recompute": False,  # True computes layers again in the backward pass, for less memory
        # Positions of a row whose logits are in memory at once; 0: all. Of fewer, they are computed
        # again in the backward pass.
        "logits_positions": 0,
    }


def check_params(params):
    """Raises `ModelError` for a value of `default_params` out of range."""
    check_positive(params, "num_layers", "hidden_size", "num_heads", "max_positions", "vocab_size")
    check_not_negative(params, "logits_positions")
    check_fractions(params, "dropout", "attention_dropout")
    generation.check_params(params)
    if params["hidden_size"] % params["num_heads"]:
        raise ModelError(
            f"hidden_size={params['hidden_size']} must be a multiple of "
            f"num_heads={params['num_heads']}"
        )
    if params.get("max_length", 0) > params["max_positions"]:
        raise ModelError(
            f"the data set has rows of {params['max_length']} tokens, but the model "
            f"max_positions={params['max_positions']}: prepare the data with a smaller --max_length"
        )


def inference(features, params, training):
    """Computes the log probability of each token of a row, given those before it.

    Args:
      features: `{"tokens": int32 [batch, length + 1]}`; others are ignored.
      params: see `default_params`.
      training: True turns dropout on.

    Returns:
      `{"log_probs": float32 [batch, length]}` of the tokens after the first.
    """
    tokens, targets = features["tokens"][:, :-1], features["tokens"][:, 1:]
    positions, mask = None, _causal_mask(tokens.shape.as_list()[1])
    if params["document_mask"]:
        positions, mask = _within_documents(tokens, mask, params)
    bias = attention.attention_bias(mask)
    x, _ = _transformer(_embed(tokens, positions, params, training), bias, params, training)
    return {"log_probs": _log_probs(x, targets, params, training)}


def decode(features, params):
    """Continues prompts, with a key/value cache.

    Args:
      features: of prediction, see `input_fns.text.tokens_pipeline`.
      params: see `default_params`.

    Returns:
      See `generation.generate`.
    """
    size, length = features["prompt"].shape.as_list()[1], features["prompt_length"]
    # A TPU needs static shapes.
    longest = size if device.is_tpu() else tf.reduce_max(length)
    prompt = features["prompt"][:, :longest]
    places, mask, starts = None, _causal_mask(longest), None
    if params["document_mask"]:
        places, mask = _within_documents(prompt, mask, params)
        # Of the last document, for each beam: the continuation belongs to it.
        starts = length - 1 - tf.gather(places, length - 1, batch_dims=1)
        starts = tf.repeat(starts, params["beam_size"])
    bias = attention.attention_bias(mask)
    x, keys_values = _transformer(_embed(prompt, places, params, False), bias, params, False)
    caches = generation.cache_of(*zip(*keys_values), size)

    def step(tokens, positions, caches):
        caches = [attention.KeyValueCache(*cache, positions) for cache in caches]
        places = positions if starts is None else positions - starts
        x = _embed(tokens[:, tf.newaxis], places[:, tf.newaxis], params, False)
        bias = generation.step_bias(positions, size, starts)
        x, _ = _transformer(x, bias, params, False, caches)
        logits = tf.cast(_logits(x, params)[:, 0], tf.float32)
        return logits, [(cache.key, cache.value) for cache in caches]

    log_probs = _log_probs_of_prompt(x, prompt, length, size, params)
    return generation.generate(step, caches, log_probs, features, params)


def _transformer(x, bias, params, training, caches=None):
    """Runs the layers and the final norm.

    Args:
      x: `[batch, length, hidden_size]`, embedded tokens.
      bias: attention bias, float32, broadcast to `[batch, num_heads, length, keys]`.
      params: see `default_params`.
      training: True turns dropout on.
      caches: an `attention.KeyValueCache` per layer, of one token, which is updated.

    Returns:
      A tensor of the shape of `x`; and (keys, values) per layer, `[batch, num_heads, keys,
      head_size]`, None where layers are recomputed.
    """
    found = []
    for i in range(params["num_layers"]):
        cache = caches[i] if caches else None
        layer = functools.partial(_layer, bias=bias, params=params, training=training, cache=cache)
        with tf.compat.v1.variable_scope(f"model/h{i}", reuse=tf.compat.v1.AUTO_REUSE):
            if training and params["recompute"]:
                x, key_value = recompute(lambda x, layer=layer: layer(x)[0], x, params), None
            else:
                x, key_value = layer(x)
        found.append(key_value)
    with tf.compat.v1.variable_scope("model", reuse=tf.compat.v1.AUTO_REUSE):
        return _norm(x, "ln_f"), found


def _layer(x, bias, params, training, cache):
    """One layer: causal self-attention and a feed-forward network, each with pre-norm."""
    with tf.compat.v1.variable_scope("attn"):
        kernel, offset = _weights("c_attn", x, 3 * params["hidden_size"])
    # The norm has its scope beside that of the attention.
    query, key, value = attention.split_heads(_norm(x, "ln_1"), kernel, offset, 3, params)
    rate = params["attention_dropout"]
    if cache is None:
        heads = attention.attend_causally(query, key, value, bias, rate, training)
    else:
        heads = attention.attend(query, *cache.update(key, value), bias, rate)
    with tf.compat.v1.variable_scope("attn"):
        attended = attention.join_heads(heads, *_weights("c_proj", x, x.shape[-1], params))
    x += dropout(attended, params["dropout"], training)
    y = _norm(x, "ln_2")
    with tf.compat.v1.variable_scope("mlp"):
        hidden = gelu(_dense(y, *_weights("c_fc", y, 4 * params["hidden_size"])))
        y = _dense(hidden, *_weights("c_proj", hidden, params["hidden_size"], params))
    return x + dropout(y, params["dropout"], training), (key, value)


def _norm(x, name):
    return layer_norm(x, name, _NORM_EPSILON, ("g", "b"))


def _dense(x, kernel, bias):
    """Returns `x kernel + bias`, `[batch, length, units]`."""
    rows = tf.matmul(tf.reshape(x, [-1, x.shape.as_list()[-1]]), kernel)
    return dense.add_bias(rows, bias, [-1, _length(x), kernel.shape.as_list()[-1]])


def _weights(name, x, units, params=None):
    """Returns kernel `[size, units]` and bias `[units]`; of residual layers with `params`.

    The kernel of openai/gpt-2 is that of a convolution, `[1, size, units]`. Those of residual
    layers start smaller, as their number grows (section 2.3 of the paper).
    """
    stddev = _STDDEV / (2 * params["num_layers"]) ** 0.5 if params else _STDDEV
    initializer = tf.compat.v1.random_normal_initializer(stddev=stddev)
    with tf.compat.v1.variable_scope(name):
        shape = [1, x.shape.as_list()[-1], units]
        kernel = tf.compat.v1.get_variable("w", shape, x.dtype, initializer)
        zeros = tf.zeros_initializer()
        bias = tf.compat.v1.get_variable("b", [units], x.dtype, zeros)
    return tf.reshape(kernel, shape[1:]), bias


def _embed(tokens, positions, params, training):
    """Sums the embeddings of tokens and positions; `[batch, length, hidden_size]`.

    Args:
      tokens: int32 `[batch, length]`.
      positions: int32 `[batch, length]`; None: 0, 1, 2, ...
      params: see `default_params`.
      training: True turns dropout on.
    """
    # Rows of the float32 variable: the cast of all rows would be kept for both users of the table.
    in_float32 = {**params, "precision": "float32"}
    rows = tf.cast(
        tf.gather(_embedding("wte", "vocab_size", in_float32), tokens), params["precision"]
    )
    table = _embedding("wpe", "max_positions", params)
    places = table[: _length(tokens)] if positions is None else tf.gather(table, positions)
    return dropout(rows + places, params["dropout"], training)


def _embedding(name, num_rows, params):
    with tf.compat.v1.variable_scope("model", reuse=tf.compat.v1.AUTO_REUSE):
        shape = [params[num_rows], params["hidden_size"]]
        initializer = tf.compat.v1.random_normal_initializer(stddev=_STDDEV)
        return tf.compat.v1.get_variable(name, shape, params["precision"], initializer)


def _logits(x, params):
    """Output projection with the embedding, to `[batch, length, vocab_size]`."""
    rows = tf.reshape(x, [-1, params["hidden_size"]])
    logits = tf.matmul(rows, _embedding("wte", "vocab_size", params), transpose_b=True)
    return tf.reshape(logits, [-1, _length(x), params["vocab_size"]])


def _log_probs(x, targets, params, training):
    """Returns the log probabilities of tokens, float32 `[batch, length]`.

    Args:
      x: `[batch, length, hidden_size]`, outputs of the layers.
      targets: int32 `[batch, length]`.
      params: see `default_params`; `logits_positions` at a time need a static length.
      training: True computes chunks of the logits again in the backward pass.
    """

    def of(x, targets):
        logits = tf.cast(_logits(x, params), tf.float32)
        return -cross_entropy(targets, logits, label_smoothing=0.0)

    length, size = x.shape.as_list()[1], params["logits_positions"]
    if not size or length is None or length <= size:
        return of(x, targets)
    chunks = []
    for begin in range(0, length, size):
        block = functools.partial(of, targets=targets[:, begin : begin + size])
        rows = x[:, begin : begin + size]
        chunks.append(recompute(block, rows, params) if training else block(rows))
    return tf.concat(chunks, axis=1)


def _log_probs_of_prompt(x, prompt, length, size, params):
    """Returns the log probabilities of the tokens of prompts; see `generation.generate`.

    One prompt at a time: the logits of a row with 50,257 tokens take 0.2 GB.
    """

    def of_row(row):
        x, prompt = row
        return _log_probs(x[tf.newaxis, :-1], prompt[tf.newaxis, 1:], params, False)[0]

    found = tf.map_fn(of_row, (x, prompt), fn_output_signature=tf.float32, parallel_iterations=1)
    found = tf.pad(found, [[0, 0], [1, size - tf.shape(prompt)[1]]])
    found = tf.ensure_shape(found, [None, size])
    return tf.where(tf.range(size) < length[:, tf.newaxis], found, 0.0)


def _causal_mask(length):
    """Returns bool `[1, 1, length, length]`, True where a query may attend to a key."""
    positions = tf.range(length)
    return (positions[:, tf.newaxis] >= positions)[tf.newaxis, tf.newaxis]


def _within_documents(tokens, mask, params):
    """Returns positions within documents, int32 `[batch, length]`, and the mask of these.

    The end of a text is the first token of the next one.
    """
    is_start = tf.cast(tf.equal(tokens, params["end_of_text"]), tf.int32)
    document = tf.cumsum(is_start, axis=1)
    is_same = tf.equal(document[:, :, tf.newaxis], document[:, tf.newaxis])[:, tf.newaxis]
    mask = mask & is_same
    return tf.reduce_sum(tf.cast(mask[:, 0], tf.int32), axis=2) - 1, mask


def _length(x):
    """Returns the length of `[batch, length, ...]`, an int if it is static."""
    length = x.shape.as_list()[1]
    return tf.shape(x)[1] if length is None else length


def _layer_variables(params):
    layers = (f"model/h{i}/.*" for i in range(params["num_layers"]))
    return ["model/(wte|wpe)", *layers]


MODEL = language_model.model(
    "gpt",
    default_params,
    inference,
    decode,
    check_params,
    unused_params=generation.unused_params,
    presets={"size": SIZES},
    warm_start_scope="model/.*",
    check_warm_start=gpt_files.check_warm_start,
    layer_variables=_layer_variables,
)
