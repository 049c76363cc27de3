"""`python -m tpu compare`."""

import json
import re

import pytest
import tensorflow as tf

from tests.marks import slow
from tpu.connect import topology
from tpu.programs import compare

TWO_CORES, ONE_CORE = topology.find("1x2"), topology.find("1x1")


def run(program, capfd, tpu_topology=TWO_CORES, steps=3):
    """Returns the exit status and the text of a comparison."""
    status = compare.run(program, tpu_topology, steps, None)
    return status, capfd.readouterr().out


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
        ("--optimizer=local", "gradient of one core only"),
        ("--optimizer=clipped", "clip"),
        ("--noise=0.5", "random numbers: RandomStandardNormal at "),
    ],
)
def test_differences_and_their_causes(linear_program, capfd, flag, cause):
    status, out = run(linear_program(flag), capfd)
    assert "\nNOT equal up to rounding: 2 weights, 2 other variables\n" in out
    assert status == 1
    assert re.search(f"may differ: .*{cause}", out)


def test_summed_gradients_change_the_moments_by_a_factor(linear_program, capfd):
    status, out = run(linear_program("--optimizer=summed"), capfd)
    factors = {line.split()[0]: line.split()[1] for line in out.splitlines() if "dense/" in line}
    assert factors["dense/kernel"] == factors["dense/bias"] == "1"
    assert factors["dense/kernel/Adam"] == "2"
    assert factors["dense/kernel/Adam_1"] == "4"
    assert out.endswith("\nequal up to rounding and the factors\n")
    assert status == 0


def test_without_clipping(linear_program, capfd):
    assert (
        compare.run(linear_program("--optimizer=clipped"), TWO_CORES, 3, None, clipping=False) == 0
    )
    out = capfd.readouterr().out
    assert "dense/kernel/Momentum" in out
    assert "clip" not in out


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


def test_program_that_does_not_train_on_a_tpu(linear_program, capfd):
    status, out = run(linear_program("--use_tpu=0", "--steps=1"), capfd)
    assert status == 2
    assert "nothing to compare" in out


def test_program_that_fails(script, capfd):
    status, out = run(script("raise KeyError('mine')"), capfd)
    assert status == 2
    assert "not compared" in out


def test_constructor_with_positional_arguments():
    with compare._constructor_arguments():
        estimator = tf.compat.v1.estimator.tpu.TPUEstimator(
            _model_fn, "folder", tf.compat.v1.estimator.tpu.RunConfig(), {"rate": 1}, False, 16
        )
    again = compare._rebuild(estimator, "another", 2, False)
    assert again.model_dir == "another"
    assert again.params["rate"] == 1
    assert again._ctx._train_batch_size == 16


def _model_fn(features, labels, mode, params):
    del features, labels, mode, params


@pytest.mark.parametrize(
    ("rounding", "verdict"),
    [
        ((1e-6, 1e-6, 1e-6), "NOT equal up to rounding"),
        ((1e-6, 1e-6, 0.5), "equal up to rounding"),  # the third is rounding itself
        ((1e-6, 0.5, 0.5), "undecided"),
        ((0.5, 0.5, 0.5), "undecided"),
        ((None, None, None), "NOT equal up to rounding"),
    ],
)
def test_verdict(rounding, verdict):
    relative = (1e-6, 1e-6, 1e-3)
    differences = [
        compare.Difference(f"v{i}", True, 1, r, r, limit)
        for i, (r, limit) in enumerate(zip(relative, rounding))
    ]
    comparison = compare.Comparison(1, "program.py:1", differences, [], {})
    assert compare.format_text(comparison, ONE_CORE).splitlines()[-1].startswith(verdict)
