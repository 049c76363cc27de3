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
    text = f"--model=mlp\n--train_batch_size=9\n{now}\n"
    assert changed_flags.describe(str(tmp_path), text, True) == expected
    changed = changed_flags.describe(str(tmp_path), text)
    assert changed.startswith("train_batch_size=9 (before: 8)")
