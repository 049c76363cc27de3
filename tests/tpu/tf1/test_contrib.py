"""Values of the functions of tf.contrib."""

import importlib
import itertools
import pkgutil

import numpy as np
import pytest
import tensorflow as tf

from tests import numerics
from tpu.graph import op_types, tpu_kernels
from tpu.tf1 import areas
from tpu.tf1 import contrib as contrib_package

v1 = tf.compat.v1

MODULES = {module.name for module in pkgutil.iter_modules(contrib_package.__path__)}
AREAS = sorted({*MODULES, *areas.ALIASES, *areas.SOURCES})


def test_areas_are_those_of_1_15():
    assert set(AREAS) <= areas.NAMES


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize("area", AREAS)
def test_every_listed_name_exists(contrib, area):
    names = []
    if area in MODULES:
        names += importlib.import_module(f"tpu.tf1.contrib.{area}").__all__
    for listed in areas.ALIASES.get(area, {}).values():
        names += [entry.partition("=")[0] for entry in listed.split()]
    for name in names:
        assert getattr(getattr(contrib, area), name) is not None


def batches(dataset):
    iterator = v1.data.make_one_shot_iterator(dataset).get_next()
    found = []
    with v1.Session() as session:
        while True:
            try:
                found.append(session.run(iterator))
            except tf.errors.OutOfRangeError:
                return found


@pytest.mark.parametrize(
    ("name", "arguments", "logits", "labels", "loss"),
    [
        ("binary_classification_head", (), [[0.0], [0.0], [0.0]], [[0], [1], [1]], np.log(2)),
        ("multi_class_head", (5,), np.zeros([3, 5], np.float32), [[0], [4], [2]], np.log(5)),
        ("regression_head", (), [[0.0], [0.0], [0.0]], [[1.0], [2.0], [2.0]], 3.0),
    ],
)
def test_loss_of_a_head_is_a_mean(contrib, name, arguments, logits, labels, loss):
    with tf.Graph().as_default(), v1.Session() as session:
        head = getattr(contrib.estimator, name)(*arguments)
        spec = head.create_estimator_spec(
            {}, "eval", tf.constant(logits), tf.constant(labels), train_op_fn=None
        )
        assert session.run(spec.loss) == pytest.approx(loss, rel=1e-6)


class TestData:
    """Transformations of data sets."""

    def test_batch_and_drop_remainder(self, contrib):
        dataset = v1.data.Dataset.range(5).apply(contrib.data.batch_and_drop_remainder(2))
        assert np.array_equal(batches(dataset), [[0, 1], [2, 3]])

    def test_padded_batch_and_drop_remainder(self, contrib):
        dataset = v1.data.Dataset.range(1, 4).map(lambda n: tf.fill([n], n))
        dataset = dataset.apply(contrib.data.padded_batch_and_drop_remainder(2, [3]))
        assert np.array_equal(batches(dataset), [[[1, 0, 0], [2, 2, 0]]])

    def test_map_and_batch(self, contrib):
        transformation = contrib.data.map_and_batch(lambda n: n * n, 2, drop_remainder=True)
        dataset = v1.data.Dataset.range(5).apply(transformation)
        assert np.array_equal(batches(dataset), [[0, 1], [4, 9]])

    def test_sloppy_interleave(self, contrib):
        interleave = contrib.data.sloppy_interleave(
            lambda n: tf.data.Dataset.from_tensors(n).repeat(2), cycle_length=2
        )
        dataset = v1.data.Dataset.range(3).apply(interleave)
        assert sorted(batches(dataset)) == [0, 0, 1, 1, 2, 2]

    def test_enumerate_dataset(self, contrib):
        dataset = v1.data.Dataset.from_tensor_slices([7, 8]).apply(contrib.data.enumerate_dataset())
        assert batches(dataset) == [(0, 7), (1, 8)]

    def test_reduce_dataset(self, contrib):
        reducer = contrib.data.Reducer(
            lambda _: tf.constant(1, tf.int64), lambda s, n: s + n, lambda s: -s
        )
        with v1.Session() as session:
            total = contrib.data.reduce_dataset(v1.data.Dataset.range(4), reducer)
            assert session.run(total) == -7


