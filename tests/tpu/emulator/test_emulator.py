"""Unmodified TPUEstimator programs on emulated cores."""

import contextlib
import importlib.util
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

from tests import numerics
from tests.marks import slow
from tpu import software
from tpu.connect import topology
from tpu.emulator import emulator, replication

GUIDE = pathlib.Path(__file__).parents[1] / "guide_program.py"
PIPELINES = tf.compat.v1.estimator.tpu.InputPipelineConfig
NUM_EXAMPLES = 96


@pytest.fixture(scope="module")
def guide():
    """The guide program, as a module."""
    spec = importlib.util.spec_from_file_location("guide_program", GUIDE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def variables(folder):
    reader = tf.train.load_checkpoint(str(folder))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def numbers(params):
    """Endless batches of the numbers 0 to 95, float32 `[batch, 1]`."""
    x = np.arange(NUM_EXAMPLES, dtype=np.float32)[:, np.newaxis]
    context = params.get("context")
    dataset = tf.data.Dataset.from_tensor_slices((x, x))
    if context:
        _, host, num_hosts, _ = context.current_input_fn_deployment()
        dataset = dataset.shard(num_hosts, host)
    return dataset.repeat().batch(params["batch_size"], drop_remainder=True)


def mean_model_fn(features, labels, mode, params):
    """Learns the mean of its labels with a learning rate of 0.1."""
    weight = tf.compat.v1.get_variable("weight", initializer=0.0)
    loss = tf.reduce_mean((weight - labels) ** 2) / 2
    optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.1)
    if params["use_tpu"]:
        optimizer = tf.compat.v1.tpu.CrossShardOptimizer(optimizer)
    train_op = optimizer.minimize(loss, tf.compat.v1.train.get_global_step())
    with tf.control_dependencies([train_op]):  # read after the step
        step = tf.compat.v1.train.get_global_step().read_value()
    return tf.compat.v1.estimator.tpu.TPUEstimatorSpec(
        mode,
        loss=loss,
        train_op=train_op,
        host_call=params.get("host_call", lambda step, loss: None)(step, loss),
        training_hooks=params.get("training_hooks"),
        eval_metrics=(lambda x: {"mean": tf.compat.v1.metrics.mean(x)}, [labels]),
        predictions={"x": features},
    )


def make_estimator(folder, model_fn=mean_model_fn, iterations=5, batch_size=32, **options):
    pipeline = options.pop("pipeline", PIPELINES.PER_HOST_V2)
    config = tf.compat.v1.estimator.tpu.RunConfig(
        cluster=tf.distribute.cluster_resolver.TPUClusterResolver("mine"),
        model_dir=str(folder),
        tf_random_seed=1,
        tpu_config=tf.compat.v1.estimator.tpu.TPUConfig(
            iterations_per_loop=iterations, per_host_input_for_training=pipeline
        ),
        **options.pop("config", {}),
    )
    sizes = {f"{mode}_batch_size": batch_size for mode in ("train", "eval", "predict")}
    return tf.compat.v1.estimator.tpu.TPUEstimator(
        model_fn, config=config, use_tpu=True, params=options, export_to_tpu=False, **sizes
    )


def expected_weight(steps, batch_size=32):
    """Returns the weight after training on the numbers in order."""
    weight, start = 0.0, 0
    for _ in range(steps):
        batch = np.arange(start, start + batch_size) % NUM_EXAMPLES
        weight -= 0.1 * (weight - batch.mean())
        start += batch_size
    return weight


@pytest.mark.parametrize("name", ["1x2", slow("v3-8")])
def test_guide_program_gives_equal_results_on_emulated_cores(guide, tmp_path, name):
    cpu, tpu = tmp_path / "cpu", tmp_path / "tpu"
    metrics, predictions = guide.main([f"--model_dir={cpu}", "--use_tpu=0"])
    with emulator.emulate(name):
        tpu_metrics, tpu_predictions = guide.main([f"--model_dir={tpu}", "--tpu=some-name"])
    # 50 steps on batches of 48; variables of size 1.
    assert numerics.excess(variables(tpu), variables(cpu), terms=48, depth=50, magnitude=1.0) < 1
    assert tpu_metrics["accuracy"] == metrics["accuracy"] > 0.9
    assert len(tpu_predictions) == len(predictions) == 30
    for a, b in zip(tpu_predictions, predictions):
        numerics.assert_all_close(a, b, terms=48, depth=50, magnitude=1.0)


