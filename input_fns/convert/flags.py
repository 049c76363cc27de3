"""The flags of prepare_data.py, and their checks. Imports no TensorFlow.

Those that a source takes are the fields of `options.Options`.
"""

from __future__ import annotations

import dataclasses
import shlex

from absl import flags

from common import names, strict_flags
from common.constants import ANNOTATION_TASKS
from common.messages import did_you_mean
from common.size_flag import SizeParser, SizeSerializer
from input_fns import convert
from input_fns.convert.options import Options

MODES = ("convert", "inspect")

# Words for characters of --delimiter that a shell or a flag file would lose.
DELIMITERS = {"tab": "\t", "space": " "}
FLAGS = flags.FlagValues()
_DEFINE = {
    str: flags.DEFINE_string,
    bool: flags.DEFINE_boolean,
    int: flags.DEFINE_integer,
    float: flags.DEFINE_float,
    list: flags.DEFINE_list,
}


def _define(
    name, default, description, kind=None, one_of=(), valid=(), bounds=(None, None), is_size=False
):
    """Defines a flag; see `options`."""
    kind = list if isinstance(default, tuple) else kind or type(default)
    default = [] if kind is list else default
    how = {"flag_values": FLAGS}
    if is_size:
        flags.DEFINE(SizeParser(), name, default, description, serializer=SizeSerializer(), **how)
    elif one_of:
        flags.DEFINE_enum(name, default, one_of, description, **how)
    elif kind in (int, float):
        low, high = bounds
        _DEFINE[kind](name, default, description, lower_bound=low, upper_bound=high, **how)
    else:
        _DEFINE[kind](name, default, description, **how)
    if valid:
        message = f"it must be {' or '.join(map(str, valid))}"
        flags.register_validator(name, lambda value: value in valid, message, flag_values=FLAGS)


_DATASET = (
    f"Data set to convert: {', '.join(convert.SOURCES)}:NAME, or package.module:FUNCTION, a "
    "function of --source that returns an input_fns.convert.source.RawDataset."
)
_WORKERS = "Processes that read, check and write; 0: one per core. tfds and own formats have one."
_RUNNER = "Who writes the shards: processes of this machine, or the workers of Apache Beam."
_BEAM = "Pipeline options of Apache Beam, such as '--runner=DirectRunner --direct_num_workers=2'."
_SHEET = "PNG that --mode=inspect writes; default: contact_sheet.png in data_dir."
_define("mode", "convert", f"One of {', '.join(MODES)}.")
_define("dataset", None, _DATASET, str)
_define("data_dir", None, "Folder of the shards and dataset.json, local or gs://.", str)
_define("shards", 0, "Shards per split; 0: chosen from its size.", bounds=(0, None))
_define("overwrite", False, "Replace the data set in data_dir.")
_define("workers", 0, _WORKERS, bounds=(0, None))
_define("runner", "process", _RUNNER, one_of=("process", "beam"))
_define("beam_options", "", _BEAM)
_define("contact_sheet", "", _SHEET)
for _field in dataclasses.fields(Options)[1:]:  # without `dataset`
    _define(_field.name, _field.default, **_field.metadata)

_PATHS = ("data_dir", "source", "csv", "vocabulary", "contact_sheet")
strict_flags.harden(FLAGS, __name__, paths=_PATHS)
flags.mark_flags_as_required(["data_dir"], flag_values=FLAGS)


@flags.validator("data_dir", flag_values=FLAGS)
def _check_data_dir(path):
    if path == "":
        raise flags.ValidationError("it is empty")
    return True


def _check_text(text):
    if text is not None and not names.is_line(text):
        raise flags.ValidationError(f"{text!a} is not UTF-8 text without control characters")
    return True


def _check_list(values):
    if not all(values) or names.repeated(values):
        raise flags.ValidationError("a value of the list is empty or repeated")
    return True