class TestLayers:
    """Layer normalization, initializers and regularizers."""

    @pytest.mark.parametrize(
        ("make", "largest", "deviation"),
        [
            # Of a kernel [3, 5, 7, 11]: 3 * 5 * 7 = 105 inputs, 3 * 5 * 11 = 165 outputs.
            (lambda layers: layers.xavier_initializer(), (6 / 270) ** 0.5, (2 / 270) ** 0.5),
            # Truncated at twice 1.3 ** 0.5 times the deviation.
            (
                lambda layers: layers.xavier_initializer_conv2d(uniform=False),
                2 * (1.3 * 2 / 270) ** 0.5,
                0.8796 * (1.3 * 2 / 270) ** 0.5,
            ),
            (
                lambda layers: layers.variance_scaling_initializer(),
                2 * (1.3 * 2 / 105) ** 0.5,
                0.8796 * (1.3 * 2 / 105) ** 0.5,
            ),
            (
                lambda layers: layers.variance_scaling_initializer(1.0, "FAN_OUT", uniform=True),
                (3 / 165) ** 0.5,
                (1 / 165) ** 0.5,
            ),
        ],
    )
    def test_initializers(self, contrib, session, make, largest, deviation):
        v1.set_random_seed(7)
        values = session.run(make(contrib.layers)([3, 5, 7, 11]))
        assert 0.9 * largest < np.abs(values).max() <= largest * (1 + 1e-6)
        # 1,155 values: 4 deviations of their standard deviation.
        np.testing.assert_allclose(values.std(), deviation, rtol=4 / (2 * 1155) ** 0.5)

    def test_regularizers(self, contrib, session):
        values = tf.constant([3.0, -4.0])
        losses = [
            contrib.layers.l1_regularizer(0.1)(values),
            contrib.layers.l2_regularizer(0.1)(values),
        ]
        np.testing.assert_allclose(session.run(losses), [0.7, 1.25], rtol=1e-6)
        assert contrib.layers.l2_regularizer(0.0)(values) is None
        with pytest.raises(ValueError, match="the scale 1 must be a float"):
            contrib.layers.l2_regularizer(1)
        with pytest.raises(ValueError, match=r"-0\.1 must not be negative"):
            contrib.layers.l1_regularizer(-0.1)

    def test_layer_norm(self, contrib, session):
        inputs = np.random.default_rng(0).normal(3, 2, [4, 5, 6]).astype(np.float32)
        outputs = contrib.layers.layer_norm(tf.constant(inputs), begin_norm_axis=-1, scope="norm")
        session.run(v1.global_variables_initializer())
        centered = inputs - inputs.mean(-1, keepdims=True)
        expected = centered / np.sqrt((centered**2).mean(-1, keepdims=True))
        # Subtraction of the mean, division by the root of a mean of 6 squares.
        np.testing.assert_allclose(
            session.run(outputs), expected, atol=numerics.tolerance(6, depth=4) * 8
        )
        assert [v.op.name for v in v1.trainable_variables()] == ["norm/beta", "norm/gamma"]
        assert v1.model_variables() == v1.trainable_variables()

    def test_layer_norm_over_all_axes_has_parameters_of_the_last(self, contrib):
        contrib.layers.layer_norm(tf.zeros([4, 5, 6]), center=False)
        (gamma,) = v1.trainable_variables()
        assert gamma.op.name == "LayerNorm/gamma"
        assert gamma.shape == [6]

    def test_embed_sequence(self, contrib, session):
        embed, ids = contrib.layers.embed_sequence, tf.constant([[2, 0], [1, 2]])
        rows = np.arange(6, dtype=np.float32).reshape(3, 2)
        first = embed(ids, 3, 2, initializer=v1.constant_initializer(rows), scope="words")
        again = embed(ids, unique=True, scope="words", reuse=True)
        session.run(v1.global_variables_initializer())
        for embedded in session.run([first, again]):
            assert np.array_equal(embedded, rows[[[2, 0], [1, 2]]])
        assert [v.op.name for v in v1.model_variables()] == ["words/embeddings"]
        with pytest.raises(ValueError, match=r"give vocab_size and embed_dim.* got 3 and None"):
            embed(ids, 3)

    def test_layer_norm_applies_the_activation(self, contrib, session):
        outputs = contrib.layers.layer_norm(tf.constant([[1.0, 3.0]]), activation_fn=tf.nn.relu)
        session.run(v1.global_variables_initializer())
        assert session.run(outputs).tolist() == [[0, 1]]


