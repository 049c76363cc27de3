"""The check for slices on which only PJRT runs: what PJRT devices do not support is an error."""

import importlib.util

import pytest
import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

from tests.marks import slow
from tests.tpu.check.regression import check, codes, make_estimator, make_model_fn, rows, squares
from tpu.check import check_program, format_text
from tpu.findings import ERROR, WARNING

tf1 = tf.compat.v1


@pytest.mark.parametrize("name", ["v5p-8", "v5p-16"])
def test_a_program_without_faults_has_no_findings(name):
    report = check(make_model_fn(), tpu_slice=name)
    assert (report.findings, report.not_checked) == ((), ("TPU compiler: skipped",))
    title, *_, never, verdict = format_text(report).splitlines()
    found = report.topology
    assert title == f"check for {found.name} through PJRT: {found.hosts} x 4 cores"
    assert never.startswith("never checked: the libtpu of a TPU VM; ")
    assert verdict == "no problem found"


@pytest.mark.slow(cost=0.1)
@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="libtpu is not installed")
@pytest.mark.parametrize(
    ("name", "cores"), [("v6e-8", 8), slow("v5e-8", 8), slow("v5p-8", 4), slow("v5e-16", 16)]
)
def test_the_compiler_gives_memory_and_step_time(name, cores):
    report = check_program(make_estimator(make_model_fn()), {"train": rows}, name)
    train = report.modes["train"]
    assert report.status == 0
    assert train.batch_size == 16 // cores
    assert train.compiled.fits
    assert 0 < train.compiled.peak_bytes < 2**20
    assert 0 < train.step_time.seconds < 1e-3
    assert 0 < train.step_time.share_of_peak < 1


@pytest.mark.parametrize(("name", "level"), [("v3-8", WARNING), ("v5e-8", ERROR)])
def test_outside_compilation(name, level):
    def through_text(loss):
        number = tf.strings.to_number(tf.strings.as_string(loss))
        number.set_shape([])
        return number

    def loss(features, labels):
        value = squares(features, labels)
        return value + tf1.tpu.outside_compilation(through_text, tf.stop_gradient(value))

    report = check(make_model_fn(loss), tpu_slice=name)
    assert set(codes(report)) == {(level, "outside-compilation")}
    assert ("PJRT devices do not support it" in report.findings[0].message) == (level == ERROR)


def test_model_parallelism():
    report = check(make_model_fn(), tpu_slice="v5e-8", num_cores_per_replica=2)
    (error,) = report.findings
    assert (error.level, error.code) == (ERROR, "pjrt")
    assert "model parallelism (num_cores_per_replica=2)" in error.message


@pytest.mark.parametrize("name", ["v3-8", "v5e-8"])
def test_an_operation_that_xla_on_a_cpu_lacks(name):
    """TensorFlow's own runtime has it; PJRT devices get what XLA lowers here."""

    def loss(features, labels):
        largest = gen_xla_ops.xla_all_reduce(features, [list(range(8))], "Max", "CrossReplica")
        return squares(tf.stop_gradient(largest), labels)

    report = check(make_model_fn(loss), tpu_slice=name)
    if name == "v3-8":
        assert report.findings == ()
        (reason,) = report.not_checked
        assert "XlaAllReduce has a kernel on a TPU, but not in XLA on a CPU" in reason
    else:
        assert codes(report) == [(ERROR, "pjrt")]
        assert report.findings[0].message.startswith(
            "PJRT devices cannot run the step: XlaAllReduce"
        )
