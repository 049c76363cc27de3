"""Training, evaluation, prediction and export of GANs on the digits."""

import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from common.errors import UsageError
from input_fns import DataError
from models.model import ModelError
from models.registry import find
from tests import numerics
from tests.marks import slow

BATCH, STEPS, D_STEPS = 32, 10, 2
GAN = "--params=width=4,latent_size=5,learning_rate=0.01,batch_norm_cross_replica=true"
ADAM = "--params=optimizer=adam,epsilon=0.01,beta1=0.5"
# The loss and the activations are smooth: at a kink rounding would select the gradient.
SMOOTH = f"--params=gan_loss=non_saturating,discriminator_steps={D_STEPS}"
# A step has D_STEPS + 1 updates, each after the forward and backward pass of both networks: 4
# layers of the generator with batch norm and 8 of the discriminator. The longest sum is over the
# pixels of a batch.
UPDATES = STEPS * (D_STEPS + 1)
ARITHMETIC = {"terms": BATCH * 64, "depth": UPDATES, "magnitude": 1.0}
ONE_OPTIMIZER = "tests.gan_models:ONE_OPTIMIZER"


@pytest.fixture(scope="module")
def gan_flags(digits_dir):
    return [
        "--dataset=digits", f"--data_dir={digits_dir}", "--seed=3", f"--train_batch_size={BATCH}",
        "--eval_batch_size=40", "--predict_batch_size=40", GAN,
    ]  # fmt: skip


@pytest.fixture(scope="module")
def trained(run_with, gan_flags, tmp_path_factory, serve_in_this_process):
    """A model_dir of sngan after 4 steps, evaluated and exported. Read-only."""
    folder = tmp_path_factory.mktemp("sngan")
    with serve_in_this_process():
        run_with(
            "--model=sngan", *gan_flags, ADAM, "--params=ema_decay=0.9", f"--model_dir={folder}",
            "--train_steps=4", "--max_eval_examples=43", f"--export_dir={folder}/export",
        )  # fmt: skip
    return folder


def networks(values):
    """Returns the variables of both networks, without slots."""
    return {
        name: value
        for name, value in values.items()
        if name.startswith(("generator/", "discriminator/"))
        and not name.endswith(("_power", "/Adam", "/Adam_1"))
    }


@pytest.fixture
def train(run_with, run_tpu_with, gan_flags, variables, tmp_path):
    """Trains a few steps from one start: the variables of `train("sngan", "1x8", *flags)`."""

    def run(model, topology, *more):
        folder = tmp_path / f"{model.replace(':', '_')}_{topology}"
        flags = [*gan_flags, ADAM, SMOOTH, "--mode=train", *more]
        start = tmp_path / f"{model.partition('.')[0]}_start"
        if not start.exists():
            run_with(f"--model={model}", *flags, "--train_steps=1", f"--model_dir={start}")
        flags += [f"--train_steps={STEPS}", f"--model_dir={folder}", f"--warm_start_from={start}"]
        flags.append(f"--model={model}")
        if topology:
            run_tpu_with(*flags, "--tpu=emulator", f"--tpu_topology={topology}")
        else:
            run_with(*flags)
        return networks(variables(folder))

    return run


@pytest.mark.slow
@pytest.mark.usefixtures("smooth_activations")
@pytest.mark.parametrize(
    ("model", "params"),
    [
        ("sngan", []),
        ("sngan", ["--params=gan_loss=wasserstein_gp"]),
        ("dcgan", ["--params=ema_decay=0.9"]),
    ],
)
def test_eight_cores_train_both_networks_like_one_device(train, model, params):
    one, eight = train(model, "", *params), train(model, "1x8", *params)
    assert numerics.excess(eight, one, **ARITHMETIC) < 1


@pytest.mark.slow
@pytest.mark.usefixtures("smooth_activations")
def test_one_optimizer_for_both_networks_is_far_from_alternating_updates(train):
    alternating = train("sngan", "", "--params=discriminator_steps=1")
    together = train(ONE_OPTIMIZER, "1x8", "--params=discriminator_steps=1")
    assert numerics.excess(together, alternating, **ARITHMETIC) > 10


@pytest.mark.slow
@pytest.mark.usefixtures("smooth_activations")
def test_statistics_of_one_core_are_far_from_those_of_the_batch(train):
    one = train("sngan", "")
    eight = train("sngan", "1x8", "--params=batch_norm_cross_replica=false")
    assert numerics.excess(eight, one, **ARITHMETIC) > 10


