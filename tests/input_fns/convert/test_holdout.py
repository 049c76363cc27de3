"""Holding examples out of the training split."""

import numpy as np
import pytest

from input_fns import DataError
from input_fns.convert import holdout
from input_fns.convert.options import Options
from input_fns.convert.source import RawArrays

LABELS = np.repeat([0, 1, 2], [50, 20, 7])


def split_of(labels=LABELS):
    return RawArrays(np.arange(len(labels), dtype=np.uint8).reshape(-1, 1, 1, 1), labels)


def hold_out(splits=None, **options):
    splits = splits or {"train": split_of(), "test": split_of()}
    return holdout.hold_out(splits, Options("digits", **options))


def test_each_class_gives_its_share():
    splits = hold_out(validation_fraction=0.2)
    assert np.bincount(splits["validation"].labels).tolist() == [10, 4, 1]
    assert np.bincount(splits["train"].labels).tolist() == [40, 16, 6]


def test_nothing_is_lost_and_nothing_twice():
    splits = hold_out({"train": split_of()}, validation_fraction=0.2, test_fraction=0.3)
    numbers = np.concatenate([split.images.ravel() for split in splits.values()])
    assert sorted(numbers) == list(range(77))
    assert list(splits) == ["train", "validation", "test"]


def test_the_choice_is_a_function_of_the_seed():
    once, again, other = (
        hold_out(validation_fraction=0.2, seed=seed)["validation"].images.ravel().tolist()
        for seed in (1, 1, 2)
    )
    assert once == again
    assert once != other


def test_a_source_of_one_split_gives_a_tenth_by_itself_and_others_nothing():
    assert len(hold_out({"train": split_of()})["validation"]) == 8
    assert list(hold_out()) == ["train", "test"]
    assert list(hold_out({"train": split_of()}, validation_fraction=0.0)) == ["train"]


@pytest.mark.parametrize("seed", range(5))
def test_groups_stay_together_and_shares_come_close(seed):
    groups = np.arange(77) // 3  # one group holds two classes
    chosen = holdout.choose(LABELS, groups, {"validation": 0.3}, seed)
    assert not set(groups[chosen["train"]]) & set(groups[chosen["validation"]])
    share = np.bincount(LABELS[chosen["validation"]]) / np.bincount(LABELS)
    np.testing.assert_allclose(share, 0.3, atol=0.2)


@pytest.mark.parametrize(
    ("splits", "options", "message"),
    [
        (None, {"test_fraction": 0.1}, "--test_fraction: .* already has a split 'test'"),
        ({"test": split_of()}, {"validation_fraction": 0.1}, "no split 'train' to hold out of"),
        (None, {"validation_fraction": 0.001}, "split 'validation' would have no example"),
    ],
)
def test_what_cannot_be_held_out(splits, options, message):
    with pytest.raises(DataError, match=message):
        hold_out(splits, **options)


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (["train"], "nothing is held out of 'train'"),
        (["validation", "test"], "there is no split 'train', only validation, test"),
        (["train", "test"], None),
    ],
)
def test_groups_that_decide_nothing_are_refused(names, reason):
    splits = dict.fromkeys(names, split_of())
    holdout.require_groups_matter(splits, Options("image_csv"))
    options = Options("image_csv", group_column="patient")
    if reason is None:
        holdout.require_groups_matter(splits, options)
        return
    with pytest.raises(DataError, match=f"--group_column=patient has no effect: {reason}"):
        holdout.require_groups_matter(splits, options)


def test_long_names_of_groups_need_no_memory_for_all():
    """An array of text has room for the longest value in each place: here 4 GB."""
    groups = np.array([str(i % 500) for i in range(1000)] + ["x" * 10**6], object)
    chosen = holdout.choose(np.zeros(1001, int), groups, {"validation": 0.3}, 0)
    assert not set(groups[chosen["train"]]) & set(groups[chosen["validation"]])
    short = np.array([*groups[:-1], "x"], object)
    again = holdout.choose(np.zeros(1001, int), short, {"validation": 0.3}, 0)
    np.testing.assert_array_equal(chosen["validation"], again["validation"])


def test_the_choice_is_that_of_the_sorted_names():
    groups = np.array([f"g{i % 30}" for i in range(77)], object)
    chosen = holdout.choose(LABELS, groups, {"validation": 0.3}, 5)
    as_text = holdout.choose(LABELS, groups.astype(str), {"validation": 0.3}, 5)
    np.testing.assert_array_equal(chosen["validation"], as_text["validation"])
