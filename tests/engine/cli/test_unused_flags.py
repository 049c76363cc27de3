"""Flags of the command line without effect in the mode of a run."""

import pytest

from common.errors import UsageError
from engine.cli import startup, unused_flags

RUN = ["--model=mlp", "--dataset=x", "--data_dir=d", "--model_dir=m"]
SYNTHETIC = ["--model=mlp", "--dataset=synthetic", "--model_dir=m", "--mode=train"]
TABLES = ["--synthetic_tables=5,7", "--synthetic_task=ratings"]


def check(arguments):
    """Parses a command line of run_tpu.py and checks it."""
    argv = ["run_tpu.py", *arguments, "--train_steps=1"]
    startup.start(argv, "", "engine.cli.flags", "engine.cli.cpu_flags", "tpu.connect.flags")
    unused_flags.check()


@pytest.fixture(autouse=True)
def unparsed(monkeypatch):
    """No value of another test, and no cluster."""
    unused_flags.FLAGS.unparse_flags()
    for name in unused_flags.FLAGS:
        unused_flags.FLAGS[name].unparse()
    monkeypatch.delenv("TF_CONFIG", raising=False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--mode=train", "--export_top_k=2"], "--export_top_k has no effect: --mode=train does"),
        (["--export_text"], "--export_text has no effect: --mode=train_and_eval does not export"),
        (["--mode=eval", "--export_to_tpu"], "--export_to_tpu has no effect: --mode=eval does not"),
        (
            ["--mode=train", "--best_metric=accuracy", "--early_stop_evals=3"],
            "--early_stop_evals has no effect with --mode=train. Use --mode=train_and_eval or",
        ),
        (
            ["--mode=continuous_eval", "--checkpoint=best"],
            "--checkpoint has no effect with --mode=",
        ),
        (["--mode=predict", "--skip_bad_records=3"], "--skip_bad_records has no effect with"),
        (["--check_run_steps=3"], "--check_run_steps has no effect with --mode=train_and_eval"),
        (["--warm_start_include=a.*"], "no effect without --warm_start_from"),
        (["--synthetic_text=8x99"], "--synthetic_text has no effect with --dataset=x, only with"),
        (["--synthetic_classes=7"], "--synthetic_classes has no effect with --dataset=x, only"),
    ],
)
def test_a_flag_that_asks_for_what_the_mode_does_not_do_is_an_error(arguments, message):
    with pytest.raises(UsageError) as error:
        check([*RUN, *arguments])
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data_dir=d", "--synthetic_classes=7"], "no effect with --data_dir, whose data set is"),
        (["--image_size=8", "--synthetic_task=ratings"], "ratings has no effect with --image_size"),
        (
            ["--image_size=8", "--synthetic_task=squad"],
            "with --image_size: it needs --synthetic_te",
        ),
        (["--synthetic_audio=8000,80", "--synthetic_task=detection"], "it needs --image_size"),
        (["--synthetic_text=8x99", "--synthetic_audio=8000,80"], "no effect with --synthetic_text"),
        ([*TABLES, "--image_size=8"], "--image_size has no effect with --synthetic_tables"),
        ([*TABLES, "--synthetic_classes=7"], "--synthetic_classes has no effect with --synth"),
        (
            ["--synthetic_audio=8000,80,29,4", "--synthetic_classes=7"],
            "--synthetic_classes has no effect with --synthetic_audio",
        ),
    ],
)
def test_flags_of_synthetic_data_agree(arguments, message):
    with pytest.raises(UsageError) as error:
        check([*SYNTHETIC, *arguments])
    assert message in str(error.value)


@pytest.mark.parametrize(
    "arguments",
    [
        [*RUN, "--export_dir=e", "--export_top_k=2"],
        [*RUN, "--mode=export", "--export_dir=e", "--export_text"],
        [*RUN, "--mode=eval", "--checkpoint=best", "--noexport_check"],
        [*RUN, "--warm_start_from=c", "--warm_start_include=a.*"],
        [*RUN, "--best_metric=accuracy", "--early_stop_evals=3"],
        [*SYNTHETIC, *TABLES],
        [*SYNTHETIC, "--image_size=8", "--synthetic_classes=7", "--synthetic_task=detection"],
        [*SYNTHETIC, "--synthetic_text=8x99", "--synthetic_task=squad"],
        [*SYNTHETIC, "--synthetic_audio=8000,80", "--synthetic_classes=7"],
    ],
)
def test_flags_with_an_effect_are_accepted(arguments):
    check(arguments)


def test_flags_of_a_recipe_are_accepted(tmp_path, capsys):
    lines = ["--export_top_k=2", "--skip_bad_records=3", "--synthetic_classes=7", "--train_steps=5"]
    (tmp_path / "recipe.cfg").write_text("\n".join(lines))
    argv = ["run_cpu.py", *RUN, "--mode=eval", f"--flagfile={tmp_path}/recipe.cfg"]
    startup.start(argv, "", "engine.cli.flags", "engine.cli.cpu_flags")
    unused_flags.check()
    unused_flags.report()
    assert not capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "flags"),
    [
        (["--mode=eval"], "--train_steps"),
        (["--mode=predict", "--augment=flip"], "--train_steps, --augment"),
        (["--mode=train", "--eval_split=dev", "--noexport_check"], "--eval_split, --export_check"),
        (["--mode=train"], ""),
        (["--mode=continuous_eval", "--train_batch_size=7"], ""),
        (["--mode=check", "--tpu_topology=v3-8"], ""),
    ],
)
def test_flags_of_other_modes_are_printed(arguments, flags, capsys):
    check([*RUN, *arguments])
    unused_flags.report()
    expected = f"without effect with {arguments[0]}: {flags}\n" if flags else ""
    assert capsys.readouterr().out == expected


def test_the_evaluator_of_a_cluster_reads_its_flags_in_training(monkeypatch, capsys):
    monkeypatch.setenv("TF_CONFIG", "{...}")
    check([*RUN, "--mode=train", "--eval_split=dev", "--best_metric=accuracy"])
    unused_flags.report()
    assert not capsys.readouterr().out
