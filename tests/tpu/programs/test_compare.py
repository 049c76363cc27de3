"""`python -m tpu compare`."""

import json
import re

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import tensor_shape

from tests.marks import slow
from tpu.connect import topology
from tpu.programs import compare, comparison, cpu_graph, replay, trainings

TWO_CORES, ONE_CORE = topology.find("1x2"), topology.find("1x1")


def run(program, capfd, tpu_topology=TWO_CORES, steps=3):
    """Returns the exit status and the text of a comparison."""
    status = compare.run(program, tpu_topology, steps, None)
    return status, capfd.readouterr().out


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize(
    ("flags", "tpu_topology"),
    [
        slow(("--input=shuffled",), ONE_CORE),
        (("--input=shuffled", "--dropout=0.5"), TWO_CORES),
        slow(("--input=transposed",), TWO_CORES),
        slow(("--input=flat",), TWO_CORES),
    ],
)
def test_right_programs_are_equal_up_to_rounding(linear_program, capfd, flags, tpu_topology):
    status, out = run(linear_program(*flags), capfd, tpu_topology)
    assert out.endswith("\nequal up to rounding\n")
    assert status == 0
    assert "dense/kernel/Momentum" in out
    assert ("dropout was switched off" in out) == ("--dropout=0.5" in flags)


@pytest.mark.parametrize(
    ("flag", "cause"),
    [
        slow("--optimizer=clipped", "clip"),
        ("--noise=0.5", "random numbers: RandomStandardNormal at "),
    ],
)
def test_differences_and_their_causes(linear_program, capfd, flag, cause):
    status, out = run(linear_program(flag), capfd)
    assert "\nNOT equal up to rounding: 2 weights, 2 other variables\n" in out
    assert status == 1
    assert re.search(f"may differ: .*{cause}", out)


@pytest.mark.parametrize(
    ("flag", "cause", "name"),
    [
        slow(
            "--loss=weighted",
            "the loss is divided by a number that each core computes (DivNoNan at ",
            "divisor at ",
        ),
        slow(
            "--loss=smooth",
            "the loss is divided by a number that each core computes (RealDiv at ",
            "divisor at ",
        ),
        slow("--loss=batch_norm", "batch norm computes its mean", "batch norm at "),
    ],
)
def test_right_programs_whose_cores_compute_on_their_own_batch(
    linear_program, capfd, flag, cause, name
):
    status, out = run(linear_program(flag), capfd)
    assert status == 3
    assert f"\nmay differ: {cause}" in out
    assert "shown: if the cores exchange their batches, the weights are equal\n" in out
    assert "shown: if all cores get the same batch, they equal the CPU\n" in out
    *_, last = out.splitlines()
    assert last.startswith(f"differs only by what each core computes on its own batch: {name}")


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize(
    ("flag", "reason", "cause"),
    [
        (
            "--optimizer=local",
            "the cores exchange their batches, 2 variables differ",
            "gradient that is not summed over all cores",
        ),
        slow("--optimizer=too_large", "all cores get the same batch, 4 variables differ", ""),
    ],
)
def test_a_divisor_of_each_core_does_not_excuse_a_fault(linear_program, capfd, flag, reason, cause):
    status, out = run(linear_program("--loss=weighted", flag), capfd)
    assert status == 1
    assert "may differ: the loss is divided by" in out
    assert re.search(f"may differ: .*{cause}", out)
    assert f"not excused: if {reason}" in out
    assert "\nNOT equal up to rounding: 2 weights, 2 other variables\n" in out


@pytest.mark.slow(cost=0.1)
def test_factors_are_mentioned_only_where_they_are_shown(linear_program, capfd):
    _, out = run(linear_program("--optimizer=clipped"), capfd)
    assert "not excused: if all cores get the same batch" in out
    assert ("see 'factors'" in out) == ("\nfactors: " in out)


