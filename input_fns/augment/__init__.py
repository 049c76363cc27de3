"""Augmentation of training images on the host, in whole batches.

`--augment` lists it as words, applied from left to right, each with its arguments behind colons:

    resize_crop:AREA     a window of AREA (0.08 for ImageNet) to all of the image, of proportions
                         3/4 to 4/3, brought to the size that the model sees
    random_crop          a window as large as evaluation sees (--center_crop), but anywhere
    flip                 left and right changed, half of the images
    crop:PIXELS          padded with zeros all around and cut out again somewhere
    shift:FRACTION       moved by up to FRACTION of the height and of the width
    rotate:DEGREES       turned by up to DEGREES either way
    jitter:STRENGTH      brightness, contrast and saturation, each times 1-STRENGTH to 1+STRENGTH
    erase:PROBABILITY    a rectangle set to zero
    randaugment:N:LEVEL  N of fourteen operations at LEVEL (0 to 10)
    mixup:ALPHA          with a neighbour in the batch, share by Beta(ALPHA, ALPHA)
    cutmix:ALPHA         a rectangle of a neighbour, area by Beta(ALPHA, ALPHA)

Every operation is a function of the images and of numbers that `Augmentation.draw` gives each of
them: nothing in here is random by itself.
"""

from input_fns.augment.augmentation import Augmentation, parse

__all__ = ["Augmentation", "parse"]
