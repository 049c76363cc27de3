"""Programs import TensorFlow 1.15, libraries import 2.15."""

import importlib
import importlib.machinery
import os
import pathlib
import subprocess
import sys
import types

import pytest
import tensorflow as tf
from tensorflow.python.framework import ops as tf_ops
from tensorflow.python.platform import tf_logging
from tensorflow.python.util import deprecation

from tpu import tf1
from tpu.tf1 import areas, imports, program_files


def test_a_program_gets_the_names_of_1_15(run_old):
    found = run_old(
        """
        import tensorflow as tf
        add, estimator, version = tf.to_float, tf.contrib.tpu.TPUEstimator, tf.__version__
        """
    )
    assert found["add"] is tf.compat.v1.to_float
    assert found["estimator"] is tf.compat.v1.estimator.tpu.TPUEstimator
    assert found["version"] == "1.15.5"


def test_flags_of_tf_app(run_old):
    found = run_old("import tensorflow as tf; x, run = tf.app.flags, tf.app.run")
    assert found["x"] is tf.compat.v1.flags
    assert found["run"] is tf.compat.v1.app.run


def test_no_advice_to_use_other_names(run_old, monkeypatch, recwarn):
    logged = []
    monkeypatch.setattr(tf_logging, "warning", lambda *args: logged.append(args))
    monkeypatch.setattr(deprecation, "_PRINTED_WARNING", {})
    run_old(
        """
        import tensorflow as tf
        tf.layers.dense(tf.to_float(tf.zeros([2, 3])), 4)
        tf.contrib.tpu.TPUConfig
        """
    )
    assert not logged
    assert not recwarn.list


@pytest.mark.parametrize(
    "source",
    [
        "import tensorflow as tf; read = tf.pywrap_tensorflow.NewCheckpointReader",
        "from tensorflow.python import pywrap_tensorflow as p; read = p.NewCheckpointReader",
        "from tensorflow.python.pywrap_tensorflow import NewCheckpointReader as read",
    ],
)
def test_checkpoint_reader(run_old, source):
    assert run_old(source)["read"] is tf.compat.v1.train.NewCheckpointReader


def test_private_names_that_moved(run_old):
    before = hasattr(tf_ops, "Tensor")
    found = run_old(
        """
        from tensorflow.python.framework import ops
        from tensorflow.python.ops import array_ops, control_flow_ops
        tensor, stack, cond = ops.Tensor, array_ops.stack, control_flow_ops.cond
        """
    )
    assert found["tensor"] is tf.Tensor
    assert found["stack"] is tf.stack
    assert found["cond"] is tf.compat.v1.cond
    assert hasattr(tf_ops, "Tensor") is before


def test_libraries_get_2_15(run_old, tmp_path, monkeypatch):
    library = tmp_path / "site-packages" / "library.py"
    library.parent.mkdir()
    library.write_text("import tensorflow as tf\n")
    monkeypatch.syspath_prepend(str(library.parent))
    found = run_old("import library; import tensorflow as tf")
    assert found["library"].tf is tf
    assert found["tf"] is not tf
    monkeypatch.delitem(sys.modules, "library")


def test_a_named_package_is_a_program(tmp_path, monkeypatch):
    package = tmp_path / "site-packages" / "old_package"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("import tensorflow as tf\n")
    monkeypatch.syspath_prepend(str(package.parent))
    with tf1.old_names(packages=("old_package",)):
        import old_package
    assert old_package.tf.VERSION == "1.15.5"
    monkeypatch.delitem(sys.modules, "old_package")


def test_names_end_with_the_block():
    with tf1.old_names():
        import tensorflow

        assert tensorflow is not tf
    import tensorflow

    assert tensorflow is tf
    assert not hasattr(tf, "contrib")


