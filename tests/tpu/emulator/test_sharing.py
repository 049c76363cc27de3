"""Cores share the operations whose results are the same on all of them, and no others."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops
from tensorflow.compiler.tf2xla.python import xla
from tensorflow.python.ops import control_flow_util
from tensorflow.python.tpu.ops import tpu_ops

from tpu.emulator import emulator

tf1 = tf.compat.v1
NUM_CORES = 4
GROUPS = [[0, 1], [2, 3]]


def run(computation, variable=(0.0,)):
    """Runs `computation(x, variable)` on 4 cores, with x = 1, 2, 3, 4.

    Returns:
      The results of the cores, the variable afterwards, and the nodes of all cores.
    """
    with tf.Graph().as_default() as graph, emulator.emulate("1x4"):
        v = tf1.get_variable("v", initializer=tf.constant(variable), use_resource=True)
        inputs = [[tf.constant(x)] for x in (1.0, 2.0, 3.0, 4.0)]
        results = tf1.tpu.replicate(lambda x: [computation(x, v)], inputs)
        with tf.control_dependencies(tf.nest.flatten(results)):
            after = v.read_value()
        with tf1.Session() as session:
            session.run(tf1.global_variables_initializer())
            results, after = session.run([results, after])
        nodes = [node for node in graph.as_graph_def().node if node.name.startswith("cores/")]
    return [result[0].tolist() for result in results], after.tolist(), nodes


def of_type(kind, nodes):
    return [node for node in nodes if node.op == kind]


def after(operation, value):
    with tf.control_dependencies([operation]):
        return value()


def update_by_sum(x, v):
    return after(v.assign_add([tf1.tpu.cross_replica_sum(x)]), v.read_value)


def update_by_own_value(x, v):
    return after(v.assign_add([x]), v.read_value)


def update_by_sum_over_a_group(x, v):
    total = gen_xla_ops.xla_all_reduce(x, GROUPS, "Add", "CrossReplica")
    return after(v.assign_add([total]), v.read_value)


def update_by_another_variable(x, v):
    with tf1.variable_scope("", reuse=tf1.AUTO_REUSE):
        other = tf1.get_variable("other", initializer=[5.0], use_resource=True)
    return after(v.assign(after(other.assign_add([x]), other.read_value)), v.read_value)


def update_by_one_core(x, v):
    done = tf1.cond(
        tf.equal(xla.replica_id(), 2), lambda: v.assign_add([1.0]), lambda: v.read_value()
    )
    return after(done.op, v.read_value)


def updates_in_a_loop_of_each_core(x, v):
    def body(i):
        return after(v.assign_add([1.0]), lambda: i + 1)

    count = tf1.while_loop(lambda i: i < xla.replica_id(), body, [0])
    return after(count.op, v.read_value)


def updates_in_a_loop_of_all_cores(x, v):
    def body(i):
        return after(v.assign_add([tf1.tpu.cross_replica_sum(x)]), lambda: i + 1)

    count = tf1.while_loop(lambda i: i < 3, body, [0])
    return after(count.op, v.read_value)


def update_in_a_branch_of_all_cores(x, v):
    total = tf1.tpu.cross_replica_sum(x)
    done = tf1.cond(
        total > 9, lambda: v.assign_add([tf1.tpu.cross_replica_sum(2 * x)]), lambda: v.read_value()
    )
    return after(done.op, v.read_value)


def own_value_between_shared_updates(x, v):
    first = after(v.assign([1.0]), lambda: x * v.read_value())
    return after(v.assign_add([2.0]), lambda: first + 10 * v.read_value())


def own_value_before_an_update_by_others(x, v):
    moved = tpu_ops.collective_permute(x * (v.read_value() + 1), [[1, 0], [2, 1], [3, 2], [0, 3]])
    return after(v.assign(moved), v.read_value)


def update_before_a_sum(x, v):
    with tf.control_dependencies([v.assign_add([x])]):
        total = tf1.tpu.cross_replica_sum(x)
    return after(total.op, v.read_value)


def sum_in_branches_that_add_a_value_to_itself(x, v):
    total = tf1.tpu.cross_replica_sum(x)
    found = tf1.cond(total > 9, lambda: total + total, lambda: total)
    return tf.reshape(found + tf1.cond(x > 2, lambda: x + x, lambda: x), [1])


def sum_beside_a_nested_conditional(x, v):
    def index():
        return tf.cond(x > 2, lambda: tf.cast(tf.cast(x, tf.int32), tf.float32), lambda: x)

    total = tf1.tpu.cross_replica_sum
    found = tf.cond(total(x) > 9, lambda: index() + total(x), lambda: x)
    return tf.reshape(found, [1])


def stateless_random_numbers(x, v):
    drawn = tf.random.stateless_uniform([1], [1, 2])
    return tf1.tpu.cross_replica_sum(drawn) - 4 * drawn


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("computation", "results"),
    [
        (update_by_sum, [10] * 4),
        (update_by_own_value, [1, 2, 3, 4]),
        (update_by_sum_over_a_group, [3, 3, 7, 7]),
        (update_by_another_variable, [6, 7, 8, 9]),
        (update_by_one_core, [0, 0, 1, 0]),
        (updates_in_a_loop_of_each_core, [0, 1, 2, 3]),
        (updates_in_a_loop_of_all_cores, [30] * 4),
        (update_in_a_branch_of_all_cores, [20] * 4),
        (own_value_between_shared_updates, [31, 32, 33, 34]),
        (own_value_before_an_update_by_others, [2, 3, 4, 1]),
        (update_before_a_sum, [1, 2, 3, 4]),
        (sum_in_branches_that_add_a_value_to_itself, [21, 22, 26, 28]),
        (sum_beside_a_nested_conditional, [11, 12, 13, 14]),
        (stateless_random_numbers, [0] * 4),
    ],
)
def test_each_core_has_its_results(monkeypatch, computation, results, version):
    monkeypatch.setattr(control_flow_util, "ENABLE_CONTROL_FLOW_V2", version == 2)
    found, _, _ = run(computation)
    assert found == [[value] for value in results]


def test_one_core_runs_an_update_by_a_sum_over_all_cores():
    _, variable, nodes = run(update_by_sum)
    assert variable == [10]
    assert len(of_type("AssignAddVariableOp", nodes)) == 1
    assert not of_type("QueueDequeueV2", nodes)  # the values need no queues


def test_only_variables_that_differ_have_copies():
    def update_both(x, v):
        own = tf1.get_variable("own", initializer=[0.0], use_resource=True)
        return after(own.assign_add([x]), lambda: own.read_value() + update_by_sum(x, v))

    results, _, nodes = run(update_both)
    assert results == [[11], [12], [13], [14]]
    assert len(of_type("VarHandleOp", nodes)) == NUM_CORES - 1


def test_a_shared_update_waits_for_the_reads_of_all_cores():
    def gather(x, v):
        row = tf.gather(v, xla.replica_id())
        return after(v.assign(tf.zeros([4])), lambda: tf.identity(row))

    results, variable, nodes = run(gather, (1.0, 2.0, 3.0, 4.0))
    assert results == [1, 2, 3, 4]
    assert variable == [0] * 4
    (update,) = of_type("AssignVariableOp", nodes)
    reads = [name.split("/")[1] for name in update.input if name[0] == "^"]
    assert sorted(reads) == ["core_0", "core_1", "core_2", "core_3"]


def test_random_numbers_of_an_operation_with_state_differ():
    results, _, _ = run(lambda x, v: tf.random.uniform([1], seed=3))
    assert len(np.unique(results)) == NUM_CORES


def test_functions_with_a_state_run_on_each_core():
    calls = []
    results, _, _ = run(
        lambda x, v: tf.numpy_function(lambda: calls.append(0) or 1.0, [], tf.float64)
    )
    assert results == [1] * 4
    assert len(calls) == NUM_CORES


def test_powers_of_2_and_3_are_products():
    def gelu(x, v):
        y = x + 0.044715 * x**3
        return tf.reshape(y + tf.gradients(y, [x])[0], [1])

    results, _, nodes = run(gelu)
    assert not of_type("Pow", nodes)
    expected = [[x + 0.044715 * x**3 + 1 + 3 * 0.044715 * x**2] for x in (1, 2, 3, 4)]
    np.testing.assert_allclose(results, expected, rtol=1e-6)  # 5 roundings of 6e-8
