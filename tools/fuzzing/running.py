"""Targets: data sets, as a run reads them: dataset.json and shards."""

from __future__ import annotations

import contextlib
import json
import pathlib

import numpy as np

from tools.fuzzing import conversion, mutations, records, samples
from tools.fuzzing.case import REFUSED, Case, judge, require, require_unchanged, run_program

_MODULES = ["engine.cli.flags", "engine.cli.cpu_flags"]
_BATCH = 4


def arguments(base: pathlib.Path, **paths: pathlib.Path) -> list[str]:
    """Returns the flags of run_cpu.py for a tiny model, in the folders of `base` or `paths`."""
    data = paths.get("data", base / "data")
    model = paths.get("model", base / "model")
    return [
        "run_cpu.py",
        "--model=mlp",
        "--params=hidden_units=3,learning_rate=0.01,pixel_scale=0.01",
        "--dataset=stripes",
        f"--data_dir={data}",
        f"--model_dir={model}",
        *(f"--{mode}_batch_size={_BATCH}" for mode in ("train", "eval", "predict")),
        "--noexport_check",
        "--seed=1",
        "--cache=none",
    ]


def run_cpu(argv: list[str], main=None) -> str:
    """Runs run_cpu.py, or `main` after parsing its flags; returns `ACCEPTED` or `REFUSED`."""
    import run_cpu as wrapper

    return judge(run_program(argv, _MODULES, main or wrapper.main), "run_cpu.py")


def write_stripes(folder: pathlib.Path) -> None:
    """Writes the data set "stripes" with two shards per split."""
    from input_fns.convert import writer

    writer.write(samples.make_stripes(), str(folder), num_shards=2)


def train(base: pathlib.Path, *more: str) -> None:
    """Trains the tiny model for 6 steps with a checkpoint every 2."""
    given = ["--train_steps=6", "--save_checkpoints_steps=2", *more]
    run_cpu([*arguments(base), *((more and given) or [*given, "--mode=train"])])


@contextlib.contextmanager
def resolved():
    """Resolves the flags; a context manager that yields the settings and releases the lock."""
    from engine.cli import resolve_flags

    settings, state = resolve_flags.resolve()
    with state.lock:
        yield settings


def read_batches(settings) -> None:
    """Reads all evaluation batches and two training batches, and checks images and labels."""
    import tensorflow as tf

    from engine.cli import run_errors

    def batches(input_fn, count):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            data = input_fn({"batch_size": _BATCH})
            element = tf.compat.v1.data.make_one_shot_iterator(data).get_next()
            try:
                for _ in range(count):
                    yield session.run(element)
            except tf.errors.OutOfRangeError:
                return

    data = settings.pipeline
    shape = (_BATCH, *data.features["image"].shape)
    given = [(data.eval_input_fn(settings.evaluation.split), 10**6)]
    if settings.is_training:
        given.append((data.train_input_fn(settings.train.split, 1, 0), 2))
    with run_errors.data_errors(settings):
        for input_fn, count in given:
            for features, labels in batches(input_fn, count):
                detail = f"{labels} of {data.data.num_classes}"
                is_valid = (labels >= 0) & (labels < data.data.num_classes)
                require(bool(is_valid.all()), "labels out of range", detail)
                found = features["image"]
                require(found.shape == shape, "images of a wrong shape", str(found.shape))
                is_finite = np.isfinite(found.astype(np.float64)).all()
                require(bool(is_finite), "pixels that are not finite")


def _resolve_and_read():
    with resolved() as settings:
        read_batches(settings)


class _DatasetTarget:
    """A target that mutates a data set, then inspects or reads it."""

    files = "stripes"

    def prepare(self, base):
        """Writes the data set and a trained model."""
        write_stripes(base / "data")
        train(base)

    def mutate(self, case: Case, data_dir: pathlib.Path) -> None:
        """Mutates the data set."""
        raise NotImplementedError

    def run(self, case: Case) -> str:
        """Mutates the data set, then inspects it, reads it, or runs a whole mode on it."""
        data_dir = case.copy_base("data")
        self.mutate(case, data_dir)
        kind = case.random.random()
        flags = [f"--mode={case.random.choice(('eval', 'train_and_eval'))}", "--train_steps=8"]
        if case.random.random() < 0.3:
            flags.append("--skip_bad_records=5")
        program = "inspect" if kind < 0.5 else "run" if kind > 0.97 else "read"
        plan = case.complete({"program": program, "flags": flags})
        excluded = ("a/b/work/sheet", "a/b/work/model")
        with require_unchanged(case.root, "reading a data set changes files", *excluded):
            if plan["program"] == "inspect":
                return _inspect(case, data_dir)
            argv = arguments(case.base, data=data_dir, model=case.copy_base("model"))
            main = None if plan["program"] == "run" else _resolve_and_read
            return run_cpu([*argv, *plan["flags"]], main)


def _inspect(case, data_dir):
    sheet = case.work / "sheet" / "sheet.png"
    argv = ["--mode=inspect", f"--data_dir={data_dir}", f"--contact_sheet={sheet}"]
    done = conversion.prepare(*argv)
    if done.returncode == 1 and not done.stderr and "\nproblem: " in done.stdout:
        plain = all(c.isprintable() or c == "\n" for c in done.stdout)
        require(plain, "control characters in the output of inspect", done.stdout[-300:])
        return REFUSED
    return judge(done, "prepare_data.py")


class DatasetJson(_DatasetTarget):
    """dataset.json."""

    name = "dataset_json"
    _strings = (
        *("train", "test", "image", "label"),
        *("raw", "unpadded", "jpeg", "uint8", "float64", "object"),
    )

    def mutate(self, case, data_dir):
        """Mutates its values, or its bytes."""

        def mutate(data):
            if case.random.random() < 0.85:
                return mutations.mutate_json(case.random, data, self._strings)
            return mutations.mutate_bytes(
                case.random, data, [b'"splits"', b"null", b"[[[[", b"\xff"]
            )

        mutations.mutate_file(case.random, data_dir / "dataset.json", mutate)


class Shards(_DatasetTarget):
    """TFRecord shards: their bytes, or their examples with valid checksums."""

    name = "shard"

    def mutate(self, case, data_dir):
        """Mutates a shard, and often updates its size in dataset.json."""
        rng = case.random
        path = rng.choice(sorted(data_dir.glob("*.tfrecord")))
        by_record = rng.random() < 0.7

        def mutate(data):
            if by_record:
                return records.mutate_shard(rng, data)
            return mutations.mutate_bytes(rng, data, records.TOKENS)

        change = mutations.mutate_file(rng, path, mutate)
        if change in ("content", "empty") and rng.random() < 0.85:
            json_path = data_dir / "dataset.json"
            fields = json.loads(json_path.read_text())
            for split in fields["splits"].values():
                for shard in split["shards"]:
                    if shard["name"] == path.name:
                        shard["num_bytes"] = path.stat().st_size
            json_path.write_text(json.dumps(fields))


TARGETS = (DatasetJson(), Shards())
