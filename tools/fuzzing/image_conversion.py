"""Targets: folders and CSV files of images, as prepare_data.py converts them."""

from __future__ import annotations

import os
import pathlib

from tools.fuzzing import mutations, samples
from tools.fuzzing.case import Case
from tools.fuzzing.conversion import Conversion, any_file, convert

# Odd but valid file names; the last is not UTF-8.
_FILE_NAMES = ("new\nline", "escape\x1b[31m", "-rf", "a b", "*", "%s", "\u202egnp", "\udcff")
_SEPARATORS = ("\t", ",", '"', '"a\nb"', "\r\n", "\ufeff", "\0", "=1+1", "train", "label")

# Parts of image headers: sizes, chunks, markers.
IMAGE_TOKENS = (
    *(
        b"\xff\xd8\xff",
        b"\xff\xd9",
        b"\xff\xc0\0\x11\x08\xff\xff\xff\xff",
        b"\xff\xc2",
        b"\xff\xda",
    ),
    *(b"\x89PNG\r\n\x1a\n", b"IHDR\0\0\x9c\x40\0\0\x9c\x40\x08\x02\0\0\0", b"IEND\xaeB`\x82"),
    *(b"IDAT", b"tEXt", b"iCCP", b"acTL"),
    *(b"GIF89a\xff\xff\xff\xff", b"GIF87a", b",\0\0\0\0\xff\xff\xff\xff"),
    *(b"BM\xff\xff\xff\x7f", b"(\0\0\0\xff\xff\xff\x7f\xff\xff\xff\x7f", b"II*\0"),
    *(b"RIFF\xff\xff\xff\x7fWEBPVP8 ", b"8BPS", b"%!PS-Adobe"),
)


def mutate_image_file(rng, path: pathlib.Path, other: bytes) -> str:
    """Mutates an image file; half of the PNGs get valid checksums, so that chunks are parsed."""

    def mutate(data):
        data = mutations.mutate_bytes(rng, data, IMAGE_TOKENS, other)
        return mutations.fix_png_checksums(data) if rng.random() < 0.5 else data

    return mutations.mutate_file(rng, path, mutate)


class ImageFolder(Conversion):
    """Folders of images in four formats."""

    name = "image_folder"
    write = staticmethod(samples.write_images)
    flags = (
        *("--dataset=image_folder", "--source={}/images", "--name=pets"),
        "--validation_fraction=0.3",
    )

    def run(self, case: Case) -> str:
        """Mutates one to three images, or renames one."""
        folder = case.copy_base("source")
        for _ in range(case.random.randint(1, 3)):
            path = any_file(case, folder / "images")
            mutate_image_file(case.random, path, any_file(case, folder / "images").read_bytes())
            if case.random.random() < 0.15 and path.is_file():
                name = case.random.choice(_FILE_NAMES) + path.suffix
                os.rename(path, os.path.join(path.parent, name))
        arguments = self.arguments(folder)
        if case.random.random() < 0.5:
            arguments.append(f"--image_size={case.random.choice(('4', '4x6', '1'))}")
        if case.random.random() < 0.3:
            arguments.append("--channels=1")
        if case.random.random() < 0.3:
            arguments.append("--test_fraction=0.3")
        return convert(case, *arguments)


class ImageCsv(Conversion):
    """A CSV file that lists images."""

    name = "csv"
    write = staticmethod(samples.write_images)
    flags = (
        *("--dataset=image_csv", "--source={}/images", "--csv={}/table.csv"),
        *("--split_column=split", "--name=pets", "--validation_fraction=0.3"),
    )

    def run(self, case: Case) -> str:
        """Mutates the table, as text or as bytes."""
        folder = case.copy_base("source")
        tokens = (*_SEPARATORS, "cats/0.jpg", "cats/0", "split", "x" * 140_000, "cats,", ",,,,")

        def mutate(data):
            if case.random.random() < 0.7:
                return mutations.mutate_text(case.random, data.decode(), tokens)
            return mutations.mutate_bytes(case.random, data, [token.encode() for token in tokens])

        mutations.mutate_file(case.random, folder / "table.csv", mutate)
        arguments = self.arguments(folder)
        if case.random.random() < 0.2:
            arguments.remove("--split_column=split")
            arguments.append(f"--{case.random.choice(('group', 'image'))}_column=file")
        return convert(case, *arguments)


TARGETS = (ImageFolder(), ImageCsv())
