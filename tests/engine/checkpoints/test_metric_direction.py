"""Directions of metrics: from the words of their names, and given."""

import pytest

from common.errors import UsageError
from engine.checkpoints import metric_direction
from models.detection import coco_metric
from models.recommendation import click_metrics
from models.speech import error_rates
from models.text import bleu, correlation, entity_f1

LARGER = """
    accuracy token_accuracy top_5 top5 top_k_accuracy f1 F1Score glossary_f1 macro-F1 HasAns_f1
    best_exact auc AUC_PR mAP mAP50 mAP@0.5:0.95 APs AR100 AR_small mean_iou mIoU iou_car dice
    hr_at_10 recall@5 P@1 hit_rate mrr bleu BLEU-4 rougeL rouge1 psnr R2 r_squared log_likelihood
    true_positives error_recall val/accuracy episode_reward matthews_correlation exact_match
"""
SMALLER = """
    average_loss val_loss dice_loss focal_loss f1_error top_5_error word_error_rate wer CER ter
    perplexity mae MSE rmse mean_absolute_error fid eer brier brier_score latency latency_ms
    cross_entropy neg_log_likelihood bits_per_byte false_positive_rate false_negatives
    kl_divergence calibration_error log_loss edit_distance
"""
UNKNOWN = """
    novelty examples calibration entropy score seconds blossom glossary lossless mapping
    error_reduction accuracy_gap accuracy_std best_f1_thresh neg_mean_squared_error 1-accuracy
"""


@pytest.mark.parametrize(
    ("names", "direction"), [(LARGER, "max"), (SMALLER, "min"), (UNKNOWN, "")], ids=str.strip
)
def test_the_words_of_a_name_decide(names, direction):
    found = {name: metric_direction.find(name) for name in names.split()}
    assert found == dict.fromkeys(found, direction)


def test_the_metrics_of_the_models_are_known():
    classes = (bleu.Bleu, correlation.Correlation, entity_f1.EntityF1, error_rates.ErrorRates)
    names = {name for metric in classes for name in metric.names} | {*coco_metric.NAMES}
    names |= {*click_metrics.ClickMetrics.names} - {"calibration"}  # best at 1
    assert [name for name in sorted(names) if not metric_direction.find(name)] == []


@pytest.mark.parametrize(
    ("value", "expected"),
    [("fid", ("fid", "min")), ("a:b:max", ("a:b", "max")), ("accuracy:min", ("accuracy", "min"))],
)
def test_a_given_direction_has_priority(value, expected):
    assert metric_direction.parse(value) == expected


@pytest.mark.parametrize("value", ["novelty", "novelty:larger", ":max", "novelty:"])
def test_an_unknown_direction_is_an_error(value):
    with pytest.raises(UsageError, match=f"--best_metric={value} does not tell whether"):
        metric_direction.parse(value)
