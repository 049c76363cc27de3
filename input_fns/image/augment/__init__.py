"""Augmentation of training examples on the host, on whole batches.

`--augment` lists operations, applied from left to right, with their arguments after colons:

    resize_crop:AREA     random resized crop: area AREA (0.08 for ImageNet) to 1, aspect ratio 3/4
                         to 4/3
    random_crop          random crop as large as the center crop of evaluation (--center_crop)
    box_crop:PROBABILITY:OVERLAP  random crop in which at least one box keeps OVERLAP of its area
    scale_jitter:LOW:HIGH  LOW to HIGH of the fitted size, then a random crop or padding
    flip                 horizontal flip with probability 1/2
    crop:PIXELS          zero padding by PIXELS, then a random crop of the original size
    shift:FRACTION       translation by up to FRACTION of height and width
    rotate:DEGREES       rotation by up to DEGREES
    shear:DEGREES        horizontal shear by up to DEGREES
    scale:FRACTION       scaling by 1-FRACTION to 1+FRACTION
    jitter:STRENGTH      color jitter: brightness, contrast, saturation times 1-STRENGTH to
                         1+STRENGTH
    erase:PROBABILITY    random erasing: a rectangle set to 0
    randaugment:N:LEVEL  RandAugment: N of fourteen operations at LEVEL (0 to 10)
    mosaic:PROBABILITY   mosaic of four images of the batch and their boxes
    mixup:ALPHA          mixup with a neighbor in the batch, weight from Beta(ALPHA, ALPHA)
    cutmix:ALPHA         CutMix with a neighbor in the batch, area from Beta(ALPHA, ALPHA)

Each operation is a function of the examples and of their random numbers (`Augmentation.draw`).
resize_crop, random_crop, mixup and cutmix need images with one class each; box_crop and mosaic need
boxes, scale_jitter boxes or masks.

Geometric operations move the image, its mask and its boxes with the same numbers; photometric ones
(jitter, erase) change the image only.
"""

from input_fns.image.augment.augmentation import Augmentation, parse

__all__ = ["Augmentation", "parse"]
