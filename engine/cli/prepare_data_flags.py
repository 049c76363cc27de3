"""The flags of prepare_data.py, and their checks. Imports no TensorFlow."""

from __future__ import annotations

from absl import flags

from common import names, strict_flags
from common.constants import ANNOTATION_TASKS, TRUNCATE
from common.messages import did_you_mean
from engine.cli.size_flag import SizeParser, SizeSerializer
from input_fns import convert

MODES = ("convert", "inspect")

FLAGS = flags.FlagValues()


def _define(define, name, default, description, **options):
    define(name, default, description, flag_values=FLAGS, **options)


_define(flags.DEFINE_string, "mode", "convert", f"One of {', '.join(MODES)}.")
_define(
    flags.DEFINE_string,
    "dataset",
    None,
    f"Data set to convert: {', '.join(convert.SOURCES)}:NAME, or package.module:FUNCTION, a "
    "function of --source that returns an input_fns.convert.source.RawDataset.",
)
_define(
    flags.DEFINE_string, "data_dir", None, "Folder of the shards and dataset.json, local or gs://."
)
_define(
    flags.DEFINE_string, "source", "", "Folder with the raw files (or one file), local or gs://."
)
_define(flags.DEFINE_string, "name", "", "Value of --dataset for run_*.py; default: --dataset.")
_define(
    flags.DEFINE_integer, "shards", 0, "Shards per split; 0: chosen from its size.", lower_bound=0
)
_define(flags.DEFINE_boolean, "overwrite", False, "Replace the data set in data_dir.")
flags.DEFINE(
    SizeParser(),
    "image_size",
    None,
    "Size to resize images to; stores pixels. Default: store JPEG and PNG files.",
    flag_values=FLAGS,
    serializer=SizeSerializer(),
)
_define(flags.DEFINE_integer, "channels", 3, "Channels of images: 3 for RGB, 1 for grey.")
_define(
    flags.DEFINE_list, "class_names", [], "Class names in the order of the labels; default: sorted."
)
_define(
    flags.DEFINE_list,
    "skip",
    [],
    "Names of files and folders in --source to leave out; * stands for any characters.",
)
_define(
    flags.DEFINE_list,
    "split_files",
    [],
    "Files of the splits, SPLIT=FILE with paths below --source; default: by the names of files.",
)
_define(
    flags.DEFINE_string,
    "encoding",
    "",
    "Encoding of text and tables, such as cp1252 or gb18030; default: UTF-8.",
)
# Words for characters of --delimiter that a shell or a flag file would lose.
DELIMITERS = {"tab": "\t", "space": " "}
_define(
    flags.DEFINE_string,
    "delimiter",
    "",
    "Character between the columns of a table, such as ';', or tab or space; default: , in .csv, "
    "a tab in .tsv.",
)
_define(
    flags.DEFINE_list,
    "pixel_range",
    [],
    "LOW,HIGH: values of black and white in images of 16 bits, signed integers or floats; default: "
    "the range that the file states.",
)
_define(
    flags.DEFINE_string, "csv", "", "Table of image_csv and audio_csv: .csv, .tsv, .jsonl or .json."
)
_define(
    flags.DEFINE_string,
    "image_column",
    "",
    "Column of the file names of image_csv; default: the first.",
)
_define(
    flags.DEFINE_string,
    "audio_column",
    "",
    "Column of the file names of recordings; default: the usual names, or the first of audio_csv.",
)
for _name, _description in (
    ("user", "users"),
    ("item", "items"),
    ("rating", "ratings"),
    ("time", "times; without one, interactions are in the order of the file"),
):
    _define(
        flags.DEFINE_string,
        f"{_name}_column",
        "",
        f"Column of the {_description}; default: the usual names.",
    )
