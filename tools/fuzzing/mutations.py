"""Random mutations of bytes, JSON, text and files, from a seeded generator."""

from __future__ import annotations

import copy
import json
import os
import pathlib
import random
import struct
import zlib
from collections.abc import Callable, Sequence
from typing import Any

# Edge values of integer types.
_EDGES = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 2**63 - 1, 2**64 - 1)
_DEEP = "@deep@"
_DEPTH = 100_000
_MAX_OPERATIONS = 3
# Names that must not be used in paths.
NAMES = (
    *("", ".", "..", "../outside", "../../../outside/canary.txt", "/proc/self/environ", "a/b"),
    *("nul\0byte", "new\nline", "escape\x1b[31m", "x" * 300, "\ud800", "a b", "-rf", "*"),
    *("\u202egnp", "~", "$HOME"),
)
_VALUES = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63) - 1, 10**400, 1e308, float("nan")),
    *(float("inf"), -float("inf"), 0.5, "", "1", "uint8", "string", [], [0], [[]], {}),
    *({"a": 1}, _DEEP),
)


def mutate_bytes(
    rng: random.Random, data: bytes, tokens: Sequence[bytes] = (), other: bytes = b""
) -> bytes:
    """Returns `data` after one to three random operations.

    Args:
      rng: source of all random choices.
      data: the bytes of a valid file.
      tokens: byte strings with a meaning in the format.
      other: another valid file, for splices.
    """
    for _ in range(rng.randint(1, _MAX_OPERATIONS)):
        data = rng.choice(_OPERATIONS)(rng, data, tokens, other)
    return data


def _place(rng, data):
    # Half of the mutations are in the header.
    return rng.randint(0, min(len(data), 64) if rng.random() < 0.5 else len(data))


def _flip(rng, data, tokens, other):
    flipped = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 8))):
        if flipped:
            flipped[_place(rng, data) % len(data)] ^= 1 << rng.randrange(8)
    return bytes(flipped)


def _truncate(rng, data, tokens, other):
    return data[: _place(rng, data)]


def _insert(rng, data, tokens, other):
    place = _place(rng, data)
    return data[:place] + rng.randbytes(rng.choice((1, 2, 7, 300))) + data[place:]


def _delete(rng, data, tokens, other):
    place = _place(rng, data)
    return data[:place] + data[place + rng.choice((1, 2, 4, 100)) :]


def _repeat(rng, data, tokens, other):
    place = _place(rng, data)
    part = data[place : place + rng.choice((1, 4, 100, 5000))]
    return data[:place] + part * rng.choice((2, 2, 50)) + data[place + len(part) :]


def _overwrite(rng, data, tokens, other):
    size, order = rng.choice("BHIQ"), rng.choice("<>")
    number = rng.choice(_EDGES) % 256 ** struct.calcsize(size)
    return _replace(rng, data, struct.pack(order + size, number))


def _token(rng, data, tokens, other):
    if not tokens:
        return _overwrite(rng, data, tokens, other)
    token = rng.choice(tokens)
    place = _place(rng, data)
    if rng.random() < 0.5:
        return data[:place] + token + data[place:]
    return _replace(rng, data, token)


def _splice(rng, data, tokens, other):
    return data[: _place(rng, data)] + (other or data)[_place(rng, other or data) :]


def _replace(rng, data, part):
    place = _place(rng, data)
    return data[:place] + part + data[place + len(part) :]


_OPERATIONS = (_flip, _flip, _truncate, _insert, _delete, _repeat, _overwrite, _token, _splice)


def mutate_json(rng: random.Random, data: bytes, strings: Sequence[str] = ()) -> bytes:
    """Returns JSON with one to three values, keys or elements changed.

    Args:
      rng: source of all random choices.
      data: valid JSON.
      strings: values with a meaning in the format.
    """
    value = json.loads(data)
    for _ in range(rng.randint(1, _MAX_OPERATIONS)):
        value = _mutate_value(rng, value, strings)
    text = json.dumps(value, indent=1)
    brackets = rng.choice(("[]", ("{" + '"a":', "}")))
    text = text.replace(json.dumps(_DEEP), brackets[0] * _DEPTH + "1" + brackets[1] * _DEPTH)
    return text.encode("utf-8", "surrogatepass")


