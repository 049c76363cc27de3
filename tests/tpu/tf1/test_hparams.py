"""HParams keeps the types of hyperparameters."""

import json
import re

import pytest

from tpu.tf1.hparams import HParams, parse_values


def params():
    return HParams(rate=0.1, units=[8, 16], name="lstm", use_bias=True, size=4, extra=None)


def test_parse():
    parsed = params().parse("rate=1,units=[1, 2],name=gru,use_bias=false,size=-3")
    assert parsed.values() == {
        "rate": 1.0,
        "units": [1, 2],
        "name": "gru",
        "use_bias": False,
        "size": -3,
        "extra": None,
    }
    assert isinstance(parsed.rate, float)


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ("size=1.5", "Could not parse hparam 'size' of type 'int' with value '1.5'"),
        ("use_bias=maybe", "Could not parse hparam 'use_bias' of type 'bool'"),
        ("unknown=1", "Unknown hyperparameter type for unknown"),
        ("size", "Malformed hyperparameter value: size"),
        ("size=1,size=2", "Multiple assignments to variable 'size'"),
        ("size=[1]", "Must not pass a list for single-valued parameter: size"),
        ("units=1", "Must pass a list for multi-valued parameter: units"),
    ],
)
def test_invalid_values(values, error):
    with pytest.raises(ValueError, match=re.escape(error)):
        params().parse(values)


def test_parse_values_of_list_elements():
    types = {"a": int, "b": str}
    assert parse_values("a[1]=3,a[0]=2,b=x", types) == {"a": {1: 3, 0: 2}, "b": "x"}
    assert parse_values("c=1,b=x", types, ignore_unknown=True) == {"b": "x"}


@pytest.mark.parametrize(
    ("name", "value", "is_valid"),
    [
        ("rate", 1, True),
        ("size", 1.0, False),
        ("size", True, False),
        ("use_bias", 1, False),
        ("name", 1, False),
        ("rate", "1", False),
        ("extra", "anything", True),
    ],
)
def test_set_hparam_checks_the_type(name, value, is_valid):
    hparams = params()
    if is_valid:
        hparams.set_hparam(name, value)
        assert getattr(hparams, name) == value
    else:
        with pytest.raises(ValueError, match="Could not cast hparam"):
            hparams.set_hparam(name, value)


def test_set_hparam_of_an_unknown_name():
    with pytest.raises(KeyError):
        params().set_hparam("unknown", 1)


def test_add_hparam():
    hparams = params()
    hparams.add_hparam("new", 5)
    assert "new" in hparams
    with pytest.raises(ValueError, match="reserved: new"):
        hparams.add_hparam("new", 6)
    with pytest.raises(ValueError, match="cannot be empty: none"):
        hparams.add_hparam("none", [])
    hparams.del_hparam("new")
    assert "new" not in hparams


def test_get():
    hparams = params()
    assert hparams.get("size") == 4
    assert hparams.get("unknown", 7) == 7
    assert hparams.get("size", 1) == 4
    with pytest.raises(ValueError, match="size"):
        hparams.get("size", [1])


def test_json():
    hparams = HParams(size=4, function=len, names=["a"])
    assert json.loads(hparams.to_json()) == {"size": 4, "names": ["a"]}
    assert hparams.parse_json('{"size": 5}').size == 5


def test_str():
    assert str(HParams(b=1, a="x")) == "[('a', 'x'), ('b', 1)]"
    assert repr(HParams(b=1)) == "HParams([('b', 1)])"
