"""Target: requests to a SavedModel: pixels, image files, tf.train.Examples."""

from __future__ import annotations

import functools
import math

import numpy as np

from tools.fuzzing import image_conversion, image_input, mutations, records, running
from tools.fuzzing.case import ACCEPTED, REFUSED, Case, require

_MAX_LOGIT_DIFFERENCE = 1e-5
_MAX_PIXELS = 2**25  # of a request; its copies count as memory of the program


class Requests(image_input.ImageInput):
    """Requests to the SavedModels of a model on image files and of one on pixels."""

    name = "serving"

    def prepare(self, base):
        """Trains and exports both models."""
        super().prepare(base)
        for name in ("files", "pixels"):
            argv = running.arguments(base, data=base / name, model=base / f"model_{name}")
            argv += ["--image_size=8x9", "--mode=export", f"--export_dir={base}/export_{name}"]
            outcome = running.run_cpu([*argv, "--eval_split=validation"])
            require(outcome == ACCEPTED, "no export")

    def run(self, case: Case) -> str:
        """Sends a batch of one to three examples, one of them mutated, to a signature."""
        import tensorflow as tf

        rng = case.random
        name = rng.choice(("files", "pixels"))
        (export,) = (case.base / f"export_{name}").iterdir()
        session, signatures = _load(str(export))
        key = rng.choice(sorted(signatures))
        ((_, given),) = signatures[key].inputs.items()
        outputs = {k: v.name for k, v in signatures[key].outputs.items()}
        valid, mutated = self._examples(case, case.base / name, key)
        num_before = rng.randint(0, 2)
        if key == "serving_default":
            fed = mutated
        else:
            fed = np.array([valid] * num_before + [mutated] + [valid] * rng.randint(0, 1), object)
        try:
            answer = session.run(outputs, {given.name: fed})
        except (tf.errors.InvalidArgumentError, tf.errors.OutOfRangeError, ValueError) as error:
            require(bool(str(error)), "an error without a message")
            return REFUSED
        scores = answer["probabilities" if "probabilities" in answer else "scores"]
        require(len(scores) == len(fed), "not one prediction per example", str(scores.shape))
        require(bool(np.isfinite(scores).all()), "a prediction that is not finite")
        sums = scores.sum(axis=1)
        require(np.allclose(sums, 1, atol=1e-4), "probabilities do not sum to 1", str(sums))
        if num_before and key != "serving_default":
            alone = session.run(outputs, {given.name: np.array([valid], object)})
            expected = alone["probabilities" if "probabilities" in alone else "scores"][0]
            is_close = np.allclose(scores[0], expected, atol=_MAX_LOGIT_DIFFERENCE)
            require(is_close, "a mutated example changes the prediction of another")
        return ACCEPTED

    def _examples(self, case, data_dir, key):
        """Returns (valid example, mutated example), or (None, pixels of an odd shape)."""
        rng = case.random
        if key == "serving_default":
            shape = rng.choice(((1, 8, 9, 3), (0, 8, 9, 3), (2, 9, 8, 3), (1, 8, 9, 1), (3,), ()))
            if rng.random() < 0.5:
                sizes = (0, 1, 2, 8, 9, 300)
                shape = tuple(rng.choice(sizes) for _ in range(rng.randint(0, 5)))
                shape = shape if math.prod(shape) <= _MAX_PIXELS else shape[:3]
            return None, np.full(shape, rng.choice((0, 255)), np.uint8)
        if key == "image_bytes":
            paths = sorted((case.base / "source" / "images").rglob("*.*"))
            valid = paths[0].read_bytes()
            data, other = (rng.choice(paths).read_bytes() for _ in range(2))
            data = mutations.mutate_bytes(rng, data, image_conversion.IMAGE_TOKENS, other)
            return valid, mutations.fix_png_checksums(data) if rng.random() < 0.5 else data
        shard = rng.choice(sorted(data_dir.glob("train-*.tfrecord")))
        examples = records.split(shard.read_bytes())
        return examples[0], records.mutate_example(rng, rng.choice(examples))


@functools.lru_cache(maxsize=2)
def _load(path: str):
    import tensorflow as tf

    with tf.Graph().as_default():
        session = tf.compat.v1.Session()
        meta_graph = tf.compat.v1.saved_model.load(session, ["serve"], path)
    return session, dict(meta_graph.signature_def)


TARGETS = (Requests(),)
