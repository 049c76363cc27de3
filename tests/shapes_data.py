"""A drawn data set of circles and squares, as COCO JSON, as Pascal VOC XML, or as masks.

Every image is a function of its number, so a split has the same pixels in every format. Boxes are
the tight bounds of the pixels of a shape: continuous, pixel i from i to i + 1.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib

import numpy as np
from PIL import Image

from input_fns import convert
from input_fns.convert import writer
from input_fns.convert.options import Options

CLASS_NAMES = ("circle", "square")
# Neither starts at 0 or 1 nor is without gaps, as in COCO.
CATEGORY_IDS = (3, 7)
IMAGE_SIZES = ((96, 128), (128, 96), (128, 128))
# First number of the images of each split; the id of image n is 10 * n + 5.
_FIRST = {"train": 0, "val": 100_000, "test": 200_000}


@dataclasses.dataclass(frozen=True)
class Drawing:
    """An image and its shapes.

    Attributes:
      image: uint8 `[height, width, 3]`.
      classes: place of each shape in `CLASS_NAMES`, int32 `[n]`.
      boxes: y0, x0, y1, x1 of each shape, float32 `[n, 4]`.
      masks: pixels of each shape, bool `[n, height, width]`; shapes do not overlap.
    """

    image: np.ndarray
    classes: np.ndarray
    boxes: np.ndarray
    masks: np.ndarray

    @property
    def class_mask(self) -> np.ndarray:
        """0 for the background, 1 + class of a shape, uint8 `[height, width]`."""
        return np.sum(
            self.masks * (1 + self.classes)[:, None, None], axis=0, dtype=np.uint8
        ).reshape(self.image.shape[:2])

    @property
    def object_mask(self) -> np.ndarray:
        """The number of a shape from 1 in its pixels, 0 elsewhere, uint8 `[height, width]`."""
        found = (n * mask for n, mask in enumerate(self.masks, start=1))
        return sum(found, 0 * self.class_mask).astype(np.uint8)


def draw(
    number: int,
    size: tuple[int, int] | None = None,
    most: int = 4,
    side: tuple[int, int] = (20, 48),
) -> Drawing:
    """Draws image `number`.

    Args:
      number: seed of everything.
      size: height and width; default: one of `IMAGE_SIZES`.
      most: largest number of shapes; every fifth image has none.
      side: smallest and largest side of a shape in pixels.
    """
    random = np.random.default_rng(number)
    height, width = size or IMAGE_SIZES[number % len(IMAGE_SIZES)]
    image = random.integers(0, 70) + random.integers(0, 40, [height, width, 3])
    taken = np.zeros([height, width], bool)
    found = []
    wanted = 0 if number % 5 == 4 else random.integers(1, most + 1)
    for _ in range(8 * wanted):
        if len(found) == wanted:
            break
        diameter = int(random.integers(side[0], min(side[1], height, width) + 1))
        y, x = (int(random.integers(0, n - diameter + 1)) for n in (height, width))
        if taken[y : y + diameter, x : x + diameter].any():
            continue
        taken[y : y + diameter, x : x + diameter] = True
        kind = int(random.integers(len(CLASS_NAMES)))
        mask = np.zeros([height, width], bool)
        mask[y : y + diameter, x : x + diameter] = _shape(kind, diameter)
        image[mask] = random.integers(140, 256, [3])
        found.append((kind, [y, x, y + diameter, x + diameter], mask))
    kinds, boxes, masks = ([shape[i] for shape in found] for i in range(3))
    return Drawing(
        image.astype(np.uint8),
        np.array(kinds, np.int32),
        np.array(boxes, np.float32).reshape(-1, 4),
        np.array(masks, bool).reshape(-1, height, width),
    )


def _shape(kind, diameter):
    """Returns the pixels of a circle or a square, bool `[diameter, diameter]`."""
    if kind:
        return np.ones([diameter, diameter], bool)
    place = np.arange(diameter) + 0.5 - diameter / 2
    return place[:, np.newaxis] ** 2 + place**2 <= (diameter / 2) ** 2


def drawings(split: str, count: int, **options) -> dict[int, Drawing]:
    """Returns `{image id: Drawing}` of a split, "train", "val" or "test"; options as of `draw`."""
    first = _FIRST[split]
    return {10 * n + 5: draw(n, **options) for n in range(first, first + count)}


def file_name(image_id: int) -> str:
    """Returns the file name of an image, with its extension."""
    return f"{image_id:07d}.png"


def write_coco(folder: pathlib.Path, splits: dict[str, int], **options) -> None:
    """Writes `SPLIT/*.png` and `annotations/instances_SPLIT.json`.

    Args:
      folder: created if missing.
      splits: `{split: number of images}`.
      **options: of `draw`.
    """
    for split, count in splits.items():
        drawn = drawings(split, count, **options)
        _write_images(folder / split, drawn)
        path = folder / "annotations" / f"instances_{split}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(coco(drawn)))


def prepare_coco(
    folder: pathlib.Path, splits: dict[str, int], task: str, name: str | None = None
) -> pathlib.Path:
    """Converts `write_coco`'s files; returns the folder of the data set."""
    write_coco(folder / "raw", splits)
    given = {} if name is None else {"name": name}
    options = Options("coco", source=str(folder / "raw"), task=task, **given)
    writer.write(convert.read(options), str(folder / "data"))
    return folder / "data"


