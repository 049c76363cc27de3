"""Targets: what a run reads: dataset.json, shards, checkpoints, records of results, pictures."""

from __future__ import annotations

import json
import pathlib

import numpy as np

from tools.fuzzing import conversion, mutations, records, samples
from tools.fuzzing.case import (
    REFUSED,
    Case,
    changes,
    judge,
    require,
    run_program,
    tree,
)

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
    """Runs run_cpu.py, or `main` after its flags are parsed, and judges its end."""
    import run_cpu as wrapper

    return judge(run_program(argv, _MODULES, main or wrapper.main), "run_cpu.py")


def write_stripes(folder: pathlib.Path) -> None:
    """Writes the data set "stripes" in two shards a split."""
    from input_fns.convert import writer

    writer.write(samples.stripes(), str(folder), num_shards=2)


def train(base: pathlib.Path, *more: str) -> None:
    """Trains the tiny model for six steps, with a checkpoint every two."""
    given = ["--train_steps=6", "--save_checkpoints_steps=2", *more]
    run_cpu([*arguments(base), *((more and given) or [*given, "--mode=train"])])


def read_batches(settings) -> None:
    """Reads what an Estimator would: all of evaluation, two batches of training; checks it."""
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
                inside = (labels >= 0) & (labels < data.data.num_classes)
                require(bool(inside.all()), "labels outside of the classes are fed", detail)
                found = features["image"]
                require(found.shape == shape, "images of a wrong shape are fed", str(found.shape))
                finite = np.isfinite(found.astype(np.float64)).all()
                require(bool(finite), "pixels that are not finite are fed")


def _from_flags_and_read():
    from engine.cli import resolve_flags

    read_batches(resolve_flags.resolve()[0])


class _OfData:
    """A target that mutates a data set; it is inspected, or read as a run reads it."""

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
        before = tree(case.root, "a/b/work/sheet", "a/b/work/model")
        what = case.random.random()
        if what < 0.5:
            outcome = _inspect(case, data_dir)
        else:
            given = arguments(case.base, data=data_dir, model=case.copy_base("model"))
            mode = case.random.choice(("eval", "train_and_eval"))
            given += [f"--mode={mode}", "--train_steps=8"]
            if case.random.random() < 0.3:
                given.append("--skip_bad_records=5")
            outcome = run_cpu(given, None if what > 0.97 else _from_flags_and_read)
        changed = changes(before, tree(case.root, "a/b/work/sheet", "a/b/work/model"))
        require(not changed, "reading a data set changes files", "; ".join(changed)[:300])
        return outcome


def _inspect(case, data_dir):
    sheet = case.work / "sheet" / "sheet.png"
    given = ["--mode=inspect", f"--data_dir={data_dir}", f"--contact_sheet={sheet}"]
    ended = conversion.prepare(*given)
    if ended.status == 1 and not ended.err and "\nproblem: " in ended.out:
        plain = all(c.isprintable() or c == "\n" for c in ended.out)
        require(plain, "control characters in what inspect prints", ended.out[-300:])
        return REFUSED
    return judge(ended, "prepare_data.py")


class DatasetJson(_OfData):
    """dataset.json."""

    name = "dataset_json"
    _strings = ("train", "test", "image", "label", "raw", "jpeg", "uint8", "float64", "object")

    def mutate(self, case, data_dir):
        """Mutates its values, or its bytes."""

        def mutate(data):
            if case.random.random() < 0.85:
                text = mutations.of_json(case.random, data.decode(), self._strings)
                return text.encode("utf-8", "surrogatepass")
            return mutations.of_bytes(case.random, data, [b'"splits"', b"null", b"[[[[", b"\xff"])

        mutations.of_file(case.random, data_dir / "dataset.json", mutate)


class Shards(_OfData):
    """TFRecord shards: their bytes, or their examples with right checksums."""

    name = "shard"

    def mutate(self, case, data_dir):
        """Mutates a shard, and often lets dataset.json agree."""
        rng = case.random
        path = rng.choice(sorted(data_dir.glob("*.tfrecord")))
        by_record = rng.random() < 0.7

        def mutate(data):
            if by_record:
                return records.mutate(rng, data)
            return mutations.of_bytes(rng, data, records.TOKENS)

        what = mutations.of_file(rng, path, mutate)
        if what in ("content", "empty") and rng.random() < 0.85:
            json_path = data_dir / "dataset.json"
            fields = json.loads(json_path.read_text())
            for split in fields["splits"].values():
                for shard in split["shards"]:
                    if shard["name"] == path.name:
                        shard["num_bytes"] = path.stat().st_size
            json_path.write_text(json.dumps(fields))


TARGETS = (DatasetJson(), Shards())
