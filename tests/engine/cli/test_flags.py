"""Flags, and the flagfile that repeats a run."""

import pytest

from engine.cli import flags

BASE = ["program", "--model=mlp", "--dataset=digits", "--data_dir=d", "--model_dir=m"]


@pytest.fixture
def parse():
    """Resets FLAGS, then parses a command line."""

    def parse_line(*arguments):
        flags.FLAGS.unparse_flags()
        flags.FLAGS([*BASE, *arguments])
        return flags.FLAGS

    return parse_line


def test_the_flagfile_contains_flags_that_differ_from_their_defaults(parse):
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
    parse("--train_epochs=1.5", "--params=layers=[conv:3:3,flatten]", "--best_metric=accuracy")
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


def test_evaluation_needs_no_length(parse):
    assert parse("--mode=eval").mode == "eval"


@pytest.mark.parametrize(
    "value",
    [
        "#comment",
        "//comment",
        "a b",
        "'quoted'",
        '"quoted"',
        "back\\slash\\",
        "--mode=eval",
        "käse",
        "$HOME",
        "a=b=c",
        "%s",
    ],
)
def test_a_flagfile_keeps_every_value(parse, tmp_path, value):
    names = ("eval_split", "params", "train_split", "cache", "data_dir")
    given = [f"--{name}=/x/{value}" if name == "cache" else f"--{name}={value}" for name in names]
    parse("--train_steps=7", *given)
    text = flags.as_flagfile()
    (tmp_path / "flags.cfg").write_text(text, "utf-8")
    parse(f"--flagfile={tmp_path}/flags.cfg")
    assert flags.as_flagfile() == text
    assert flags.FLAGS.data_dir == value
    assert flags.FLAGS.params == [value]


@pytest.mark.parametrize("value", ["a\nb", "a\rb", "a\x85b", "a\0", " a", "a ", "\udcff", "a\t"])
def test_values_that_a_flagfile_cannot_store_are_rejected(parse, value):
    with pytest.raises(flags.flags.IllegalFlagValueError, match=r"character|space"):
        parse("--train_steps=7", f"--train_split={value}")


@pytest.mark.parametrize("name", ["data_dir", "model_dir", "export_dir", "checkpoint", "cache"])
def test_a_tilde_is_the_home_folder(parse, monkeypatch, tmp_path, name):
    monkeypatch.setenv("HOME", "/home/someone")
    (tmp_path / "flags.cfg").write_text(f"--{name}=~/runs\n--train_steps=7\n")
    mode = "eval" if name == "checkpoint" else "train"
    values = parse(f"--flagfile={tmp_path}/flags.cfg", f"--mode={mode}")
    assert values[name].value == "/home/someone/runs"


@pytest.mark.parametrize("value", ["nan", "inf", "1_0", "0x10", "1e999", "٣", ""])
def test_numbers_are_finite_and_decimal(parse, value):
    for name, message in (
        ("train_epochs", "it is not a finite"),
        ("train_steps", "is not a decimal"),
    ):
        with pytest.raises(flags.flags.IllegalFlagValueError, match=message):
            parse(f"--{name}={value}")