_define(
    flags.DEFINE_list,
    "label_columns",
    [],
    "Column of the labels; texts to predict need none. Of image_csv one 0/1 column per class; "
    "default: all others.",
)
_define(
    flags.DEFINE_list, "text_columns", [], "Columns of text_files: of the text, or of two texts."
)
_define(flags.DEFINE_list, "columns", [], "Names of the columns of a table without a header line.")
flags.DEFINE_enum(
    "task",
    "classification",
    ("classification", "regression", *ANNOTATION_TASKS),
    "Whether the labels of text_files are classes or numbers; whether coco and voc have boxes "
    "(detection, the default) or masks.",
    flag_values=FLAGS,
)
_define(flags.DEFINE_string, "group_column", "", "Column whose equal values stay in one split.")
_define(flags.DEFINE_string, "split_column", "", "Column of the split names.")
_define(flags.DEFINE_list, "languages", [], "File extensions of parallel_text, such as en,de.")
_define(
    flags.DEFINE_string,
    "vocabulary",
    "",
    "Existing vocabulary (vocab.txt of BERT, .model of SentencePiece for parallel_text, characters "
    "of speech_manifest), or the folder of a prepared data set, local or gs://; default: new.",
)
_define(
    flags.DEFINE_boolean,
    "lower_case",
    True,
    "Lower-case text for BERT and remove its accents (do_lower_case of uncased models); lower-case "
    "the texts of speech_manifest.",
)
flags.DEFINE_enum(
    "truncate",
    TRUNCATE[0],
    TRUNCATE,
    "Where texts of BERT with too many tokens lose them; middle keeps a quarter of the row from "
    "the start of the text, and the rest from its end.",
    flag_values=FLAGS,
)
_define(
    flags.DEFINE_integer,
    "vocab_size",
    8192,
    "Size of the vocabulary to learn, of parallel_text for both languages; a multiple of 128. A "
    "small text may give fewer tokens for BERT.",
    lower_bound=512,
    upper_bound=2**20,
)
flags.DEFINE_enum(
    "subwords", "unigram", convert.SUBWORDS, "SentencePiece model type.", flag_values=FLAGS
)
_define(
    flags.DEFINE_integer,
    "max_length",
    128,
    "Tokens per row; 384 for squad, which has windows of longer texts. Other texts for BERT are "
    "truncated. Longer sentences of parallel_text are skipped in 'train' and in splits held out of "
    "it; in other splits they are an error.",
    lower_bound=8,
    upper_bound=2**16,
)
_define(
    flags.DEFINE_integer,
    "doc_stride",
    128,
    "Tokens from the start of a window of a context to that of the next.",
    lower_bound=1,
    upper_bound=2**16,
)
_define(
    flags.DEFINE_integer,
    "max_query_length",
    64,
    "Tokens of a question; longer ones are truncated.",
    lower_bound=1,
    upper_bound=2**16,
)
_define(
    flags.DEFINE_integer,
    "max_predictions_per_seq",
    0,
    "Most masked tokens of a row of pretraining_text; 0: masked_lm_prob times max_length.",
    lower_bound=0,
)
_define(
    flags.DEFINE_float,
    "masked_lm_prob",
    0.15,
    "Fraction of the tokens to mask.",
    lower_bound=0.0,
    upper_bound=1.0,
)
_define(flags.DEFINE_boolean, "whole_word_mask", False, "Mask all tokens of a word together.")
_define(
    flags.DEFINE_integer,
    "dupe_factor",
    10,
    "How often each training document is cut into pairs, with other masks each time.",
    lower_bound=1,
)
_define(
    flags.DEFINE_float,
    "short_seq_prob",
    0.1,
    "Probability that a document is cut into shorter pairs.",
    lower_bound=0.0,
    upper_bound=1.0,
)
_define(
    flags.DEFINE_list,
    "annotations",
    [],
    "JSON of coco: FILE, or SPLIT=FILE for each split; default: those in the folder of --source.",
)
_define(
    flags.DEFINE_string,
    "image_folder",
    "",
    "Folder of the images in --source; {split} is the name of a split. Default: the usual ones.",
)
_define(flags.DEFINE_string, "xml_folder", "", "Folder of the XML of voc, as --image_folder.")
_define(
    flags.DEFINE_string,
    "audio_folder",
    "",
    "Folder in --source of the recordings of a table; default: that of the table.",
)
_define(flags.DEFINE_string, "mask_folder", "", "Folder of the masks, as --image_folder.")
_define(flags.DEFINE_string, "image_suffix", "", "End of the names of images, not of masks.")
_define(flags.DEFINE_string, "mask_suffix", "", "End of the names of masks, not of images.")
_define(
    flags.DEFINE_list,
    "mask_values",
    [],
    "Value or color (#rrggbb) of each class in the masks, in the order of the classes; default: "
    "0,1,2,...",
)
_define(
    flags.DEFINE_list,
    "ignored",
    [],
    "Values, colors or classes of masks that do not count in the loss and metrics; default: 255.",
)
_define(
    flags.DEFINE_integer,
    "max_boxes",
    0,
    "Boxes stored per image, the largest ones; 0: as many as the image with the most has.",
    lower_bound=0,
    upper_bound=2**16,
)
_define(
    flags.DEFINE_integer,
    "box_origin",
    1,
    "First pixel of the corners of voc: 1 as in Pascal VOC, or 0 if they are continuous.",
    lower_bound=0,
    upper_bound=1,
)
_define(
    flags.DEFINE_integer,
    "min_frequency",
    10,
    "Rows of the split 'train' that a value of a category needs for a row of its table; others "
    "share the hashed rows.",
    lower_bound=1,
)
_define(
    flags.DEFINE_integer,
    "hash_rows",
    100,
    "Most rows of the table of a category for the values that are not in its vocabulary.",
    lower_bound=1,
    upper_bound=2**20,
)
_define(
    flags.DEFINE_integer,
    "max_rows",
    2**22,
    "Most rows of the table of a category, with the hashed rows and that of missing values.",
    lower_bound=3,
    upper_bound=2**31 - 1,
)
_define(
    flags.DEFINE_integer,
    "sample_rate",
    16000,
    "Samples per second of the stored audio, Hz; recordings of other rates are resampled.",
    lower_bound=8000,
    upper_bound=48000,
)
_define(
    flags.DEFINE_float,
    "max_seconds",
    16.0,
    "Length of a row of audio; longer recordings are skipped and listed.",
    lower_bound=0.1,
    upper_bound=600.0,
)
_define(
    flags.DEFINE_string,
    "test_speaker",
    "",
    "Speaker of fsdd whose recordings are the split 'test', such as theo.",
)
for _name in ("validation", "test"):
    _define(
        flags.DEFINE_float,
        f"{_name}_fraction",
        None,
        f"Fraction of each class of 'train' to hold out as the split '{_name}'.",
        lower_bound=0.0,
        upper_bound=0.9,
    )