@pytest.mark.slow(cost=0.1)
def test_summed_gradients_change_the_moments_by_a_factor(linear_program, capfd):
    status, out = run(linear_program("--optimizer=summed"), capfd)
    factors = {line.split()[0]: line.split()[1] for line in out.splitlines() if "dense/" in line}
    assert factors["dense/kernel"] == factors["dense/bias"] == "1"
    assert factors["dense/kernel/Adam"] == "2"
    assert factors["dense/kernel/Adam_1"] == "4"
    assert out.endswith("\nequal up to rounding and the factors\n")
    assert status == 0


@pytest.mark.slow(cost=0.1)
def test_sums_over_the_examples_change_the_moments_by_a_fraction(linear_program, capfd):
    status, out = run(linear_program("--loss=sum", "--optimizer=adam"), capfd)
    factors = {line.split()[0]: line.split()[1] for line in out.splitlines() if "dense/" in line}
    assert factors["dense/kernel"] == factors["dense/bias"] == "1"
    assert factors["dense/kernel/Adam"] == "1/2"
    assert factors["dense/kernel/Adam_1"] == "1/4"
    assert (
        "\nfactors: gradients are as many times smaller as there are cores: the loss is a sum"
        in out
    )
    assert out.endswith("\nequal up to rounding and the factors\n")
    assert status == 0


@pytest.mark.parametrize(("name", "factor"), [("a/v/Adam", 1 / 8), ("counter", 1), ("a/v", 1)])
def test_only_slots_of_optimizers_are_a_fraction(name, factor):
    a, b = {name: np.array([1.0, 2.0])}, {name: np.array([8.0, 16.0])}
    (found,) = comparison.compare(a, b, {"a/v"}, 8, {})
    assert found.factor == factor


@pytest.mark.slow(cost=0.1)
def test_program_that_is_another_one_each_time_is_undecided(linear_program, capfd):
    status, out = run(linear_program("--optimizer=counted"), capfd)
    *_, last = out.splitlines()
    assert last.startswith("undecided: the training on the CPU gives other variables the second")
    assert status == 1


@pytest.mark.slow(cost=0.1)
def test_without_clipping(linear_program, capfd):
    assert (
        compare.run(linear_program("--optimizer=clipped"), TWO_CORES, 3, None, clipping=False) == 0
    )
    out = capfd.readouterr().out
    assert "dense/kernel/Momentum" in out
    assert "clip" not in out


@pytest.mark.slow
def test_two_runs_are_bit_identical_and_in_a_json_report(linear_program, capfd, tmp_path):
    digests, report = [], tmp_path / "report.json"
    for _ in range(2):
        compare.run(linear_program(), TWO_CORES, 1, report)
        digests.append(re.findall("SHA-256 .*: (.*)", capfd.readouterr().out))
    assert len(digests[0]) == 2
    assert digests[0] == digests[1]

    fields = json.loads(report.read_text())
    assert fields["steps"] == 1
    names = {difference["name"] for difference in fields["differences"]}
    assert names >= {"dense/kernel", "dense/bias", "global_step"}


@pytest.mark.parametrize("mode", ["train", "train_and_evaluate"])
def test_a_training_without_a_tpu_is_not_executed(linear_program, capfd, tmp_path, mode):
    status, out = run(linear_program("--use_tpu=0", f"--mode={mode}"), capfd)
    assert status == 2
    assert re.fullmatch(
        r"not compared: train at .*linear_program\.py:\d+ runs without a TPU: use_tpu=False\. Set "
        r"use_tpu=True by the program's own flag\n",
        out,
    )
    assert not list(tmp_path.rglob("*.ckpt*"))


def test_program_that_does_not_train(script, capfd):
    status, out = run(script("print('hello')"), capfd)
    assert status == 2
    assert out == "hello\nthe program made no call of train: nothing to compare\n"


def test_program_that_fails(script, capfd):
    status = compare.run(script("raise KeyError('mine')"), ONE_CORE, 3, None)
    out, err = capfd.readouterr()
    assert status == 2
    assert out.startswith("not compared: KeyError: 'mine' (at ")
    assert out.endswith("script.py:1)\n")
    assert err.endswith("    raise KeyError('mine')\nKeyError: 'mine'\n")