def _mutate_value(rng, root, strings):
    root = copy.deepcopy(root)
    holders = [holder for holder in _containers(root) if holder]
    if not holders:
        return rng.choice(_VALUES)
    holder = rng.choice(holders)
    key = rng.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
    operation = rng.randrange(6)
    if operation == 0:
        del holder[key]
    elif operation == 1 and isinstance(holder, dict):
        holder[rng.choice((*NAMES, *strings, "unknown"))] = holder.pop(key)
    elif operation == 1:
        holder.insert(key, holder[key])
    elif operation == 2:
        holder[key] = rng.choice((*NAMES, *strings))
    elif operation == 3 and isinstance(holder[key], (int, float)):
        holder[key] = rng.choice((holder[key] + 1, holder[key] - 1, -holder[key], 2**62))
    else:
        holder[key] = copy.deepcopy(rng.choice(_VALUES))
    return root


def _containers(value):
    if isinstance(value, (dict, list)):
        yield value
        for child in value.values() if isinstance(value, dict) else value:
            yield from _containers(child)


def mutate_text(rng: random.Random, text: str, tokens: Sequence[str]) -> bytes:
    """Returns a text, encoded, with lines and words removed, repeated, swapped or replaced."""
    for _ in range(rng.randint(1, _MAX_OPERATIONS)):
        lines = text.split("\n")
        row = rng.randrange(len(lines))
        operation = rng.randrange(6)
        if operation == 0:
            del lines[row]
        elif operation == 1:
            lines.insert(row, lines[row])
        elif operation == 2:
            other = rng.randrange(len(lines))
            lines[row], lines[other] = lines[other], lines[row]
        elif operation == 3:
            lines[row] = rng.choice((*tokens, *NAMES))
        else:
            place = rng.randint(0, len(lines[row]))
            token = rng.choice((*tokens, *NAMES))
            lines[row] = lines[row][:place] + token + lines[row][place + operation % 2 :]
        text = "\n".join(lines)
    return text.encode("utf-8", "surrogatepass")


def mutate_file(
    rng: random.Random, path: pathlib.Path, mutate: Callable[[bytes], bytes], other: Any = None
) -> str:
    """Mutates the content of a file, or replaces the file by another type of file.

    Args:
      rng: source of all random choices.
      path: the file.
      mutate: function from the content to mutated content.
      other: target of a link; default: the folder of the file.

    Returns:
      "content", or the type of the replacement.
    """
    if rng.random() < 0.95:
        path.write_bytes(mutate(path.read_bytes()))
        return "content"
    kind = rng.choice(("missing", "empty", "folder", "FIFO", "dead link", "loop", "link"))
    path.unlink()
    if kind == "empty":
        path.write_bytes(b"")
    elif kind == "folder":
        path.mkdir()
    elif kind == "FIFO":
        os.mkfifo(path)
    elif kind == "dead link":
        path.symlink_to("no/such/file")
    elif kind == "loop":
        path.symlink_to(path.name)
    elif kind == "link":
        path.symlink_to(other or path.parent)
    return kind


def fix_png_checksums(data: bytes) -> bytes:
    """Returns a PNG with valid checksums in all chunks that can be parsed."""
    if not data.startswith(b"\x89PNG"):
        return data
    place, parts = 8, [data[:8]]
    while place + 12 <= len(data):
        (size,) = struct.unpack(">I", data[place : place + 4])
        if place + 12 + size > len(data):
            break
        chunk = data[place + 4 : place + 8 + size]
        parts += [data[place : place + 4], chunk, struct.pack(">I", zlib.crc32(chunk))]
        place += 12 + size
    return b"".join(parts) + data[place:]