def coco(drawn: dict[int, Drawing]) -> dict:
    """Returns the content of a COCO JSON: squares as polygons, circles as run lengths (RLE)."""
    images, annotations = [], []
    for image_id, drawing in drawn.items():
        height, width = drawing.image.shape[:2]
        images.append(
            {"id": image_id, "file_name": file_name(image_id), "height": height, "width": width}
        )
        for kind, box, mask in zip(drawing.classes.tolist(), drawing.boxes, drawing.masks):
            y0, x0, y1, x1 = box.tolist()
            polygon = [x0, y0, x1, y0, x1, y1, x0, y1]
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": image_id,
                    "category_id": CATEGORY_IDS[kind],
                    "bbox": [x0, y0, x1 - x0, y1 - y0],
                    "area": int(mask.sum()),
                    "iscrowd": 0,
                    "segmentation": [polygon] if kind else run_lengths(mask),
                }
            )
    categories = [{"id": i, "name": name} for i, name in zip(CATEGORY_IDS, CLASS_NAMES)]
    return {"images": images, "annotations": annotations, "categories": categories}


def run_lengths(mask: np.ndarray) -> dict:
    """Returns the uncompressed RLE of a mask: runs of 0 and 1 in turn, down the columns."""
    flat = mask.T.ravel()
    ends = np.flatnonzero(np.diff(flat)) + 1
    counts = np.diff(np.concatenate([[0], ends, [flat.size]])).tolist()
    return {"size": list(mask.shape), "counts": [0, *counts] if flat[0] else counts}


