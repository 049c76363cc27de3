"""Small WAV files, and data sets prepared from them."""

import json
import struct

import numpy as np

from input_fns import convert, dataset_info
from input_fns.convert import writer
from input_fns.convert.options import Options

RATE = 8000
SAMPLES = np.random.default_rng(0).uniform(-0.9, 0.9, [101, 2])


def wav(samples, rate=RATE, bits=16, is_float=False, extensible=False, extra=b""):
    """Returns a WAV file, written by hand.

    Args:
      samples: float `[n]` or `[n, channels]`, in [-1, 1].
      rate: Hz.
      bits: of a sample.
      is_float: floats instead of integers.
      extensible: writes WAVEFORMATEXTENSIBLE.
      extra: chunks before the samples.
    """
    samples = np.asarray(samples, np.float64)
    samples = samples[:, np.newaxis] if samples.ndim == 1 else samples
    channels = samples.shape[1]
    if is_float:
        data = samples.astype(f"<f{bits // 8}").tobytes()
    elif bits == 8:
        data = np.clip(np.round(samples * 128) + 128, 0, 255).astype(np.uint8).tobytes()
    else:
        scale = 2.0 ** (bits - 1)
        numbers = np.clip(np.round(samples * scale), -scale, scale - 1).astype("<i8")
        data = numbers.reshape(-1, 1).view(np.uint8).reshape(-1, 8)[:, : bits // 8].tobytes()
    tag = 3 if is_float else 1
    frame = channels * bits // 8
    head = struct.pack("<HIIHH", channels, rate, rate * frame, frame, bits)
    if extensible:
        guid = struct.pack("<H", tag) + bytes.fromhex("000000001000800000aa00389b71")
        head = struct.pack("<H", 0xFFFE) + head + struct.pack("<HHI", 22, bits, 0) + guid
    else:
        head = struct.pack("<H", tag) + head
    chunks = chunk(b"fmt ", head) + extra + chunk(b"data", data)
    return b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks


def changed(place, kind, value):
    """Returns the WAV file of `SAMPLES` with another number, of a `struct` format, at a place."""
    content = bytearray(wav(SAMPLES))
    struct.pack_into(kind, content, place, value)
    return bytes(content)


def chunk(kind, content):
    """Returns a chunk of a RIFF file, padded to an even size."""
    return kind + struct.pack("<I", len(content)) + content + b"\0" * (len(content) % 2)


def tone(hertz, seconds=0.2, rate=RATE, seed=0):
    """Returns a tone with some noise, float64 `[n]`."""
    time = np.arange(round(seconds * rate)) / rate
    noise = np.random.default_rng(seed).normal(size=len(time), scale=0.01)
    return 0.3 * np.sin(2 * np.pi * hertz * time) + noise


def write_folder(folder, count=20):
    """Writes recordings of two classes, low and high tones of different lengths."""
    for name, hertz in (("high", 2000), ("low", 300)):
        (folder / name).mkdir(parents=True)
        for i in range(count):
            samples = tone(hertz * (1 + i % 3 / 10), 0.1 + i % 5 / 30, seed=i)
            (folder / name / f"{i}.wav").write_bytes(wav(samples))
    return folder


def write_fsdd(folder, num_recordings=8):
    """Writes recordings with the names of the Free Spoken Digit Dataset, of two speakers."""
    folder.mkdir()
    for digit in range(10):
        for speaker in ("ann", "bob"):
            for number in range(num_recordings):
                samples = tone(300 + 100 * digit, 0.06, seed=number)
                (folder / f"{digit}_{speaker}_{number}.wav").write_bytes(wav(samples))
    return folder


def write_manifest(folder, sizes=None, seed=0):
    """Writes texts of "a" and "b", a low and a high tone each, as JSON lines."""
    random = np.random.default_rng(seed)
    for split, count in (sizes or {"train": 26, "test": 9}).items():
        (folder / split).mkdir(parents=True)
        lines = []
        for i in range(count):
            text = "".join(random.choice(["a", "b"], random.integers(1, 4)))
            parts = [[tone({"a": 300, "b": 2000}[c], 0.12), np.zeros(400)] for c in text]
            samples = np.concatenate([part for pair in parts for part in pair])
            (folder / split / f"{i}.wav").write_bytes(wav(samples))
            lines.append(json.dumps({"path": f"{split}/{i}.wav", "text": text}))
        (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def write_common_voice(folder, sizes):
    """Writes a release of Common Voice, with WAV files: `sizes` is `{name of a table: rows}`."""
    (folder / "clips").mkdir(parents=True)
    for table, count in sizes.items():
        lines = ["client_id\tpath\tsentence\tup_votes"]
        for i in range(count):
            name = f"common_voice_{table}_{i}.wav"
            (folder / "clips" / name).write_bytes(wav(tone(300 + 9 * i, 0.6, 16000), rate=16000))
            lines.append(f"{table}{i // 2}\t{name}\tSay {'ab'[i % 2]}!\t2")
        (folder / f"{table}.tsv").write_text("\n".join(lines) + "\n")
    return folder


def write_labelled_table(folder, table, columns, row, count=12):
    """Writes recordings in `audio/` and a table of them.

    Args:
      folder: folder to write.
      table: path of the table in it.
      columns: header line.
      row: row of the table, with the number of the recording as {i} and its class as {label}; its
        first value is the path of the recording in `audio/`.
      count: number of recordings, of two classes.
    """
    lines = [columns]
    for i in range(count):
        lines.append(row.format(i=i, label=("dog", "rain")[i % 2]))
        path = folder / "audio" / lines[-1].split(",")[0]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(wav(tone(300 + 90 * i)))
    (folder / table).parent.mkdir(parents=True, exist_ok=True)
    (folder / table).write_text("\n".join(lines) + "\n")


def prepare(dataset, source, data_dir, **options):
    """Prepares a data set at 8 kHz with rows of 0.6 s; returns its `DatasetInfo`."""
    options = {"sample_rate": RATE, "max_seconds": 0.6, **options}
    writer.write(convert.read(Options(dataset, source=str(source), **options)), str(data_dir))
    return dataset_info.load(str(data_dir), dataset)
