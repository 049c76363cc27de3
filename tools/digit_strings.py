"""Joins recordings of digits of the Free Spoken Digit Dataset to strings, for speech_manifest.

    python -m tools.digit_strings --source=recordings --out=digit_strings

Writes OUT/train.jsonl and OUT/test.jsonl with their WAV files. A string has 3 to 7 digits of one
speaker with silence between them. Strings of "test" have recordings of the official test split
only, each equally often, and strings of "train" all others.
"""

from __future__ import annotations

import argparse
import json
import os

from engine.cli import startup

if __name__ == "__main__":
    startup.check(startup.check_environment)

import numpy as np

from input_fns.audio.audio_pipeline import to_wav
from input_fns.audio.sources import audio_files, fsdd
from input_fns.convert.options import Options

_RATE = 8000
_SHORTEST, _LONGEST = 3, 7  # digits
_GAP = (0.02, 0.25)  # seconds


def main(arguments: list[str] | None = None) -> None:
    """Parses the arguments and writes the strings."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", required=True, help="folder of DIGIT_SPEAKER_NUMBER.wav")
    parser.add_argument("--out", required=True, help="folder to write; must not exist")
    parser.add_argument("--train_passes", type=int, default=6, help="uses of each recording")
    parser.add_argument("--test_passes", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    flags = parser.parse_args(arguments)
    os.makedirs(flags.out)
    random = np.random.default_rng(flags.seed)
    rows = fsdd.list_recordings(Options("fsdd", source=flags.source))
    passes = {"train": flags.train_passes, "test": flags.test_passes}
    for split, count in passes.items():
        chosen = [row for row in rows if (row[3] < fsdd.NUM_TEST) == (split == "test")]
        _write_split(flags.source, flags.out, split, chosen, count, random)


def _write_split(source, out, split, rows, passes, random):
    os.makedirs(os.path.join(out, split))
    lines = []
    for string in _strings(rows, passes, random):
        name = f"{split}/{len(lines)}.wav"
        with open(os.path.join(out, name), "wb") as file:
            file.write(to_wav(_join(source, string, random), _RATE))
        text = "".join(digit for _, digit, _, _ in string)
        lines.append(json.dumps({"path": name, "text": text, "speaker": string[0][2]}))
    with open(os.path.join(out, f"{split}.jsonl"), "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    print(f"{split}: {len(lines)} strings of {len(rows)} recordings")


def _strings(rows, passes, random):
    """Yields lists of recordings of one speaker; each recording is used once a pass."""
    for _ in range(passes):
        for speaker in sorted({row[2] for row in rows}):
            own = [row for row in rows if row[2] == speaker]
            order, start = random.permutation(len(own)), 0
            while len(own) - start >= _SHORTEST:
                count = random.integers(_SHORTEST, _LONGEST + 1)
                yield [own[i] for i in order[start : start + count]]
                start += count


def _join(source, string, random):
    """Returns the samples of a string, float64 in [-1, 1)."""
    parts = []
    for name, *_ in string:
        samples = audio_files.read(os.path.join(source, name), _RATE, max_seconds=10)
        silence = np.zeros(int(random.uniform(*_GAP) * _RATE))
        parts += [samples / 2.0**15, silence]
    return np.concatenate(parts[:-1])


if __name__ == "__main__":
    main()