_CHECKED_BELOW = (
    *("mode", "dataset", "encoding", "delimiter", "label_separator", "class_names", "pixel_range"),
)
for _name in FLAGS:
    if _name in _CHECKED_BELOW:
        continue
    if isinstance(FLAGS[_name].value, list):
        flags.register_validator(_name, _check_list, flag_values=FLAGS)
    elif FLAGS[_name].flag_type() == "string":
        flags.register_validator(_name, _check_text, flag_values=FLAGS)


@flags.validator("class_names", flag_values=FLAGS)
def _check_class_names(class_names):
    wrong = names.find_class_name_problem(class_names)
    if wrong:
        raise flags.ValidationError(wrong)
    return True


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
@flags.validator("label_separator", flag_values=FLAGS)
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


@flags.validator("beam_options", flag_values=FLAGS)
def _check_beam_options(text):
    try:
        options = shlex.split(text)
    except ValueError as error:
        raise flags.ValidationError(f"{error}") from error
    if options and not options[0].startswith("--"):
        raise flags.ValidationError(f"'{options[0]}' does not begin with --")
    return True


@flags.validator("vocab_size", flag_values=FLAGS)
def _check_vocab_size(size):
    if size % 128:
        raise flags.ValidationError(f"{size} is not a multiple of 128, the tile size of a TPU")
    return True


_SOURCE_FLAGS = {
    flag for source in convert.SOURCES.values() for flag in (*source.needs, *source.takes)
}
_RUN_FLAGS = ("dataset", "shards", "overwrite", "workers", "runner", "beam_options")
_CONVERT_FLAGS = sorted({*_SOURCE_FLAGS, *_RUN_FLAGS})
# Flags of a source with several tasks that some of them read.
_TASKS_OF_FLAG = {
    "max_boxes": ("detection", "instance_segmentation"),
    **dict.fromkeys(("box_origin", "xml_folder"), ("detection",)),
    **dict.fromkeys(
        ("mask_folder", "mask_values", "ignored"), ("segmentation", "instance_segmentation")
    ),
    "label_divisor": ("instance_segmentation",),
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
        raise flags.ValidationError(
            "--dataset is missing: name what --source is, such as image_folder; see docs/data.md"
        )
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
    if values["runner"] == "beam" and FLAGS["workers"].present:
        return "--workers has no effect with --runner=beam, whose workers --beam_options sets"
    if values["runner"] != "beam" and FLAGS["beam_options"].present:
        return "--beam_options has no effect without --runner=beam"
    for name in ("vocab_size", "subwords", "tokenizer"):
        if values["vocabulary"] and FLAGS[name].present:
            return f"--{name} has no effect with --vocabulary, which is not learned"
    if values["tokenizer"] == "characters" and FLAGS["vocab_size"].present:
        return "--vocab_size has no effect with --tokenizer=characters: it is that of the text"
    if values["split_column"] and values["split_files"]:
        return "--split_files has no effect with --split_column, which names the splits"
    if len(source.tasks) < 2:
        return ""
    task = values["task"] if FLAGS["task"].present else source.tasks[0]
    if task == "regression" and FLAGS["class_names"].present:
        return "--class_names has no effect with --task=regression"
    if task != "multilabel" and FLAGS["label_separator"].present:
        return f"--label_separator has no effect with --task={task}, only with --task=multilabel"
    for name, its_tasks in _TASKS_OF_FLAG.items():
        if FLAGS[name].present and task in ANNOTATION_TASKS and task not in its_tasks:
            return f"--{name} has no effect with --task={task}, only with --task={its_tasks[0]}"
    return ""


def options_from_flags() -> Options:
    """Returns what to read, with the defaults of the source."""
    values = {field.name: FLAGS[field.name].value for field in dataclasses.fields(Options)}
    for name, default in convert.source_of(FLAGS.dataset).defaults.items():
        if not FLAGS[name].present:
            values[name] = default
    lists = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
    lists["pixel_range"] = tuple(map(float, FLAGS.pixel_range)) or None
    for name in ("delimiter", "label_separator"):
        values[name] = DELIMITERS.get(FLAGS[name].value, FLAGS[name].value)
    return Options(**{**values, **lists})


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
