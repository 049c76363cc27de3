"""Whether a metric is minimized or maximized, from the words of its name. Imports no TensorFlow.

`--best_metric=NAME:min` or `NAME:max` sets the direction of a metric whose name is not known here.
"""

from __future__ import annotations

import re

from common.errors import UsageError
from common.messages import similar

_SMALLER = """
    aee brier bpb bpc bpd cer chamfer cost crossentropy der deviance ece eer epe err error errors
    failure failures far fdr fde fid fnr fpr frr hd95 hausdorff hter kid kl kld latency levenshtein
    loss losses lpips mae mape mase medae mer miss misses mistakes mpjpe mse msle nll nme nrmse
    perplexities perplexity ppl regret rmse rmsle rse ser smape ter wape wer wmape xent
"""
_LARGER = """
    acc accuracies accuracy agreement ap ari auc aucpr aucroc auprc auroc bertscore bleu chrf cider
    comet correlation dcg dice elbo em exact f1 f2 fbeta fmeasure fscore gauc giou hit hits hr idf1
    iou jaccard kappa kendall likelihood map mar mcc matthews meteor miou mota mrr ndcg nmi npv
    pearson pesq ppv pq prauc precision psnr purity r2 recall return returns reward rewards rouge
    rougel sacrebleu sdr sensitivity silhouette sisdr snr spearman specificity spice ssim stoi
    success throughput tnr tpr win
"""
# Words in a row, "#" is a number or k. They come before single words.
_PHRASES = {
    "min": (
        "bits per", "cross entropy", "edit distance", "false acceptance", "false alarm",
        "false alarms", "false negative", "false negatives", "false positive", "false positives",
        "false rejection", "js divergence", "kl divergence", "neg log likelihood",
        "negative log likelihood",
    ),
    "max": (
        "ar #", "ar large", "ar medium", "ar small", "average recall", "discounted cumulative gain",
        "explained variance", "inception score", "p at", "r at", "r squared", "top #",
        "true negative", "true negatives", "true positive", "true positives",
    ),
}  # fmt: skip
# The name is that of another quantity, such as error_reduction or best_f1_thresh.
_OTHER_QUANTITY = """
    change coverage decrease delta deviation diff difference drop entropy gain gap improvement
    increase inverse inverted minus neg negated negative negatives reduction scale std stddev
    stdev thresh threshold thresholds variance weight weights
"""
_DIRECTIONS = {
    **dict.fromkeys(_SMALLER.split(), "min"),
    **dict.fromkeys(_LARGER.split(), "max"),
    **{phrase: direction for direction, found in _PHRASES.items() for phrase in found},
}
_LONGEST = max(len(phrase.split()) for phrase in _DIRECTIONS)
_COCO_WORD = re.compile(r"A([PR])([sml]|\d+)")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def parse(best_metric: str) -> tuple[str, str]:
    """Returns the name of the metric and its direction, "min" or "max".

    Args:
      best_metric: value of --best_metric, `NAME`, `NAME:min` or `NAME:max`.

    Raises:
      UsageError: the direction is neither given nor known.
    """
    name, direction = split(best_metric)
    direction = direction or find(name)
    if direction:
        return name, direction
    known = similar(name, _DIRECTIONS)
    hint = f" is unknown. Did you mean '{known}'? If not, write" if known else ""
    raise UsageError(
        f"--best_metric={best_metric}{hint or ' does not tell whether higher is better. Write'} "
        f"--best_metric={name}:max if higher is better, {name}:min if lower is"
    )


def split(best_metric: str) -> tuple[str, str]:
    """Returns the name of the metric and the given direction, "min", "max" or ""."""
    name, _, direction = best_metric.rpartition(":")
    return (name, direction) if name and direction in ("min", "max") else (best_metric, "")


def find(name: str) -> str:
    """Returns "min" or "max" for a metric, "" if its name does not tell.

    The last known word decides, since it is the noun: `dice_loss` is a loss, `error_recall` is not.
    """
    words, found, place = _words(name), "", 0
    while place < len(words):
        for count in range(_LONGEST, 0, -1):
            part = words[place : place + count]
            direction = _DIRECTIONS.get(" ".join(part)) or _DIRECTIONS.get(_with_number(part))
            if direction:
                found, place = direction, place + len(part)
                break
        else:
            if words[place] in _OTHER_QUANTITY.split():
                return ""
            place += 1
    return "" if name.startswith(("-", "1-")) else found


def _words(name):
    """Returns the words of a name in lower case: "mAP", "F1Score" and "top_5" have 1, 2 and 2."""
    words = []
    for chunk in re.findall(r"[^\W_]+|@", name):
        match = _COCO_WORD.fullmatch(chunk)
        mean = {"P": "ap", "R": "recall"}[match[1]] if match else ""  # APs and AR100 of COCO
        for whole in (chunk, chunk.rstrip("0123456789"), mean):
            if whole.lower() in _DIRECTIONS:
                words.append(whole.lower())
                break
        else:
            parts = re.findall(r"[fF][12](?![0-9])|" + _PART.pattern, chunk) or [chunk]
            words += ["at"] if chunk == "@" else [part.lower() for part in parts]
    return words


def _with_number(words):
    return " ".join("#" if word.isdecimal() or word == "k" else word for word in words)
