"""Optimizers, weight decay, gradient clipping and per-layer learning rates.

`create` returns an optimizer of the TensorFlow 1 API; a training step calls `compute_gradients` and
`apply_gradients`. Gradient accumulation over micro-batches is in `engine/train/train_step.py`, the
learning rate schedule in `engine/train/schedules.py`.
"""

from __future__ import annotations

import re

import tensorflow as tf

from common import strict_flags
from common.errors import UsageError
from common.messages import did_you_mean
from common.params import Strings
from engine.checkpoints import ema
from engine.train.adafactor import AdafactorOptimizer
from engine.train.adamw_lars_lamb import (
    AdamWOptimizer,
    BertAdamWOptimizer,
    DenseUpdate,
    LAMBOptimizer,
    LARSOptimizer,
    is_decayed,
    update_number,
)
from models.layers import device
from models.model import ModelError, check_fractions, check_not_negative, check_positive


def default_params():
    """Returns the hyperparameters of this module."""
    return {
        # sgd, momentum, adagrad, adam, adamw, bert_adamw, rmsprop, lars, lamb, adafactor
        "optimizer": "adam",
        "momentum": 0.9,  # of momentum, rmsprop, lars
        "nesterov": False,  # Nesterov momentum; of momentum
        "beta1": 0.9,  # of adam, adamw, bert_adamw, lamb
        "beta2": 0.999,  # of adam, adamw, bert_adamw, lamb
        "rmsprop_decay": 0.9,  # of rmsprop: decay of the mean square
        # Added to the denominator of adam, adamw, bert_adamw, lamb; in the root of rmsprop.
        "epsilon": 1e-7,
        "trust_coefficient": 1e-3,  # of lars: update norm divided by weight norm
        "clip_threshold": 1.0,  # of adafactor: root mean square of an update before its scaling
        # Decays kernels and embeddings, not biases and norms: decoupled with adamw, bert_adamw and
        # adafactor, by their own rules with lars and lamb, as an L2 loss with the others.
        "weight_decay": 0.0,
        # Sparse updates of embeddings on a CPU or GPU with adam, momentum and rmsprop, as LazyAdam:
        # rows that a batch does not use keep their values and slots, and the time of a step does
        # not depend on the size of a table. sgd and adagrad always update the used rows only.
        "lazy_embeddings": False,
        "clip_norm": 0.0,  # gradient clipping by global norm; 0: off
        "trainable": ".*",  # regular expression of the variables to train; the others are frozen
        # Factors of the learning rate, REGEX:FACTOR, such as [logits/.*:10,stage_1/.*:0.1]. The
        # first regular expression that matches the name of a variable counts.
        "learning_rate_factors": Strings(),
        # Layer-wise learning rate decay (Clark et al. 2020, arXiv:2003.10555): the layer n layers
        # below the head has the learning rate times layer_decay ** n; 1: off.
        "layer_decay": 1.0,
        # Exponential moving average (EMA) of the weights, for evaluation and export; 0: off.
        "ema_decay": 0.0,
    }


def check_params(params):
    """Raises `UsageError` for a value out of range."""
    name = params["optimizer"]
    if name not in _OPTIMIZERS:
        raise UsageError(f"optimizer={name} is unknown.{did_you_mean(name, _OPTIMIZERS)}")
    check_fractions(params, "momentum", "beta1", "beta2", "rmsprop_decay", "ema_decay")
    check_not_negative(params, "weight_decay", "clip_norm")
    check_positive(params, "epsilon", "trust_coefficient", "clip_threshold")
    if params["lazy_embeddings"]:
        _check_lazy(params)
    if not 0 < params["layer_decay"] <= 1:
        raise UsageError(f"layer_decay={params['layer_decay']} must be above 0 and at most 1")
    _check_pattern("trainable", params["trainable"])
    for pattern, _ in _learning_rate_factors(params):
        _check_pattern("learning_rate_factors", pattern)


