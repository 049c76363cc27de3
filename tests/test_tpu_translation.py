"""A Transformer on emulated cores matches run_cpu.py in training, evaluation and decoding.

Like tests/contract/test_masked_lm.py in training, and test_run_tpu.py in evaluation: slow.
"""

import numpy as np
import pytest
import tensorflow as tf

from engine.train import loss_reduction
from input_fns import dataset_info
from input_fns.text.text_pipeline import TextPipeline
from tests import numerics

BATCH, STEPS = 16, 5
# Each step sums the gradients of the tokens of a global batch; variables of magnitude 1.
ARITHMETIC = {"terms": BATCH * 32, "depth": STEPS, "magnitude": 1.0}
TRAIN = [
    "--mode=train",
    "--train_split=validation",  # not packed: rows of 4 to 30 tokens
    f"--train_batch_size={BATCH}",
    f"--train_steps={STEPS}",
    f"--save_checkpoints_steps={STEPS}",
    "--params=epsilon=0.01,warmup_steps=2",
]

pytestmark = pytest.mark.usefixtures("smooth_activations")


@pytest.fixture(scope="module")
def trained_on_cpu(run_text_in, variables, tmp_path_factory, smooth_activations):
    """A folder with the start and end of a training with run_cpu.py, and the final variables."""
    folder = tmp_path_factory.mktemp("cpu")
    run_text_in(folder / "start", *TRAIN, "--train_steps=1")
    run_text_in(folder / "end", *TRAIN, f"--warm_start_from={folder}/start")
    return folder, variables(folder / "end")


@pytest.fixture(scope="module")
def model_dir(run_text_in, tmp_path_factory):
    """A model_dir after a training with run_cpu.py."""
    folder = tmp_path_factory.mktemp("model")
    run_text_in(folder, *TRAIN)
    return folder


@pytest.fixture
def excess(run_tpu_text_in, trained_on_cpu, variables, tmp_path):
    """Trains with run_tpu.py on a topology; returns the difference in tolerances."""

    def measure(topology, *more):
        folder, expected = trained_on_cpu
        start = f"--warm_start_from={folder}/start"
        run_tpu_text_in(tmp_path / "tpu", *TRAIN, start, f"--tpu_topology={topology}", *more)
        got = variables(tmp_path / "tpu")
        assert got["global_step"] == expected["global_step"] == STEPS
        return numerics.excess(got, expected, **ARITHMETIC)

    return measure


def test_cores_have_unequal_numbers_of_tokens(pairs_dir, session):
    pipeline = TextPipeline(dataset_info.load(pairs_dir, "pairs"))
    batches = pipeline.train_input_fn("validation", seed=1)({"batch_size": 16})
    _, labels = session.run(tf.compat.v1.data.make_one_shot_iterator(batches).get_next())
    tokens = np.count_nonzero(labels.reshape(8, -1), axis=1)
    assert tokens.min() < 0.6 * tokens.max()


@pytest.mark.slow
@pytest.mark.parametrize("topology", ["1x2", "1x8"])
def test_all_variables_are_equal(excess, topology):
    assert excess(topology) < 1


@pytest.mark.slow
def test_records_without_a_cache_have_static_shapes(run_tpu_text_in, tmp_path, variables):
    run_tpu_text_in(tmp_path, *TRAIN, "--train_steps=1", "--cache=none")
    assert variables(tmp_path)["global_step"] == 1


@pytest.mark.slow
def test_gradient_accumulation_with_unequal_numbers_of_tokens(excess):
    assert excess("1x2", "--accumulate_steps=4") < 1


@pytest.mark.slow  # like that of tests/contract/test_masked_lm.py
def test_a_mean_over_the_tokens_of_each_core_differs(excess, monkeypatch):
    def per_core(terms, params):
        return {name: tf.reduce_sum(term.weights) for name, term in terms.items()}

    monkeypatch.setattr(loss_reduction, "denominators", per_core)
    assert excess("1x2") > 10


@pytest.mark.slow
def test_evaluations_match(run_text_in, run_tpu_text_in, model_dir, result, tmp_path):
    checkpoint = f"--checkpoint={model_dir}/model.ckpt-{STEPS}"
    for run, name in ((run_text_in, "cpu"), (run_tpu_text_in, "tpu")):
        run(tmp_path / name, checkpoint, "--mode=eval")
    key = f"eval_{model_dir.name}"
    on_cpu, on_tpu = (result(tmp_path / name, STEPS)[key] for name in ("cpu", "tpu"))
    for name in ("bleu", "average_loss", "perplexity", "token_accuracy", "examples"):
        # Sums over the tokens of the split, of the outputs of layers of 32 units.
        numerics.assert_close(on_tpu[name], on_cpu[name], terms=13 * 32, depth=8, name=name)


@pytest.mark.slow  # tests/tpu/emulator has the loops of a search, tests/contract other predictions
def test_translations_match(run_text_in, run_tpu_text_in, model_dir, pair_files, tmp_path):
    for run, name in ((run_text_in, "cpu"), (run_tpu_text_in, "tpu")):
        output = [f"--input={pair_files}/test.en", f"--predict_output={tmp_path}/{name}.txt"]
        run(model_dir, "--mode=predict", *output)
    assert (tmp_path / "tpu.txt").read_text() == (tmp_path / "cpu.txt").read_text()
