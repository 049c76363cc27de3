"""DLRM from a click log to an export: run_cpu.py, serving, synthetic data."""

import json

import numpy as np
import pytest
import tensorflow as tf

import run_cpu
import run_tpu
from common.errors import UsageError
from tests import clicks_data
from tests.conftest import _runner
from tests.marks import slow

FLAGS = [
    "--train_batch_size=13",
    "--eval_batch_size=5",
    "--predict_batch_size=5",
    "--eval_split=test",
    "--seed=1",
]
DLRM = [
    "--model=dlrm",
    "--params=embedding_size=4,bottom_units=[8],top_units=[8],schedule=constant",
    "--params=optimizer=adagrad,learning_rate=0.01",
]


@pytest.mark.slow(cost=0.1)
def test_a_click_log_is_trained_evaluated_and_served(tmp_path, serve_in_this_process, eager):
    data = clicks_data.prepare(
        tmp_path / "raw", clicks_data.lines(140), tmp_path / "data", min_frequency=3, hash_rows=7
    )
    run = _runner(run_cpu, *FLAGS, *DLRM, "--dataset=criteo", f"--data_dir={data.data_dir}")
    run(tmp_path / "model", "--mode=train_and_eval", "--train_steps=10")
    found = json.loads((tmp_path / "model" / "result_10.json").read_text())["eval"]
    assert found["examples"] == 10
    assert {"auc", "log_loss", "calibration", "calibration_error"} <= found.keys()
    with serve_in_this_process():
        run(tmp_path / "model", "--mode=export", f"--export_dir={tmp_path / 'export'}")
    (version,) = (tmp_path / "export").iterdir()
    signatures = tf.saved_model.load(str(version)).signatures
    assert "classify" not in signatures  # it needs a probability of each class
    raw = [line.split("\t") for line in clicks_data.lines(140)[-10:]]
    by_value = signatures["click_probability"](
        raw_numbers=tf.constant([[float(v or "nan") for v in row[1:14]] for row in raw]),
        values=tf.constant([row[14:] for row in raw]),
    )["probability"].numpy()
    from input_fns.tables.clicks_pipeline import ClicksPipeline

    features = ClicksPipeline(data)._first_features("test", 10)
    by_row = signatures["serving_default"](**{k: tf.constant(v) for k, v in features.items()})
    np.testing.assert_allclose(by_value, by_row["probabilities"].numpy(), rtol=1e-5)


def test_top_k_of_one_probability_is_an_error_before_the_training(tmp_path):
    run = _runner(run_cpu, *FLAGS, *DLRM, "--dataset=synthetic", "--synthetic_task=clicks")
    with pytest.raises(UsageError, match="--export_top_k=2 needs a model that predicts 'prob"):
        run(
            tmp_path / "model",
            "--mode=train_and_eval",
            "--synthetic_tables=5,30,2",
            "--train_steps=2",
            f"--export_dir={tmp_path / 'export'}",
            "--export_top_k=2",
        )
    assert not list(tmp_path.glob("*/*"))


@pytest.mark.parametrize(
    "flags",
    [
        [*DLRM, "--synthetic_task=clicks", "--synthetic_tables=5,30,2"],
        slow(["--model=neumf", "--synthetic_task=ratings", "--synthetic_tables=17,30"]),
    ],
    ids=["clicks", "ratings"],
)
def test_synthetic_tables_are_trained(tmp_path, flags):
    run = _runner(run_cpu, *FLAGS, *flags, "--dataset=synthetic")
    run(tmp_path, "--mode=train", "--train_steps=2")


# 5 of 26 tables have up to 40 million rows, as in Criteo's click logs of 24 days.
LARGE = [39_884_406, 38_532_951, 39_979_771, 25_641_295, 39_664_984, *range(20_000, 41_000, 1000)]


@pytest.mark.slow
@pytest.mark.parametrize(("tpu_slice", "status"), [("v3-8", 1), ("v3-32", 0)])
def test_tables_of_40_million_rows_need_the_slice_that_the_check_names(
    tmp_path, capsys, tpu_slice, status
):
    rows = ",".join(map(str, LARGE))
    with pytest.raises(SystemExit) as ended:
        _runner(run_tpu, *FLAGS, *DLRM)(
            tmp_path,
            "--mode=check",
            f"--tpu_topology={tpu_slice}",
            "--check_compiler=off",
            "--dataset=synthetic",
            "--synthetic_task=clicks",
            f"--synthetic_tables={rows}",
            "--params=embedding_size=128,tpu_embedding_rows=20000,lazy_embeddings=true",
            "--train_steps=4",
            *(f"--{mode}_batch_size=256" for mode in ("train", "eval", "predict")),
        )
    report = capsys.readouterr().out
    assert ended.value.code == status, report
    # 184,333,407 rows x 128 x 4 bytes x 2.
    refusal = "26 tables of 184,333,407 rows need 175.79 GiB with slots, 21.97 GiB on each of 8"
    assert (refusal in report) == bool(status)
    assert ("Use v3-32 or larger" in report) == bool(status)
