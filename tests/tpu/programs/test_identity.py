"""Which input_fns and parameters of two calls are the same."""

import collections
import functools
import random
import types

import numpy as np
import pytest
import tensorflow as tf

from tpu.programs.identity import snapshot


class Input:
    """An input_fn with attributes, of which no method of Python's own may be called."""

    def __init__(self, *values):
        self.values = values

    def __call__(self, params):
        return self.values

    def __eq__(self, other):
        raise ValueError("not comparable")

    def __repr__(self):
        raise ValueError("not printable")

    __hash__ = None


class Slots:
    """An object without `__dict__`."""

    __slots__ = ("unset", "value")

    def __init__(self, value):
        self.value = value


def closure(value):
    return lambda params: value


def default(value):
    def input_fn(params, value=value):
        return value

    return input_fn


def decorated(value):
    return tf.autograph.experimental.do_not_convert(lambda params: value)


def local_class(value):
    class Local:
        def __call__(self, params):
            return value

    return Local()


MAKERS = {
    "object": Input,
    "bound method": lambda value: Input(value).__call__,
    "closure": closure,
    "default": default,
    "decorated": decorated,
    "local class": local_class,
    "partial": lambda value: functools.partial(Input.__call__, params=value),
    "slots": Slots,
    "dict": lambda value: {"a": [value], "b": (1,)},
    "ordered dict": lambda value: collections.OrderedDict(a=value),
    "namespace": lambda value: types.SimpleNamespace(rate=value),
    "array": lambda value: np.full([3, 5], value),
    "array of objects": lambda value: np.array([value, None], object),
    "NumPy scalar": np.float32,
    "set": lambda value: {value, "other"},
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_values_are_compared_by_content(make):
    assert snapshot(make(7)) == snapshot(make(7))
    assert snapshot(make(7)) != snapshot(make(8))


@pytest.mark.parametrize(
    "make",
    [object, lambda: random.Random(1), lambda: iter([1]), lambda: tf.constant(1)],
    ids=["object", "random", "iterator", "tensor"],
)
def test_values_without_readable_content_are_compared_by_identity(make):
    value = make()
    assert snapshot(Input(value)) == snapshot(Input(value))
    assert snapshot(Input(value)) != snapshot(Input(make()))


def test_types_are_part_of_the_content():
    assert len({snapshot(closure(value)) for value in (1, 1.0, True, "1", b"1")}) == 5


def test_not_a_number_equals_itself():
    assert snapshot(closure(float("nan"))) == snapshot(closure(float("nan")))


def test_addresses_may_be_used_again():
    assert len({snapshot(Input(split)) for split in "abcdefgh"}) == 8


def test_an_object_that_changes_is_another():
    value = Input("a")
    before = snapshot(value)
    value.values = ("b",)
    assert snapshot(value) != before


SPLIT = "a"


def read_global(params):
    """An input_fn that reads a global variable."""
    return SPLIT


def test_a_global_variable_that_changes(monkeypatch):
    before = snapshot(read_global)
    assert snapshot(read_global) == before
    monkeypatch.setitem(globals(), "SPLIT", "b")
    assert snapshot(read_global) != before


def test_cycles_and_deep_values_end():
    cycle, deep = [], None
    cycle.append(cycle)
    for _ in range(5000):
        deep = [deep]
    assert snapshot(cycle) == snapshot(cycle)
    hash(snapshot(deep))
