"""The flags of the data, through the real mains of both wrappers."""

import pytest
import tensorflow as tf

from common.errors import UsageError
from input_fns import DataError
from tests import numerics
from tests.marks import slow

AUGMENTED = ["--augment=flip crop:1 shift:0.2 rotate:20 mixup:0.4", "--params=pixel_scale=0.01"]


@pytest.mark.slow
def test_an_augmented_training_repeats_itself_and_is_not_the_plain_one(run_in, variables, tmp_path):
    for name, flags in (("a", AUGMENTED), ("b", AUGMENTED), ("plain", [])):
        run_in(tmp_path / name, "--mode=train", "--train_steps=5", *flags)
    kernels = [variables(tmp_path / name)["logits/kernel"] for name in ("a", "b", "plain")]
    assert (kernels[0] == kernels[1]).all()
    assert (kernels[0] != kernels[2]).any()


@pytest.mark.slow(cost=0.1)
def test_both_wrappers_feed_the_same_augmented_images(
    run_in, run_tpu_in, variables, tmp_path, monkeypatch
):
    monkeypatch.setattr(tf.nn, "relu", tf.nn.softplus)  # as conftest.smooth_activations
    flags = ["--mode=train", "--train_steps=5", "--train_batch_size=16", *AUGMENTED]
    flags += ["--params=dropout=0,optimizer=momentum,learning_rate=0.01"]
    run_in(tmp_path / "cpu", *flags)
    run_tpu_in(tmp_path / "tpu", *flags)
    cpu, tpu = variables(tmp_path / "cpu"), variables(tmp_path / "tpu")
    arithmetic = {"terms": 16, "depth": 5, "magnitude": 1.0}
    assert numerics.excess(tpu, cpu, **arithmetic) < 1
    run_in(tmp_path / "plain", *flags, "--augment=")
    plain = variables(tmp_path / "plain")
    names = cpu.keys() & plain.keys()
    assert numerics.excess(*({n: v[n] for n in names} for v in (plain, cpu)), **arithmetic) > 20


@pytest.mark.slow(cost=0.1)
def test_evaluation_is_not_augmented(trained_dir, run_in, result, capsys):
    run_in(trained_dir, "--mode=eval")
    plain = result(trained_dir, 40)["eval"]
    run_in(trained_dir, "--mode=eval", *AUGMENTED)
    assert result(trained_dir, 40)["eval"] == plain


@pytest.mark.slow  # like test_training_from_a_local_copy
@pytest.mark.parametrize("cache", ["folder", "none", "memory"])
def test_training_from_wherever_examples_wait(run_in, result, tmp_path, cache):
    cache = str(tmp_path / "copies") if cache == "folder" else cache
    run_in(tmp_path / "model", "--train_steps=20", f"--cache={cache}")
    assert result(tmp_path / "model", 20)["eval"]["examples"] == 41


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize("wrapper", ["run_in", slow("run_tpu_in")])
def test_the_synthetic_source_has_the_shapes_of_the_data(request, wrapper, result, tmp_path):
    run = request.getfixturevalue(wrapper)
    run(tmp_path / "model", "--dataset=synthetic", "--train_steps=3")
    assert result(tmp_path / "model", 3)["eval"]["examples"] == 41


def test_the_synthetic_source_without_data(tmp_path, run_with, result):
    arguments = ["--model=mlp", "--dataset=synthetic", "--image_size=6x4", "--synthetic_classes=7"]
    run_with(*arguments, f"--model_dir={tmp_path}", "--mode=train", "--train_steps=2")
    assert result(tmp_path, 2)["train"]["examples_per_second"] > 0


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--augment=flop", "--augment: 'flop' is unknown"),
        ("--augment=mixup:0.2 flip", "mixup and cutmix last"),
        ("--cache=/dev/null/x", "cannot be created"),
    ],
)
def test_a_wrong_flag(run_in, tmp_path, flag, message):
    with pytest.raises((DataError, UsageError), match=message):
        run_in(tmp_path / "model", "--train_steps=3", flag)
    assert not (tmp_path / "model").exists()
