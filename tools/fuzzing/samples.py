"""Writes small valid files of each input format, equal in every run."""

from __future__ import annotations

import gzip
import io
import json
import pathlib
import pickle
import struct
import tarfile
import wave

import numpy as np
from PIL import Image

CLASSES = 3
HEIGHT, WIDTH = 7, 5
WORDS = ("one", "two", "three", "four", "five", "six", "seven", "eight")


def make_stripes(name: str = "stripes"):
    """Returns a raw data set for a small model: images of class c are bright in column c."""
    from input_fns.convert import source

    random = np.random.default_rng(3)

    def split(size):
        labels = np.arange(size) % CLASSES
        images = random.integers(0, 60, [size, HEIGHT, WIDTH, 1], dtype=np.uint8)
        images[np.arange(size), :, labels] += 150
        return source.RawArrays(images, labels)

    names = tuple(f"stripe {c}" for c in range(CLASSES))
    return source.RawDataset(name, names, {"train": split(31), "test": split(13)})


def write_idx(folder: pathlib.Path) -> None:
    """Writes four IDX files named like MNIST; those of "train" are gzipped."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(1)
    for prefix, size in (("train", 12), ("t10k", 5)):
        arrays = {
            "images-idx3": random.integers(0, 256, [size, 6, 5]),
            "labels-idx1": np.arange(size) % 10,
        }
        for name, array in arrays.items():
            header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}i", *array.shape)
            data = header + array.astype(np.uint8).tobytes()
            path = folder / f"{prefix}-{name}-ubyte"
            if prefix == "train":
                path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(data, mtime=0))
            else:
                path.write_bytes(data)


def write_cifar(folder: pathlib.Path) -> None:
    """Writes CIFAR-10 as binary files, pickles and an archive, and CIFAR-100 as pickles."""
    random = np.random.default_rng(2)

    def batch(size=2):
        return random.integers(0, 256, [size, 3072]).astype(np.uint8), list(range(size))

    names = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
    for version in ("binary", "pickles", "archive", "hundred"):
        (folder / version).mkdir(parents=True)
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name in names:
            pixels, labels = batch()
            columns = [np.array(labels)[:, np.newaxis], pixels]
            binary = np.concatenate(columns, axis=1).astype(np.uint8).tobytes()
            pickled = pickle.dumps({b"data": pixels, b"labels": labels}, protocol=2)
            (folder / "binary" / f"{name}.bin").write_bytes(binary)
            (folder / "pickles" / name).write_bytes(pickled)
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}.bin")
            member.size = len(binary)
            tar.addfile(member, io.BytesIO(binary))
    (folder / "archive" / "cifar-10-binary.tar.gz").write_bytes(
        gzip.compress(archive.getvalue(), mtime=0)
    )
    for name, size in (("train", 10), ("test", 2)):
        pixels, labels = batch(size)
        fields = {b"data": pixels, b"fine_labels": labels}
        (folder / "hundred" / name).write_bytes(pickle.dumps(fields, protocol=2))
    classes = {b"fine_label_names": [f"class {i}".encode() for i in range(100)]}
    (folder / "hundred" / "meta").write_bytes(pickle.dumps(classes, protocol=2))


def encode_image(number: int, file_format: str, size: tuple[int, int] = (9, 8)) -> bytes:
    """Returns an RGB image file, "JPEG" (with EXIF orientation), "PNG", "GIF" or "BMP"."""
    pixels = np.random.default_rng(number).integers(0, 256, [*size, 3]).astype(np.uint8)
    file = io.BytesIO()
    options = {}
    if file_format == "JPEG":
        options["exif"] = Image.Exif()
        options["exif"][0x0112] = 6 if number % 2 else 1
    Image.fromarray(pixels).save(file, file_format, **options)
    return file.getvalue()


FORMATS = {"jpg": "JPEG", "png": "PNG", "gif": "GIF", "bmp": "BMP"}


def write_images(folder: pathlib.Path) -> None:
    """Writes two classes of four images in four formats, and a CSV file that lists them."""
    rows = ["file,label,split"]
    for number, name in enumerate(("cats", "dogs")):
        (folder / "images" / name).mkdir(parents=True)
        for i, (extension, file_format) in enumerate(FORMATS.items()):
            path = folder / "images" / name / f"{i}.{extension}"
            path.write_bytes(encode_image(10 * number + i, file_format))
            rows.append(f"{name}/{path.name},{name},{'test' if i == 3 else 'train'}")
    (folder / "table.csv").write_text("\n".join(rows) + "\n")


def write_parallel_text(folder: pathlib.Path) -> None:
    """Writes two splits of parallel text; targets are reversed sources in upper case."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(3)
    for split, count in (("train", 60), ("val", 7)):
        lines = [list(random.choice(WORDS, random.integers(1, 6))) for _ in range(count)]
        for language, step, change in (("en", 1, str.lower), ("de", -1, str.upper)):
            text = "".join(f"{change(' '.join(words[::step]))}\n" for words in lines)
            (folder / f"{split}.{language}").write_text(text)


