"""What a training that resumes changes."""

import pytest

from engine.cli import changed_flags

BEFORE = "--model=mlp\n--params=learning_rate=0.01,hidden_units=[256,128]\n--train_batch_size=8\n"


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        ("--params=learning_rate=1e-2,hidden_units=[256, 128],dropout=0.2", ""),
        ("--params=learning_rate=0.02,hidden_units=[256,128]", "learning_rate=0.02 (before: 0.01)"),
        ("--params=learning_rate=0.01", "hidden_units=default (before: [256,128])"),
        (
            "--params=learning_rate=0.01,hidden_units=[256,128],of_a_new_version=1",
            "of_a_new_version=1 (before: default)",
        ),
    ],
)
def test_hyperparameters_are_compared_by_their_values(tmp_path, now, expected):
    (tmp_path / "flags.cfg").write_text(BEFORE)
    text = f"--model=mlp\n--train_batch_size=8\n{now}\n"
    assert changed_flags.describe(str(tmp_path), text, of_weights=True) == expected
    assert changed_flags.describe(str(tmp_path), text) == expected


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        ("--train_batch_size=8", "--train_batch_size=9", "train_batch_size=9 (before: 8)"),
        ("--synthetic_classes=7", "", "synthetic_classes=default (before: 7)"),
        ("--center_crop=0.5", "--strategy=mirrored", ""),
        ("", "--seed=3", "seed=3 (before: default)"),
        ("--seed=3", "", ""),
        ("# training_data=5 examples", "# training_data=7 examples",
         "training_data=7 examples (before: 5 examples)"),
        ("", "# training_data=7 examples", ""),
    ],
    ids=["batch size", "synthetic", "neither", "seed", "any seed", "data", "unknown data"],
)  # fmt: skip
def test_what_changes_the_weights_is_compared(tmp_path, before, now, expected):
    (tmp_path / "flags.cfg").write_text(f"--model=mlp\n{before}\n")
    text = f"--model=mlp\n{now}\n"
    assert changed_flags.describe(str(tmp_path), text, of_weights=True) == expected