ESTIMATOR = "tensorflow_estimator.python.estimator"
TPU = "tensorflow.python.tpu"
IMPORTS = {
    "import tensorflow as x": "tensorflow",
    "import tensorflow.compat.v1 as x": "tensorflow",
    "from tensorflow.compat import v1 as x": "tensorflow",
    "import tensorflow.compat.v2 as x": "tensorflow.compat.v2",
    "from tensorflow import flags as x": "tensorflow.python.platform.flags",
    "from tensorflow.compat.v1 import estimator as x": f"{ESTIMATOR}.api._v1.estimator",
    "from tensorflow import contrib as x": "tensorflow.contrib",
    "from tensorflow.contrib import tpu as x": "tensorflow.contrib.tpu",
    "from tensorflow.contrib.autograph import do_not_convert as x": (
        "tensorflow.python.autograph.impl.api"
    ),
    "import tensorflow.contrib.summary as x": "tensorflow.contrib.summary",
    "from tensorflow.contrib.tpu.python.tpu import tpu_config as x": f"{ESTIMATOR}.tpu.tpu_config",
    "import tensorflow.contrib.tpu.python.tpu.tpu_optimizer as x": f"{TPU}.tpu_optimizer",
    "from tensorflow.contrib.tpu.python.tpu import tpu_function as x": f"{TPU}.tpu_function",
    "from tensorflow.contrib.tpu.python.ops import tpu_ops as x": f"{TPU}.ops.tpu_ops",
    "from tensorflow.contrib.tpu.proto import topology_pb2 as x": (
        "tensorflow.core.protobuf.tpu.topology_pb2"
    ),
    "from tensorflow.python.estimator import estimator as x": f"{ESTIMATOR}.estimator",
    "from tensorflow.python import estimator as x": ESTIMATOR,
    "from tensorflow.python import keras as x": "tensorflow.python.keras",
    "from tensorflow.python import ops as x": "tensorflow.python.ops",
    "from tensorflow.python.keras import Model as x": "keras.src.engine.training",
    "import tensorflow.python.estimator.run_config as x": f"{ESTIMATOR}.run_config",
    "from tensorflow.python.keras.layers import LSTM as x": "keras.src.layers.rnn.lstm",
    "from tensorflow.python.layers import core as x": "keras.src.legacy_tf_layers.core",
    "from tensorflow.python.layers import utils as x": "tensorflow.python.layers.utils",
    "from tensorflow.keras import backend as x": "keras.api._v1.keras.backend",
    "import tensorflow.keras.layers as x": "keras.api._v1.keras.layers",
    "from tensorflow.python.framework import ops as x": "tensorflow.python.framework.ops",
    "import tensorflow.python.ops.array_ops as x": "tensorflow.python.ops.array_ops",
    "import tensorflow.core.framework.summary_pb2 as x": "tensorflow.core.framework.summary_pb2",
    "import tensorflow.train as x": "tensorflow._api.v2.compat.v1.train",
    "from tensorflow.train import GradientDescentOptimizer as x": (
        "tensorflow.python.training.gradient_descent"
    ),
    "from tensorflow import pywrap_tensorflow as x": "tpu.tf1.pywrap_tensorflow",
    "import importlib; x = importlib.import_module('tensorflow')": "tensorflow",
    "import importlib; x = importlib.import_module('tensorflow.contrib')": "tensorflow.contrib",
}


@pytest.mark.parametrize("statement", IMPORTS)
def test_import_statement(run_old, statement):
    found = run_old(statement)["x"]
    if isinstance(found, types.ModuleType):
        assert found.__name__ == IMPORTS[statement]
    else:
        assert found.__module__ == IMPORTS[statement]


@pytest.mark.parametrize("name", areas.MOVED)
def test_moved_module_by_each_kind_of_import(run_old, name):
    parent, _, child = f"tensorflow.{name}".rpartition(".")
    found = run_old(
        f"""
        import importlib
        from {parent} import {child} as x
        import {parent}.{child} as y
        z = importlib.import_module("{parent}.{child}")
        """
    )
    assert found["x"].__name__ == found["y"].__name__ == found["z"].__name__


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("training.checkpointable.util", "Checkpoint"),
        ("training.tracking.graph_view", "ObjectGraphView"),
        ("training.tracking.object_identity", "ObjectIdentitySet"),
        ("training.tracking.tracking", "AutoTrackable"),
        ("training.tracking.util", "Checkpoint"),
    ],
)
def test_name_of_a_module_that_left_its_package(run_old, module, name):
    parent, _, child = f"tensorflow.python.{module}".rpartition(".")
    found = run_old(f"from {parent} import {child}; x = {child}.{name}")
    assert found["x"].__name__ == name


def test_names_of_a_moved_module(run_old):
    found = run_old(
        """
        from tensorflow.contrib.training.python.training import evaluation, hparam
        iterator, params = evaluation.checkpoints_iterator, hparam.HParams(a=1)
        """
    )
    assert found["iterator"] is tf.compat.v1.train.checkpoints_iterator
    assert found["params"].a == 1


def test_a_module_that_a_source_imports_is_not_a_name_of_it(run_old, monkeypatch):
    source = types.ModuleType("a_source")
    source.ops, source.model_variable = tf_ops, object()
    monkeypatch.setitem(sys.modules, "a_source", source)
    monkeypatch.setitem(areas.SOURCES, "framework", "a_source")
    found = run_old("from tensorflow.contrib.framework.python import ops; x = ops.model_variable")
    assert found["x"] is source.model_variable


