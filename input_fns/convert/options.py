"""Options of a converter: the flags of prepare_data.py that say what to read, and how.

A flag is a field here, and `convert.SOURCES` says which sources take it. Imports no TensorFlow:
`--help` waits for it.
"""

from __future__ import annotations

import dataclasses

from common.constants import ANNOTATION_TASKS, SUBWORDS, TARGETS, TOKENIZERS, TRUNCATE


def _flag(description, default="", **how):
    """Returns the field of a flag.

    Args:
      description: its help.
      default: default value.
      **how: `kind`, its type, if it is not that of the default; `one_of`, valid values of a text;
        `valid`, valid values of a number; `bounds` of a number, None for none; `is_size`, whether
        it is SIZE or HEIGHTxWIDTH.
    """
    return dataclasses.field(default=default, metadata={"description": description, **how})


@dataclasses.dataclass(frozen=True)
class Options:
    """Values of the flags of prepare_data.py with these names."""

    dataset: str
    name: str = _flag("Value of --dataset for run_*.py; default: --dataset.")
    source: str = _flag("Folder with the raw files (or one file), local or gs://.")
    skip: tuple[str, ...] = _flag(
        "Names of files and folders in --source to leave out; * stands for any characters.", ()
    )
    split_files: tuple[str, ...] = _flag(
        "Files of the splits, SPLIT=FILE with paths below --source; default: by the names of "
        "files.",
        (),
    )
    encoding: str = _flag("Encoding of text and tables, such as cp1252 or gb18030; default: UTF-8.")
    delimiter: str = _flag(
        "Character between the columns of a table, such as ';', or tab or space; default: , in "
        ".csv, a tab in .tsv."
    )
    pixel_range: tuple[float, float] | None = _flag(
        "LOW,HIGH: values of black and white in images of 16 bits, signed integers or floats; "
        "default: the range that the file states.",
        None,
        kind=list,
    )
    image_size: tuple[int, int] | None = _flag(
        "Size to resize images to; stores pixels. Default: store JPEG and PNG files.",
        None,
        is_size=True,
    )
    channels: int = _flag("Channels of images: 3 for RGB, 1 for grey.", 3, valid=(1, 3))
    class_names: tuple[str, ...] = _flag(
        "Class names in the order of the labels; default: sorted.", ()
    )
    csv: str = _flag("Table of image_csv and audio_csv: .csv, .tsv, .jsonl or .json.")
    image_column: str = _flag("Column of the file names of image_csv; default: the first.")
    audio_column: str = _flag(
        "Column of the file names of recordings; default: the usual names, or the first of "
        "audio_csv."
    )
    user_column: str = _flag("Column of the users; default: the usual names.")
    item_column: str = _flag("Column of the items; default: the usual names.")
    rating_column: str = _flag("Column of the ratings; default: the usual names.")
    time_column: str = _flag(
        "Column of the times; without one, interactions are in the order of the file; default: "
        "the usual names."
    )
    label_columns: tuple[str, ...] = _flag(
        "Column of the labels; texts to predict need none. Of image_csv one 0/1 column per class;"
        " default: all others.",
        (),
    )
    label_separator: str = _flag(
        "Character between the labels in a label column, for --task=multilabel, such as ';', or "
        "tab or space; default: one 0/1 column per class."
    )
    group_column: str = _flag("Column whose equal values stay in one split.")
    split_column: str = _flag("Column of the split names.")
    languages: tuple[str, ...] = _flag(
        "File extensions of parallel_text, or languages of a translation of tfds, such as en,de.",
        (),
    )
    vocabulary: str = _flag(
        "Existing vocabulary (vocab.txt of BERT, .model of SentencePiece of ALBERT or "
        "parallel_text, characters of speech_manifest, folder with vocab.json and merges.txt of "
        "GPT-2 for lm_text), or the folder of a prepared data set, local or gs://; default: new."
    )
    vocab_size: int = _flag(
        "Size of the vocabulary to learn, of parallel_text for both languages; a multiple of 128."
        " A small text may give fewer tokens for BERT and lm_text.",
        8192,
        bounds=(512, 2**20),
    )
    tokenizer: str = _flag(
        "Tokens of lm_text: byte-level BPE, or characters.", TOKENIZERS[0], one_of=TOKENIZERS
    )
    subwords: str = _flag("SentencePiece model type.", "unigram", one_of=SUBWORDS)
    max_length: int = _flag(
        "Tokens per row; 384 for squad, which has windows of longer texts, 1024 for lm_text. Other "
        "texts for BERT are truncated. Longer sentences of parallel_text are skipped in 'train' "
        "and in splits held out of it; in other splits they are an error.",
        128,
        bounds=(8, 2**16),
    )
    task: str = _flag(
        "What the labels of tables are: one class for each row (classification), any number of "
        "classes (multilabel), probabilities of the classes (soft_labels) or numbers (regression); "
        "whether an image of image_folder may be in several folders (multilabel); "
        "whether coco, voc and yolo have boxes (detection, the default), masks of classes "
        "(segmentation) or both, a mask of each object (instance_segmentation); whether pixels of "
        "image_masks have classes (segmentation) or objects (instance_segmentation); the kind of "
        "tfds, if its features fit several.",
        "classification",
        one_of=(*TARGETS, *ANNOTATION_TASKS),
    )
    columns: tuple[str, ...] = _flag("Names of the columns of a table without a header line.", ())
    text_columns: tuple[str, ...] = _flag(
        "Columns of text_files: of the text, or of two texts.", ()
    )
    lower_case: bool = _flag(
        "Lower-case text for BERT and remove its accents (do_lower_case of uncased models); "
        "lower-case the texts of speech_manifest.",
        True,
    )
    strip_accents: bool = _flag(
        "Whether lower-cased text for BERT loses its accents; false for vocabularies that have "
        "accents in lower case (strip_accents of Hugging Face).",
        True,
    )
    truncate: str = _flag(
        "Where texts of BERT with too many tokens lose them; middle keeps a quarter of the row "
        "from the start of the text, and the rest from its end. windows keeps all: several rows "
        "of a text, which overlap; see doc_stride.",
        TRUNCATE[0],
        one_of=TRUNCATE,
    )
    max_predictions_per_seq: int = _flag(
        "Most masked tokens of a row of pretraining_text; 0: masked_lm_prob times max_length.",
        0,
        bounds=(0, None),
    )
    masked_lm_prob: float = _flag("Fraction of the tokens to mask.", 0.15, bounds=(0.0, 1.0))
    whole_word_mask: bool = _flag("Mask all tokens of a word together.", False)
    dupe_factor: int = _flag(
        "How often each training document is cut into pairs, with other masks each time.",
        10,
        bounds=(1, None),
    )
    short_seq_prob: float = _flag(
        "Probability that a document is cut into shorter pairs.", 0.1, bounds=(0.0, 1.0)
    )
    doc_stride: int = _flag(
        "Tokens from the start of a window of a context of squad to that of the next, and of a "
        "text with --truncate=windows.",
        128,
        bounds=(1, 2**16),
    )
    max_query_length: int = _flag(
        "Tokens of a question; longer ones are truncated.", 64, bounds=(1, 2**16)
    )
    annotations: tuple[str, ...] = _flag(
        "JSON of coco: FILE, or SPLIT=FILE for each split; default: those in the folder of "
        "--source.",
        (),
    )
    image_folder: str = _flag(
        "Folder of the images in --source; {split} is the name of a split. Default: the usual ones."
    )
    audio_folder: str = _flag(
        "Folder in --source of the recordings of a table; default: that of the table."
    )
    xml_folder: str = _flag("Folder of the XML of voc, as --image_folder.")
    mask_folder: str = _flag("Folder of the masks, as --image_folder.")
    image_suffix: str = _flag("End of the names of images, not of masks.")
    mask_suffix: str = _flag("End of the names of masks, not of images.")
    mask_values: tuple[str, ...] = _flag(
        "Value or color (#rrggbb) of each class in the masks, in the order of the classes; "
        "default: 0,1,2,...",
        (),
    )
    label_divisor: int = _flag(
        "Of image_masks of objects: the class of an object is its number // label_divisor; 0: "
        "there is one class. Cityscapes: 1000.",
        0,
        bounds=(0, 2**16),
    )
    ignored: tuple[str, ...] = _flag(
        "Values, colors or classes of masks that do not count in the loss and metrics; default: "
        "255.",
        (),
    )
    max_boxes: int = _flag(
        "Boxes stored per image, the largest ones; 0: as many as the image with the most has.",
        0,
        bounds=(0, 2**16),
    )
    box_origin: int = _flag(
        "First pixel of the corners of voc: 1 as in Pascal VOC, or 0 if they are continuous.",
        1,
        bounds=(0, 1),
    )
    min_frequency: int = _flag(
        "Rows of the split 'train' that a value of a category needs for a row of its table; "
        "others share the hashed rows.",
        10,
        bounds=(1, None),
    )
    hash_rows: int = _flag(
        "Most rows of the table of a category for the values that are not in its vocabulary.",
        100,
        bounds=(1, 2**20),
    )
    max_rows: int = _flag(
        "Most rows of the table of a category, with the hashed rows and that of missing values.",
        2**22,
        bounds=(3, 2**31 - 1),
    )
    sample_rate: int = _flag(
        "Samples per second of the stored audio, Hz; recordings of other rates are resampled.",
        16000,
        bounds=(8000, 48000),
    )
    max_seconds: float = _flag(
        "Length of a row of audio; longer recordings are skipped and listed.",
        16.0,
        bounds=(0.1, 600.0),
    )
    test_speaker: str = _flag(
        "Speaker of fsdd whose recordings are the split 'test', such as theo."
    )
    validation_fraction: float | None = _flag(
        "Fraction of each class of 'train' to hold out as the split 'validation'.",
        None,
        bounds=(0.0, 0.9),
        kind=float,
    )
    test_fraction: float | None = _flag(
        "Fraction of each class of 'train' to hold out as the split 'test'.",
        None,
        bounds=(0.0, 0.9),
        kind=float,
    )
    seed: int = _flag(
        "Seed of the held-out split, the shuffle, and the pairs and masks of pretraining_text.",
        0,
        bounds=(0, None),
    )
