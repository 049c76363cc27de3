"""num_cores_per_replica and input_partition_dims: one emulated core runs a whole replica."""

import numpy as np
import pytest
import tensorflow as tf

from tests import numerics
from tests.marks import slow
from tests.tpu.emulator import tiny
from tpu.emulator import emulator

V2 = tf.compat.v1.estimator.tpu.InputPipelineConfig.PER_HOST_V2
HALVES = {"per_host_input_for_training": V2, "input_partition_dims": [[2, 1], None]}


@pytest.mark.parametrize(
    ("name", "cores", "options"),
    [
        ("v2-8", 2, HALVES),
        slow("v2-8", 1, {}),
        slow("v2-8", 4, {}),
        slow("v3-32", 16, {"per_host_input_for_training": V2}),
    ],
)
def test_training_equals_that_of_a_cpu(tmp_path, name, cores, options):
    # All hosts read the same numbers: as many batches as hosts call the input_fn.
    cpu = tiny.estimator(tiny.config(tmp_path / "cpu"), use_tpu=False)
    cpu.train(tiny.numbers, steps=4)
    with emulator.emulate(name) as tpu_slice:
        config = {"num_cores_per_replica": cores, **options}
        tpu = tiny.estimator(tiny.config(tmp_path / "tpu", config, master="grpc://tpu"))
        tpu.train(tiny.numbers, steps=4)
    assert tpu.get_variable_value("global_step") == 4
    if tpu_slice.num_hosts == 1:
        weights = [estimator.get_variable_value("weight") for estimator in (tpu, cpu)]
        numerics.assert_close(*weights, terms=8, depth=4)


def test_broadcast_input_feeds_the_replicas_of_all_hosts(tmp_path):
    pipeline = tf.compat.v1.estimator.tpu.InputPipelineConfig.BROADCAST
    with emulator.emulate("2x2"):
        config = tiny.config(tmp_path, {"per_host_input_for_training": pipeline}, master="grpc://a")
        estimator = tiny.estimator(config)
        estimator.train(tiny.numbers, steps=1)
    np.testing.assert_allclose(estimator.get_variable_value("weight"), 0.1 * 3.5, rtol=1e-6)
