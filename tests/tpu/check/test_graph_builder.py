"""The graph that TPUEstimator builds for a slice."""

import collections

import pytest
import tensorflow as tf
from absl import flags

import run_tpu
from engine.cli import resolve_flags
from tests.marks import runs_bfloat16, slow
from tpu.check import graph_builder
from tpu.check.graph_builder import CheckedMode
from tpu.connect import connection, topology

ModeKeys = tf.estimator.ModeKeys
CONVNET = ["--model=convnet", "--params=layers=[conv:4:3,batch_norm,relu,flatten,dense:8]"]
NUM_TRAINABLE = 7  # three kernels, two biases, gamma and beta


@pytest.fixture
def build(tiny_flags, tmp_path):
    """Builds run_tpu.py's graph of a mode for a slice."""

    def build_graph(mode, name, batch_size, *arguments):
        sizes = [f"--{m}_batch_size={batch_size}" for m in ("train", "eval", "predict")]
        flags.FLAGS.unparse_flags()
        flags.FLAGS(
            ["run_tpu", *tiny_flags, *CONVNET, *sizes, f"--model_dir={tmp_path}", *arguments]
        )
        settings, state = resolve_flags.resolve(iterations_per_loop=10)
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver("local")
        found = topology.find(name)
        tpu = connection.Connection(found, resolver)
        estimator = run_tpu.build_estimator(settings, state, tpu)
        input_fns = run_tpu.build_input_fns(settings)
        input_fn = {
            ModeKeys.TRAIN: input_fns.train(0),
            ModeKeys.EVAL: input_fns.evaluate(settings.evaluation.split),
            ModeKeys.PREDICT: input_fns.predict,
        }[mode]
        graph, _ = graph_builder.build(CheckedMode(estimator, input_fn, mode, found))
        return graph

    return build_graph


def count(graph):
    return collections.Counter(op.type for op in graph.get_operations())


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize(
    ("name", "batch_size"), [("v3-32", 96), slow("v3-8", 104), slow("v3-128", 256)]
)
def test_every_core_has_infeed_and_outfeed(build, name, batch_size):
    graph = build(ModeKeys.TRAIN, name, batch_size, "--mode=train", "--train_steps=9")
    cores = topology.find(name).num_cores
    found = count(graph)
    assert found["InfeedEnqueueTuple"] == found["OutfeedDequeueTuple"] == cores
    assert found["InfeedDequeueTuple"] == found["OutfeedEnqueueTuple"] == 1
    assert found["CrossReplicaSum"] == NUM_TRAINABLE
    assert found["TPUReplicatedInput"] == 1


@pytest.mark.parametrize(("name", "batch_size"), [slow("v3-32", 96), ("v4-16", 64)])
def test_infeed_has_per_core_batch_and_stored_dtypes(build, name, batch_size):
    graph = build(ModeKeys.TRAIN, name, batch_size, "--mode=train", "--train_steps=9")
    (infeed,) = [op for op in graph.get_operations() if op.type == "InfeedDequeueTuple"]
    per_core = batch_size // topology.find(name).num_cores
    assert [(t.dtype, t.shape.as_list()) for t in infeed.outputs] == [
        (tf.int32, [per_core, 2]),  # dropout_seed
        (tf.uint8, [per_core, 7, 5, 1]),
        (tf.int32, [per_core]),
    ]


@pytest.mark.slow(cost=0.1)
def test_every_host_enqueues_for_its_cores(build):
    graph = build(ModeKeys.TRAIN, "v3-32", 96, "--mode=train", "--train_steps=9")
    enqueues = [op for op in graph.get_operations() if op.type == "InfeedEnqueueTuple"]
    assert sorted(op.get_attr("device_ordinal") for op in enqueues) == sorted([*range(8)] * 4)


@pytest.mark.parametrize("mode", [ModeKeys.EVAL, ModeKeys.PREDICT])
def test_eval_and_predict_have_no_cross_replica_sums(build, mode, trained_dir):
    graph = build(mode, "v3-8", 104, "--mode=train", "--train_steps=9")
    found = count(graph)
    assert found["InfeedEnqueueTuple"] == found["OutfeedDequeueTuple"] == 8
    assert found["CrossReplicaSum"] == 0


def test_cross_replica_batch_norm_sums_forward_and_backward(build):
    sync = "--params=batch_norm_cross_replica=true"
    graph = build(ModeKeys.TRAIN, "v3-8", 104, "--mode=train", "--train_steps=9", sync)
    assert count(graph)["CrossReplicaSum"] == NUM_TRAINABLE + 2


@runs_bfloat16
def test_bfloat16_stays_inside_the_layers(build):
    graph = build(
        ModeKeys.TRAIN, "v3-8", 104, "--mode=train", "--train_steps=9", "--precision=bfloat16"
    )
    types = {
        op.type: op.inputs[0].dtype for op in graph.get_operations() if op.inputs and op.outputs
    }
    assert types["Conv2D"] == types["MatMul"] == tf.bfloat16
    assert types["CrossReplicaSum"] == tf.float32
    assert types["SparseSoftmaxCrossEntropyWithLogits"] == tf.float32
    assert {variable.dtype for variable in graph.get_collection("trainable_variables")} == {
        tf.float32
    }


def test_the_global_batch_must_divide_by_the_cores(build):
    with pytest.raises(ValueError, match="must be divisible by number of replicas 8"):
        build(ModeKeys.TRAIN, "v3-8", 100, "--mode=train", "--train_steps=9")
