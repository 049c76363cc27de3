"""Labels that inference reads in training only: the boxes of the second stage."""

import dataclasses

import pytest

from common.constants import DROPOUT_SEED, EXAMPLE_WEIGHT
from tests.contract.two_stage import data, model

CASE = "two_stage"


@pytest.mark.slow
def test_the_second_stage_classifies_the_proposals(predict):
    found = predict(CASE)
    _, labels = data.make_pipeline(None).splits["test"]
    is_right = (found["boxes"] == labels["boxes"]).all(axis=1)
    assert is_right.mean() > 0.5
    assert (found["classes"] == labels["classes"])[is_right].mean() > 0.9


@pytest.mark.slow
def test_only_training_reads_the_boxes(run_case, tmp_path, monkeypatch):
    found = set()

    def inference(features, params, training):
        found.add((training, *sorted(features)))
        return model.inference(features, params, training)

    monkeypatch.setattr(model, "MODEL", dataclasses.replace(model.MODEL, inference=inference))
    run_case(
        CASE, tmp_path, "--train_steps=1", f"--export_dir={tmp_path}/export", "--noexport_check"
    )
    run_case(CASE, tmp_path, "--mode=predict")
    assert found == {
        (True, "boxes", DROPOUT_SEED, "image"),
        (False, "image", EXAMPLE_WEIGHT),  # evaluation
        (False, "image"),  # prediction and export
    }
