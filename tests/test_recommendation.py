"""NeuMF from a file of ratings to an export: run_cpu.py, run_tpu.py, serving."""

import json

import numpy as np
import pytest
import tensorflow as tf

import run_cpu
import run_tpu
from common.errors import UsageError
from engine.evaluation import host_metrics
from input_fns import DataError
from input_fns.tables.ratings_pipeline import RatingsPipeline
from tests import ratings_data
from tests.conftest import EMULATED, _runner

FLAGS = [
    "--model=neumf",
    "--dataset=ratings",
    "--train_batch_size=13",
    "--eval_batch_size=5",
    "--predict_batch_size=5",
    "--params=gmf_size=4,mlp_size=4,hidden_units=[8,4],num_negatives=3,schedule=constant",
    "--params=lazy_embeddings=true,learning_rate=0.01,dropout=0.1,embedding_l2=0.01",
    "--eval_split=validation",
    "--seed=1",
]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recommendation")
    found = ratings_data.rows(num_users=40)
    return ratings_data.prepare(folder / "raw", found, folder / "data")


@pytest.fixture(scope="module")
def run(data):
    """Runs run_cpu.py on `data`: `run(model_dir, *arguments)`."""
    return _runner(run_cpu, *FLAGS, f"--data_dir={data.data_dir}")


@pytest.fixture(scope="module")
def trained(run, serve_in_this_process, tmp_path_factory):
    """A model_dir after 20 steps, with an evaluation and an export."""
    folder = tmp_path_factory.mktemp("neumf")
    run(
        folder,
        "--mode=train_and_eval",
        "--train_steps=20",
        "--best_metric=hr_at_10",
    )
    with serve_in_this_process():
        run(folder, "--mode=export", f"--export_dir={folder / 'export'}")
    return folder


@pytest.mark.slow(cost=0.1)
def test_an_evaluation_has_the_ranking_metrics(trained):
    found = json.loads((trained / "result_20.json").read_text())["eval"]
    for name in ("hr_at_10", "ndcg_at_10", "mrr", "auc", "log_loss"):
        assert 0 <= found[name] < 3
    assert found["examples"] == 40


@pytest.mark.slow(cost=0.1)
def test_one_pass_evaluates_and_predicts(trained, run, monkeypatch):
    def evaluate():
        run(trained, "--mode=eval", "--eval_batch_size=7")  # the last batch has 5 of 40 rows
        return json.loads((trained / "result_20.json").read_text())["eval"]

    with monkeypatch.context() as patched:
        patched.delattr(host_metrics, "predict")
        one_pass = evaluate()
    monkeypatch.setattr(host_metrics, "update_hook", lambda *_: None)
    two_passes = evaluate()
    assert one_pass.keys() == two_passes.keys()
    assert one_pass["log_loss"] == pytest.approx(two_passes["log_loss"], rel=1e-4)


@pytest.mark.slow(cost=0.1)
def test_predictions_without_examples_are_an_error(trained, run, monkeypatch):
    monkeypatch.setattr(RatingsPipeline, "host_examples", lambda *_: iter(()))
    with pytest.raises(DataError, match="does not match the examples of split 'validation'"):
        run(trained, "--mode=eval")


@pytest.mark.slow(cost=0.1)
def test_top_k_items_are_exported(trained, run, serve_in_this_process, eager, tmp_path):
    with serve_in_this_process():
        run(trained, "--mode=export", f"--export_dir={tmp_path}", "--export_top_k=3")
    (version,) = tmp_path.iterdir()
    top_k = tf.saved_model.load(str(version)).signatures["top_k"]
    assert top_k(for_user_id=tf.constant(["u3"]))["item_id"].shape == (1, 3)


@pytest.mark.slow(cost=0.1)
def test_top_k_above_the_number_of_items_is_an_error(trained, run, data, tmp_path):
    count = data.kind.num_items
    with pytest.raises(UsageError, match=f"--export_top_k={count + 1}, but ratings has {count} it"):
        run(trained, "--mode=export", f"--export_dir={tmp_path}", f"--export_top_k={count + 1}")


