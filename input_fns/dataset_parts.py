"""What a data set is made of: features, shards, splits."""

from __future__ import annotations

import dataclasses
import math
import re

import numpy as np

_CRC32_IN_NAME = re.compile(r"-\d{5}-of-\d{5}-([0-9a-f]{8})\.tfrecord$")


@dataclasses.dataclass(frozen=True)
class Feature:
    """A stored feature, one string an example.

    Attributes:
      encoding: "raw": the numbers, little-endian; "jpeg" or "png": a file of that kind; "image":
        some of both.
      dtype: of the decoded tensor.
      shape: of the decoded tensor, one example; None where it differs between examples.
    """

    encoding: str
    dtype: str
    shape: tuple[int | None, ...]

    @property
    def is_image_file(self) -> bool:
        """Whether it must be decoded by more than a look at its bytes."""
        return self.encoding in ("jpeg", "png", "image")

    @property
    def is_static(self) -> bool:
        """Whether all examples are of one shape."""
        return None not in self.shape

    @property
    def num_bytes(self) -> int:
        """Bytes of one decoded example of a static shape."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclasses.dataclass(frozen=True)
class Shard:
    """One TFRecord file of a split.

    Attributes:
      name: of the file, in the folder of the data set.
      num_bytes: of the file.
      num_examples: in it.
      crc32: of its records, one after the other; 0 where it is not known.
      path: of a repaired copy in another folder, or ""; never from dataset.json.
    """

    name: str
    num_bytes: int
    num_examples: int
    crc32: int = 0
    path: str = ""

    @property
    def has_name_of_content(self) -> bool:
        """Whether the checksum in the name, if there is one, is that of the records."""
        found = _CRC32_IN_NAME.search(self.name)
        return not found or self.crc32 in (0, int(found[1], 16))


@dataclasses.dataclass(frozen=True)
class Split:
    """A split as it was written.

    Attributes:
      label_histogram: how often each class occurs; empty where examples have no class, and of a
        split that was repaired.
      shards: in order.
      broken: `(name, reason)` of each example of the source that could not be stored.
    """

    label_histogram: tuple[int, ...]
    shards: tuple[Shard, ...]
    broken: tuple[tuple[str, str], ...] = ()

    @property
    def num_examples(self) -> int:
        """Examples of all shards."""
        return sum(shard.num_examples for shard in self.shards)

    @property
    def num_bytes(self) -> int:
        """Bytes of all shards."""
        return sum(shard.num_bytes for shard in self.shards)

    @property
    def record_bytes(self) -> int:
        """Bytes of one record, about."""
        return self.num_bytes // self.num_examples


@dataclasses.dataclass(frozen=True)
class TextSplit:
    """Sentences and tokens of a split; the end of a sentence is a token.

    Attributes:
      pairs: of sentences.
      source_tokens: of all sources.
      target_tokens: of all targets.
      left_out: how many pairs were, by reason.
    """

    pairs: int
    source_tokens: int
    target_tokens: int
    left_out: dict[str, int] = dataclasses.field(default_factory=dict)

    def describe(self, num_rows: int, max_length: int) -> str:
        """Returns a line about the split, which fills so many rows of that many tokens."""
        full = max(self.source_tokens, self.target_tokens) / (num_rows * max_length)
        line = (
            f"{self.pairs} pairs, {self.source_tokens} + {self.target_tokens} tokens, in "
            f"{num_rows} rows of {max_length}, {full:.0%} full"
        )
        left_out = ", ".join(f"{count} {reason}" for reason, count in self.left_out.items())
        return f"{line}; left out: {left_out}" if left_out else line


@dataclasses.dataclass(frozen=True)
class Text:
    """What the token ids of a data set of text mean.

    Attributes:
      languages: of source and target.
      vocabulary: name of the file of SentencePiece beside the shards.
      vocab_size: number of ids.
      max_length: of a row, in tokens.
      splits: by name.
    """

    languages: tuple[str, ...]
    vocabulary: str
    vocab_size: int
    max_length: int
    splits: dict[str, TextSplit]