def test_error_above_model_fn_shows_only_the_lines_of_the_program(linear_program, capfd):
    status = compare.run(linear_program("--batch_size=15"), TWO_CORES, 3, None)
    out, err = capfd.readouterr()
    assert status == 2
    assert out.startswith("not compared: use a train batch size of 14 or 16 (train batch size 15")
    assert re.search(r"linear_program\.py:\d+\)$", out)
    assert "estimator.train(input_fn" in err
    assert not re.search("tpu_estimator.py|compare.py", err)


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize("summary", ["host_call", "hook"])
def test_event_files_are_not_written_to_the_model_dir(linear_program, capfd, tmp_path, summary):
    status, _ = run(linear_program(f"--summary={summary}"), capfd, ONE_CORE, steps=2)
    assert status == 0
    assert list(tmp_path.rglob("events.*")) == []


def test_variable_that_only_one_training_has(linear_program, capfd):
    status, out = run(linear_program("--loss=cpu_only"), capfd, ONE_CORE, steps=1)
    assert status == 2
    assert "variable 'of_cpu' exists with use_tpu=False only: the models differ" in out


def test_training_that_never_ends(linear_program, capfd, monkeypatch):
    monkeypatch.setattr(trainings, "_MAX_UNCHANGED_LOOPS", 2)
    status, out = run(linear_program("--optimizer=no_step"), capfd, ONE_CORE, steps=1)
    assert status == 2
    assert "not compared: ValueError: global_step is still 0 after 2 training loops" in out


@pytest.mark.slow
def test_input_that_ends_before_the_last_step(linear_program, capfd):
    status, out = run(linear_program("--input=once"), capfd, ONE_CORE, steps=5)
    assert status == 2
    assert "not compared: input_fn ended before the last step" in out
    assert out.endswith(". Its batches are enough for --steps=3\n")


def test_constructor_with_positional_arguments():
    with trainings.constructor_arguments():
        estimator = tf.compat.v1.estimator.tpu.TPUEstimator(
            _model_fn, "folder", tf.compat.v1.estimator.tpu.RunConfig(), {"rate": 1}, False, 16
        )
    again = trainings.rebuild(estimator, "another", 2, False)
    assert again.model_dir == "another"
    assert again.params["rate"] == 1
    assert again._ctx._train_batch_size == 16


def _model_fn(features, labels, mode, params):
    del features, labels, mode, params


@pytest.mark.parametrize(
    ("on_cores", "on_cpu", "verdict"),
    [
        ([1.0, np.nan], [1.0, np.nan], "undecided: 1 variables are NaN or infinite in both"),
        ([1.0, np.nan], [1.0, 2.0], "NOT equal up to rounding: 1 weights"),
        ([1.0, np.inf], [1.0, -np.inf], "undecided"),
        ([10**6], [10**6], "equal up to rounding"),
        ([10**6], [10**6 + 1], "NOT equal up to rounding: 1 weights"),  # not rounding: integers
        ([1.0], [1.0, 1.0], "NOT equal up to rounding: 1 weights"),
        ([], [], "equal up to rounding"),
    ],
)
def test_special_values(on_cores, on_cpu, verdict):
    a, b = {"v": np.array(on_cores)}, {"v": np.array(on_cpu)}
    differences = comparison.compare(a, b, {"v"}, 2, {"v": 1e-6})
    result = comparison.Comparison(1, "program.py:1", differences, [], {})
    assert comparison.format_text(result, ONE_CORE).splitlines()[-1].startswith(verdict)


@pytest.mark.parametrize(
    ("on_cores", "factor"),
    [
        ([1.0, 2.0], 1),
        ([8.0, 16.0], 8),
        ([64.0, 128.0], 64),
        ([66.0, 128.0], 64),  # the factor leaves 2 %, one of 1 leaves 6,400 %
        ([1.0, 9.0], 1),
        ([0.0, 0.0], 1),
    ],
)
def test_the_factor_leaves_the_least_difference(on_cores, factor):
    a, b = {"v": np.array(on_cores)}, {"v": np.array([1.0, 2.0])}
    (found,) = comparison.compare(a, b, {"v"}, 8, {})
    assert found.factor == factor


