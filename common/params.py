"""List hyperparameters: tuples that know the type of their elements, even when empty.

    {"hidden_units": Ints([512, 256]), "decay_boundaries": Ints()}

`--params=hidden_units=[64,32]` overrides the first. Imports no TensorFlow.
"""

from __future__ import annotations

from collections.abc import Iterable


class TypedList(tuple):
    """A tuple of elements of one type; `str()` gives the form that `--params` reads.

    Attributes:
      element: type of the elements.
    """

    __slots__ = ()
    element: type

    def __new__(cls, items: Iterable = ()):
        """Converts the items to `element`."""
        if isinstance(items, str):
            raise TypeError(f"{cls.__name__} needs a list or tuple, not the string '{items}'")
        return super().__new__(cls, map(cls.element, items))

    def __str__(self) -> str:
        return f"[{','.join(map(str, self))}]"


class Ints(TypedList):
    """A tuple of int."""

    element = int


class Floats(TypedList):
    """A tuple of float."""

    element = float


class Strings(TypedList):
    """A tuple of str."""

    element = str
