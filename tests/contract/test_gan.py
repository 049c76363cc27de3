"""A train_step of the model: alternating updates by two optimizers."""

import re

import pytest

CASE, STEPS = "gan", 40


@pytest.mark.slow(cost=0.1)
def test_each_network_has_its_own_optimizer(trained, variables):
    slots = {"discriminator": ["Momentum"], "generator": ["Adam", "Adam_1"]}
    parameters = [
        f"{layer}/{kind}" for layer in ("dense", "dense_1") for kind in ("bias", "kernel")
    ]
    expected = {
        f"{network}/{parameter}{slot}"
        for network, names in slots.items()
        for parameter in parameters
        for slot in ("", *(f"/{name}" for name in names))
    }
    adam = {"generator/beta1_power", "generator/beta2_power"}
    found = variables(trained(CASE))
    assert found.keys() == expected | adam | {"global_step"}
    assert found["global_step"] == STEPS
    # After n updates it is beta1 ** (n + 1).
    assert found["generator/beta1_power"] == pytest.approx(0.9 ** (STEPS + 1), rel=1e-4)


def test_generated_points_come_near_the_circle(evaluate):
    metrics = evaluate(CASE)
    assert metrics["distance"] < 0.3
    assert "generator_loss" not in metrics  # one term of losses: average_loss


@pytest.mark.slow
def test_the_losses_of_all_updates_are_reported(run_case, tmp_path, capsys):
    run_case(CASE, tmp_path, "--mode=train", "--train_steps=1", "--params=learning_rate=1e-9")
    # ln 2 for each of the two terms of the discriminator, and for the generator, more or less.
    (loss,) = re.findall(r"step 1/1 \| loss ([0-9.]+)", capsys.readouterr().out)
    assert 1.2 < float(loss) < 3.5