@pytest.mark.parametrize(
    ("model", "params"),
    [
        slow("sngan", "gan_loss=hinge"),
        slow("sngan", "gan_loss=wasserstein_gp"),
        slow("dcgan", "gan_loss=non_saturating"),
        slow("dcgan", "gan_loss=wasserstein_gp,discriminator_batch_norm=false"),
    ],
)
def test_a_resumed_training_is_bit_identical(
    run_with, gan_flags, variables, tmp_path, model, params
):
    """A checkpoint is between steps: a run that ends between two updates repeats the step."""
    flags = [f"--model={model}", *gan_flags, ADAM, "--mode=train", f"--params={params}"]
    flags.append(f"--params=ema_decay=0.9,discriminator_steps={D_STEPS}")
    for folder, steps in (("whole", [4]), ("resumed", [2, 4])):
        for end in steps:
            run_with(*flags, f"--train_steps={end}", f"--model_dir={tmp_path / folder}")
    whole, resumed = variables(tmp_path / "whole"), variables(tmp_path / "resumed")
    assert whole.keys() == resumed.keys()
    for name, value in whole.items():
        np.testing.assert_array_equal(resumed[name], value, err_msg=name)
    # Adam's power of beta1 counts the updates: it is beta1 ** (n + 1).
    assert resumed["discriminator/beta1_power"] == pytest.approx(0.5 ** (4 * D_STEPS + 1))
    assert resumed["generator/beta1_power"] == pytest.approx(0.5 ** (4 + 1))


@pytest.mark.slow
def test_an_evaluation_has_the_losses_and_draws_samples(trained, result):
    metrics = result(trained, 4)["eval_first_43"]
    assert metrics["examples"] == 43
    total = metrics["generator_loss"] + metrics["discriminator_loss"]
    assert metrics["average_loss"] == pytest.approx(total, rel=1e-5)
    for name in ("samples", "interpolation"):
        with Image.open(trained / "eval_first_43" / f"{name}_4.png") as picture:
            assert picture.size == (10 * 57, 10 * 57)  # 8 pixels, seven times as large, and a gap


@pytest.mark.slow
def test_a_column_of_the_samples_has_one_latent(trained):
    """Without training of the classes' parameters, a latent gives nearly one image."""
    tiles = np.array(Image.open(trained / "eval_first_43" / "samples_4.png").convert("L"), float)
    tiles = tiles.reshape(10, 57, 10, 57).transpose(0, 2, 1, 3)[..., :56, :56]
    of_class, of_latent = tiles.var(axis=0).mean(), tiles.var(axis=1).mean()
    assert of_latent > 4 * of_class


@pytest.fixture(scope="module")
def classifier(run_with, digits_dir, tmp_path_factory, serve_in_this_process):
    """The export of a classifier of the digits."""
    folder = tmp_path_factory.mktemp("classifier")
    with serve_in_this_process():
        run_with(
            "--model=mlp", "--params=hidden_units=[16],pixel_scale=0.0625,learning_rate=0.1",
            "--dataset=digits", f"--data_dir={digits_dir}", "--train_steps=200",
            "--train_batch_size=64", f"--model_dir={folder}", "--seed=1", "--mode=train_and_eval",
            f"--export_dir={folder}/export",
        )  # fmt: skip
    (path,) = (folder / "export").iterdir()
    return path


@pytest.mark.slow
def test_a_classifier_judges_the_images(trained, classifier, run_with, gan_flags, result):
    evaluate = [
        "--model=sngan", *gan_flags, "--params=ema_decay=0.9", f"--model_dir={trained}",
        "--mode=eval", f"--params=feature_network={classifier}",
    ]  # fmt: skip
    run_with(*evaluate)
    metrics = result(trained, 4)["eval"]
    assert metrics["examples"] == 359
    assert metrics["frechet_distance"] > 1  # 4 steps do not train a generator
    assert metrics["class_accuracy"] < 0.5
    assert 0 <= metrics["recall"] <= 1
    assert 0 <= metrics["precision"] <= 1
    run_with(*evaluate, "--eval_batch_size=7", "--predict_batch_size=7")
    again = result(trained, 4)["eval"]
    for name in ("frechet_distance", "average_loss", "class_accuracy"):
        assert again[name] == pytest.approx(metrics[name], rel=1e-3), name