def test_replaced_functions_of_2_15_are_used(run_old, monkeypatch):
    # The emulator replaces this function.
    monkeypatch.setattr(tf.compat.v1.tpu, "initialize_system", lambda: "emulated")
    found = run_old("import tensorflow as tf; x = tf.contrib.tpu.initialize_system()")
    assert found["x"] == "emulated"


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("import tensorflow as tf\ntf.contrib.gdr.Foo()", "tf.contrib.gdr.Foo"),
        ("import tensorflow as tf\ntf.contrib.nowhere", "tf.contrib.nowhere"),
        (
            "import tensorflow as tf\ntf.contrib.tpu.keras_to_tpu_model()",
            "tf.contrib.tpu.keras_to_tpu_model",
        ),
        ("import tensorflow as tf\ntf.nowhere", "tf.nowhere"),
        (
            "from tensorflow.contrib.cloud import BigtableClient\nBigtableClient('p')",
            "tf.contrib.cloud.BigtableClient",
        ),
        (
            "from tensorflow.contrib.rnn import UGRNNCell\nclass Cell(UGRNNCell): pass",
            "tf.contrib.rnn.UGRNNCell",
        ),
        (
            "from tensorflow.contrib import tensorrt\ntensorrt.create_inference_graph()",
            "tf.contrib.tensorrt.create_inference_graph",
        ),
        (
            "from tensorflow.examples.tutorials.mnist import input_data\ninput_data.read()",
            "tf.examples.tutorials.mnist.input_data.read",
        ),
    ],
)
def test_a_missing_name_is_refused_in_one_line_at_its_use(run_old, tmp_path, source, name):
    with pytest.raises(AttributeError) as caught:
        run_old(source)
    message = str(caught.value)
    assert message.startswith(
        f"{name} is not available with --tf1; used at {tmp_path / 'program.py'}:2. "
    )
    assert "\n" not in message
    assert message.endswith(".")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("tf.contrib.estimator.multi_label_head", "Use tf.estimator.MultiLabelHead."),
        ("tf.contrib.learn.Estimator", "Use tf.estimator."),
        ("tf.contrib.learn.datasets.mnist.load", "Read the data with tf.keras.datasets."),
    ],
)
def test_advice_is_that_of_the_longest_prefix(name, text):
    assert areas.advice(name) == text


def test_importing_a_missing_name_is_allowed(run_old):
    run_old(
        """
        from tensorflow.contrib.cloud import BigtableClient
        from tensorflow.contrib import tensorrt, quantize
        import tensorflow.contrib.cudnn_rnn as cudnn
        """
    )


def test_an_unknown_contrib_module_is_an_import_error(run_old):
    with pytest.raises(ModuleNotFoundError, match=r"tensorflow\.contrib\.nowhere"):
        run_old("import tensorflow.contrib.nowhere.x")


def test_hasattr_of_a_missing_name(run_old):
    found = run_old("import tensorflow as tf; x = hasattr(tf.contrib.tpu, 'nowhere')")
    assert found["x"] is False


def test_missing_package_names_the_command(run_old, monkeypatch):
    monkeypatch.setitem(sys.modules, "tf_slim", None)  # import raises ModuleNotFoundError
    with pytest.raises(AttributeError, match=r"tf\.contrib\.layers\.conv2d .* pip install tf_slim"):
        run_old("import tensorflow as tf; tf.contrib.layers.conv2d()")


def test_a_name_that_an_installed_package_lacks(run_old, monkeypatch):
    slim = types.ModuleType("tf_slim")
    slim.__spec__ = importlib.machinery.ModuleSpec("tf_slim", None)
    monkeypatch.setitem(sys.modules, "tf_slim", slim)
    with pytest.raises(AttributeError, match=r"tf\.contrib\.layers\.bow_encoder .* lacks it too"):
        run_old("import tensorflow as tf; tf.contrib.layers.bow_encoder()")


@pytest.mark.parametrize(
    ("path", "is_program"),
    [
        ("/home/me/model/main.py", True),
        ("/home/me/venv/lib/python3.11/site-packages/keras/backend.py", False),
        ("/usr/lib/python3/dist-packages/six.py", False),
        (importlib.__file__, False),
        (imports.__file__, False),
    ],
)
def test_is_program_file(path, is_program):
    assert program_files.is_program_file(path) is is_program


def test_links_to_a_library_are_a_library(tmp_path):
    cache = tmp_path / "cache" / "library.py"
    link = tmp_path / "site-packages" / "library.py"
    for path in (cache, link):
        path.parent.mkdir()
    cache.write_text("")
    link.symlink_to(cache)
    assert not program_files.is_program_file(str(link))
    own = tmp_path / "tpu"
    own.symlink_to(os.path.dirname(os.path.dirname(imports.__file__)))
    assert not program_files.is_program_file(str(own / "tf1" / "imports.py"))


def test_importing_the_package_does_not_import_tensorflow():
    code = "import sys, tpu.tf1; print('tensorflow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.slow
def test_package_behind_a_link(tmp_path):
    (tmp_path / "tpu").symlink_to(pathlib.Path(tf1.__file__).parents[1])
    code = "from tpu import tf1; tf1.install()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