def write_texts(folder: pathlib.Path) -> None:
    """Writes documents of sentences, wiki.txt, and a table of sentences with labels, train.tsv."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(5)
    sentences = [" ".join(random.choice(WORDS, random.integers(2, 9))) for _ in range(60)]
    documents = ["\n".join(sentences[i : i + 4]) for i in range(0, 60, 4)]
    (folder / "wiki.txt").write_text("\n\n".join(documents) + "\n")
    rows = [f"{text}\t{i % 3}" for i, text in enumerate(sentences)]
    (folder / "train.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")


def write_clicks(folder: pathlib.Path) -> None:
    """Writes rows in Criteo's format, train.txt."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(6)
    rows = [
        [i % 2, *random.integers(0, 90, 13), *(f"{v:08x}" for v in random.integers(0, 9, 26))]
        for i in range(60)
    ]
    (folder / "train.txt").write_text("".join("\t".join(map(str, row)) + "\n" for row in rows))


def write_recordings(folder: pathlib.Path) -> None:
    """Writes two classes of six recordings of a tenth of a second, WAV files."""
    random = np.random.default_rng(7)
    for number in range(12):
        path = folder / ("yes", "no")[number % 2] / f"{number}.wav"
        path.parent.mkdir(parents=True, exist_ok=True)
        with wave.open(str(path), "wb") as file:
            file.setparams((1, 2, 16_000, 0, "NONE", ""))
            file.writeframes(random.integers(-999, 999, 1600).astype("<i2").tobytes())


def write_annotated_images(folder: pathlib.Path) -> None:
    """Writes five images with boxes and masks: as COCO, VOC and YOLO, and as masks."""
    random = np.random.default_rng(4)
    folders = ("coco/images", "voc/JPEGImages", "yolo/images", "masks/images")
    for name in (*folders, "voc/Annotations", "yolo/labels", "masks/masks"):
        (folder / name).mkdir(parents=True)
    images, annotations = [], []
    for number in range(1, 6):
        data = encode_image(2 * number, "PNG" if number % 2 else "JPEG")
        name = f"{number}.{'png' if number % 2 else 'jpg'}"
        for place in folders:
            (folder / place / name).write_bytes(data)
        x, y = (int(value) for value in random.integers(0, 4, 2))
        label = number % 2
        images.append({"id": number, "file_name": name, "height": 9, "width": 8})
        mask = np.zeros([9, 8], np.uint8)
        mask[y : y + 4, x : x + 3] = 1 + label
        polygon = [[x, y, x + 3, y, x + 3, y + 4, x, y + 4]]
        lengths = {"size": [9, 8], "counts": [9 * x, 36, 9 * (8 - x) - 36]}
        annotations.append(
            {
                "id": number,
                "image_id": number,
                "category_id": 1 + label,
                "bbox": [x, y, 3, 4],
                "area": 12.0,
                "iscrowd": 0,
                "segmentation": lengths if label else polygon,
            }
        )
        corners = {"xmin": x + 1, "ymin": y + 1, "xmax": x + 3, "ymax": y + 4}
        (folder / "voc" / "Annotations" / f"{number}.xml").write_text(
            f"<annotation>\n<filename>{name}</filename>\n<size><width>8</width>"
            f"<height>9</height></size>\n<object><name>{'ab'[label]}</name>"
            "<difficult>0</difficult>\n<bndbox>\n"
            + "\n".join(f"<{side}>{value}</{side}>" for side, value in corners.items())
            + "\n</bndbox></object>\n</annotation>\n"
        )
        box = f"{(x + 1.5) / 8} {(y + 2) / 9} {3 / 8} {4 / 9}"
        points = " ".join(f"{px / 8} {py / 9}" for px, py in zip(polygon[0][::2], polygon[0][1::2]))
        (folder / "yolo" / "labels" / f"{number}.txt").write_text(
            f"{label} {box if label else points}\n"
        )
        image = Image.fromarray(mask, "P" if label else "L")
        if label:
            image.putpalette(bytes(range(48)))
        image.save(folder / "masks" / "masks" / f"{number}.png")
    (folder / "yolo" / "data.yaml").write_text("train: images\nnames: [a, b]\n")
    (folder / "masks" / "classes.txt").write_text("ground\na\nb\n")
    categories = [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]
    content = {"images": images, "annotations": annotations, "categories": categories}
    (folder / "coco" / "boxes.json").write_text(json.dumps(content))
