"""Generative adversarial networks of images: hyperparameters, losses, training step, predictions.

Features are `{"image": uint8 [batch, height, width, channels], "latent": float32 [batch,
latent_size]}`, and of a conditional network `"class_id": int32 [batch]`; a prediction has no image.
`input_fns.image.latent_pipeline` makes them. Variables are in the scopes `generator` and
`discriminator`.
"""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from common.constants import DROPOUT_SEED
from common.params import Ints
from models.generation import gan_losses, sample_quality, samples
from models.layers import normalization
from models.model import Loss, Model, ModelError, check_not_negative, check_positive

_GENERATOR, _DISCRIMINATOR = "generator/.*", "discriminator/.*"  # names of variables
_SEED_RANGE = 2.0**24  # of the numbers in `DROPOUT_SEED`


def default_params():
    """Returns the hyperparameters of every GAN."""
    return {
        **normalization.default_params(epsilon=1e-4),  # of the generator
        "image_shape": Ints([28, 28, 1]),  # height, width, channels; set by the data set
        "latent_size": 128,
        "sampling_seed": 0,  # of the latents of evaluation and prediction
        "gan_loss": "hinge",  # or non_saturating, wasserstein_gp
        "gradient_penalty": 10.0,  # weight, with wasserstein_gp
        # Updates of the discriminator for one of the generator, each with a part of the batch.
        "discriminator_steps": 1,
        "discriminator_rate_factor": 1.0,  # times the learning rate
        **sample_quality.default_params(),
        "precision": "float32",  # or bfloat16, of the layers; set by --precision
    }


def check_params(params):
    """Raises `ModelError` for a value of `default_params` out of range."""
    normalization.check_params(params)
    sample_quality.check_params(params)
    check_positive(params, "latent_size", "discriminator_steps", "discriminator_rate_factor")
    check_not_negative(params, "sampling_seed", "gradient_penalty")
    if params["gan_loss"] not in gan_losses.LOSSES:
        known = ", ".join(gan_losses.LOSSES)
        raise ModelError(f"gan_loss={params['gan_loss']} must be one of {known}")
    height, width, channels = params["image_shape"]
    if height % 4 or width % 4 or channels not in (1, 3):
        raise ModelError(
            f"image_shape={params['image_shape']}: height and width must be multiples of 4, "
            "channels 1 or 3. Set --image_size"
        )


def unused_params(params):
    """Returns the hyperparameters that other values make useless; see `Model`."""
    is_penalized = params["gan_loss"] == "wasserstein_gp"
    return {
        **({} if is_penalized else {"gradient_penalty": "gan_loss"}),
        **sample_quality.unused_params(params),
    }


