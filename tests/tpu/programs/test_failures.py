"""How `emulate` and `compare` print an error that ends a program."""

import errno
import re
import sys

import pytest
import tensorflow as tf

from tpu.check import explanations
from tpu.programs import command_line, failures


def raised(function):
    """Returns the exception that a function raises."""
    try:
        function()
    except Exception as error:
        return error
    raise AssertionError("no error")


def test_error_of_the_program_reads_as_in_python():
    def fail():
        raise KeyError("mine\nand more")

    text = failures.format_error(raised(fail))
    assert text.startswith("Traceback (most recent call last; ")
    assert text.endswith("KeyError: 'mine\\nand more'\n")


@pytest.mark.parametrize("size", [3, None])
def test_size_of_a_shape_of_version_1(size):
    error = raised(lambda: size.value)  # tensor.shape[0].value
    advice = "has no attribute 'value': the sizes of a shape are ints in TensorFlow 2. Add --tf1"
    texts = [failures.format_error(error), failures.explain(error), explanations.describe(error)]
    assert all(advice in text for text in texts)


@pytest.mark.filterwarnings("ignore:In the future")
@pytest.mark.parametrize(
    ("source", "library"),
    [
        ("import numpy; numpy.asscalar", "NumPy "),
        ("import numpy; numpy.object", "NumPy "),
        ("import time; time.clock", "Python 3."),
        ("from time import clock", "Python 3."),
        pytest.param(
            "from collections import Mapping",
            "Python 3.",
            marks=pytest.mark.skipif(sys.version_info < (3, 10), reason="Python 3.9 has it"),
        ),
    ],
)
def test_name_that_python_or_numpy_removed(source, library):
    error = raised(lambda: exec(compile(source, __file__, "exec"), {}))
    texts = [failures.format_error(error).rstrip(), explanations.describe(error)]
    assert all(re.search(rf"\. {library}[\d.]+ removed it\. Add --tf1", text) for text in texts)


def test_old_generated_code_of_a_protocol_buffer():
    def fail():
        raise TypeError("Descriptors cannot be created directly.\nIf this call came from")

    *_, last = failures.format_error(raised(fail)).splitlines()
    assert "came from. Set PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION=python in the env" in last


@pytest.mark.parametrize(
    "error",
    [
        ModuleNotFoundError("No module named 'google.colab'", name="google.colab"),
        FileNotFoundError(errno.ENOENT, "No such file or directory", "/content/adc.json"),
    ],
)
def test_credentials_of_colab(error):
    assert ". No TPU reads files with the credentials of Colab here" in explanations.describe(error)


def test_another_missing_name_has_no_advice():
    error = raised(lambda: sys.no_such_name)
    assert failures.format_error(error).endswith("has no attribute 'no_such_name'\n")


def test_error_of_a_library_ends_with_one_line_and_shows_no_frames_of_libraries():
    error = raised(lambda: tf.reshape(tf.zeros([3]), [2]))
    text = failures.format_error(error)
    assert "site-packages" not in text
    *_, last = text.splitlines()
    assert last == failures.explain(error)
    assert last.startswith("ValueError: Cannot reshape")
    assert "test_failures.py:" in last
    assert "site-packages" in failures.format_error(error, verbose=True)


def test_cause_of_an_error_is_shown():
    def fail():
        try:
            raise KeyError("first")
        except KeyError as error:
            raise ValueError("second") from error

    text = failures.format_error(raised(fail))
    assert text.index("KeyError: 'first'") < text.index("direct cause of the following exception")
    assert text.endswith("ValueError: second\n")


def test_tensor_of_the_loop():
    with tf.Graph().as_default() as graph:
        tensor = tf.constant(1.0, name="lr")
        graph.prevent_fetching(tensor.op)
        with tf.compat.v1.Session() as session:
            text = failures.explain(raised(lambda: session.run(tensor)))
    assert text.startswith(
        "a hook reads a tensor inside the TPU loop. Pass it to host_call instead (Operation lr has"
    )
    assert "test_failures.py:" in text


def test_exception_of_a_generator():
    def examples():
        yield 1
        raise OSError("record 17 is corrupt")

    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        dataset = tf.data.Dataset.from_generator(examples, tf.int32, [])
        batch = tf.compat.v1.data.make_one_shot_iterator(dataset.batch(2)).get_next()
        text = failures.explain(raised(lambda: session.run(batch)))
    assert text.startswith("OSError: record 17 is corrupt (at ")
    assert text.count("test_failures.py:") == 1


@pytest.mark.parametrize("flags", [[], ["--verbose"]])
def test_emulate_ends_with_the_error_and_status_1(tmp_path, flags, capfd):
    path = tmp_path / "fails.py"
    path.write_text("def f():\n    raise KeyError('mine')\nf()\n")
    assert command_line.main(["emulate", *flags, str(path)]) == 1
    err = capfd.readouterr().err
    assert err.endswith("KeyError: 'mine'\n")
    assert ("runpy" in err) == bool(flags)


def test_emulate_leaves_errors_to_the_excepthook_of_the_program(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "excepthook", print)
    path = tmp_path / "fails.py"
    path.write_text("1 / 0")
    with pytest.raises(ZeroDivisionError):
        command_line.main(["emulate", str(path)])


def test_error_of_a_thread_is_printed_alike(tmp_path, capfd):
    path = tmp_path / "fails.py"
    path.write_text(
        "import threading\n"
        "def f():\n    raise KeyError('mine')\n"
        "threading.Thread(target=f, name='reader').start()\n"
    )
    assert command_line.main(["emulate", str(path)]) == 0  # as of Python
    err = capfd.readouterr().err
    assert "Exception in thread reader:\nTraceback (most recent call last; " in err
    assert "KeyError: 'mine'\n" in err
    assert "threading.py" not in err


def test_none_in_eval_metrics_is_named(linear_program, capfd):
    program = linear_program("--mode=all", "--steps=2", "--metrics=none")
    status = command_line.main(["emulate", "--topology=1x1", program.target, *program.arguments])
    *_, last = capfd.readouterr().err.splitlines()
    assert status == 1
    assert last.startswith("eval_metrics has None in place 1 (model_fn at ")


def test_summary_in_model_fn_is_explained(linear_program, capfd):
    program = linear_program("--summary=model_fn", "--steps=1")
    arguments = ["emulate", "--topology=1x1", program.target, *program.arguments]
    assert command_line.main(arguments) == 1
    *_, last = capfd.readouterr().err.splitlines()
    assert last.startswith("model_fn calls tf.compat.v1.summary, but a summary cannot be written")
    assert "write the summary in host_call (Cannot use 'loss'" in last


def test_errors_after_a_spec_that_only_a_cpu_accepts_are_their_own(linear_program, capfd):
    program = linear_program("--mode=fail", "--use_tpu=0", "--steps=1", "--metrics=scalar")
    assert command_line.main(["emulate", "--topology=1x1", program.target, *program.arguments]) == 1
    assert capfd.readouterr().err.endswith("KeyError: 'mine'\n")
