"""Flags of the sources of images. Imports nothing: `--help` waits for it."""


def define(flag) -> None:
    """Defines the flags; `flag` is `convert.flags.define`."""
    flag(
        "image_size",
        "Size to resize images to; stores pixels. Default: store JPEG and PNG files.",
        is_size=True,
    )
    flag("channels", "Channels of images: 3 for RGB, 1 for grey.", valid=(1, 3))
    flag(
        "pixel_range",
        "LOW,HIGH: values of black and white in images of 16 bits, signed integers or floats; "
        "default: the range that the file states.",
        default=[],
    )
    flag("image_column", "Column of the file names of image_csv; default: the first.")
    flag(
        "annotations",
        "JSON of coco: FILE, or SPLIT=FILE for each split; default: those in the folder of "
        "--source.",
    )
    flag(
        "image_folder",
        "Folder of the images in --source; {split} is the name of a split. Default: the usual "
        "ones.",
    )
    flag("xml_folder", "Folder of the XML of voc, as --image_folder.")
    flag("mask_folder", "Folder of the masks, as --image_folder.")
    flag("image_suffix", "End of the names of images, not of masks.")
    flag("mask_suffix", "End of the names of masks, not of images.")
    flag(
        "mask_values",
        "Value or color (#rrggbb) of each class in the masks, in the order of the classes; "
        "default: 0,1,2,...",
    )
    flag(
        "ignored",
        "Values, colors or classes of masks that do not count in the loss and metrics; default: "
        "255.",
    )
    flag(
        "max_boxes",
        "Boxes stored per image, the largest ones; 0: as many as the image with the most has.",
        lower_bound=0,
        upper_bound=2**16,
    )
    flag(
        "box_origin",
        "First pixel of the corners of voc: 1 as in Pascal VOC, or 0 if they are continuous.",
        lower_bound=0,
        upper_bound=1,
    )