def predict(run_with, trained, gan_flags, output, *more):
    run_with(
        "--model=sngan", *gan_flags, "--params=ema_decay=0.9", f"--model_dir={trained}",
        "--mode=predict", f"--predict_output={output}", *more,
    )  # fmt: skip
    lines = pathlib.Path(output, "predictions.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def image(folder, name):
    with Image.open(pathlib.Path(folder, name)) as picture:
        return np.array(picture)


@pytest.mark.slow
def test_requests_of_a_file_are_written_as_png(trained, run_with, gan_flags, tmp_path):
    requests = tmp_path / "wanted.jsonl"
    requests.write_text('{"seed": 7, "class": 3}\n{"seed": [7, 9], "steps": 4, "class": "3"}\n')
    output = tmp_path / "images"
    lines = predict(run_with, trained, gan_flags, output, f"--input={requests}")
    assert [line["seed"] for line in lines] == [7, *[[7, 9]] * 4]
    assert all(line["class_name"] == "3" for line in lines)
    assert [line.get("fraction") for line in lines[1:]] == pytest.approx([0, 1 / 3, 2 / 3, 1])
    pictures = [image(output, line["file"]) for line in lines]
    np.testing.assert_array_equal(pictures[0], pictures[1])  # an interpolation begins at its seed
    assert pictures[0].shape == (8, 8)
    steps = [
        np.abs(np.subtract(a, b, dtype=float)).mean() for a, b in zip(pictures[1:], pictures[2:])
    ]
    assert min(steps) > 0
    assert image(output, "sheet.png").shape == (2 * 57, 4 * 57, 3)


@pytest.mark.slow
def test_a_split_asks_for_images_of_its_classes(trained, run_with, gan_flags, tmp_path):
    lines = predict(run_with, trained, gan_flags, tmp_path / "images")
    assert len(lines) == 359
    counts = np.bincount([line["class"] for line in lines])
    assert counts.min() > 20  # of ten classes


def served(path, signature, **inputs):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        model = tf.compat.v1.saved_model.load(session, ["serve"], str(path))
        found = model.signature_def[signature]
        feeds = {found.inputs[name].name: value for name, value in inputs.items()}
        return session.run({name: t.name for name, t in found.outputs.items()}, feeds)


@pytest.mark.slow
def test_an_export_takes_a_seed_or_a_latent(trained, run_with, gan_flags, tmp_path):
    (export,) = (trained / "export").iterdir()
    assert export.name.isdigit()  # failed-<version> if its check had failed
    found = served(export, "generate", seed=[7, 8], class_id=[3, 3])
    requests = tmp_path / "wanted.jsonl"
    requests.write_text('{"seed": 7, "class": 3}\n{"seed": 8, "class": 3}\n')
    predict(run_with, trained, gan_flags, tmp_path / "images", f"--input={requests}")
    for pixels, png, name in zip(found["pixels"], found["png"], ("000000.png", "000001.png")):
        decoded = tf.io.decode_png(png)
        with tf.compat.v1.Session() as session:
            np.testing.assert_array_equal(session.run(decoded), pixels)
        # Numbers in [0, 1] that are rounded to 255 steps: they differ by one where rounding does.
        difference = np.subtract(image(tmp_path / "images", name), pixels[..., 0], dtype=float)
        assert np.abs(difference).max() <= 1
    raw = served(export, "serving_default", latent=np.zeros([1, 5]), class_id=[3])
    assert raw["image"].shape == (1, 8, 8, 1)
    assert 0 <= raw["image"].min() < raw["image"].max() <= 1


@pytest.mark.parametrize(
    ("model", "params", "problem"),
    [
        ("sngan", {"gan_loss": "wgan"}, "gan_loss=wgan must be one of non_saturating"),
        ("sngan", {"image_shape": (30, 28, 1)}, "must be multiples of 4"),
        ("dcgan", {"image_shape": (4, 64, 1)}, "must be at least 8"),
        ("sngan", {"discriminator_steps": 0}, "discriminator_steps=0 must be at least 1"),
        ("dcgan", {"gan_loss": "wasserstein_gp"}, "discriminator_batch_norm=false"),
        ("dcgan", {"feature_network": "none"}, "is not a SavedModel"),
        ("dcgan", {"feature_network": "keras:tf.keras.applications.MobileNet"}, "no weights"),
    ],
)
def test_invalid_hyperparameters(model, params, problem):
    found = find(model)
    with pytest.raises(ModelError, match=problem):
        found.check_params({**found.default_params(), **params})


@pytest.mark.slow
def test_parts_of_a_batch_have_one_size(run_with, gan_flags, tmp_path):
    with pytest.raises(ModelError, match="discriminator_steps=3 does not divide the 32 examples"):
        run_with(
            "--model=sngan", *gan_flags, ADAM, "--mode=train", "--train_steps=1",
            f"--model_dir={tmp_path}", "--params=discriminator_steps=3",
        )  # fmt: skip


@pytest.mark.slow
def test_mixed_images_are_an_error(run_with, gan_flags, tmp_path):
    with pytest.raises((DataError, UsageError), match="not mixed"):
        run_with(
            "--model=sngan", *gan_flags, ADAM, "--mode=train", "--train_steps=1",
            f"--model_dir={tmp_path}", "--augment=mixup:0.2",
        )  # fmt: skip