@pytest.mark.slow
def test_tensorflow_2_behaviour_may_stay_on(guide, tmp_path):
    metrics, _ = guide.main([f"--model_dir={tmp_path}/cpu", "--use_tpu=0"])
    code = (
        "import sys\n"
        "import guide_program\n"
        "from tpu import emulator\n"
        "with emulator.emulate('1x2'):\n"
        "    print(guide_program.main(sys.argv[1:])[0]['accuracy'])\n"
    )
    folders = os.pathsep.join([str(GUIDE.parent), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", code, f"--model_dir={tmp_path}/tpu"],
        env={**os.environ, "PYTHONPATH": folders},
        capture_output=True,
        text=True,
    )
    assert done.stdout == f"{metrics['accuracy']}\n", done.stderr
    trained = variables(tmp_path / "tpu"), variables(tmp_path / "cpu")
    assert numerics.excess(*trained, terms=48, depth=50, magnitude=1.0) < 1


def test_split_compile_and_execute(tmp_path, monkeypatch):
    monkeypatch.setenv("TPU_SPLIT_COMPILE_AND_EXECUTE", "1")
    with emulator.emulate("1x2"):
        make_estimator(tmp_path).train(numbers, max_steps=1)
    assert variables(tmp_path)["global_step"] == 1


@pytest.mark.parametrize("iterations", [3, slow(1), slow(7)])
def test_training_ends_at_max_steps(tmp_path, iterations):
    with emulator.emulate("1x4"):
        make_estimator(tmp_path, iterations=iterations).train(numbers, max_steps=7)
    trained = variables(tmp_path)
    assert trained["global_step"] == 7
    numerics.assert_close(trained["weight"], expected_weight(7), terms=32, depth=7)


@pytest.mark.parametrize("name", ["4x2", slow("2x4")])
def test_every_host_calls_its_input_fn(tmp_path, name):
    with emulator.emulate(name):
        make_estimator(tmp_path).train(numbers, max_steps=6)
    numerics.assert_close(variables(tmp_path)["weight"], expected_weight(6), terms=32, depth=6)


# Other tests use PER_HOST_V2.
@pytest.mark.parametrize("pipeline", [PIPELINES.PER_HOST_V1, slow(PIPELINES.PER_HOST_V2)])
def test_per_host_v1_and_v2(tmp_path, pipeline):
    with emulator.emulate("1x4"):
        make_estimator(tmp_path, pipeline=pipeline).train(numbers, max_steps=6)
    numerics.assert_close(variables(tmp_path)["weight"], expected_weight(6), terms=32, depth=6)


def test_training_resumes_from_its_checkpoint(tmp_path):
    with emulator.emulate("1x2"):
        for steps in (3, 6):
            make_estimator(tmp_path).train(numbers, max_steps=steps)
    assert variables(tmp_path)["global_step"] == 6


def test_checkpoints_are_saved_between_loops(tmp_path):
    with emulator.emulate("1x2"):
        estimator = make_estimator(
            tmp_path, iterations=2, config={"save_checkpoints_steps": 4, "save_summary_steps": None}
        )
        estimator.train(numbers, max_steps=10)
    saved = {int(path.stem.split("-")[1]) for path in tmp_path.glob("model.ckpt-*.index")}
    assert saved == {0, 4, 8, 10}


def test_graphs_are_written_as_text(tmp_path):
    with emulator.emulate("1x2"):
        for value in (1.1, 2e-9, [1.5, np.inf], b'"\xff\n'):
            tf.constant(value)
        graph = tf.compat.v1.get_default_graph()
        tf.io.write_graph(graph, str(tmp_path), "graph.pbtxt")
    text = (tmp_path / "graph.pbtxt").read_text()
    assert text_format.Parse(text, tf.compat.v1.GraphDef()) == graph.as_graph_def()


def test_eval_metrics_are_of_all_cores_and_loss_of_core_0(tmp_path):
    with emulator.emulate("1x4"):
        estimator = make_estimator(tmp_path)
        estimator.train(numbers, max_steps=1)
        metrics = estimator.evaluate(numbers, steps=3)
    numerics.assert_close(metrics["mean"], np.arange(NUM_EXAMPLES).mean(), terms=NUM_EXAMPLES)
    weight = expected_weight(1)
    of_core_0 = np.concatenate([np.arange(8) + 32 * step for step in range(3)])
    expected = ((weight - of_core_0) ** 2).mean() / 2
    numerics.assert_close(metrics["loss"], expected, terms=len(of_core_0), depth=3)


def test_predictions_are_in_order_without_padding(tmp_path):
    def once(params):
        x = np.arange(41, dtype=np.float32)[:, np.newaxis]
        return tf.data.Dataset.from_tensor_slices(x).batch(params["batch_size"])

    def model_fn(features, labels, mode, params):
        if mode != tf.estimator.ModeKeys.PREDICT:
            return mean_model_fn(features, labels, mode, params)
        tf.compat.v1.get_variable("weight", initializer=0.0)
        return tf.compat.v1.estimator.tpu.TPUEstimatorSpec(mode, predictions={"x": features})

    with emulator.emulate("1x4"):
        estimator = make_estimator(tmp_path, model_fn)
        estimator.train(numbers, max_steps=1)
        predicted = [row["x"].item() for row in estimator.predict(once)]
    assert predicted == list(range(41))


def test_host_call_gets_every_step_of_all_cores(tmp_path):
    def host_call(step, loss):
        def write(step, loss):
            writer = tf.summary.create_file_writer(str(tmp_path / "host"))
            with writer.as_default(), tf.summary.record_if(True):
                tf.summary.scalar("cores", tf.size(loss), step=step[0])
                return tf.compat.v1.summary.all_v2_summary_ops()

        return write, [tf.reshape(step, [1]), tf.reshape(loss, [1])]

    with emulator.emulate("1x4"):
        make_estimator(tmp_path, host_call=host_call).train(numbers, max_steps=7)
    (path,) = (tmp_path / "host").iterdir()
    written = {}
    for event in tf.compat.v1.train.summary_iterator(str(path)):
        for value in event.summary.value:
            written[event.step] = tf.make_ndarray(value.tensor).item()
    assert written == dict.fromkeys(range(1, 8), 4)


def test_hooks_see_every_loop(tmp_path):
    class Count(tf.estimator.SessionRunHook):
        runs = 0

        def after_run(self, run_context, run_values):
            self.runs += 1

    hook = Count()
    with emulator.emulate("1x2"):
        make_estimator(tmp_path, iterations=5).train(numbers, max_steps=12, hooks=[hook])
    assert hook.runs == 3  # of 5, 5 and 2 steps


def test_cross_replica_sum_with_group_assignment(tmp_path):
    groups = [[0, 2], [1, 3]]

    def model_fn(features, labels, mode, params):
        # Core i of 4 has the labels 2i and 2i + 1: sums of the first are 0 + 4 and 2 + 6.
        total = tf.compat.v1.tpu.cross_replica_sum(labels[0, 0], groups)
        return mean_model_fn(features, tf.fill([2, 1], total), mode, params)

    with emulator.emulate("1x4"):
        make_estimator(tmp_path, model_fn, batch_size=8).train(numbers, max_steps=1)
    assert variables(tmp_path)["weight"] == pytest.approx(0.1 * (4 + 8 + 4 + 8) / 4)


def test_cross_replica_sum_in_a_loop(tmp_path):
    def model_fn(features, labels, mode, params):
        late = tf.cast(labels[0, 0] > 0, tf.int32)  # core 1 is slower in even iterations

        def body(i, total):
            size = tf.where(tf.equal(i % 2, 0), 1 + 700 * late, 1)
            work = 0 * tf.reduce_sum(tf.matmul(*2 * [tf.ones([size, size])]))
            summand = tf.cast(i, tf.float32) + work
            crossed = tf.compat.v1.tpu.cross_replica_sum(summand)
            return i + 1, total + tf.cast(i, tf.float32) * crossed

        _, total = tf.while_loop(lambda i, _: i < 9, body, (0, 0.0), maximum_iterations=9)
        return mean_model_fn(features, tf.fill([4, 1], total), mode, params)

    with emulator.emulate("1x2"):
        make_estimator(tmp_path, model_fn, batch_size=8).train(numbers, max_steps=1)
    expected = sum(i * 2 * i for i in range(9))
    assert variables(tmp_path)["weight"] == pytest.approx(0.1 * expected)


@pytest.mark.parametrize("kind", ["sum", slow("mean"), "gradient of a bias"])
def test_bfloat16_is_accumulated_in_float32(tmp_path, kind):
    def model_fn(features, labels, mode, params):
        many = tf.ones([4096, 3], tf.bfloat16) + tf.cast(0 * labels[0], tf.bfloat16)
        if kind == "sum":
            total = tf.reduce_sum(many, 0)
        elif kind == "mean":
            total = 4096 * tf.reduce_mean(many, 0)
        else:
            bias = tf.zeros([3], tf.bfloat16)
            (total,) = tf.gradients(tf.nn.bias_add(many, bias), [bias])
        labels = tf.fill([4, 1], tf.cast(total[0], tf.float32))
        return mean_model_fn(features, labels, mode, params)

    with emulator.emulate("1x2"):
        make_estimator(tmp_path, model_fn, batch_size=8).train(numbers, max_steps=1)
    assert variables(tmp_path)["weight"] == pytest.approx(0.1 * 4096)


def test_unsummed_updates_are_kept_from_core_0_only(tmp_path):
    def model_fn(features, labels, mode, params):
        own = tf.compat.v1.get_variable("own", initializer=0.0, trainable=False)
        with tf.control_dependencies([own.assign_add(labels[0, 0] + 1)]):
            return mean_model_fn(tf.identity(features), tf.identity(labels), mode, params)

    with emulator.emulate("1x4"):
        make_estimator(tmp_path, model_fn).train(numbers, max_steps=3)
    assert variables(tmp_path)["own"] == sum(32 * step + 1 for step in range(3))


def test_cores_draw_different_random_numbers(tmp_path):
    def model_fn(features, labels, mode, params):
        noise = tf.random.uniform([], seed=3)
        mean = tf.compat.v1.tpu.cross_replica_sum(noise) / 4
        apart = tf.compat.v1.tpu.cross_replica_sum(tf.abs(noise - mean))
        return mean_model_fn(features, tf.fill([8, 1], apart), mode, params)

    with emulator.emulate("1x4"):
        make_estimator(tmp_path, model_fn).train(numbers, max_steps=1)
    assert variables(tmp_path)["weight"] > 0.001


def corrupt_core(features, labels, mode, params):
    def check(values):
        if np.isnan(values).any():
            raise ValueError("a corrupt pixel")
        return values

    checked = tf.compat.v1.tpu.outside_compilation(
        lambda x: tf.numpy_function(check, [x], tf.float32), labels
    )
    return mean_model_fn(features, tf.reshape(checked, labels.shape), mode, params)


def with_a_nan(params):
    def spoil(x, y):
        return x, tf.where(tf.equal(y, 77), np.nan, y)

    return numbers(params).map(spoil)


def test_error_on_one_core_ends_all_cores(tmp_path):
    # TPUEstimator raises the first error: that of the core, or of a thread with a closed session.
    errors = (tf.errors.InvalidArgumentError, RuntimeError)
    with emulator.emulate("1x4"), pytest.raises(errors, match=r"a corrupt pixel|closed Session"):
        make_estimator(tmp_path, corrupt_core).train(with_a_nan, max_steps=20)


@pytest.mark.slow
def test_end_of_data_raises_as_on_a_tpu(tmp_path):
    def once(params):
        x = np.zeros([64, 1], np.float32)
        return tf.data.Dataset.from_tensor_slices((x, x)).batch(params["batch_size"], True)

    with emulator.emulate("1x2"), pytest.raises(tf.errors.OutOfRangeError):
        make_estimator(tmp_path).train(once, max_steps=20)


def test_operation_without_kernel_is_refused_with_its_line(tmp_path):
    def model_fn(features, labels, mode, params):
        received = gen_xla_ops.xla_recv(tf.float32, "x", [4, 1])  # this line
        return mean_model_fn(features, labels + received, mode, params)

    with open(__file__) as file:
        line = next(i for i, text in enumerate(file, 1) if text.endswith("# this line\n"))
    with (
        emulator.emulate("1x2"),
        pytest.raises(
            NotImplementedError, match=rf"does not support XlaRecv .*test_emulator\.py:{line}\)"
        ),
    ):
        make_estimator(tmp_path, model_fn, batch_size=8).train(numbers, max_steps=1)


def test_patches_are_removed_after_an_error():
    replacements = emulator._replacements(topology.find("1x2"), replication)

    def present():
        return [getattr(owner, name) for owner, name, _ in replacements]

    before = present()
    emulated = contextlib.ExitStack()
    emulated.enter_context(emulator.emulate("1x2"))
    assert sum(a is not b for a, b in zip(before, present())) >= len(before) - 1
    assert not emulated.__exit__(KeyError, KeyError("an error"), None)
    assert all(a is b for a, b in zip(before, present()))


def enter_emulate():
    with emulator.emulate("1x2"):
        pass


def test_nested_emulate_raises():
    with emulator.emulate("1x2"), pytest.raises(RuntimeError, match="cannot be nested"):
        enter_emulate()
    enter_emulate()


def test_unsupported_tensorflow_raises(monkeypatch):
    monkeypatch.setattr(software, "version_of", {"tensorflow": "2.16.1"}.get)
    with pytest.raises(RuntimeError, match=r"cannot run: tensorflow 2\.16\.1 is unsupported"):
        enter_emulate()