def num_stages(params):
    """Returns how often networks halve the images: to 4 to 7 pixels, if their sides are even."""
    sides, count = params["image_shape"][:2], 0
    while min(sides) > 7 and not any(side % 2 for side in sides):
        sides, count = [side // 2 for side in sides], count + 1
    return count


def scaled_images(features, params):
    """Returns images in [-1, 1], `[batch, height, width, channels]` of `params["precision"]`."""
    return tf.cast(tf.cast(features["image"], tf.float32) / 127.5 - 1, params["precision"])


def _classes(features, params):
    """Returns one-hot classes, `[batch, num_classes]`; None without classes."""
    if "class_id" not in features:
        return None
    return tf.one_hot(features["class_id"], params["num_classes"], dtype=params["precision"])


class Gan:
    """Inference, decoding and the training step of a pair of networks."""

    def __init__(self, generate: Callable, discriminate: Callable):
        """Takes the networks; classes are one-hot `[batch, num_classes]`, or None.

        Args:
          generate: `(latents [batch, latent_size], classes, params, training) -> images`, in
            [-1, 1].
          discriminate: `(images, classes, params, training) -> logits [batch]`.
        """
        self._generate, self._discriminate = generate, discriminate

    def inference(self, features, params, training):
        """Computes images, and the logits of generated and of real ones."""
        generated = self._images(features, params, training)
        real = scaled_images(features, params)
        return {
            "image": generated,
            "real_logits": self._logits(real, features, params, training),
            "logits": self._logits(generated, features, params, training),
        }

    def decode(self, features, params):
        """Computes images."""
        return {"image": self._images(features, params, training=False)}

    def train_step(self, features, labels, params, tools):
        """Updates the discriminator with parts of the batch, then the generator with all of it."""
        del labels
        of_discriminator, of_generator = gan_losses.LOSSES[params["gan_loss"]]
        factor, steps = params["discriminator_rate_factor"], params["discriminator_steps"]
        discriminator = tools.optimizer("discriminator", tools.learning_rate * factor)
        generator = tools.optimizer("generator")
        _check_batch(features["latent"], steps)
        features = {**features, "mix": features[DROPOUT_SEED][:, 0]}
        real_logits = []
        for i in range(steps):
            outputs = tools.infer(_every(features, steps, i), self._penalized)
            real_logits.append(outputs["real_logits"])
            values = of_discriminator(outputs["real_logits"], outputs["logits"])
            terms = {"discriminator": Loss(values, variables=_DISCRIMINATOR)}
            if "penalty" in outputs:
                scale = params["gradient_penalty"]
                penalty = Loss(outputs["penalty"], scale=scale, variables=_DISCRIMINATOR)
                terms["gradient_penalty"] = penalty
            tools.update(discriminator, terms)
        outputs = tools.infer(features, self._fooling)
        values = of_generator(outputs["logits"])
        tools.update(generator, {"generator": Loss(values, variables=_GENERATOR)})
        return tools.finish({**outputs, "real_logits": _joined(real_logits)})

    def _penalized(self, features, params, training):
        """Outputs for an update of the discriminator: `inference`, and the gradient penalty."""
        outputs = self.inference(features, params, training)
        if params["gan_loss"] == "wasserstein_gp":
            outputs["penalty"] = gan_losses.gradient_penalty(
                lambda images: self._logits(images, features, params, training),
                scaled_images(features, params),
                outputs["image"],
                tf.cast(features["mix"], tf.float32) / _SEED_RANGE,
            )
        return outputs

    def _fooling(self, features, params, training):
        """Outputs for an update of the generator."""
        generated = self._images(features, params, training)
        return {"image": generated, "logits": self._logits(generated, features, params, training)}

    def _images(self, features, params, training):
        latents = tf.cast(features["latent"], params["precision"])
        with tf.compat.v1.variable_scope("generator"):
            return self._generate(latents, _classes(features, params), params, training)

    def _logits(self, images, features, params, training):
        """Builds the discriminator after the updates of batch and spectral norm before it.

        Without an order, two networks of one update could read `u` before or after its update.
        """
        updates = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.UPDATE_OPS)
        scope = tf.compat.v1.variable_scope("discriminator", reuse=tf.compat.v1.AUTO_REUSE)
        with tf.control_dependencies(updates if training else []), scope:
            logits = self._discriminate(images, _classes(features, params), params, training)
        return tf.cast(logits, tf.float32)


def model(
    name, default_params, generate, discriminate, check_params=check_params, is_conditional=False
):
    """Returns the Model of a GAN; see `Gan` for the networks."""
    gan = Gan(generate, discriminate)
    return Model(
        name=name,
        default_params=default_params,
        inference=gan.inference,
        decode=gan.decode,
        losses=losses,
        predictions=predictions,
        eval_outputs=lambda *_: {},
        host_metrics=sample_quality.host_metrics,
        reports=samples.reports,
        check_params=check_params,
        unused_params=unused_params,
        train_step=gan.train_step,
        features=("image", "latent", *(["class_id"] if is_conditional else [])),
        dataset_properties=("image_shape", *(["num_classes"] if is_conditional else [])),
    )


def losses(features, labels, outputs, params):
    """Losses of an evaluation, whose discriminator has no gradient penalty."""
    del features, labels
    of_discriminator, of_generator = gan_losses.LOSSES[params["gan_loss"]]
    values = of_discriminator(outputs["real_logits"], outputs["logits"])
    return {
        "generator": Loss(of_generator(outputs["logits"]), variables=_GENERATOR),
        "discriminator": Loss(values, variables=_DISCRIMINATOR),
    }


def predictions(features, outputs, params):
    """Returns `{"image": float32 [batch, height, width, channels]}`, in [0, 1]."""
    del features, params
    return {"image": (outputs["image"] + 1) / 2}


def _check_batch(latents, steps):
    batch_size = latents.shape.as_list()[0]
    if batch_size % steps:
        raise ModelError(
            f"discriminator_steps={steps} does not divide the {batch_size} examples of a training "
            "batch (of a core, on a TPU). Change --train_batch_size"
        )


def _every(features, steps, first):
    """Returns part `first` of `steps` parts, the same examples on any number of cores."""
    return {name: tensor[first::steps] for name, tensor in features.items()}


def _joined(parts):
    """Returns the tensor of which `parts` are every so many values, `[batch]`."""
    return tf.reshape(tf.stack(parts, axis=1), [-1])
