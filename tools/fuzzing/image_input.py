"""Target: images of --input."""

from __future__ import annotations

import json

import numpy as np

from tools.fuzzing import conversion, image_conversion, samples
from tools.fuzzing.case import ACCEPTED, Case, require, require_unchanged
from tools.fuzzing.running import arguments, resolved, run_cpu


class ImageInput:
    """Images of --input."""

    name = "input"

    def prepare(self, base):
        """Trains a model on stored image files, and one on stored pixels."""
        samples.write_images(base / "source")
        common = ["--dataset=image_folder", f"--source={base}/source/images", "--name=stripes"]
        common.append("--validation_fraction=0.3")
        for name, size in (("files", []), ("pixels", ["--image_size=8x9"])):
            conversion.prepare_base(*common, *size, f"--data_dir={base}/{name}")
            argv = arguments(base, data=base / name, model=base / f"model_{name}")
            run_cpu([*argv, "--image_size=8x9", "--mode=train", "--train_steps=2"])

    def run(self, case: Case) -> str:
        """Mutates one to three images; predicts them, or reads them as a prediction does."""
        folder = case.copy_base("source") / "images" / "cats"
        rng = case.random
        paths = sorted(folder.iterdir())
        contents = {path: path.read_bytes() for path in paths}
        mutated = set(rng.sample(paths, rng.randint(1, 3)))
        for path in sorted(mutated):
            image_conversion.mutate_image_file(rng, path, contents[rng.choice(paths)])
        name = rng.choice(("files", "pixels"))
        image_path = folder if rng.random() < 0.8 else rng.choice(paths)
        plan = {"model": name, "input": str(image_path), "predicts": rng.random() < 0.1}
        plan = case.complete({**plan, "mutated": sorted(path.name for path in mutated)})
        name, predicts = plan["model"], plan["predicts"]
        output = case.work / "out" / "p.jsonl"
        output.parent.mkdir()
        argv = arguments(case.base, data=case.base / name, model=case.copy_base(f"model_{name}"))
        argv += ["--mode=predict", f"--predict_output={output}", "--image_size=8x9"]
        argv.append(f"--input={plan['input']}")
        excluded = ("a/b/work/out", f"a/b/work/model_{name}")
        with require_unchanged(case.root, "a mutated image changes other files", *excluded):
            outcome = run_cpu(argv, None if predicts else _read_images)
        if outcome == ACCEPTED and predicts:
            lines = [json.loads(line) for line in output.read_text().splitlines()]
            found = {line["name"] for line in lines}
            if plan["input"] == str(folder):
                valid = {path.name for path in paths} - set(plan["mutated"])
                require(valid <= found, "a valid image has no prediction", str(valid - found))
            values = [line["probabilities"] for line in lines]
            require(bool(np.isfinite(values).all()), "a prediction that is not finite")
        return outcome


def _read_images():
    import tensorflow as tf

    from engine.cli import run_errors

    new_session = tf.compat.v1.Session
    with resolved() as settings, run_errors.data_errors(settings), new_session() as session:
        batches = settings.predict_input_fn()({"batch_size": 2})
        element = tf.compat.v1.data.make_one_shot_iterator(batches).get_next()
        while True:
            try:
                found = session.run(element)["image"]
                require(found.shape[1:] == (8, 9, 3), "an image of a wrong shape", str(found.shape))
            except tf.errors.OutOfRangeError:
                return


TARGETS = (ImageInput(),)