@pytest.mark.parametrize(
    ("factors", "expected"),
    [
        ([8, 64, 8, 64], [8, 64, 8, 64]),
        ([8, 64, 1, 1], [8, 64, 1, 1]),  # of one of two optimizers
        ([8, 3, 5, 2], [1, 1, 1, 1]),  # one of them is close to a factor by chance
    ],
)
def test_a_factor_is_that_of_nearly_all_variables_that_differ(factors, expected):
    b = {f"v{i}": np.array([1.0, 2.0]) for i in range(4)}
    a = {name: factor * b[name] for name, factor in zip(b, factors)}
    assert [d.factor for d in comparison.compare(a, b, set(), 8, {})] == expected


def test_large_variables_are_compared_in_parts(monkeypatch):
    monkeypatch.setattr(comparison, "_CHUNK", 3)
    a, b = np.arange(7.0), np.arange(7.0)
    b[5] += 0.5
    assert comparison.difference(a, b) == (0.5, 0.5 / 6)


@pytest.mark.parametrize(
    ("rounding", "verdict"),
    [
        ((1e-6, 1e-6, 1e-6), "NOT equal up to rounding"),
        ((1e-6, 1e-6, 0.5), "equal up to rounding"),  # the third is rounding itself
        ((1e-6, 0.5, 0.5), "undecided"),
        ((0.5, 0.5, 0.5), "undecided"),
        ((None, None, None), "NOT equal up to rounding"),
        ((1e-6, 1e-6, 1e-3), "equal up to rounding"),
        ((1e-6, 1e-3, 1e-3), "undecided: another order of the examples changes most weights by"),
        ((0.0, 0.0, 1e-3), "undecided: another order"),  # the first two are not trained
        ((1e-3, 1e-3, 1e-6), "undecided: another order"),
    ],
)
def test_verdict(rounding, verdict):
    relative = (1e-6, 1e-6, 1e-3)
    differences = [
        comparison.Difference(f"v{i}", True, 1, r, r, limit)
        for i, (r, limit) in enumerate(zip(relative, rounding))
    ]
    result = comparison.Comparison(1, "program.py:1", differences, [], {})
    assert comparison.format_text(result, ONE_CORE).splitlines()[-1].startswith(verdict)


def test_differences_beyond_an_amplified_rounding_are_differences():
    differences = [comparison.Difference("v", True, 1, 0.5, 0.5, 1e-3)]
    result = comparison.Comparison(1, "program.py:1", differences, [], {})
    assert comparison.format_text(result, ONE_CORE).endswith(
        "NOT equal up to rounding: 1 weights, 0 other variables"
    )


def test_an_unknown_batch_size_is_found_with_shapes_of_tensorflow_1(monkeypatch):
    monkeypatch.setattr(tensor_shape, "_TENSORSHAPE_V2_OVERRIDE", False)
    assert replay._batch_axis([4, 3], tf.TensorShape([None, 3]), 2, 4) == 0
    with pytest.raises(ValueError, match="has no batch axis"):
        replay._batch_axis([4, 3], tf.TensorShape([4, 3]), 2, 4)


@pytest.mark.parametrize(("name", "number"), [("m/table/Momentum", 1), ("m/table_1", 0)])
def test_rows_that_only_a_tpu_updates(name, number):
    facts = cpu_graph.Training([], set(), {"m/table": "ResourceSparseApplyMomentum at a.py:3"})
    differences = [comparison.Difference(name, False, 1, 0.5, 0.5, 1e-3)]
    causes = compare._row_updates(facts, differences)
    assert len(causes) == number
    assert all("only the rows of 'm/table' that the batch reads" in cause for cause in causes)
