"""List hyperparameters."""

import pytest

from common.params import Floats, Ints, Strings


def test_elements_have_the_type_of_the_list():
    assert Floats([1, 2]) == (1.0, 2.0)
    assert type(Floats([1])[0]) is float
    assert Ints() == ()
    assert Ints.element is int


def test_str_is_the_form_of_params():
    assert str(Ints([512, 256])) == "[512,256]"
    assert str(Strings(["conv:32:3", "relu"])) == "[conv:32:3,relu]"
    assert str(Floats()) == "[]"


def test_a_string_is_not_a_list_of_characters():
    with pytest.raises(TypeError, match="Strings needs a list or tuple, not the string 'relu'"):
        Strings("relu")
