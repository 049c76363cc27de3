"""Mutations with valid checksums: records of a shard, variables of a checkpoint."""

from __future__ import annotations

import pathlib
import random
import struct

import numpy as np

from input_fns.core.framing import masked_crc32c

TOKENS = (b"\xff" * 8, b"\x0a", b"image", b"label", b"\x1a\x03")
_NUMBERS = (-1, 3, 4, 255, 2**31, 2**32 + 1, 2**63 - 1, -(2**63))


def frame(data: bytes, length: int | None = None) -> bytes:
    """Returns a record with valid checksums; `length` overrides the length in its header."""
    size = struct.pack("<Q", len(data) if length is None else length)
    return size + masked_crc32c(size) + data + masked_crc32c(data)


def split(shard: bytes) -> list[bytes]:
    """Returns the data of the records of a valid shard."""
    found, place = [], 0
    while place < len(shard):
        (size,) = struct.unpack("<Q", shard[place : place + 8])
        found.append(shard[place + 12 : place + 12 + size])
        place += size + 16
    return found


def mutate_shard(rng: random.Random, shard: bytes) -> bytes:
    """Returns a shard with one or two records changed, removed, repeated or of a wrong length."""
    frames = [frame(data) for data in split(shard)]
    for _ in range(rng.randint(1, 2)):
        place = rng.randrange(len(frames)) if frames else 0
        operation = rng.randrange(8)
        if operation == 0:
            del frames[place : place + 1]
        elif operation == 1:
            frames.insert(place, rng.choice([b"", frame(b""), *frames]))
        elif operation == 2:
            length = rng.choice((0, 1, 2**20, 2**31, 2**40, 2**63, 2**64 - 1))
            frames[place : place + 1] = [frame(b"x" * rng.choice((0, 100)), length)]
        else:
            data = split(shard)[place % len(split(shard))]
            frames[place : place + 1] = [frame(mutate_example(rng, data))]
    return b"".join(frames)


def mutate_example(rng: random.Random, data: bytes) -> bytes:
    """Returns a serialized tf.train.Example with mutated features or mutated bytes."""
    import tensorflow as tf

    from tools.fuzzing import mutations

    if rng.random() < 0.3:
        return mutations.mutate_bytes(rng, data, TOKENS)
    message = tf.train.Example.FromString(data)
    features = message.features.feature
    for _ in range(rng.randint(1, 2)):
        name = rng.choice(sorted(features) or ["image"])
        feature = features[name]
        operation = rng.randrange(7)
        if operation == 0:
            del features[name]
        elif operation == 1:
            feature.Clear()
        elif operation == 2:
            feature.int64_list.value[:] = rng.choices(_NUMBERS, k=rng.choice((0, 1, 1, 1, 2)))
        elif operation == 3:
            feature.float_list.value[:] = [float("nan"), 1e38][: rng.randint(0, 2)]
        elif operation == 4:
            values = list(feature.bytes_list.value) or [b""]
            size = max(0, len(values[0]) + rng.choice((-1, 1, -len(values[0]), 5000)))
            feature.bytes_list.value[:] = [values[0].ljust(size, b"\0")[:size]]
        elif operation == 5:
            feature.bytes_list.value.append(rng.randbytes(3))
        else:
            new = rng.choice(("name", "", "unknown", "weight", "label", "image/encoded"))
            features[new].bytes_list.value.append(rng.choice((b"../x", b"\xff\0", b"a\nb")))
    return message.SerializeToString()


def write_odd_checkpoint(rng: random.Random, path: pathlib.Path) -> None:
    """Writes a valid checkpoint with missing variables or variables of odd shapes and dtypes."""
    import tensorflow as tf

    from engine.checkpoints import writer

    last = path.with_name("model.ckpt-6")
    reader = tf.train.load_checkpoint(str(last))
    values = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
    values["global_step"] = np.int64(8)
    for _ in range(rng.randint(1, 2)):
        name = rng.choice([*sorted(values), "global_step"])
        values[name] = rng.choice(
            (
                np.array([1, 2], np.int64),
                np.int64(rng.choice(_NUMBERS)),
                np.array(b"text", object),
                np.float32("nan"),
                np.zeros([0], np.float32),
                np.complex64(1),
                np.array(True),
                np.float64(8),
                np.zeros([1, 1, 1, 1, 1, 1], np.int8),
                np.array(tf.zeros([2], tf.bfloat16).dtype.as_numpy_dtype(1)),
            )
        )
        if rng.random() < 0.3:
            values.pop(name)
    values = {name: np.asarray(value) for name, value in values.items()}
    writer.write(str(path), values)
