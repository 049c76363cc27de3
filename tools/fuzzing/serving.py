"""Target: requests of a SavedModel: pixels, picture files, records."""

from __future__ import annotations

import functools

import numpy as np

from tools.fuzzing import mutations, picture_input, pictures, records, running
from tools.fuzzing.case import ACCEPTED, REFUSED, Case, require

_MAX_LOGIT_DIFFERENCE = 1e-5


class Requests(picture_input.PictureInput):
    """A loaded SavedModel, of a model on stored pictures and of one on pixels."""

    name = "serving"

    def prepare(self, base):
        """Trains and exports both models."""
        super().prepare(base)
        for name in ("files", "pixels"):
            given = running.arguments(base, data=base / name, model=base / f"model_{name}")
            given += ["--image_size=8x9", "--mode=export", f"--export_dir={base}/export_{name}"]
            given += ["--eval_split=validation"]
            outcome = running.run_cpu(given)
            require(outcome == ACCEPTED, "no export")

    def run(self, case: Case) -> str:
        """Asks one signature for one to three answers, one of them mutated."""
        import tensorflow as tf

        rng = case.random
        name = rng.choice(("files", "pixels"))
        (export,) = (case.base / f"export_{name}").iterdir()
        session, signatures = _load(str(export))
        key = rng.choice(sorted(signatures))
        ((_, given),) = signatures[key].inputs.items()
        outputs = {k: v.name for k, v in signatures[key].outputs.items()}
        good, mutated = self._examples(case, case.base / name, key)
        place = rng.randint(0, 2)
        if key == "serving_default":
            fed = mutated
        else:
            fed = np.array([good] * place + [mutated] + [good] * rng.randint(0, 1), object)
        try:
            answer = session.run(outputs, {given.name: fed})
        except (tf.errors.InvalidArgumentError, tf.errors.OutOfRangeError, ValueError) as error:
            require(bool(str(error)), "an error without a message")
            return REFUSED
        scores = answer["probabilities" if "probabilities" in answer else "scores"]
        require(len(scores) == len(fed), "not an answer for each example", str(scores.shape))
        require(bool(np.isfinite(scores).all()), "an answer that is not finite")
        sums = scores.sum(axis=1)
        require(np.allclose(sums, 1, atol=1e-4), "probabilities do not sum to 1", str(sums))
        if place and key != "serving_default":
            alone = session.run(outputs, {given.name: np.array([good], object)})
            right = alone["probabilities" if "probabilities" in alone else "scores"][0]
            close = np.allclose(scores[0], right, atol=_MAX_LOGIT_DIFFERENCE)
            require(close, "a mutated example changes another's answer")
        return ACCEPTED

    def _examples(self, case, data_dir, key):
        """Returns a good example and a mutated one, or pixels of an odd shape."""
        rng = case.random
        if key == "serving_default":
            shape = rng.choice(((1, 8, 9, 3), (0, 8, 9, 3), (2, 9, 8, 3), (1, 8, 9, 1), (3,), ()))
            if rng.random() < 0.5:
                sizes = (0, 1, 2, 8, 9, 300)
                shape = tuple(rng.choice(sizes) for _ in range(rng.randint(0, 5)))
            return None, np.full(shape, rng.choice((0, 255)), np.uint8)
        if key == "image_bytes":
            paths = sorted((case.base / "source" / "images").rglob("*.*"))
            good = paths[0].read_bytes()
            data, other = (rng.choice(paths).read_bytes() for _ in range(2))
            data = mutations.of_bytes(rng, data, pictures.PICTURE_TOKENS, other)
            return good, mutations.png_checksums(data) if rng.random() < 0.5 else data
        shard = rng.choice(sorted(data_dir.glob("train-*.tfrecord")))
        examples = records.split(shard.read_bytes())
        return examples[0], records.example(rng, rng.choice(examples))


@functools.lru_cache(maxsize=2)
def _load(path: str):
    import tensorflow as tf

    with tf.Graph().as_default():
        session = tf.compat.v1.Session()
        meta_graph = tf.compat.v1.saved_model.load(session, ["serve"], path)
    return session, dict(meta_graph.signature_def)


TARGETS = (Requests(),)