def write_voc(folder: pathlib.Path, splits: dict[str, int], **options) -> None:
    """Writes `JPEGImages/*.png`, `Annotations/*.xml` and `ImageSets/Main/SPLIT.txt`.

    Corners are pixels, the first one 1, and the last one is a pixel of the box, as in VOC.
    """
    for name in ("Annotations", "ImageSets/Main"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for split, count in splits.items():
        drawn = drawings(split, count, **options)
        _write_images(folder / "JPEGImages", drawn)
        stems = []
        for image_id, drawing in drawn.items():
            stems.append(file_name(image_id)[: -len(".png")])
            (folder / "Annotations" / f"{stems[-1]}.xml").write_text(voc(image_id, drawing))
        (folder / "ImageSets" / "Main" / f"{split}.txt").write_text("\n".join(stems) + "\n")


def write_voc_objects(folder: pathlib.Path, splits: dict[str, int], **options) -> None:
    """Writes `write_voc`'s files, `SegmentationObject/*.png` and `SegmentationClass/*.png`."""
    write_voc(folder, splits, **options)
    for kind in ("object", "class"):
        place = folder / f"Segmentation{kind.title()}"
        place.mkdir()
        for split, count in splits.items():
            for image_id, drawing in drawings(split, count, **options).items():
                mask = getattr(drawing, f"{kind}_mask")
                Image.fromarray(mask).save(place / file_name(image_id))


def voc(image_id: int, drawing: Drawing) -> str:
    """Returns the XML of one image."""
    height, width = drawing.image.shape[:2]
    lines = [
        "<annotation>",
        f"\t<filename>{file_name(image_id)}</filename>",
        f"\t<size><width>{width}</width><height>{height}</height><depth>3</depth></size>",
    ]
    for kind, (y0, x0, y1, x1) in zip(drawing.classes, drawing.boxes.astype(int).tolist()):
        corners = {"xmin": x0 + 1, "ymin": y0 + 1, "xmax": x1, "ymax": y1}
        box = "".join(f"<{name}>{value}</{name}>" for name, value in corners.items())
        lines += [
            f"\t<object><name>{CLASS_NAMES[kind]}</name><difficult>0</difficult>",
            f"\t\t<bndbox>{box}</bndbox>",
            "\t</object>",
        ]
    return "\n".join([*lines, "</annotation>", ""])


def write_yolo(folder: pathlib.Path, splits: dict[str, int], polygons=False, **options) -> None:
    """Writes `images/SPLIT/*.png`, `labels/SPLIT/*.txt` and `data.yaml`.

    With `polygons` the lines of squares are outlines; circles stay boxes.
    """
    for split, count in splits.items():
        drawn = drawings(split, count, **options)
        _write_images(folder / "images" / split, drawn)
        (folder / "labels" / split).mkdir(parents=True)
        for image_id, drawing in drawn.items():
            path = folder / "labels" / split / file_name(image_id).replace(".png", ".txt")
            path.write_text(yolo(drawing, polygons))
    lines = [f"{split}: images/{split}" for split in splits]
    (folder / "data.yaml").write_text("\n".join([*lines, f"names: {list(CLASS_NAMES)}", ""]))


def yolo(drawing: Drawing, polygons=False) -> str:
    """Returns the text file of one image."""
    height, width = drawing.image.shape[:2]
    lines = []
    for kind, box in zip(drawing.classes, drawing.boxes):
        y0, x0, y1, x1 = (box / [height, width, height, width]).tolist()
        numbers = [(x0 + x1) / 2, (y0 + y1) / 2, x1 - x0, y1 - y0]
        if polygons and kind:
            numbers = [x0, y0, x1, y0, x1, y1, x0, y1]
        lines.append(" ".join(map(str, (kind, *numbers))))
    return "\n".join([*lines, ""])


def stored(row, name: str) -> np.ndarray:
    """Returns a feature of a converted row as an array."""
    feature = row.features[name]
    return np.frombuffer(row.values[name], feature.dtype).reshape(feature.shape)


def write_masks(folder: pathlib.Path, splits: dict[str, int], **options) -> None:
    """Writes `images/SPLIT/*.png`, `masks/SPLIT/*.png` and `classes.txt`.

    A mask is grey: 0 for the background, 1 for a circle, 2 for a square, and 255, void, for one row
    of pixels around a shape in every second image.
    """
    for split, count in splits.items():
        drawn = drawings(split, count, **options)
        _write_images(folder / "images" / split, drawn)
        (folder / "masks" / split).mkdir(parents=True)
        for image_id, drawing in drawn.items():
            mask = void_borders(drawing) if image_id % 20 == 5 else drawing.class_mask
            Image.fromarray(mask).save(folder / "masks" / split / file_name(image_id))
    (folder / "classes.txt").write_text("\n".join(("background", *CLASS_NAMES)) + "\n")


def void_borders(drawing: Drawing) -> np.ndarray:
    """Returns `class_mask` with 255 for the background pixels beside a shape."""
    inside = np.pad(drawing.class_mask > 0, 1)
    near = inside[:-2, 1:-1] | inside[2:, 1:-1] | inside[1:-1, :-2] | inside[1:-1, 2:]
    return np.where(near & (drawing.class_mask == 0), 255, drawing.class_mask).astype(np.uint8)


def _write_images(folder, drawn):
    folder.mkdir(parents=True, exist_ok=True)
    for image_id, drawing in drawn.items():
        Image.fromarray(drawing.image).save(folder / file_name(image_id))