# Hyperparameters and the only optimizers that read them.
READ_BY = {
    "momentum": ("momentum", "rmsprop", "lars"),
    "nesterov": ("momentum",),
    "beta1": ("adam", "adamw", "bert_adamw", "lamb"),
    "beta2": ("adam", "adamw", "bert_adamw", "lamb"),
    "rmsprop_decay": ("rmsprop",),
    "epsilon": ("adam", "adamw", "bert_adamw", "lamb", "rmsprop"),
    "trust_coefficient": ("lars",),
    "clip_threshold": ("adafactor",),
}


def _check_lazy(params):
    """Raises `UsageError` for hyperparameters that make the gradients of embeddings dense."""
    if params["optimizer"] in _DENSE_OPTIMIZERS:
        lazy = [name for name in _OPTIMIZERS if name not in _DENSE_OPTIMIZERS]
        raise UsageError(
            f"lazy_embeddings: optimizer={params['optimizer']} updates every row. Use one of "
            f"{', '.join(lazy)}"
        )
    for key in ("weight_decay", "ema_decay"):
        if params[key]:
            raise UsageError(
                f"lazy_embeddings: {key}={params[key]} updates every row. Set {key}=0, or "
                "lazy_embeddings=false"
            )


def _check_pattern(key, pattern):
    try:
        re.compile(pattern)
    except re.error as error:
        raise UsageError(f"{key}: '{pattern}' is not a regular expression: {error}") from error


def _learning_rate_factors(params):
    """Returns `[(regular expression, factor)]`."""
    factors = []
    for item in params["learning_rate_factors"]:
        pattern, _, text = item.rpartition(":")
        try:
            factor = strict_flags.to_float(text)
        except ValueError:
            factor = 0.0
        if factor <= 0:
            raise UsageError(
                f"learning_rate_factors: '{item}' must be REGEX:FACTOR with a factor above 0, such "
                "as logits/.*:10. To freeze variables, leave them out of 'trainable'"
            )
        factors.append((pattern, factor))
    return factors


def table_optimizer(params, table):
    """Returns the name of the optimizer of an `EmbeddingTable`.

    Raises:
      UsageError: the optimizer that the table declares is not one for tables.
    """
    if table.optimizer and table.optimizer not in TABLE_OPTIMIZERS:
        raise UsageError(
            f"the embedding table '{table.name}' has optimizer {table.optimizer}. Use one of "
            f"{', '.join(TABLE_OPTIMIZERS)}"
        )
    return table.optimizer or params["optimizer"]


def learning_rate_factor(params, name):
    """Returns the factor of `learning_rate_factors` of the variable `name`."""
    factors = _learning_rate_factors(params)
    return [*factors, (None, 1.0)][_first_match(factors, name)][1]


def create(params, learning_rate, layers=(), tables=(), tpu_tables=()):
    """Returns the `tf.compat.v1.train.Optimizer` that `params` define.

    Args:
      params: see `default_params`.
      learning_rate: float or float32 scalar tensor.
      layers: regular expressions of the variables of each layer, see `Model.layer_variables`.
      tables: the embedding tables of the model. Slots of Adam are `<table>/Adam/m` and
        `<table>/Adam/v`, as those of a TPU embedding.
      tpu_tables: those of them that are TPU embeddings, not variables of this graph.
    """
    own = {table.name: table_optimizer(params, table) for table in tables}
    own = {name: kind for name, kind in own.items() if kind in TABLE_OPTIMIZERS}

    def make(rate, table=""):
        kinds = TABLE_OPTIMIZERS if table else _OPTIMIZERS
        made = kinds[table or params["optimizer"]](params, rate)
        if params["lazy_embeddings"]:
            made.is_lazy = True  # of a `_SparseUpdate`; the others are lazy
        return made

    factors = _learning_rate_factors(params)
    decay = params["layer_decay"]
    if factors or decay != 1 or own:
        depths = [(pattern, decay ** (len(layers) - i)) for i, pattern in enumerate(layers)]
        optimizer = GroupedOptimizer(
            make,
            learning_rate,
            factors,
            depths if decay != 1 else (),
            own,
            [table.name for table in tpu_tables],
        )
    else:
        optimizer = make(learning_rate)
    return ClippedOptimizer(optimizer, params["clip_norm"]) if params["clip_norm"] else optimizer


