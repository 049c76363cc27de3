"""Pickles are read as data: nothing in them is called, and memory is bounded by their size."""

import pickle

import numpy as np
import pytest

from input_fns.image.sources import pickled

DTYPE = b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R"
ARRAY = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
BUILT = DTYPE + b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"


@pytest.mark.parametrize(
    ("operations", "message"),
    [
        (ARRAY + b"(K\x01K\x04\x85" + DTYPE + b"\x89U\x08pointerstb", "for another shape"),
        (b"cnumpy\ndtype\nU\x01OK\x00K\x01\x87R", "another type than integers"),
        (DTYPE + b"(K\x03U\x01|U\x01xU\x01yU\x01zNNNtb}b", "holds a broken type"),
        (ARRAY + b"}U\x01xK\x01sb", "broken array"),
        (b"cnumpy\nndarray\nN}U\x01xK\x01s\x86b", "changes what is not an array"),
        (b"cnumpy\nndarray.__class__\n", "asks for numpy.ndarray.__class__"),
        (b"cnumpy\nndarray\nK\x05\x85R", "it calls ndarray"),
        (b"c_codecs\nencode\nX\x01\x00\x00\x00aX\x03\x00\x00\x00hex\x86R", "it calls encode"),
        (b"c_codecs\nencode\nq\x01" + b"h\x01X\xe8\x03\x00\x00" + b"a" * 1000 + b"q\x02" +
         b"h\x01h\x02X\x06\x00\x00\x00latin1\x86R" * 20, "encodes more text than it holds"),
        (b"\x96\x00\x00\x00\x00\x00\x01\x00\x00", "it is broken"),  # BYTEARRAY8 of 2**40 bytes
        (b"\x8e\x00\x00\x00\x00\x00\x01\x00\x00", "it is broken"),  # BINBYTES8 of 2**40 bytes
        (b"}" + b")" + b"\x85" * 100_000 + b"Ns", "a key that is not a string"),
        (b"}N}s", "it is broken|a key that"),
        (b"I1\n", "the operation INT"),
        (b"P1\n", "the operation PERSID"),
        (b"(i__main__\nX\n", "the operation INST"),
        (b"\x82\x01", "the operation EXT1"),
    ],
)  # fmt: skip
def test_a_pickle_that_attacks_its_reader(operations, message):
    with pytest.raises(pickled.PickleError, match=message) as error:
        pickled.loads(b"\x80\x02" + operations + b".")
    assert len(str(error.value)) < 200


@pytest.mark.parametrize(
    "operations", [b"Nr\xff\xff\xff\xff" * 2 + b"]" * 3, b"]" + b"\x85" * 100_000]
)
def test_a_memo_of_2_to_the_32_and_deep_nesting_take_no_memory(operations):
    pickled.loads(b"\x80\x02" + operations + b".")


def test_labels_that_grow_exponentially_are_not_unfolded():
    doubled = b"]q\x00(K\x01K\x01e" + b"".join(b"]q%c(h%ch%ce" % (i + 1, i, i) for i in range(60))
    with pytest.raises(pickled.PickleError, match="list of integers"):
        pickled.array(pickled.loads(b"\x80\x02" + doubled + b"."))


@pytest.mark.parametrize("protocol", [2, 3, 4])
@pytest.mark.parametrize("dtype", ["u1", ">i2", "<i8"])
def test_arrays_of_integers_are_read(protocol, dtype):
    wanted = np.arange(60).astype(dtype).reshape(3, 4, 5)
    for array in (wanted, np.asfortranarray(wanted)):
        found = pickled.array(pickled.loads(pickle.dumps({"x": array}, protocol))["x"])
        np.testing.assert_array_equal(found, wanted)