_define(
    flags.DEFINE_integer,
    "seed",
    0,
    "Seed of the held-out split, the shuffle, and the pairs and masks of pretraining_text.",
    lower_bound=0,
)
_define(
    flags.DEFINE_integer,
    "workers",
    0,
    "Processes that read images; 0: one per core.",
    lower_bound=0,
)
_define(
    flags.DEFINE_string,
    "contact_sheet",
    "",
    "PNG that --mode=inspect writes; default: contact_sheet.png in data_dir.",
)

strict_flags.harden(
    FLAGS, __name__, paths=("data_dir", "source", "csv", "vocabulary", "contact_sheet")
)
flags.mark_flags_as_required(["data_dir"], flag_values=FLAGS)


@flags.validator("data_dir", flag_values=FLAGS)
def _check_data_dir(path):
    if path == "":
        raise flags.ValidationError("it is empty")
    return True


def _check_text(path):
    if not names.is_line(path):
        raise flags.ValidationError(f"{path!a} is not UTF-8 text without control characters")
    return True


for _name in (
    *("data_dir", "source", "csv", "vocabulary", "contact_sheet", "name", "test_speaker"),
    *("image_folder", "mask_folder", "image_suffix", "mask_suffix", "xml_folder", "audio_folder"),
    *("audio_column", "user_column", "item_column", "rating_column", "time_column"),
):
    flags.register_validator(
        _name, lambda path: path is None or _check_text(path), flag_values=FLAGS
    )


@flags.validator("class_names", flag_values=FLAGS)
def _check_class_names(class_names):
    wrong = names.find_class_name_problem(class_names)
    if wrong:
        raise flags.ValidationError(wrong)
    return True


def _check_list(values):
    if not all(values) or names.repeated(values):
        raise flags.ValidationError("a value of the list is empty or repeated")
    return True


for _name in (
    *("label_columns", "text_columns", "columns", "languages"),
    *("annotations", "mask_values", "ignored", "skip", "split_files"),
):
    flags.register_validator(_name, _check_list, flag_values=FLAGS)


@flags.validator("encoding", flag_values=FLAGS)
def _check_encoding(encoding):
    try:
        "".encode(encoding or "utf-8")
    except (LookupError, ValueError) as error:
        raise flags.ValidationError(
            f"'{encoding}' is not an encoding that Python knows, such as cp1252 or gb18030"
        ) from error
    return True


@flags.validator("delimiter", flag_values=FLAGS)
def _check_delimiter(delimiter):
    if delimiter not in ("", *DELIMITERS) and (len(delimiter) != 1 or delimiter in '"\r\n'):
        raise flags.ValidationError(f"it must be one character, or {' or '.join(DELIMITERS)}")
    return True


@flags.validator("pixel_range", flag_values=FLAGS)
def _check_pixel_range(values):
    if not values:
        return True
    try:
        low, high = map(strict_flags.to_float, values)
    except ValueError:
        low = high = 0.0
    if not (low < high < float("inf") and low > -float("inf")):
        raise flags.ValidationError("it must be LOW,HIGH, two numbers, the lower one first")
    return True