def all_reduced(optimizer, params):
    """Returns an optimizer that all-reduces its gradients over the cores of a TPU."""
    is_tpu = device.from_params(params).is_tpu
    return tf.compat.v1.tpu.CrossShardOptimizer(optimizer) if is_tpu else optimizer


def compute_gradients(optimizer, loss, params):
    """Returns `[(gradient, variable)]` of the trainable variables; L2 weight decay is included.

    Gradients of embeddings stay sparse (`tf.IndexedSlices`); the update is that of the dense
    gradient (see `_SparseUpdate`, `DenseUpdate`) unless `lazy_embeddings` is set. Gradients are
    dense on a TPU, for its all-reduce; with L2 weight decay; and on several replicas with gradient
    clipping or with `_DENSE_OPTIMIZERS`, whose decay and norms need every row.

    Args:
      optimizer: from `create` and `all_reduced`.
      loss: float32 scalar tensor, or `{regular expression: loss}`: each is differentiated with
        respect to the variables whose names match, and the gradients of a variable are summed. A
        variable that matches none has no gradient.
      params: see `default_params`; on a TPU with those that TPUEstimator adds.

    Raises:
      UsageError: `lazy_embeddings` is set, and gradient clipping on several replicas would make
        gradients dense.
      ModelError: no variable has a gradient, or a regular expression matches no variable.
    """
    variables = tf.compat.v1.trainable_variables()
    names = [ema.saved_name(variable) for variable in variables]
    found, is_decaying = [[] for _ in variables], [is_decayed(variable) for variable in variables]
    for pattern, value in (loss if isinstance(loss, dict) else {".*": loss}).items():
        chosen = [i for i, name in enumerate(names) if re.fullmatch(pattern, name)]
        _check_variables(pattern, chosen)
        # L2 is a part of the loss, so that an optimizer that sums gradients over replicas scales
        # it; once for a variable of several losses.
        if params["weight_decay"] and params["optimizer"] not in _DENSE_OPTIMIZERS:
            decayed = [tf.nn.l2_loss(variables[i]) for i in chosen if is_decaying[i]]
            value += params["weight_decay"] * tf.add_n(decayed or [0.0])
            is_decaying = [decays and i not in chosen for i, decays in enumerate(is_decaying)]
        pairs = optimizer.compute_gradients(value, [variables[i] for i in chosen]) if chosen else ()
        for i, (gradient, _) in zip(chosen, pairs):
            found[i].append(gradient)
    gradients = [(_sum(each), variable) for each, variable in zip(found, variables)]
    _check_gradients(gradients, params)
    here = device.from_params(params)
    needs_rows = params["clip_norm"] or params["optimizer"] in _DENSE_OPTIMIZERS
    if not (here.is_tpu or (needs_rows and here.num_replicas > 1)):
        return gradients
    if params["lazy_embeddings"] and not here.is_tpu:
        raise UsageError(
            f"lazy_embeddings: clip_norm={params['clip_norm']} on {here.num_replicas} replicas "
            "makes gradients dense. Set clip_norm=0, or lazy_embeddings=false"
        )
    return [
        (gradient if gradient is None else tf.convert_to_tensor(gradient), variable)
        for gradient, variable in gradients
    ]


def _check_variables(pattern, chosen):
    """Raises `ModelError` if a loss is for no variable; it may be for frozen ones only."""
    names = [ema.saved_name(variable) for variable in tf.compat.v1.global_variables()]
    if not chosen and not any(re.fullmatch(pattern, name) for name in names):
        raise ModelError(
            f"losses: variables={pattern!r} matches no variable. The last variable of the model is "
            f"{names[-1]}"
        )


