"""Images and masks of the same names in two folders: the class or the object of each pixel.

    SOURCE/images/SPLIT/a.jpg   SOURCE/masks/SPLIT/a.png
    SOURCE/SPLIT/images/a.jpg   SOURCE/SPLIT/masks/a.png
    SOURCE/SPLIT/a.png          SOURCE/SPLITannot/a.png                          CamVid
    SOURCE/images/a.jpg         SOURCE/masks/a.png                               one split

--image_folder and --mask_folder name other folders, --image_suffix and --mask_suffix what differs
in the names. `mask_classes` has the names of the classes and their values or colors.
"""

from __future__ import annotations

import os
from collections.abc import Collection

from common import folders
from common.constants import INSTANCES
from common.names import normalized, printable
from input_fns import DataError
from input_fns.convert import inventory, split_folders
from input_fns.convert.options import Options
from input_fns.convert.source import RawDataset
from input_fns.convert.split_folders import SPLIT
from input_fns.dataset_info import LeftOut
from input_fns.image.sources import (
    annotated_datasets,
    decoded_images,
    instance_files,
    mask_classes,
    mask_files,
)
from input_fns.image.sources.mask_files import Item

NO_MASK, NO_IMAGE = "images without a mask", "masks without an image"
LOSSY_MASK = "masks that are JPEG, which changes the values"
_LOSSY = (".jpg", ".jpeg", ".webp")
_MASK_FOLDERS = ("masks", "annotations", "labels")
_PATTERNS = (
    *(("images/{split}", f"{name}/{{split}}") for name in _MASK_FOLDERS),
    *(("{split}/images", f"{{split}}/{name}") for name in _MASK_FOLDERS),
    ("{split}", "{split}annot"),
    ("{split}", "{split}_labels"),
    ("leftImg8bit/{split}", "gtFine/{split}"),
    *(("images", name) for name in _MASK_FOLDERS),
)


def read(options: Options) -> RawDataset:
    """Returns the splits of the first layout of folders that is there.

    Raises:
      DataError: a folder or the class names are missing, or no image has a mask.
    """
    images, left_out = {}, {}
    paired, alone = _find_folders(options)
    for split, (image_folder, mask_folder) in paired.items():
        images[split], unused = pair(image_folder, mask_folder, options)
        stems = (os.path.relpath(item.path, image_folder) for item in images[split])
        split_folders.require_none_inside(image_folder, stems, "image_folder")
        left_out.update(unused)
    for reason, folder, extensions in alone:
        paths = _by_stem(folder, "", extensions, options).values()
        left_out.update(dict.fromkeys(paths, reason))
    return to_dataset(options, images, left_out, LeftOut())


def to_dataset(options, images, left_out_paths, left_out) -> RawDataset:
    """Returns the data set of `{split: [Item]}`, of the classes of the masks or of the objects."""
    if options.task == INSTANCES:
        return instance_files.to_dataset(options, images, left_out_paths, left_out)
    rules = mask_classes.find(options, images)
    return annotated_datasets.with_masks(options, rules, images, left_out, left_out_paths)


def pair(
    image_folder: str, mask_folder: str, options: Options, stems: Collection[str] | None = None
) -> tuple[list[Item], dict[str, str]]:
    """Returns images with their masks, sorted by name, and `{path: reason}` of files left out.

    Args:
      image_folder: folder of images, with subfolders.
      mask_folder: folder of masks, with the same subfolders.
      options: `image_suffix`, `mask_suffix` and `skip` are used.
      stems: names without extensions to take; None for all.

    Raises:
      DataError: no image has a mask, or two files have the same name.
    """
    images = _by_stem(image_folder, options.image_suffix, decoded_images.EXTENSIONS, options)
    masks = _by_stem(mask_folder, options.mask_suffix, mask_files.EXTENSIONS, options)
    is_apart = image_folder != mask_folder or options.mask_suffix
    lossy = _by_stem(mask_folder, options.mask_suffix, _LOSSY, options) if is_apart else {}
    if stems is not None:
        images = {stem: path for stem, path in images.items() if stem in stems}
        masks = {stem: path for stem, path in masks.items() if stem in stems}
    both = sorted(images.keys() & masks.keys())
    if not both and not masks and lossy:
        raise DataError(
            f"the masks in {mask_folder} are JPEG ({len(lossy)} files, the first "
            f"{printable(min(lossy.values()))}), which changes values. Export them "
            "again as PNG"
        )
    if not both:
        raise DataError(
            f"no mask in {mask_folder} ({_first(masks)}) has the name of an image in "
            f"{image_folder} ({_first(images)}). Use --image_suffix and --mask_suffix for the "
            "ends of their names that differ"
        )
    left_out = dict.fromkeys((path for stem, path in images.items() if stem not in masks), NO_MASK)
    left_out.update({path: NO_IMAGE for stem, path in masks.items() if stem not in images})
    left_out.update(dict.fromkeys(lossy.values(), LOSSY_MASK))
    return [Item(images[stem], masks[stem]) for stem in both], left_out


def _first(paths):
    return f"{len(paths)} files" + (f", the first {printable(min(paths))}" if paths else "")


def _by_stem(folder, suffix, extensions, options):
    """Returns `{path below the folder without suffix and extension: path}` of its files."""
    found: dict[str, str] = {}
    for path in inventory.files(folder, options):
        stem, extension = os.path.splitext(normalized(os.path.relpath(path, folder)))
        if extension.lower() not in extensions or not stem.endswith(suffix):
            continue
        stem = stem[: len(stem) - len(suffix)]
        if found.setdefault(stem, path) != path:
            raise DataError(
                f"{printable(path)} and {printable(found[stem])} have the same name. Leave one out "
                f"with --skip={os.path.basename(path)}"
            )
    return found


def _find_folders(options):
    """Returns `{split: (folder of images, folder of masks)}`, and folders without a partner.

    Those are `(reason, folder, extensions of its files)`.
    """
    source = options.source
    if not folders.is_folder(source):
        raise DataError(f"--source={source} is not a folder")
    patterns = _PATTERNS
    if options.image_folder or options.mask_folder:
        if not (options.image_folder and options.mask_folder):
            raise DataError("--image_folder and --mask_folder need each other. Set both or neither")
        patterns = ((options.image_folder, options.mask_folder),)
        if (SPLIT in options.image_folder) != (SPLIT in options.mask_folder):
            raise DataError(
                "one of --image_folder and --mask_folder has {split}, and not the other"
            )
    for pattern in patterns:
        images, masks = (split_folders.find(part, options) for part in pattern)
        both = images.of_split.keys() & masks.of_split.keys()
        if both:
            if "/" in pattern[0] or options.image_folder:
                split_folders.require_known(images, decoded_images.EXTENSIONS, options)
            paired = {
                s: (images.of_split[s], masks.of_split[s]) for s in images.of_split if s in both
            }
            return paired, [
                (reason, path, extensions)
                for reason, found, extensions in (
                    (NO_MASK, images, decoded_images.EXTENSIONS),
                    (NO_IMAGE, masks, mask_files.EXTENSIONS),
                )
                for split, path in found.of_split.items()
                if split not in both
            ]
    raise DataError(
        f"--source={source} has no folders of images and masks such as "
        f"{', '.join(f'{image} and {mask}' for image, mask in patterns[:: len(_MASK_FOLDERS)])}. "
        "Name them with --image_folder and --mask_folder, with {split} for the name of a split"
    )
