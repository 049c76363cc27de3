"""Target: pictures that --input names."""

from __future__ import annotations

import json

import numpy as np

from tools.fuzzing import conversion, pictures, samples
from tools.fuzzing.case import ACCEPTED, Case, changes, require, tree
from tools.fuzzing.running import arguments, run_cpu


class PictureInput:
    """Pictures that --input names."""

    name = "input"

    def prepare(self, base):
        """Trains a model on stored pictures, and one on pixels."""
        samples.pictures(base / "source")
        common = ["--dataset=image_folder", f"--source={base}/source/images", "--name=stripes"]
        common.append("--validation_fraction=0.3")
        for name, size in (("files", []), ("pixels", ["--image_size=8x9"])):
            ended = conversion.prepare(*common, *size, f"--data_dir={base}/{name}")
            if ended.status:
                raise RuntimeError(ended.err)
            given = arguments(base, data=base / name, model=base / f"model_{name}")
            given += ["--image_size=8x9", "--mode=train", "--train_steps=2"]
            run_cpu(given)

    def run(self, case: Case) -> str:
        """Mutates one to three pictures; predicts all, or reads them as a prediction does."""
        folder = case.copy_base("source") / "images" / "cats"
        rng = case.random
        paths = sorted(folder.iterdir())
        contents = {path: path.read_bytes() for path in paths}
        touched = set(rng.sample(paths, rng.randint(1, 3)))
        for path in sorted(touched):
            pictures.mutate_picture(rng, path, contents[rng.choice(paths)])
        name = rng.choice(("files", "pixels"))
        output = case.work / "out" / "p.jsonl"
        output.parent.mkdir()
        given = arguments(case.base, data=case.base / name, model=case.copy_base(f"model_{name}"))
        given += ["--mode=predict", f"--predict_output={output}", "--image_size=8x9"]
        which = folder if rng.random() < 0.8 else rng.choice(paths)
        given.append(f"--input={which}")
        before = tree(case.root, "a/b/work/out", f"a/b/work/model_{name}")
        whole = rng.random() < 0.1
        outcome = run_cpu(given, None if whole else _read_pictures)
        changed = changes(before, tree(case.root, "a/b/work/out", f"a/b/work/model_{name}"))
        require(not changed, "a mutated picture changes other files", "; ".join(changed)[:300])
        if outcome == ACCEPTED and whole:
            lines = [json.loads(line) for line in output.read_text().splitlines()]
            found = {line["name"] for line in lines}
            if which == folder:
                good = {path.name for path in paths if path not in touched}
                require(good <= found, "a good picture has no prediction", str(good - found))
            values = [line["probabilities"] for line in lines]
            require(bool(np.isfinite(values).all()), "a prediction that is not finite")
        return outcome


def _read_pictures():
    import tensorflow as tf

    from engine.cli import resolve_flags, run_errors

    run, _ = resolve_flags.resolve()
    with run_errors.data_errors(run), tf.compat.v1.Session() as session:
        batches = run.predict_input_fn()({"batch_size": 2})
        element = tf.compat.v1.data.make_one_shot_iterator(batches).get_next()
        while True:
            try:
                found = session.run(element)["image"]
                require(
                    found.shape[1:] == (8, 9, 3), "a picture of a wrong shape", str(found.shape)
                )
            except tf.errors.OutOfRangeError:
                return


TARGETS = (PictureInput(),)