def _sum(gradients):
    """Returns the sum of gradients, sparse if all are; None without gradients."""
    gradients = [gradient for gradient in gradients if gradient is not None]
    if len(gradients) < 2:
        return gradients[0] if gradients else None
    if all(isinstance(gradient, tf.IndexedSlices) for gradient in gradients):
        values, indices = (
            tf.concat([getattr(gradient, part) for gradient in gradients], axis=0)
            for part in ("values", "indices")
        )
        return tf.IndexedSlices(values, indices, gradients[0].dense_shape)
    return tf.add_n([tf.convert_to_tensor(gradient) for gradient in gradients])


def _check_gradients(gradients, params):
    """Raises `ModelError` if no variable has a gradient."""
    if all(gradient is None for gradient, _ in gradients):
        names = [ema.saved_name(variable) for _, variable in gradients]
        trained = "" if params["trainable"] == ".*" else f" of trainable={params['trainable']}"
        raise ModelError(
            f"losses: no variable{trained} has a gradient, not even {names[-1]}. The loss does not "
            "depend on them, or only through an operation without a gradient, such as tf.argmax, "
            "tf.stop_gradient or a cast to integers"
        )


def apply_gradients(optimizer, gradients_and_variables, params):
    """Returns the train op of a step.

    It runs `UPDATE_OPS`, such as the moving averages of batch norm, applies the gradients,
    increments the global step, and updates the EMA of the weights.
    """
    if all(gradient is None for gradient, _ in gradients_and_variables):
        # Those of the gradients that exist are of TPU embeddings, which TPUEstimator applies.
        return count_step(params)
    global_step = tf.compat.v1.train.get_or_create_global_step()
    updates = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.UPDATE_OPS)
    with tf.control_dependencies(updates):
        step = optimizer.apply_gradients(gradients_and_variables, global_step)
    return ema.add_update(step, params)


def count_step(params, after=()):
    """Returns the train op of a step whose gradients are applied elsewhere.

    Like that of `apply_gradients` it runs `UPDATE_OPS`, increments the global step, and updates the
    EMA of the weights; all of it after the operations `after`.
    """
    global_step = tf.compat.v1.train.get_or_create_global_step()
    updates = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.UPDATE_OPS)
    with tf.control_dependencies([*after, *updates]):
        op = global_step.assign_add(1, read_value=False)
    return ema.add_update(op, params)


class ClippedOptimizer(tf.compat.v1.train.Optimizer):
    """Gradient clipping by global norm, before another optimizer applies the gradients.

    Clips the gradient of the global batch: inside a CrossShardOptimizer the gradients are summed
    over cores already; under a `tf.distribute.Strategy` they are summed over replicas here.
    """

    def __init__(self, optimizer, clip_norm):
        super().__init__(use_locking=False, name="Clipped")
        self._optimizer = optimizer
        self._clip_norm = clip_norm

    def compute_gradients(self, loss, var_list=None, **kwargs):
        """Returns the gradients of the other optimizer."""
        return self._optimizer.compute_gradients(loss, var_list=var_list, **kwargs)

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        """Clips the gradients and applies them."""
        gradients, variables = zip(*(pair for pair in grads_and_vars if pair[0] is not None))
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        if replicas > 1:
            gradients = device.sum_over_strategy(list(gradients))
        clipped, _ = tf.clip_by_global_norm(list(map(_unique_rows, gradients)), self._clip_norm)
        # The other optimizer sums them over the replicas again.
        clipped = [gradient / replicas for gradient in clipped] if replicas > 1 else clipped
        return self._optimizer.apply_gradients(list(zip(clipped, variables)), global_step, name)


