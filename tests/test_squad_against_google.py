"""SQuAD against the official scripts and google-research/bert's run_squad.py, on whole dev sets.

SQUAD_CHECKOUT is a folder with evaluate-v1.1.py, evaluate-v2.0.py, dev-v1.1.json and dev-v2.0.json;
BERT_CHECKOUT and BERT_VOCAB are a folder of google-research/bert and a vocab.txt.
"""

import contextlib
import importlib.util
import io
import json
import os
import pathlib
import random
import types

import numpy as np
import pytest

from input_fns import convert, dataset_info
from input_fns.convert import writer
from input_fns.convert.options import Options
from input_fns.text.squad_pipeline import SquadPipeline
from models.text import squad_answers, squad_metrics
from tests import google_bert

FOLDER = os.environ.get("SQUAD_CHECKOUT", "")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not FOLDER,
        reason="SQUAD_CHECKOUT, a folder of the official scripts and dev sets, is not set",
    ),
]
KINDS = ("good", "empty", "missing", "wrong", "punctuation", "mixed")


def script(version):
    """The official script as a module."""
    path = pathlib.Path(FOLDER) / f"evaluate-v{version}.py"
    spec = importlib.util.spec_from_file_location(f"evaluate_{version[0]}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def load(version):
    """The articles, `[(context, entry of "qas")]`, and `{id: answers}`."""
    articles = json.loads((pathlib.Path(FOLDER) / f"dev-v{version}.json").read_text())["data"]
    questions = [
        (paragraph["context"], question)
        for article in articles
        for paragraph in article["paragraphs"]
        for question in paragraph["qas"]
    ]
    answers = {one["id"]: [answer["text"] for answer in one["answers"]] for _, one in questions}
    return articles, questions, answers


def make_predictions(kind, questions):
    """Predictions for all questions, `{id: text}`."""
    rng = random.Random(0)

    def some_words(context):
        words = context.split(" ")
        start = rng.randrange(len(words))
        return " ".join(words[start : start + rng.randint(1, 8)])

    good = {
        one["id"]: rng.choice(one["answers"])["text"] if one["answers"] else ""
        for _, one in questions
    }
    wrong = {one["id"]: some_words(context) for context, one in questions}
    mixed = {
        name: rng.choice([text, "", wrong[name], f"{text} {wrong[name]}", f"é\u2014{text}", "the"])
        for name, text in good.items()
    }
    return {
        "good": good,
        "empty": dict.fromkeys(good, ""),
        "missing": {name: text for name, text in mixed.items() if rng.random() < 0.7},
        "wrong": wrong,
        "punctuation": {name: f"The {text.upper()} .!" for name, text in good.items()},
        "mixed": mixed,
    }[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_v1_scores_equal_the_official_script(kind):
    articles, questions, answers = load("1.1")
    predictions = make_predictions(kind, questions)
    with contextlib.redirect_stderr(io.StringIO()):
        expected = script("1.1").evaluate(articles, predictions)
    assert squad_metrics.scores_v1(answers, predictions) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_v2_scores_and_thresholds_equal_the_official_script(kind):
    official = script("2.0")
    articles, questions, answers = load("2.0")
    predictions = make_predictions(kind, questions)
    rng = random.Random(1)
    odds = {name: round(rng.gauss(0 if texts else 2, 3), 1) for name, texts in answers.items()}
    has_answer = official.make_qid_to_has_ans(articles)
    with contextlib.redirect_stdout(io.StringIO()):
        scores = official.get_raw_scores(articles, predictions)
    expected = official.make_eval_dict(*scores)
    for prefix, value in (("HasAns", True), ("NoAns", False)):
        names = [name for name, has in has_answer.items() if has == value and name in predictions]
        official.merge_eval(expected, official.make_eval_dict(*scores, names), prefix)
    official.find_all_best_thresh(expected, predictions, *scores, odds, has_answer)
    found = squad_metrics.scores_v2(answers, predictions, odds)
    totals = {name for name in expected if name.endswith("total")}
    assert found == {name: expected[name] for name in expected if name not in totals}


@pytest.fixture(scope="module", params=["1.1", "2.0"])
def version(request):
    """Version of SQuAD."""
    return request.param


@pytest.fixture(scope="module")
def google(version):
    """run_squad.py and its tokenizer."""
    module = google_bert.load("run_squad")
    module.FLAGS = types.SimpleNamespace(
        version_2_with_negative=version == "2.0",
        verbose_logging=False,
        null_score_diff_threshold=0.0,
    )
    vocab = os.environ["BERT_VOCAB"]
    return module, module.tokenization.FullTokenizer(vocab_file=vocab, do_lower_case=True)


@pytest.fixture(scope="module")
def data_dir(version, tmp_path_factory):
    """The dev set, prepared."""
    folder = tmp_path_factory.mktemp("squad")
    dev = pathlib.Path(FOLDER) / f"dev-v{version}.json"
    (folder / dev.name).symlink_to(dev.absolute())
    options = Options(
        "squad", source=str(folder), vocabulary=os.environ["BERT_VOCAB"], max_length=384
    )
    writer.write(convert.read(options), str(folder / "data"))
    return str(folder / "data")


@pytest.fixture(scope="module")
def google_windows(google, version, tmp_path_factory):
    """Questions with their first answer, and their windows, by run_squad.py."""
    module, tokenizer = google
    content = json.loads((pathlib.Path(FOLDER) / f"dev-v{version}.json").read_text())
    for article in content["data"]:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                question["answers"] = question["answers"][:1]  # it trains with one only
    path = tmp_path_factory.mktemp("first") / "dev.json"
    path.write_text(json.dumps(content))
    examples = module.read_squad_examples(str(path), True)
    windows = []
    module.convert_examples_to_features(examples, tokenizer, 384, 128, 64, True, windows.append)
    return examples, windows


@google_bert.needs_checkout
def test_windows_equal_run_squad(google_windows, data_dir):
    _, expected = google_windows
    pipeline = SquadPipeline(dataset_info.read(data_dir))
    number = num_labels = 0
    for features, labels in pipeline.host_examples("validation", 512):
        for i, window in enumerate(expected[number : number + len(features["input_ids"])]):
            for name in ("input_ids", "input_mask", "segment_ids"):
                assert features[name][i].tolist() == getattr(window, name)
            is_max = [window.token_is_max_context.get(place, False) for place in range(384)]
            assert features["is_max_context"][i].tolist() == is_max
            label = labels["start_positions"][i], labels["end_positions"][i]
            theirs = window.start_position, window.end_position
            # Theirs starts with whole words, and keeps them if it finds no better match.
            num_labels += label != theirs
            assert label == theirs or theirs[0] <= label[0] <= label[1] <= theirs[1]
        number += len(features["input_ids"])
    assert number == len(expected)
    assert num_labels <= 25


@google_bert.needs_checkout
def test_n_best_and_null_odds_equal_run_squad(google, google_windows, data_dir, version, tmp_path):
    module, _ = google
    examples, windows = google_windows
    logits = make_logits(windows)
    results = [
        module.RawResult(window.unique_id, *logits[:, i].tolist())
        for i, window in enumerate(windows)
    ]
    files = [str(tmp_path / name) for name in ("predictions", "nbest_predictions", "null_odds")]
    module.write_predictions(examples, windows, results, 20, 30, True, *files)
    pipeline = SquadPipeline(dataset_info.read(data_dir))
    metric = squad_answers.SquadAnswers(squad_answers.default_params(), pipeline)
    number = 0
    for features, labels in pipeline.host_examples("validation", 512):
        start_logits, end_logits = logits[:, number : number + len(features["input_ids"])]
        metric.update(features, labels, {"start_logits": start_logits, "end_logits": end_logits})
        number += len(start_logits)
    ours = {name.split(".")[0]: json.loads(text) for name, text in metric.files().items()}
    theirs = {path.split("/")[-1]: json.load(open(path)) for path in files[: len(ours)]}  # noqa: SIM115
    if version == "2.0":
        assert ours["null_odds"] == theirs["null_odds"]
    others = [
        name
        for name, text in theirs["predictions"].items()
        if text.split() != ours["predictions"][name].split()
    ]
    # It reconstructs the text of an answer, and keeps whole words where it fails.
    assert len(others) <= len(examples) / 1000
    for name, entries in theirs["nbest_predictions"].items():
        if name not in others:
            assert entries[0]["start_logit"] == ours["nbest_predictions"][name][0]["start_logit"]


def make_logits(windows):
    """Random logits with six likely answers in each window, float32 `[2, windows, 384]`."""
    rng = np.random.default_rng(3)
    logits = np.round(rng.normal(size=(2, len(windows), 384)), 1).astype(np.float32)
    logits[:, :, 0] += 5.5
    for i, window in enumerate(windows):
        first, last = min(window.token_to_orig_map), max(window.token_to_orig_map)
        for start in rng.integers(first, last + 1, 6):
            logits[0, i, start] += 5
            logits[1, i, min(start + rng.integers(0, 6), last)] += 5
    return logits
