"""Flags of sources of several rooms. Imports no TensorFlow: `--help` waits for it."""

from common.constants import ANNOTATION_TASKS


def define(flag) -> None:
    """Defines the flags; `flag` is `convert.flags.define`."""
    flag("class_names", "Class names in the order of the labels; default: sorted.")
    flag(
        "skip", "Names of files and folders in --source to leave out; * stands for any characters."
    )
    flag(
        "split_files",
        "Files of the splits, SPLIT=FILE with paths below --source; default: by the names of "
        "files.",
    )
    flag("encoding", "Encoding of text and tables, such as cp1252 or gb18030; default: UTF-8.")
    flag(
        "delimiter",
        "Character between the columns of a table, such as ';', or tab or space; default: , in "
        ".csv, a tab in .tsv.",
    )
    flag("columns", "Names of the columns of a table without a header line.")
    flag("csv", "Table of image_csv and audio_csv: .csv, .tsv, .jsonl or .json.")
    flag(
        "label_columns",
        "Column of the labels; texts to predict need none. Of image_csv one 0/1 column per class; "
        "default: all others.",
    )
    flag("group_column", "Column whose equal values stay in one split.")
    flag("split_column", "Column of the split names.")
    flag(
        "task",
        "Whether the labels of text_files are classes or numbers; whether coco and voc have boxes "
        "(detection, the default) or masks.",
        one_of=("classification", "regression", *ANNOTATION_TASKS),
    )
    for name in ("validation", "test"):
        flag(
            f"{name}_fraction",
            f"Fraction of each class of 'train' to hold out as the split '{name}'.",
            kind=float,
            lower_bound=0.0,
            upper_bound=0.9,
        )
    flag(
        "seed",
        "Seed of the held-out split, the shuffle, and the pairs and masks of pretraining_text.",
        lower_bound=0,
    )