@pytest.mark.slow(cost=0.1)
def test_the_export_scores_ids_and_ranks_all_items(trained, data, eager):
    (version,) = (trained / "export").iterdir()
    signatures = tf.saved_model.load(str(version)).signatures
    users, items = ratings_data.indices(data)
    by_index = {index: item for item, index in items.items()}
    top = signatures["top_k"](for_user_id=tf.constant(["u3", "nobody"]))
    top_items, top_scores = top["item_id"].numpy(), top["score"].numpy()
    assert top_items.shape == (2, 10)
    assert (np.diff(top_scores[0]) <= 0).all()
    # An unknown user gets the most popular items.
    assert [item.decode() for item in top_items[1]] == [by_index[i] for i in range(10)]
    assert not top_scores[1].any()
    scores = signatures["scores"](
        user_id=tf.constant(["u3", "nobody", "u3"]),
        item_id=tf.constant([top_items[0, 0], top_items[0, 0], b"nothing"]),
    )["score"].numpy()
    np.testing.assert_allclose(scores, [top_scores[0, 0], 0, 0], rtol=1e-6)
    raw = signatures["serving_default"](
        user=tf.constant([users["u3"]]),
        items=tf.fill([1, 100], items[top_items[0, 0].decode()]),
    )
    np.testing.assert_allclose(raw["probabilities"].numpy(), top_scores[0, 0], rtol=1e-6)


@pytest.mark.slow
def test_resuming_draws_the_same_negatives(trained, run, variables, tmp_path):
    for steps in (7, 20):
        run(tmp_path, "--mode=train", f"--train_steps={steps}")
    whole, resumed = variables(trained), variables(tmp_path)
    assert whole.keys() == resumed.keys()
    for name, value in whole.items():
        np.testing.assert_array_equal(value, resumed[name], err_msg=name)


BATCHES = [f"--{mode}_batch_size=16" for mode in ("train", "eval", "predict")]


@pytest.mark.slow
@pytest.mark.parametrize("rows", [0, 1])
def test_the_emulator_trains_and_evaluates(data, tmp_path, rows):
    run = _runner(run_tpu, *FLAGS, *EMULATED, *BATCHES, f"--data_dir={data.data_dir}")
    params = f"--params=tpu_embedding_rows={rows}"
    run(tmp_path, "--mode=train_and_eval", "--train_steps=4", params)
    found = json.loads((tmp_path / "result_4.json").read_text())["eval"]
    assert found["examples"] == 40


@pytest.mark.slow
def test_the_check_counts_the_ids_of_tpu_embeddings(data, tmp_path, capsys):
    run = _runner(run_tpu, *FLAGS, *BATCHES, f"--data_dir={data.data_dir}")
    flags = ["--mode=check", "--tpu_topology=v3-8", "--check_compiler=off", "--train_steps=4"]
    with pytest.raises(SystemExit) as status:
        run(tmp_path, *flags, "--params=tpu_embedding_rows=1", "--check_run_steps=3")
    report = capsys.readouterr().out
    assert status.value.code == 0, report
    assert "gmf/items" in report
    assert "after 3 steps the largest relative difference is" in report


@pytest.mark.slow
def test_neumf_learns_which_half_of_the_items_a_user_likes(tmp_path):
    found = ratings_data.rows(num_users=300)
    data = ratings_data.prepare(tmp_path / "raw", found, tmp_path / "data")
    run = _runner(run_cpu, *FLAGS, f"--data_dir={data.data_dir}")
    run(tmp_path / "model", "--train_epochs=40", "--train_batch_size=130", "--eval_batch_size=100")
    # An exact answer wins against half of the negatives, and ties with the others: 0.75.
    (name,) = (tmp_path / "model").glob("result_*.json")
    assert json.loads(name.read_text())["eval"]["auc"] > 0.7


@pytest.mark.slow(cost=0.1)
def test_a_data_set_of_ratings_takes_no_images(run, tmp_path):
    with pytest.raises(UsageError, match="--augment needs images, but ratings has ratings"):
        run(tmp_path, "--mode=train", "--train_steps=1", "--augment=flip")