def _unique_rows(gradient):
    """Returns `tf.IndexedSlices` with one row per index: their norm is the norm of the gradient."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    indices, segments = tf.unique(gradient.indices)
    values = tf.math.unsorted_segment_sum(gradient.values, segments, tf.size(indices))
    return tf.IndexedSlices(values, indices, gradient.dense_shape)


class GroupedOptimizer(tf.compat.v1.train.Optimizer):
    """Optimizers with different learning rates for different variables.

    The learning rate of a variable is multiplied by its factor and by the factor of its layer.
    """

    def __init__(self, make, learning_rate, factors, layer_factors, tables, tpu_tables):
        """Creates a GroupedOptimizer.

        Args:
          make: `(learning_rate, name of the optimizer of a table or "") -> optimizer`.
          learning_rate: of variables without a factor, float or float32 scalar tensor.
          factors: `[(regular expression of a variable's name, factor)]`. The first that matches
            counts.
          layer_factors: like `factors`, of `layer_decay`.
          tables: `{name of a variable: name of its optimizer}`, embedding tables.
          tpu_tables: names of TPU embeddings, which `factors` may match.
        """
        super().__init__(use_locking=False, name="Grouped")
        self._tables, self._tpu_tables = tables, tpu_tables
        self._make = make
        self._learning_rate = learning_rate
        self._factors = factors
        self._layer_factors = layer_factors

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        """Updates each variable by the optimizer of its group, then increments the global step.

        Raises:
          UsageError: a regular expression of `factors`, or every one of `layer_factors`, matches no
            variable that is left.
        """
        groups = {}
        for pair in grads_and_vars:
            if pair[0] is None:
                continue
            variable = ema.saved_name(pair[1])
            i, layer = (
                _first_match(table, variable) for table in (self._factors, self._layer_factors)
            )
            groups.setdefault((i, layer, self._tables.get(variable, "")), []).append(pair)
        found = {group for group, _, _ in groups}
        found.update(_first_match(self._factors, table) for table in self._tpu_tables)
        for i, (pattern, _) in enumerate(self._factors):
            if i not in found:
                raise UsageError(f"learning_rate_factors: '{pattern}' matches no trained variable")
        if self._layer_factors and {layer for _, layer, _ in groups} == {len(self._layer_factors)}:
            raise UsageError(
                f"layer_decay={self._layer_factors[-1][1]} decays the layers below the head, but "
                "none of them is trained. Set layer_decay=1, or train more variables (trainable)"
            )
        updates = []
        # The order names variables such as beta1.
        for (i, layer, table), pairs in sorted(groups.items()):
            factor = [*self._factors, (None, 1.0)][i][1]
            factor *= [*self._layer_factors, (None, 1.0)][layer][1]
            rate = self._learning_rate if factor == 1 else self._learning_rate * factor
            updates.append(self._make(rate, table).apply_gradients(pairs))
        with tf.control_dependencies(updates):
            if global_step is None:
                return tf.no_op(name)
            return global_step.assign_add(1, name=name, read_value=False)


def _first_match(factors, name):
    """Returns the index of the first regular expression that matches `name`, or `len(factors)`."""
    matches = (i for i, (pattern, _) in enumerate(factors) if re.fullmatch(pattern, name))
    return next(matches, len(factors))


class _SparseUpdate(DenseUpdate):
    """Applies sparse gradients: by the dense rule, or with `is_lazy` to the rows of a batch only.

    TensorFlow's sparse rules of momentum and rmsprop skip the rows that a batch does not use, so
    that a model would train differently on a TPU or with gradient accumulation. That of adam is
    equal to the dense rule but makes several passes over the variable.
    """

    is_lazy = False

    def _resource_apply_sparse_duplicate_indices(self, grad, handle, indices):
        base = super()
        if self.is_lazy:  # TensorFlow's method sums the gradients of each row, then updates it once
            base = super(DenseUpdate, self)
        return base._resource_apply_sparse_duplicate_indices(grad, handle, indices)


class _MomentumOptimizer(_SparseUpdate, tf.compat.v1.train.MomentumOptimizer):
    pass


class _AdamOptimizer(_SparseUpdate, tf.compat.v1.train.AdamOptimizer):
    def _resource_apply_sparse(self, grad, handle, indices):
        """Updates the rows `indices`, which are unique; slots of other rows do not decay."""
        beta1_power, beta2_power = self._get_beta_accumulators()
        rate = self._lr_t * tf.sqrt(1 - beta2_power) / (1 - beta1_power)
        slots = self.get_slot(handle, "m"), self.get_slot(handle, "v")
        m, v = (tf.gather(slot, indices) for slot in slots)
        m += (grad - m) * (1 - self._beta1_t)
        v += (tf.square(grad) - v) * (1 - self._beta2_t)
        update = rate * m / (tf.sqrt(v) + self._epsilon_t)
        return tf.group(
            *(
                tf.raw_ops.ResourceScatterUpdate(
                    resource=slot.handle, indices=indices, updates=rows
                )
                for slot, rows in zip(slots, (m, v))
            ),
            tf.raw_ops.ResourceScatterSub(resource=handle.handle, indices=indices, updates=update),
        )


class _TableAdamOptimizer(_AdamOptimizer):
    """Adam of an embedding table, with the slots of a TPU embedding.

    The bias correction is a function of the global step, since a TPU embedding has no variables for
    it.
    """

    def _create_slots(self, var_list):
        for variable in var_list:
            for slot in ("m", "v"):
                self._zeros_slot(variable, slot, f"{self._name}/{slot}")

    def _get_beta_accumulators(self):
        return tuple(tf.pow(beta, update_number()) for beta in (self._beta1_t, self._beta2_t))

    def _finish(self, update_ops, name_scope):
        return tf.group(*update_ops, name=name_scope)


def adam_bias_correction(params):
    """Returns the factor of the learning rate in this step, float32 scalar."""
    t = update_number()
    return tf.sqrt(1 - tf.pow(params["beta2"], t)) / (1 - tf.pow(params["beta1"], t))


class _RMSPropOptimizer(_SparseUpdate, tf.compat.v1.train.RMSPropOptimizer):
    pass


def _adam_arguments(params):
    return {name: params[name] for name in ("beta1", "beta2", "epsilon")}


# Functions of the hyperparameters and the learning rate.
_OPTIMIZERS = {
    "sgd": lambda _, rate: tf.compat.v1.train.GradientDescentOptimizer(rate),
    "momentum": lambda p, rate: _MomentumOptimizer(rate, p["momentum"], use_nesterov=p["nesterov"]),
    "adagrad": lambda _, rate: tf.compat.v1.train.AdagradOptimizer(rate),
    "adam": lambda p, rate: _AdamOptimizer(rate, **_adam_arguments(p)),
    "adamw": lambda p, rate: AdamWOptimizer(rate, p["weight_decay"], **_adam_arguments(p)),
    "bert_adamw": lambda p, rate: BertAdamWOptimizer(rate, p["weight_decay"], **_adam_arguments(p)),
    "rmsprop": lambda p, rate: _RMSPropOptimizer(
        rate, decay=p["rmsprop_decay"], momentum=p["momentum"], epsilon=p["epsilon"]
    ),
    "lars": lambda p, rate: LARSOptimizer(
        rate, p["momentum"], p["weight_decay"], p["trust_coefficient"]
    ),
    "lamb": lambda p, rate: LAMBOptimizer(rate, p["weight_decay"], **_adam_arguments(p)),
    "adafactor": lambda p, rate: AdafactorOptimizer(rate, p["weight_decay"], p["clip_threshold"]),
}
TABLE_OPTIMIZERS = {
    "sgd": _OPTIMIZERS["sgd"],
    "adagrad": _OPTIMIZERS["adagrad"],
    "adam": lambda p, rate: _TableAdamOptimizer(rate, **_adam_arguments(p)),
}
# These decay weights without an L2 loss and have no sparse rule.
_DENSE_OPTIMIZERS = ("adamw", "bert_adamw", "lars", "lamb", "adafactor")
