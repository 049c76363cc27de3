"""Operations of TPU embeddings, replaced by queues and by functions of `embedding_tables`.

    LoadTPUEmbedding...Parameters       sets the tables of the graph
    RetrieveTPUEmbedding...Parameters   returns them
    EnqueueTPUEmbedding...Batch         enqueues ids to a queue per core: see `embedding_ids`
    RecvTPUEmbeddingActivations         dequeues ids and looks them up
    SendTPUEmbeddingGradients           waits for the gradients of all cores; core 0 updates
    TPUEmbeddingActivations             the activations, its second input

The first three run on hosts: Python functions of `tpu_ops` are replaced. The others are in the
program of a core: `core_builder` rewrites their nodes.
"""

from __future__ import annotations

import contextvars
import functools
import inspect

import tensorflow as tf
from tensorflow.python.ops import script_ops
from tensorflow.python.tpu import tpu_embedding
from tensorflow.python.tpu.ops import tpu_ops
from tensorflow_estimator.python.estimator.tpu import tpu_estimator

from tpu.emulator import collectives, embedding_config, embedding_ids, embedding_optimizers
from tpu.graph.nodes import control_inputs, data_inputs, op_name, replace
from tpu.graph.variables import EMBEDDING_SLOTS

_RECEIVE = "RecvTPUEmbeddingActivations"

_host = contextvars.ContextVar("index of the host whose input_fn is being built", default=0)


def replacements() -> list:
    """Returns the functions to patch, as (owner, name, replacement)."""
    embedding = tpu_embedding.TPUEmbedding
    found = [
        (embedding, "__init__", _on_any_job(embedding.__init__)),
        (embedding, "generate_enqueue_ops", _generate_enqueue_ops),
        (tpu_ops, "configure_tpu_embedding", _configure),
        *embedding_ids.replacements(),
    ]
    for optimizer in embedding_optimizers.RULES:
        slots = EMBEDDING_SLOTS[optimizer]
        load, retrieve = (
            f"{verb}_tpu_embedding_{optimizer}_parameters" for verb in ("load", "retrieve")
        )
        found.append((tpu_ops, load, _load(getattr(tpu_ops, load), slots)))
        found.append((tpu_ops, retrieve, functools.partial(_retrieve, slots)))
    for version in ("", "_v2"):
        name = f"generate_per_host{version}_enqueue_ops_fn_for_host"
        found.append((tpu_estimator, name, _for_host(getattr(tpu_estimator, name))))
    return found


# ---- Hosts ----


def _on_any_job(real_init):
    """The hosts of the emulated TPU are found under any name of a job."""
    signature = inspect.signature(real_init)

    def init(self, *args, **kwargs):
        arguments = signature.bind(self, *args, **kwargs)
        arguments.arguments.pop("master_job_name", None)
        real_init(*arguments.args, **arguments.kwargs)

    return init


def _configure(config, name=None):
    """Checks the configuration. The tables belong to the graph that loads them."""
    embedding_config.parse(_as_bytes(config))
    return tf.no_op(name=name)


def _load(real_load, slots):
    signature = inspect.signature(real_load)

    def load(*args, **kwargs):
        given = signature.bind(*args, **kwargs).arguments
        state = embedding_ids.tables()
        if given.get("config"):
            state.configure(_as_bytes(given["config"]))
        where = given["table_name"], given["shard_id"], given["num_shards"]
        parameters = list(given.values())[: slots + 1]

        def run(*values):
            state.load(*where, *values)

        return tf.numpy_function(run, parameters, [], name=given.get("name"))

    return load


def _retrieve(slots, num_shards, shard_id, table_id=-1, table_name="", config="", name=None):
    del table_id, config
    state = embedding_ids.tables()

    def run():
        return state.retrieve(table_name, shard_id, num_shards)

    arrays = tf.numpy_function(run, [], [tf.float32] * (slots + 1), name=name)
    return arrays if slots else arrays[0]


