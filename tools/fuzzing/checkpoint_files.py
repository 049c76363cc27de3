"""Targets: the files of model_dir: checkpoints, best.json, results."""

from __future__ import annotations

import json

import numpy as np

from tools.fuzzing import mutations, records
from tools.fuzzing.case import (
    REFUSED,
    Case,
    FaultError,
    changes,
    require,
    require_unchanged,
    snapshot,
)
from tools.fuzzing.running import arguments, resolved, run_cpu, train, write_stripes

_CHECKPOINT_TOKENS = (
    *(b'model_checkpoint_path: "../x"\n', b'model_checkpoint_path: "model.ckpt-2"\n'),
    b'all_model_checkpoint_paths: "/proc/self/mem"\n',
    *(b"all_model_checkpoint_timestamps: nan\n", b"last_preserved_timestamp: -1\n"),
    *(b"\x57\xfb\x80\x8b\x24\x75\x47\xdb", b"\xff\xff\xff\xff\x0f", b"global_step"),
    b"\x08\x01\x12",
)


class Checkpoints:
    """The state file, index and data of a checkpoint; valid checkpoints with odd variables."""

    name = "checkpoint"
    files = "stripes"

    def prepare(self, base):
        """Trains a model with checkpoints of steps 2, 4 and 6."""
        write_stripes(base / "data")
        train(base)

    def run(self, case: Case) -> str:
        """Mutates a file of a checkpoint; resumes from it, or runs a mode on it."""
        model_dir = case.copy_base("model")
        rng = case.random
        is_odd = rng.random() < 0.25
        if is_odd:
            records.write_odd_checkpoint(rng, model_dir / "model.ckpt-8")
        else:
            self._mutate(case, model_dir)
        kind = rng.random()
        if kind < 0.8:
            given = ["--mode=train", "--train_steps=9"]
        elif kind < 0.9:
            which = ("latest", "average:2", f"{model_dir}/model.ckpt-6")
            given = [
                f"--mode={rng.choice(('eval', 'predict'))}",
                f"--checkpoint={rng.choice(which)}",
            ]
        else:
            given = ["--mode=train", "--train_steps=7"]
        plan = case.complete({"finds": kind < 0.8, "is_odd": is_odd, "flags": given})
        before = snapshot(model_dir)
        argv = [*arguments(case.base, model=model_dir), *plan["flags"]]
        signature = "a mutated checkpoint changes other files"
        with require_unchanged(case.root, signature, "a/b/work/model"):
            if not plan["finds"]:
                return run_cpu(argv)
            outcome = run_cpu(argv, self._find(case, plan["is_odd"]))
            self._require_kept(before, snapshot(model_dir), outcome)
        return outcome

    def _mutate(self, case, model_dir):
        rng = case.random
        pattern = rng.choice(("checkpoint", "*.index", "*.data-*", "*.meta"))
        path = rng.choice(sorted(model_dir.glob(pattern)))
        other = rng.choice(sorted(model_dir.glob(pattern)))

        def mutate(data):
            return mutations.mutate_bytes(rng, data, _CHECKPOINT_TOKENS, other.read_bytes())

        mutations.mutate_file(rng, path, mutate, other.name)

    def _find(self, case, is_odd):
        def find():
            import tensorflow as tf

            with resolved() as settings:
                checkpoint, step = settings.checkpoint, settings.start_step
            if checkpoint is None:
                raise FaultError("all checkpoints are ignored silently")
            reader = tf.train.load_checkpoint(checkpoint)
            path = case.base / "model" / f"model.ckpt-{step}"
            for name in reader.get_variable_to_shape_map():
                value = reader.get_tensor(name)
                if is_odd or value.dtype.kind == "O":
                    continue
                expected = tf.train.load_variable(str(path), name)
                is_equal = np.array_equal(value, expected)
                require(is_equal, "a mutated checkpoint has other values", name)

        return find

    @staticmethod
    def _require_kept(before, after, outcome):
        contents = set(after.values())
        lost = [
            path
            for path, content in before.items()
            if content not in contents and path.startswith("model.ckpt")
        ]
        require(not lost, "a file of a checkpoint is lost", ", ".join(lost))
        if outcome == REFUSED:
            changed = [line for line in changes(before, after) if "model.ckpt" in line]
            require(not changed, "an error changes checkpoints", "; ".join(changed)[:300])


class Results:
    """best.json, result_<step>.json, trained_on.json, and best/checkpoint."""

    name = "results"

    def prepare(self, base):
        """Trains a model with a best checkpoint."""
        write_stripes(base / "data")
        train(base, "--mode=train_and_eval", "--best_metric=accuracy")

    def run(self, case: Case) -> str:
        """Mutates one file; then resumes training, or runs a mode that reads it."""
        model_dir = case.copy_base("model")
        rng = case.random
        path = rng.choice(
            (
                model_dir / "best" / "best.json",
                model_dir / "best" / "best.json",
                model_dir / "result_6.json",
                model_dir / "trained_on.json",
                model_dir / "best" / "checkpoint",
            )
        )

        def mutate(data):
            if path.suffix == ".json" and rng.random() < 0.8:
                strings = ("accuracy", "average_loss", "eval", "train")
                return mutations.mutate_json(rng, data, strings)
            return mutations.mutate_bytes(rng, data, _CHECKPOINT_TOKENS)

        mutations.mutate_file(rng, path, mutate)
        kind = rng.random()
        if kind < 0.85:
            given = ["--mode=train", "--train_steps=9"]
        elif kind < 0.92:
            given = ["--mode=train_and_eval", "--best_metric=accuracy", "--train_steps=8"]
            given.append("--save_checkpoints_steps=2")
        else:
            given = [f"--mode={rng.choice(('eval', 'predict'))}", "--checkpoint=best"]
        plan = case.complete({"reads": kind < 0.85, "flags": given})
        checkpoint_before = {
            name: content
            for name, content in snapshot(model_dir).items()
            if ".ckpt-6." in name and "best" not in name
        }
        argv = [*arguments(case.base, model=model_dir), *plan["flags"]]
        with require_unchanged(case.root, "a mutated result changes other files", "a/b/work/model"):
            outcome = run_cpu(argv, self._read(model_dir) if plan["reads"] else None)
        after = snapshot(model_dir)
        is_kept = all(after.get(name) == content for name, content in checkpoint_before.items())
        require(is_kept, "a mutated result changes a checkpoint")
        return outcome

    @staticmethod
    def _read(model_dir):
        def read():
            from engine.checkpoints import best, find
            from engine.hooks import results

            model = str(model_dir)
            with resolved() as settings:
                pass
            keeper = best.BestCheckpoint(model, "accuracy", "max")
            keeper.update(f"{model}/model.ckpt-6", 6, {"accuracy": 0.9})
            require(keeper.evals_without_gain >= 0, "a negative count of evaluations")
            require(keeper.last_step == 6, "best.json has a wrong last step")
            kept = find.find_checkpoint(model, "best")
            find.read_step(kept)
            results.read_evaluation(settings, settings.evaluation.split, kept)
            results.write(model, 6, "eval", {"accuracy": 0.5})
            text = (model_dir / "result_6.json").read_text()
            require(json.loads(text)["eval"] == {"accuracy": 0.5}, "a result is not written")

        return read


TARGETS = (Checkpoints(), Results())
