"""The new process gets and gives groups of arrays, stored without pickle."""

import numpy as np
import pytest
import tensorflow as tf

from engine.serving import new_process


def test_arrays_are_restored(tmp_path):
    path = str(tmp_path / "arrays.npz")
    texts = np.array([[b"a\0\0", b""], [b"\xff\xd8", "käse"]], object)
    groups = {
        "of/a group": {"": np.arange(13, dtype=np.float32).reshape(13, 1), "text": texts},
        "index": {"0_lengths": np.zeros([0, 3], np.uint8), "none": np.array([], object)},
        "of TPUs": {"x": np.array([1.5, -2.0]).astype(tf.bfloat16.as_numpy_dtype)},
        "of NumPy": {"bytes": np.array([b"ab", b"c"]), "bool": np.array(True)},
    }
    new_process.save_arrays(path, groups)
    found = new_process.load_arrays(path)
    assert {group: list(arrays) for group, arrays in found.items()} == {
        group: list(arrays) for group, arrays in groups.items()
    }
    texts[1, 1] = "käse".encode()
    for group, arrays in groups.items():
        for name, array in arrays.items():
            np.testing.assert_array_equal(found[group][name], array)
            assert found[group][name].dtype == (object if array.dtype.kind == "S" else array.dtype)


def test_a_pickle_is_not_loaded(tmp_path):
    path = str(tmp_path / "arrays.npz")
    np.savez(path, index=np.array([print], object))
    with pytest.raises(ValueError, match="allow_pickle"):
        new_process.load_arrays(path)
