"""The flags as a file that repeats a run."""

import pytest

from training import flags

BASE = ["program", "--model=mlp", "--dataset=digits", "--data_dir=d", "--model_dir=m"]


@pytest.fixture
def parse():
    """Parses a command line into FLAGS, which are as new before."""

    def parse_line(*arguments):
        flags.FLAGS.unparse_flags()
        flags.FLAGS([*BASE, *arguments])
        return flags.FLAGS

    return parse_line


def test_a_flagfile_holds_what_differs_from_the_defaults(parse):
    parse(
        "--train_steps=7",
        "--params=a=1,b=2",
        "--params=c=x y",
        "--seed=3",
        "--keep_checkpoint_max=5",
    )
    assert sorted(flags.as_flagfile().splitlines()) == [
        "--data_dir=d",
        "--dataset=digits",
        "--model=mlp",
        "--model_dir=m",
        "--params=a=1,b=2",
        "--params=c=x y",
        "--seed=3",
        "--train_steps=7",
    ]


def test_a_flagfile_repeats_the_flags(parse, tmp_path):
    parse("--train_epochs=1.5", "--params=layers=conv:3:3 flatten", "--best_metric=accuracy")
    text = flags.as_flagfile()
    (tmp_path / "flags.cfg").write_text(text)
    parse(f"--flagfile={tmp_path}/flags.cfg")
    assert flags.as_flagfile() == text


@pytest.mark.parametrize(
    ("arguments", "steps", "epochs"),
    [
        (["--train_steps=7", "--train_epochs=2"], None, 2.0),
        (["--train_epochs=2", "--train_steps=7"], 7, None),
        (["--train_steps=5", "--train_steps=7"], 7, None),
    ],
)
def test_the_later_length_wins(parse, arguments, steps, epochs):
    values = parse(*arguments)
    assert (values.train_steps, values.train_epochs) == (steps, epochs)


def test_training_needs_a_length(parse):
    with pytest.raises(flags.flags.IllegalFlagValueError, match="needs --train_steps or"):
        parse("--mode=train")


def test_evaluation_needs_none(parse):
    assert parse("--mode=eval").mode == "eval"