@flags.validator("mode", flag_values=FLAGS)
def _check_mode(mode):
    if mode not in MODES:
        raise flags.ValidationError(f"'{mode}' is unknown.{did_you_mean(mode, MODES)}")
    return True


@flags.validator("dataset", flag_values=FLAGS)
def _check_dataset(name):
    if name is not None and convert.source_of(name) is None:
        raise flags.ValidationError(f"'{name}' is unknown.{did_you_mean(name, convert.SOURCES)}")
    return True


@flags.validator("channels", flag_values=FLAGS)
def _check_channels(channels):
    if channels not in (1, 3):
        raise flags.ValidationError("it must be 1 or 3")
    return True


@flags.validator("vocab_size", flag_values=FLAGS)
def _check_vocab_size(size):
    if size % 128:
        raise flags.ValidationError(f"{size} is not a multiple of 128, the tile size of a TPU")
    return True


_SOURCE_FLAGS = {
    flag for source in convert.SOURCES.values() for flag in (*source.needs, *source.takes)
}


_CONVERT_FLAGS = sorted({*_SOURCE_FLAGS, "dataset", "shards", "overwrite"})
# Flags of a source with several tasks that one of them reads.
_TASK_OF_FLAG = {
    **dict.fromkeys(("max_boxes", "box_origin", "xml_folder"), "detection"),
    **dict.fromkeys(("mask_folder", "mask_values", "ignored"), "segmentation"),
}


@flags.multi_flags_validator(["mode", "contact_sheet", *_CONVERT_FLAGS], flag_values=FLAGS)
def _check_source(values):
    dataset = values["dataset"]
    if values["mode"] == "inspect":
        given = [name for name in _CONVERT_FLAGS if FLAGS[name].present]
        if given:
            raise flags.ValidationError(
                f"--{given[0]} has no effect with --mode=inspect. Remove it"
            )
        return True
    if values["contact_sheet"]:
        raise flags.ValidationError(
            "--contact_sheet has no effect with --mode=convert: --mode=inspect writes it"
        )
    if dataset is None:
        raise flags.ValidationError("Flag --dataset must have a value other than None.")
    source = convert.source_of(dataset)
    for name in source.needs:
        if not values[name]:
            raise flags.ValidationError(f"--dataset={dataset} needs --{name}")
    for name in sorted(_SOURCE_FLAGS - {*source.needs, *source.takes}):
        if FLAGS[name].present:
            raise flags.ValidationError(
                f"--{name} is not valid for --dataset={dataset}, only for "
                f"{', '.join(convert.users_of(name))}"
            )
    if FLAGS["task"].present and values["task"] not in source.tasks:
        raise flags.ValidationError(
            f"--task={values['task']} is not valid for --dataset={dataset}. Valid: "
            f"{', '.join(source.tasks)}"
        )
    problem = _flag_without_effect(values, source)
    if problem:
        raise flags.ValidationError(f"{problem}. Remove it")
    if convert.is_custom(dataset) and ":" in values["name"]:
        raise flags.ValidationError(
            f"--name={values['name']} has a colon, which --dataset of run_*.py takes for a function"
        )
    return True


def _flag_without_effect(values, source):
    """Returns what is wrong with a flag that another one makes useless, "" if there is none."""
    for name in ("vocab_size", "subwords"):
        if values["vocabulary"] and FLAGS[name].present:
            return f"--{name} has no effect with --vocabulary, which is not learned"
    if values["split_column"] and values["split_files"]:
        return "--split_files has no effect with --split_column, which names the splits"
    if len(source.tasks) < 2:
        return ""
    task = values["task"] if FLAGS["task"].present else source.tasks[0]
    if task == "regression" and FLAGS["class_names"].present:
        return "--class_names has no effect with --task=regression"
    for name, its_task in _TASK_OF_FLAG.items():
        if FLAGS[name].present and task in ANNOTATION_TASKS and task != its_task:
            return f"--{name} has no effect with --task={task}, only with --task={its_task}"
    return ""


def check_files() -> None:
    """Checks the local files that flags name; the rest of the program checks their contents.

    Raises:
      DataError: --source is missing, or in --mode=inspect the data set.
    """
    from input_fns import dataset_info  # imports NumPy, which `--help` does not need

    if names.is_remote(FLAGS.data_dir):
        return
    if FLAGS.mode == "inspect":
        dataset_info.read(FLAGS.data_dir)
        return
    reads_source = FLAGS.overwrite or not dataset_info.exists(FLAGS.data_dir)
    if reads_source and not names.is_remote(FLAGS.source):
        convert.check_source(FLAGS.dataset, FLAGS.source)