class TestOptimizers:
    """Updates of variables, and decay."""

    def minimize(self, session, optimizer, steps=2, **kwargs):
        """Returns a variable and a bias after steps with gradients [3, 4] and 1."""
        weights = v1.get_variable("weights", initializer=[6.0, 8.0])
        bias = v1.get_variable("bias", initializer=[2.0])
        loss = tf.reduce_sum(weights * [3.0, 4.0]) + tf.reduce_sum(bias)
        if "decay_var_list" in kwargs:
            kwargs = {"decay_var_list": [weights]}
        step = optimizer.minimize(loss, **kwargs)
        session.run(v1.global_variables_initializer())
        for _ in range(steps):
            session.run(step)
        return session.run([weights, bias])

    @pytest.mark.parametrize("use_resource", [False, True])
    def test_lars(self, contrib, session, use_resource):
        optimizer = contrib.opt.LARSOptimizer(
            0.5, momentum=0.5, weight_decay=0.1, eeta=0.2, skip_list=["bias"]
        )
        with v1.variable_scope("", use_resource=use_resource):
            weights, bias = self.minimize(session, optimizer)
        expected, velocity = np.array([6.0, 8.0]), 0
        for _ in range(2):
            gradient, norm = np.array([3.0, 4.0]), np.linalg.norm(expected)
            rate = 0.5 * 0.2 * norm / (5 + 0.1 * norm)
            velocity = 0.5 * velocity + rate * (gradient + 0.1 * expected)
            expected = expected - velocity
        np.testing.assert_allclose(weights, expected, rtol=numerics.tolerance(2, depth=8))
        assert bias == [2 - 0.5 - 0.5 * (1 + 0.5)]

    @pytest.mark.parametrize("use_resource", [False, True])
    def test_lazy_adam_updates_rows_with_gradients(self, contrib, session, use_resource):
        def train(optimizer, rows):
            with v1.variable_scope(None, "table", use_resource=use_resource):
                table = v1.get_variable("table", initializer=[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
            loss = tf.reduce_sum(tf.gather(table, rows) ** 2)
            step = optimizer.minimize(loss)
            session.run(v1.global_variables_initializer())
            for _ in range(3):
                session.run(step)
            return session.run([table, optimizer.get_slot(table, "v")])

        lazy, lazy_moment = train(contrib.opt.LazyAdamOptimizer(0.5), [2, 0])
        dense, dense_moment = train(v1.train.AdamOptimizer(0.5), [0, 1, 2])
        tolerance = numerics.tolerance(8)
        np.testing.assert_allclose(lazy[[0, 2]], dense[[0, 2]], rtol=tolerance)
        np.testing.assert_allclose(lazy_moment[[0, 2]], dense_moment[[0, 2]], rtol=tolerance)
        assert lazy[1].tolist() == [3, 4]
        assert lazy_moment[1].tolist() == [0, 0]

    def test_decoupled_weight_decay(self, contrib, session):
        momentum = v1.train.MomentumOptimizer
        optimizer = contrib.opt.extend_with_decoupled_weight_decay(momentum)(
            0.25, learning_rate=0.5, momentum=0.0
        )
        weights, bias = self.minimize(session, optimizer, steps=1, decay_var_list=True)
        assert weights.tolist() == [6 * 0.75 - 1.5, 8 * 0.75 - 2]
        assert bias.tolist() == [1.5]

    def test_adamw_decays_all_variables(self, contrib, session):
        optimizer = contrib.opt.AdamWOptimizer(0.25, learning_rate=0.0)
        weights, bias = self.minimize(session, optimizer, steps=1)
        assert weights.tolist() == [4.5, 6]
        assert bias.tolist() == [1.5]

    def test_decay_of_looked_up_rows(self, contrib, session):
        table = v1.get_variable("table", initializer=[[4.0], [8.0]], use_resource=True)
        loss = tf.reduce_sum(tf.nn.embedding_lookup(table, [1]))
        step = contrib.opt.MomentumWOptimizer(0.5, 1.0, 0.0).minimize(loss)
        session.run(v1.global_variables_initializer())
        session.run(step)
        assert session.run(table).tolist() == [[4], [3]]

    def test_moving_average(self, contrib, session, tmp_path):
        optimizer = contrib.opt.MovingAverageOptimizer(
            v1.train.GradientDescentOptimizer(1.0), average_decay=0.5
        )
        weights, _ = self.minimize(session, optimizer, steps=1)
        assert weights.tolist() == [3, 4]
        path = optimizer.swapping_saver().save(session, str(tmp_path / "model"))
        assert v1.train.load_variable(path, "weights").tolist() == [4.5, 6]


class TestImage:
    """Geometric transforms."""

    def test_rotate_counterclockwise(self, contrib, session):
        image = np.arange(9.0).reshape(3, 3)
        rotated = contrib.image.rotate(image, np.pi / 2)
        assert np.array_equal(session.run(rotated), np.rot90(image))

    def test_translate(self, contrib, session):
        image = np.arange(4.0).reshape(1, 2, 2, 1)
        moved = contrib.image.translate(image, [1, 0])
        assert session.run(moved)[0, :, :, 0].tolist() == [[0, 0], [0, 2]]

    def test_compose_transforms(self, contrib, session):
        one = contrib.image.translations_to_projective_transforms([1.0, 2.0])
        two = contrib.image.translations_to_projective_transforms([3.0, 4.0])
        composed = contrib.image.compose_transforms(one, two)
        assert session.run(composed).tolist() == [[1, 0, -4, 0, 1, -6, 0, 0]]

    def test_output_shape(self, contrib, session):
        cropped = contrib.image.transform(
            np.arange(4.0).reshape(2, 2, 1), [1, 0, 1, 0, 1, 0, 0, 0], output_shape=[2, 1]
        )
        assert session.run(cropped)[:, :, 0].tolist() == [[1], [3]]


class TestRnn:
    """Recurrent networks."""

    def inputs(self):
        return tf.constant(np.random.default_rng(0).normal(size=[2, 3, 4]).astype(np.float32))

    def test_functional_rnn_is_dynamic_rnn(self, contrib, session):
        cell = v1.nn.rnn_cell.BasicLSTMCell(5)
        outputs = contrib.recurrent.functional_rnn(cell, self.inputs(), use_tpu=True)
        expected = v1.nn.dynamic_rnn(cell, self.inputs(), dtype=tf.float32)
        session.run(v1.global_variables_initializer())
        found, expected = session.run([tf.nest.flatten(outputs), tf.nest.flatten(expected)])
        for one, other in zip(found, expected):
            assert np.array_equal(one, other)

    def test_reverse(self, contrib, session):
        cell = v1.nn.rnn_cell.BasicRNNCell(5)
        forward, _ = contrib.recurrent.functional_rnn(cell, self.inputs()[:, ::-1])
        backward, _ = contrib.recurrent.functional_rnn(cell, self.inputs(), reverse=True)
        session.run(v1.global_variables_initializer())
        forward, backward = session.run([forward, backward])
        assert np.array_equal(forward[:, ::-1], backward)

    def test_stack_bidirectional_dynamic_rnn(self, contrib, session):
        forward, backward = ([v1.nn.rnn_cell.BasicRNNCell(5) for _ in range(2)] for _ in range(2))
        outputs, states, _ = contrib.rnn.stack_bidirectional_dynamic_rnn(
            forward, backward, self.inputs(), dtype=tf.float32
        )
        session.run(v1.global_variables_initializer())
        outputs, states = session.run([outputs, states])
        assert outputs.shape == (2, 3, 10)
        assert np.array_equal(outputs[:, -1, :5], states[1])
        scope = "stack_bidirectional_rnn/cell_1/bidirectional_rnn/fw"
        assert v1.trainable_variables(scope)[0].shape == [10 + 5, 5]

    def test_bidirectional(self, contrib, session):
        cells = [v1.nn.rnn_cell.BasicRNNCell(5) for _ in range(2)]
        outputs, states = contrib.recurrent.bidirectional_functional_rnn(*cells, self.inputs())
        session.run(v1.global_variables_initializer())
        outputs, states = session.run([outputs, states])
        assert np.array_equal(outputs[0][:, -1], states[0])
        assert np.array_equal(outputs[1][:, 0], states[1])


def test_sums_of_sequence_loss_are_one_error(contrib):
    zeros = tf.zeros([2, 3, 4]), tf.zeros([2, 3], tf.int32), tf.zeros([2, 3])
    with pytest.raises(NotImplementedError, match="sum_over_timesteps and sum_over_batch are not"):
        contrib.seq2seq.sequence_loss(*zeros, False, True, True)


def test_sequence_loss(contrib, session):
    logits, targets = tf.math.log([[[0.25, 0.75], [0.5, 0.5]]]), tf.constant([[1, 0]])
    weights = tf.constant([[1.0, 3.0]])
    loss = session.run(contrib.seq2seq.sequence_loss(logits, targets, weights))
    expected = -(np.log(0.75) + 3 * np.log(0.5)) / 4
    assert loss == pytest.approx(expected, rel=numerics.tolerance(2, depth=3))


def test_lookup_tables(contrib, session):
    table = contrib.lookup.index_table_from_tensor(mapping=["a", "b"], num_oov_buckets=1)
    back = contrib.lookup.index_to_string_table_from_tensor(["a", "b"])
    ids, words = table.lookup(tf.constant(["b", "c"])), back.lookup(tf.constant([1, 5], tf.int64))
    session.run(v1.tables_initializer())
    ids, words = session.run([ids, words])
    assert ids.tolist() == [1, 2]
    assert words.tolist() == [b"b", b"UNK"]


def test_stateless_random_uniform_repeats(contrib, session):
    one, other = (contrib.stateless.stateless_random_uniform([3], seed=[1, 2]) for _ in range(2))
    one, other = session.run([one, other])
    assert np.array_equal(one, other)


def test_summaries_are_written(contrib, session, tmp_path):
    writer = contrib.summary.create_file_writer(str(tmp_path))
    with writer.as_default(), contrib.summary.always_record_summaries():
        contrib.summary.scalar("loss", 0.25, step=tf.constant(3, tf.int64))
        summaries = contrib.summary.all_summary_ops()
        session.run(contrib.summary.summary_writer_initializer_op())
        session.run(summaries)
        session.run(contrib.summary.flush())
    (path,) = tmp_path.iterdir()
    events = [e for e in v1.train.summary_iterator(str(path)) if e.summary.value]
    assert [(e.step, e.summary.value[0].tag) for e in events] == [(3, "loss")]


def test_aggregate_metric_map(contrib):
    assert contrib.metrics.aggregate_metric_map({"a": (1, 2)}) == ({"a": 1}, {"a": 2})


class TestCrf:
    """Conditional random fields, compared with the sum over all tag sequences."""

    LENGTHS = (3, 1)

    def values(self):
        random = np.random.default_rng(0)
        scores = random.normal(size=[2, 3, 2]).astype(np.float32)
        return scores, random.normal(size=[2, 2]).astype(np.float32)

    def score(self, scores, transitions, tags):
        unary = sum(scores[time, tag] for time, tag in enumerate(tags))
        return unary + sum(transitions[pair] for pair in zip(tags, tags[1:]))

    def all_scores(self, example):
        scores, transitions = self.values()
        sequences = itertools.product(range(2), repeat=self.LENGTHS[example])
        return {tags: self.score(scores[example], transitions, tags) for tags in sequences}

    def test_log_likelihood(self, contrib, session):
        scores, transitions = self.values()
        tags = [[1, 0, 1], [1, 0, 0]]
        likelihood, _ = contrib.crf.crf_log_likelihood(
            tf.constant(scores), tf.constant(tags), tf.constant(self.LENGTHS), transitions
        )
        expected = []
        for example, length in enumerate(self.LENGTHS):
            found = self.all_scores(example)
            total = np.log(np.sum(np.exp(list(found.values()))))
            expected.append(found[tuple(tags[example][:length])] - total)
        limit = numerics.tolerance(8, depth=8)
        np.testing.assert_allclose(session.run(likelihood), expected, rtol=limit, atol=limit)

    def test_decode(self, contrib, session):
        scores, transitions = self.values()
        tags, best = session.run(
            contrib.crf.crf_decode(tf.constant(scores), transitions, tf.constant(self.LENGTHS))
        )
        for example, length in enumerate(self.LENGTHS):
            found = self.all_scores(example)
            expected = max(found, key=found.get)
            assert tags[example].tolist() == [*expected, *[0] * (3 - length)]
            assert best[example] == pytest.approx(found[expected], rel=numerics.tolerance(5))

    @pytest.mark.parametrize("time", [1, 2])
    def test_a_batch_of_unknown_size_whose_sequences_have_one_tag(self, contrib, session, time):
        scores = v1.placeholder(tf.float32, [None, None, 2])
        tags, lengths = v1.placeholder(tf.int32, [None, None]), tf.constant([1, 9])
        transitions = self.values()[1]
        likelihood, _ = contrib.crf.crf_log_likelihood(scores, tags, lengths, transitions)
        decoded = contrib.crf.crf_decode(scores, transitions, lengths)
        values = self.values()[0][:, :time]
        fed = {scores: values, tags: np.zeros([2, time])}
        found, (best, _) = session.run([likelihood, decoded], fed)
        total = np.log(np.exp(values[0, 0]).sum())
        assert found[0] == pytest.approx(values[0, 0, 0] - total, abs=numerics.tolerance(8, 8))
        assert best[0, 0] == values[0, 0].argmax()
        assert not best[0, 1:].any()

    def test_viterbi_decode(self, contrib):
        scores, transitions = self.values()
        tags, best = contrib.crf.viterbi_decode(scores[0], transitions)
        found = self.all_scores(0)
        assert tuple(tags) == max(found, key=found.get)
        assert best == pytest.approx(max(found.values()), rel=numerics.tolerance(5))

    def test_transitions_are_a_variable(self, contrib):
        contrib.crf.crf_log_likelihood(tf.zeros([1, 2, 3]), tf.zeros([1, 2], tf.int32), [2])
        (variable,) = v1.trainable_variables()
        assert variable.op.name == "transitions"
        assert variable.shape == [3, 3]

    def test_a_variable_is_read_by_an_operation_that_a_tpu_has(self, contrib):
        transitions = v1.get_variable("scores", [3, 3], use_resource=True)
        tags, lengths = tf.zeros([2, 4], tf.int32), tf.constant([4, 3])
        contrib.crf.crf_log_likelihood(tf.zeros([2, 4, 3]), tags, lengths, transitions)
        contrib.crf.crf_decode(tf.zeros([2, 4, 3]), transitions, lengths)
        operations = v1.get_default_graph().get_operations()
        reads = {op.type for op in operations if op.type in op_types.READS}
        assert all(tpu_kernels.has_kernel(op_type) for op_type in reads)


def test_predictor_of_a_saved_model(contrib, session, tmp_path):
    x = v1.placeholder(tf.float32, [None])
    y = x * v1.get_variable("factor", initializer=3.0)
    session.run(v1.global_variables_initializer())
    path = str(tmp_path / "export")
    v1.saved_model.simple_save(session, path, {"x": x}, {"y": y})
    predict = contrib.predictor.from_saved_model(path)
    assert predict({"x": [1, 2]})["y"].tolist() == [3, 6]
    with pytest.raises(ValueError, match=r"unknown inputs \['z'\]; the model has \['x'\]"):
        predict({"z": [1]})


def test_flipped_cross_entropy(contrib, session):
    flipped = contrib.nn.deprecated_flipped_sparse_softmax_cross_entropy_with_logits
    loss = flipped(tf.zeros([1, 4]), tf.constant([2]))
    assert session.run(loss)[0] == pytest.approx(np.log(4), rel=numerics.tolerance(4))


class TestLearn:
    """tf.contrib.learn: configurations and monitors of an Estimator."""

    def test_run_config(self, contrib):
        config = contrib.learn.RunConfig(
            master="grpc://10.0.0.2:8470", save_checkpoints_steps=7, keep_checkpoint_max=3
        )
        assert isinstance(config, tf.estimator.RunConfig)
        assert (config.master, config.evaluation_master) == ("grpc://10.0.0.2:8470", "")
        assert (config.save_checkpoints_steps, config.save_checkpoints_secs) == (7, None)
        assert contrib.learn.RunConfig().save_checkpoints_secs == 600
        assert config.replace(model_dir="/tmp/x").keep_checkpoint_max == 3

    def estimator(self, folder):
        """Returns an Estimator whose evaluations have losses of 4, 1, 9, 9, ..."""

        def model_fn(features, mode):
            step = v1.train.get_global_step()
            values = tf.constant([0.0, 4, 1, 9, 9, 9, 9])
            loss = tf.gather(values, step) + 0 * tf.reduce_sum(features)
            return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=v1.assign_add(step, 1))

        config = tf.estimator.RunConfig(model_dir=str(folder), save_checkpoints_steps=1)
        return tf.estimator.Estimator(model_fn, config=config)

    def train(self, contrib, folder, **options):
        """Trains 6 steps at most; returns (ValidationMonitor, final step)."""
        estimator = self.estimator(folder)
        monitor = contrib.learn.monitors.ValidationMonitor(
            input_fn=input_of_ones, eval_steps=1, check_interval_secs=None, **options
        )
        hooks = contrib.learn.monitors.replace_monitors_with_hooks([monitor], estimator)
        estimator.train(input_of_ones, hooks=hooks, max_steps=6)
        return monitor, estimator.get_variable_value("global_step")

    @pytest.mark.slow(cost=0.1)
    def test_validation_monitor_stops_early(self, contrib, tmp_path):
        monitor, step = self.train(
            contrib, tmp_path, every_n_steps=1, early_stopping_rounds=2, name="validation"
        )
        assert monitor.early_stopped
        assert monitor.best_value == 1
        assert monitor.best_metrics["global_step"] == 2
        assert step < 6
        assert list((tmp_path / "eval_validation").glob("events*"))

    def test_validation_monitor_evaluates_every_n_steps(self, contrib, tmp_path, monkeypatch):
        evaluated = []
        monkeypatch.setattr(
            tf.estimator.Estimator, "evaluate", lambda self, *a, **k: evaluated.append(1) or {}
        )
        monitor, step = self.train(contrib, tmp_path, every_n_steps=3)
        assert len(evaluated) == 2
        assert not monitor.early_stopped
        assert step == 6

    def test_a_monitor_of_the_program_is_refused(self, contrib):
        class Printer:
            pass

        with pytest.raises(ValueError, match=r"not available with --tf1: Printer\. Derive"):
            contrib.learn.monitors.replace_monitors_with_hooks([Printer()], None)

    def test_hooks_are_kept(self, contrib):
        hooks = [contrib.learn.monitors.StopAtStep(last_step=3)]
        assert contrib.learn.monitors.replace_monitors_with_hooks(hooks, None) == hooks
        assert contrib.learn.monitors.replace_monitors_with_hooks(None, None) == []

    def test_an_unknown_mode(self, contrib):
        contrib.learn.ModeKeys.validate("infer")
        with pytest.raises(ValueError, match="Invalid mode 'predict'"):
            contrib.learn.ModeKeys.validate("predict")


def input_of_ones():
    """An input_fn."""
    return tf.data.Dataset.from_tensors(tf.ones([1])).repeat()
