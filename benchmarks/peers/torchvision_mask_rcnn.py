"""torchvision's Mask R-CNN on PennFudan, beside `configs/pennfudan_mask_rcnn.cfg`.

Needs an environment for PyTorch:

    python3.11 -m venv torch && torch/bin/pip install torch==2.14.1 torchvision==0.29.1 \
        h5py pycocotools
    torch/bin/python benchmarks/peers/torchvision_mask_rcnn.py split PennFudanPed people
    torch/bin/python benchmarks/peers/torchvision_mask_rcnn.py train people \
        mobilenet_7_5_224_tf_no_top.h5 --minutes=60

`split` links 120 images for training and 50 for validation, as the tutorial of torchvision has
them, into folders that `prepare_data.py --dataset=image_masks` reads. `train` starts from the same
MobileNet, with frozen batch norm as torchvision's networks, trains by the optimizer of the tutorial
until the time is over, and prints COCO's average precision on the 50 images.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import math
import os
import pathlib
import time

import h5py
import numpy as np
import torch
import torchvision
from PIL import Image
from pycocotools import mask as coco_masks
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from torch import nn
from torchvision.models import detection
from torchvision.ops import feature_pyramid_network as fpn
from torchvision.ops import misc
from torchvision.transforms import functional

# Output channels at a width of 1, and strides, of the separable convolutions of MobileNet v1.
_BLOCKS = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5]
_BLOCKS += [(1024, 2), (1024, 1)]
_LAST_OF_LEVELS = (3, 5, 11, 13)  # block with the map of strides 4, 8, 16 and 32


def split(source, folder):
    """Links the images and masks of PennFudanPed into `FOLDER/PNGImages/train` and the like."""
    names = sorted(path.stem for path in (source / "PNGImages").iterdir())
    order = np.random.RandomState(0).permutation(len(names))
    for i, place in enumerate(order):
        part = "validation" if i >= len(names) - 50 else "train"
        for kind, end in (("PNGImages", ""), ("PedMasks", "_mask")):
            name = f"{names[place]}{end}.png"
            (folder / kind / part).mkdir(parents=True, exist_ok=True)
            os.symlink((source / kind / name).resolve(), folder / kind / part / name)


class MobileNet(nn.Module):
    """MobileNet v1 of Keras without its top, as maps of four levels for an FPN."""

    def __init__(self, weights, width=0.75):
        super().__init__()
        self._weights = h5py.File(weights)
        channels = int(32 * width)
        self.stem = self._layer("conv1", 3, channels, 3, 2)
        self.blocks = nn.ModuleList()
        for i, (filters, stride) in enumerate(_BLOCKS, 1):
            depthwise = self._layer(f"conv_dw_{i}", channels, channels, 3, stride, channels)
            inputs, channels = channels, int(filters * width)
            self.blocks.append(
                nn.Sequential(*depthwise, *self._layer(f"conv_pw_{i}", inputs, channels, 1, 1))
            )
        del self._weights

    def _layer(self, name, channels, filters, size, stride, groups=1):
        padding = size // 2 if stride == 1 else 0
        conv = nn.Conv2d(channels, filters, size, stride, padding, groups=groups, bias=False)
        norm = misc.FrozenBatchNorm2d(filters, eps=1e-3)
        (kernel,) = self._arrays(name, "depthwise_kernel" if groups > 1 else "kernel")
        order = (2, 3, 0, 1) if groups > 1 else (3, 2, 0, 1)
        conv.weight.data = torch.from_numpy(np.ascontiguousarray(kernel.transpose(order)))
        names = ("gamma", "beta", "moving_mean", "moving_variance")
        buffers = norm.weight, norm.bias, norm.running_mean, norm.running_var
        for buffer, values in zip(buffers, self._arrays(f"{name}_bn", *names)):
            buffer.copy_(torch.from_numpy(values))
        pad = [nn.ZeroPad2d((0, 1, 0, 1))] if stride == 2 else []
        return nn.Sequential(*pad, conv, norm, nn.ReLU6(inplace=True))

    def _arrays(self, layer, *names):
        return [self._weights[f"{layer}/{layer}/{name}:0"][()] for name in names]

    def forward(self, images):
        """Returns `{level: map}`."""
        x, maps = self.stem(images), {}
        for i, block in enumerate(self.blocks, 1):
            x = block(x)
            if i in _LAST_OF_LEVELS:
                maps[str(_LAST_OF_LEVELS.index(i))] = x
        return maps


class Backbone(nn.Module):
    """MobileNet and a feature pyramid, as `torchvision.models.detection` takes them."""

    def __init__(self, weights):
        super().__init__()
        self.body = MobileNet(weights)
        channels = [self.body.blocks[i - 1][-3].out_channels for i in _LAST_OF_LEVELS]
        self.out_channels = 256
        self.fpn = fpn.FeaturePyramidNetwork(channels, 256, fpn.LastLevelMaxPool())

    def forward(self, images):
        """Returns the five maps of the pyramid."""
        return self.fpn(self.body(images))


def read(folder, part):
    """Returns the images and masks of objects of a part of the split, as uint8 arrays."""
    found = []
    for path in sorted((folder / "PNGImages" / part).iterdir()):
        numbers = np.asarray(Image.open(folder / "PedMasks" / part / f"{path.stem}_mask.png"))
        masks = numbers == np.setdiff1d(numbers, 0)[:, np.newaxis, np.newaxis]
        found.append((np.asarray(Image.open(path).convert("RGB")), masks.astype(np.uint8)))
    return found


def example(image, masks, mirrored):
    """Returns the image and the target of torchvision, mirrored or not."""
    image, masks = functional.to_tensor(image), torch.from_numpy(masks)
    if mirrored:
        image, masks = image.flip(-1), masks.flip(-1)
    boxes = torchvision.ops.masks_to_boxes(masks) + torch.tensor([0.0, 0, 1, 1])
    return image, {
        "boxes": boxes,
        "labels": torch.ones(len(masks), dtype=torch.int64),
        "masks": masks,
    }


def train(model, examples, minutes, batch_size=2, learning_rate=0.005):
    """Trains until the time is over; the learning rate falls by a cosine of the time."""
    generator = np.random.RandomState(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0, momentum=0.9, weight_decay=5e-4)
    start, steps, waiting = time.time(), 0, []
    model.train()
    while (done := (time.time() - start) / (60 * minutes)) < 1:
        if len(waiting) < batch_size:
            waiting = list(generator.permutation(len(examples)))
        batch = [
            example(*examples[waiting.pop()], generator.rand() < 0.5) for _ in range(batch_size)
        ]
        images, targets = zip(*batch)
        losses = sum(model(list(images), list(targets)).values())
        rate = learning_rate * min(1, steps / 60) * (1 + math.cos(math.pi * done)) / 2
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        losses.backward()
        optimizer.step()
        steps += 1
        if steps % 50 == 0:
            print(
                f"step {steps}, {60 * minutes * done:.0f} s, loss {losses.item():.3f}", flush=True
            )
    print(f"{steps} steps of {batch_size} images in {minutes} minutes")


@torch.no_grad()
def evaluate(model, examples):
    """Prints the average precision of boxes and masks by pycocotools."""
    model.eval()
    truth = {"info": {}, "images": [], "annotations": [], "categories": [{"id": 1}]}
    found = []
    for i, (image, masks) in enumerate(examples):
        truth["images"].append({"id": i, "height": image.shape[0], "width": image.shape[1]})
        for box, mask in zip(example(image, masks, False)[1]["boxes"].tolist(), masks):
            annotation = {"id": len(truth["annotations"]) + 1, "image_id": i, "category_id": 1}
            encoded, width, height = _encode(mask), box[2] - box[0], box[3] - box[1]
            annotation.update(segmentation=encoded, area=int(mask.sum()), iscrowd=0)
            annotation["bbox"] = [box[0], box[1], width, height]
            truth["annotations"].append(annotation)
        (result,) = model([functional.to_tensor(image)])
        for box, score, mask in zip(result["boxes"].tolist(), result["scores"], result["masks"]):
            bbox = [box[0], box[1], box[2] - box[0], box[3] - box[1]]
            detection_ = {"image_id": i, "category_id": 1, "score": float(score), "bbox": bbox}
            found.append({**detection_, "segmentation": _encode(mask[0].numpy() >= 0.5)})
    for kind in ("bbox", "segm"):
        with contextlib.redirect_stdout(io.StringIO()):
            coco = COCO()
            coco.dataset = truth
            coco.createIndex()
            evaluation = COCOeval(coco, coco.loadRes([dict(one) for one in found]), kind)
            evaluation.evaluate()
            evaluation.accumulate()
            evaluation.summarize()
        ap, ap50, ap75 = evaluation.stats[:3]
        print(f"{kind}: AP {ap:.4f}, AP50 {ap50:.4f}, AP75 {ap75:.4f}")


def _encode(mask):
    return coco_masks.encode(np.asfortranarray(mask.astype(np.uint8)))


def main():
    """Splits the images, or trains and evaluates."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("split")
    command.add_argument("source", type=pathlib.Path, help="folder PennFudanPed")
    command.add_argument("folder", type=pathlib.Path, help="new folder")
    command = commands.add_parser("train")
    command.add_argument("folder", type=pathlib.Path, help="of split")
    command.add_argument("weights", help="mobilenet_7_5_224_tf_no_top.h5")
    command.add_argument("--minutes", type=float, default=60, help="of the training")
    command.add_argument("--image_size", type=int, default=320, help="longer side in pixels")
    command.add_argument("--threads", type=int, help="of PyTorch")
    arguments = parser.parse_args()
    if arguments.command == "split":
        split(arguments.source, arguments.folder)
        return
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    model = detection.MaskRCNN(
        Backbone(arguments.weights),
        num_classes=2,
        min_size=arguments.image_size,
        max_size=arguments.image_size,
        image_mean=[0.5] * 3,
        image_std=[0.5] * 3,
    )
    train(model, read(arguments.folder, "train"), arguments.minutes)
    evaluate(model, read(arguments.folder, "validation"))


if __name__ == "__main__":
    main()
