"""Word and character error rates, equal to jiwer's."""

import numpy as np
import pytest

from models.speech.conformer_ctc import ErrorRates, edit_distance


def decode(rows):
    return ["".join("\0ab "[token] for token in row).rstrip("\0") for row in rows]


def random_pairs(count=1000):
    """Texts of 0 to 12 short words, and the same with random changes; references are not empty."""
    random = np.random.default_rng(0)
    words = ["a", "be", "see", "dog", "door", "eat", "f\u00fcr", "ghost"]
    pairs = []
    for _ in range(count):
        reference = random.choice(words, random.integers(1, 13)).tolist()
        hypothesis = []
        for word in reference:
            chance = random.uniform()
            if chance < 0.15:
                continue
            hypothesis.append(str(random.choice(words)) if chance < 0.35 else word)
            if chance > 0.9:
                hypothesis.append(str(random.choice(words)))
        pairs.append((" ".join(reference), " ".join(hypothesis)))
    return pairs


def test_rates_equal_jiwer_on_1000_pairs():
    jiwer = pytest.importorskip("jiwer")
    pairs = random_pairs()
    rates = ErrorRates(decode)
    for pair in pairs:
        rates.add(*pair)
        one = ErrorRates(decode)
        one.add(*pair)
        assert one.result()["word_error_rate"] == pytest.approx(jiwer.wer(*pair), abs=1e-12)
        assert one.result()["character_error_rate"] == pytest.approx(jiwer.cer(*pair), abs=1e-12)
    references, hypotheses = map(list, zip(*pairs))
    found = rates.result()
    assert found["word_error_rate"] == pytest.approx(jiwer.wer(references, hypotheses))
    assert found["character_error_rate"] == pytest.approx(jiwer.cer(references, hypotheses))


def test_a_split_is_not_the_mean_of_its_texts():
    rates = ErrorRates(decode)
    labels = {"tokens": np.array([[1, 3, 1, 3, 1], [2, 0, 0, 0, 0]])}
    predictions = {"tokens": np.array([[1, 3, 1, 3, 1], [1, 0, 0, 0, 0]])}
    rates.update({}, labels, predictions)
    assert rates.result() == {"word_error_rate": 1 / 4, "character_error_rate": 1 / 6}


def slow_distance(a, b):
    """Levenshtein distance by its recursion."""
    if not a or not b:
        return len(a) + len(b)
    return min(
        slow_distance(a[1:], b) + 1,
        slow_distance(a, b[1:]) + 1,
        slow_distance(a[1:], b[1:]) + (a[0] != b[0]),
    )


def test_distances_equal_their_definition():
    random = np.random.default_rng(1)
    for _ in range(50):
        a, b = (tuple(random.integers(0, 3, random.integers(0, 6)).tolist()) for _ in range(2))
        assert edit_distance(a, b) == slow_distance(a, b)


def test_no_reference_words_is_not_a_number():
    rates = ErrorRates(decode)
    rates.add("", "a")
    assert np.isnan(list(rates.result().values())).all()
