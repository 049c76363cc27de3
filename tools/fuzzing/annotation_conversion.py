"""Targets: images with boxes and masks, as prepare_data.py converts them."""

from __future__ import annotations

import functools

from tools.fuzzing import mutations, samples
from tools.fuzzing.case import Case
from tools.fuzzing.conversion import Conversion, any_file, convert
from tools.fuzzing.image_conversion import mutate_image_file

_TASKS = ("detection", "segmentation")


class Coco(Conversion):
    """A JSON of boxes, polygons and run lengths."""

    name = "coco"
    write = staticmethod(samples.write_annotated_images)
    flags = ("--dataset=coco", "--source={}/coco", "--validation_fraction=0")
    _strings = ("../../outside/x", "/etc/passwd", "1.png", "images\\1.png", "a", "PP0", "oooo")
    _numbers = (b"NaN", b"-Infinity", b"1e400", b"-1e308", b"1" * 19, b"0.0001", b"[]", b"null")

    def run(self, case: Case) -> str:
        """Mutates values of the JSON, or its bytes."""
        folder = case.copy_base("source")

        def mutate(data):
            if case.random.random() < 0.6:
                return mutations.mutate_json(case.random, data, self._strings)
            if case.random.random() < 0.6:
                return _replace_number(case.random, data, self._numbers)
            return mutations.mutate_bytes(case.random, data, self._numbers)

        mutations.mutate_file(case.random, folder / "coco" / "boxes.json", mutate)
        if case.random.random() < 0.2:
            path = any_file(case, folder / "coco" / "images")
            mutate_image_file(case.random, path, path.read_bytes())
        return convert(case, *self.arguments(folder), f"--task={case.random.choice(_TASKS)}")


class Voc(Conversion):
    """XML of boxes."""

    name = "voc"
    write = staticmethod(samples.write_annotated_images)
    flags = ("--dataset=voc", "--source={}/voc", "--validation_fraction=0")
    _tokens = (
        *("<object>", "</object>", "<bndbox>", "<name>a</name>", "<difficult>1</difficult>"),
        *("<!DOCTYPE a [<!ENTITY b 'c'>]>", "&b;", "&lt;", "<![CDATA[", "]]>", "<!--", "\ufeff"),
        *("nan", "inf", "-5", "1e300", "0", "999999999999", "5.5", "<xmin>9</xmin>", "\0", "\r"),
    )

    def run(self, case: Case) -> str:
        """Mutates one or two files."""
        folder = case.copy_base("source")
        mutate = functools.partial(_mutate, case.random, self._tokens)
        for path in {any_file(case, folder / "voc" / "Annotations") for _ in range(2)}:
            mutations.mutate_file(case.random, path, mutate)
        arguments = [*self.arguments(folder), f"--box_origin={case.random.randrange(2)}"]
        return convert(case, *arguments)


class Yolo(Conversion):
    """Text files of boxes and polygons, and the YAML of the classes."""

    name = "yolo"
    write = staticmethod(samples.write_annotated_images)
    flags = ("--dataset=yolo", "--source={}/yolo", "--validation_fraction=0")
    _tokens = (
        *("nan", "inf", "-1", "1e300", "0", "7", "0.5 0.5", "1 0.5 0.5 0.1 0.1\n", "\0", "\r", "a"),
        *(
            "names:",
            "nc: 3",
            "[a, b]",
            "0: a",
            "- a",
            "&a [*a]",
            "!!python/name:os.system",
            "{",
            "\t",
        ),
    )

    def run(self, case: Case) -> str:
        """Mutates one or two files."""
        folder = case.copy_base("source")
        mutate = functools.partial(_mutate, case.random, self._tokens)
        for _ in range(case.random.randint(1, 2)):
            path = folder / "yolo" / "data.yaml"
            if case.random.random() < 0.7:
                path = any_file(case, folder / "yolo" / "labels")
            mutations.mutate_file(case.random, path, mutate)
        task = case.random.choice((*_TASKS, "instance_segmentation"))
        return convert(case, *self.arguments(folder), f"--task={task}")


class Masks(Conversion):
    """Masks of images."""

    name = "masks"
    write = staticmethod(samples.write_annotated_images)
    flags = ("--dataset=image_masks", "--source={}/masks", "--validation_fraction=0")

    def run(self, case: Case) -> str:
        """Mutates one to three masks or images, or the list of classes."""
        folder = case.copy_base("source")
        for _ in range(case.random.randint(1, 3)):
            part = case.random.choice(("masks", "masks", "images"))
            path = any_file(case, folder / "masks" / part)
            mutate_image_file(case.random, path, any_file(case, folder / "masks").read_bytes())
        if case.random.random() < 0.15:
            path = folder / "masks" / "classes.txt"
            tokens = ("a", "\0", "b b")
            mutations.mutate_file(
                case.random,
                path,
                lambda data: mutations.mutate_text(case.random, data.decode(), tokens),
            )
        arguments = self.arguments(folder)
        if case.random.random() < 0.3:
            arguments.append(f"--ignored={case.random.choice(('b', '1', '255,0', 'no'))}")
        if case.random.random() < 0.3:
            values = case.random.choice(("0,1,255", "2,1,0", "0,1", "65535,0,1"))
            arguments.append(f"--mask_values={values}")
        return convert(case, *arguments)


def _mutate(rng, tokens, data):
    """Returns a text file with a number, a token or bytes changed."""
    encoded = [token.encode() for token in tokens]
    if rng.random() < 0.5:
        return _replace_number(rng, data, [token for token in encoded if token[-1:].isalnum()])
    if rng.random() < 0.7:
        return mutations.mutate_text(rng, data.decode(), tokens)
    return mutations.mutate_bytes(rng, data, encoded)


def _replace_number(rng, data, numbers):
    """Returns text with one of its numbers replaced."""
    places = [i for i in range(1, len(data)) if data[i : i + 1].isdigit()]
    if not places:
        return data
    start = end = rng.choice(places)
    while end < len(data) and data[end : end + 1].isdigit():
        end += 1
    return data[:start] + rng.choice(numbers) + data[end:]


TARGETS = (Coco(), Voc(), Yolo(), Masks())