def _for_host(real_generate):
    """Remembers the host while the enqueue operations of its input_fn are built."""
    signature = inspect.signature(real_generate)

    def generate(*args, **kwargs):
        host = signature.bind(*args, **kwargs).arguments["host_id"]
        enqueue_ops_fn, *others = real_generate(*args, **kwargs)

        @functools.wraps(enqueue_ops_fn)
        def enqueue():
            token = _host.set(host)
            try:
                return enqueue_ops_fn()
            finally:
                _host.reset(token)

        return (enqueue, *others)

    return generate


def _generate_enqueue_ops(self, enqueue_datas_list, mode_override=None, ragged=False):
    """Replaces `TPUEmbedding.generate_enqueue_ops`: ordinals count the cores of all hosts."""
    self._validate_generate_enqueue_ops_enqueue_datas_list(enqueue_datas_list)
    first = _host.get() * self.num_cores_per_host
    if len(enqueue_datas_list) == self.num_cores:
        first = 0
    return [
        self._generate_enqueue_op(
            data, device_ordinal=first + i, mode_override=mode_override, ragged=ragged
        )
        for i, data in enumerate(enqueue_datas_list)
    ]


# ---- Cores ----


def receive(builder, node):
    """Makes a RecvTPUEmbeddingActivations node of a core a lookup of the ids in its queue."""
    state = _configured(builder, node)
    core, controls = builder.core, list(node.input)
    dtypes = embedding_ids.DTYPES * len(state.config.features)
    handle = builder.add_queue(
        f"{node.name}/queue", embedding_ids.queue_name(core), dtypes, controls
    )
    inputs = [handle, *controls]
    ids = builder.add(f"{node.name}/ids", "QueueDequeueV2", inputs, component_types=dtypes)
    token = _register(functools.partial(state.receive, core))
    attributes = {"token": token, "Tin": dtypes}
    attributes["Tout"] = [tf.float32] * len(state.config.features)
    inputs = [f"{ids}:{i}" for i in range(len(dtypes))]
    replace(node, "PyFunc", inputs, **attributes)


def send(builder, node):
    """Makes a SendTPUEmbeddingGradients node of a core wait until the tables are updated."""
    state = _configured(builder, node)
    values = data_inputs(node)
    # A core that does not use the activations must not send before it has received.
    received = [f"^{name}" for name in builder.names_of(_RECEIVE)]
    controls = control_inputs(node) + received
    token = _register(functools.partial(state.send, builder.core))
    types = {"Tin": [tf.float32] * len(values), "Tout": [tf.int32]}
    sent = builder.add(f"{node.name}/sent", "PyFunc", values + controls, token=token, **types)

    def update(group, values):
        token = _register(lambda *sent: state.update())
        types = {"Tin": [tf.int32] * len(values), "Tout": [tf.int32]}
        done = builder.add(f"{node.name}/update", "PyFunc", values, token=token, **types)
        return [done] * len(group)

    replace(node, "Identity", [sent], T=tf.int32)
    collectives.exchange(builder, node, range(builder.num_cores), update)


def activations(builder, node):
    """Makes a TPUEmbeddingActivations node its second input, the activations."""
    first, *inputs = node.input
    replace(node, "Identity", [*inputs, f"^{op_name(first)}"], T=tf.float32)


REWRITES = {
    _RECEIVE: receive,
    "SendTPUEmbeddingGradients": send,
    "TPUEmbeddingActivations": activations,
}


def _configured(builder, node):
    state = embedding_ids.tables()
    state.configure(node.attr["config"].s)
    if state.config.num_cores != builder.num_cores:
        raise NotImplementedError(
            f"TPU embeddings on {state.config.num_cores} cores with {builder.num_cores} replicas "
            "(model parallelism) are not emulated. Remove num_cores_per_replica"
        )
    return state


def _register(function) -> str:
    """Returns the token of a function that PyFunc nodes of the default graph call."""
    graph = tf.compat.v1.get_default_graph()
    # TensorFlow holds functions weakly; graphs keep those of their nodes.
    if not hasattr(graph, "_py_funcs_used_in_graph"):
        graph._py_funcs_used_in_graph = []
    graph._py_funcs_used_in_graph.append(function)
    return script_ops._py_funcs.insert(function)


def _as_bytes(config):
    return config.encode("latin-1") if isinstance(config, str) else config
