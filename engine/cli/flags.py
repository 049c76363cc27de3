"""Flags shared by run_cpu.py and run_tpu.py, and their validators. Imports no TensorFlow."""

from __future__ import annotations

import re

from absl import flags

from common import names, strict_flags
from common.constants import ANNOTATION_TASKS, JOINS, TABLE_TASKS, WORDPIECE_TASKS
from common.errors import UsageError
from common.messages import did_you_mean
from common.size_flag import SizeParser, SizeSerializer, TextSizeParser
from engine.checkpoints import checkpoint_files, metric_direction
from models import registry

MODES = ("train", "eval", "train_and_eval", "continuous_eval", "predict", "export", "check")
TRAINING_MODES = ("train", "train_and_eval")
# Modes that evaluate the checkpoints of a training and keep the best one.
BEST_METRIC_MODES = ("train_and_eval", "continuous_eval")

FLAGS = flags.FLAGS
TRANSLATION = "translation"
_EXPONENTS = {"balanced": 0.0, "sqrt": 0.5}  # of --oversample
# Upper bounds of --synthetic_text.
_MOST_TOKENS, _MOST_SUBWORDS = 2**16, 2**20

flags.DEFINE_string("mode", "train_and_eval", f"One of {', '.join(MODES)}. check needs run_tpu.py.")
flags.DEFINE_string("model", None, "Name of a model, or package.module:ATTRIBUTE for yours.")
flags.DEFINE_multi_string(
    "params",
    [],
    "Hyperparameters: key=value,key=value,... A list is written [256,128]. The flag may be "
    "repeated; a later key wins.",
)
# How many of its values are of the command line, not of a flagfile; `startup.start` counts them.
FLAGS["params"].num_own = 0

flags.DEFINE_string(
    "dataset",
    None,
    "Name of the data set in data_dir; synthetic for random examples; or "
    "package.module:FUNCTION, a function of data_dir and params that returns an input pipeline.",
)
flags.DEFINE_string("data_dir", None, "Folder written by prepare_data.py, local or gs://.")
flags.DEFINE_string("train_split", "train", "Training split.")


class _OneOfFlag(flags.Flag):
    """A flag of a group of which one applies: the later one, of the command line if it has one."""

    def __init__(self, group, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._group = group

    def parse(self, argument):
        """Sets this flag and unsets the others of its group."""
        super().parse(argument)
        for name in self._group:
            if name != self.name:
                FLAGS[name].unparse()


def _define_group(**group):
    """Defines flags of which one applies, `name=(parser, default, help)`."""
    for name, (parser, default, text) in group.items():
        serializer = flags.ArgumentSerializer()
        flags.DEFINE_flag(_OneOfFlag(group, parser, serializer, name, default, text))


_define_group(
    eval_split=(flags.ArgumentParser(), "test", "Split for evaluation and prediction."),
    eval_splits=(
        flags.ArgumentParser(),
        None,
        "Splits for evaluation, instead of eval_split: NAME,NAME,... The first selects the best "
        "checkpoint and is predicted.",
    ),
)
flags.DEFINE_integer(
    "max_eval_examples",
    0,
    "Evaluates the first examples of each split only, for a quick look; 0: all. The results are "
    "kept apart, and cannot select the best checkpoint.",
    lower_bound=0,
)
flags.DEFINE(
    SizeParser(),
    "image_size",
    None,
    "Input size of the model, SIZE or HEIGHTxWIDTH. Default: the size of the stored images.",
    serializer=SizeSerializer(),
)
flags.DEFINE_string(
    "augment",
    "",
    "Augmentation of training images or recordings, applied on the host from left to right, such "
    "as 'crop:4 flip'. docs/data_images.md and docs/speech.md list all operations.",
)
flags.DEFINE_string(
    "oversample",
    "",
    "Trains on classes in proportion to COUNT**EXPONENT, COUNT the examples of a class: 'balanced' "
    "(exponent 0), 'sqrt' (0.5), or an exponent in [0, 1). An epoch has as many examples as "
    "without it.",
)
flags.DEFINE_float(
    "center_crop",
    0.875,
    "Fraction of each side that evaluation keeps of images of another size; 1 keeps all.",
    lower_bound=0.01,
    upper_bound=1.0,
)
flags.DEFINE_enum(
    "join_windows",
    JOINS[0],
    JOINS,
    "Long texts for BERT, prepared with --truncate=windows: how evaluation, prediction and export "
    "join the predictions of the windows of a text.",
)
flags.DEFINE_string(
    "cache",
    "auto",
    "Cache of training examples: memory, none (read the shards in every epoch), a local folder, "
    "or auto (memory up to 1 GiB).",
)
flags.DEFINE_list(
    "data_service",
    [],
    "Workers that produce the training batches, for a host that is too slow: grpc://HOST:PORT of "
    "each tools/data_service.py, separated by commas. Evaluation and prediction read locally.",
)
flags.DEFINE_integer(
    "skip_bad_records",
    0,
    "Maximum number of unreadable records of train_split that training skips.",
    lower_bound=0,
)
flags.DEFINE_integer(
    "synthetic_classes",
    1000,
    "Number of classes for --dataset=synthetic without data_dir.",
    lower_bound=2,
)
flags.DEFINE(
    TextSizeParser(),
    "synthetic_text",
    None,
    "Row length and vocabulary size of synthetic text for --dataset=synthetic without data_dir.",
    serializer=SizeSerializer(),
)
flags.DEFINE_enum(
    "synthetic_task",
    TRANSLATION,
    [TRANSLATION, "language_model", *WORDPIECE_TASKS, *ANNOTATION_TASKS, *TABLE_TASKS],
    "Task of --dataset=synthetic without data_dir: of --synthetic_text translation, language_model,"
    " or a task of BERT; of --image_size detection or segmentation; of --synthetic_tables ratings "
    "or clicks.",
)
flags.DEFINE_list(
    "synthetic_tables",
    None,
    "Rows of the embedding tables for --dataset=synthetic without data_dir: USERS,ITEMS for "
    "--synthetic_task=ratings, the rows of each category for clicks.",
)
flags.DEFINE_list(
    "synthetic_audio",
    None,
    "Recordings for --dataset=synthetic without data_dir: RATE,SAMPLES, the samples per second and "
    "those of a row, or RATE,SAMPLES,VOCABULARY,TOKENS for transcripts.",
)

flags.DEFINE_string("model_dir", None, "Folder for checkpoints and results, local or gs://.")
flags.DEFINE_string(
    "export_dir",
    "",
    "Folder for SavedModels, local or gs://. If set, train_and_eval exports at the end.",
)
flags.DEFINE_boolean(
    "export_text",
    False,
    "Translation, text classification and regression, question answering: adds a SavedModel "
    "signature that takes text. Needs TensorFlow Text, here and in the server.",
)
flags.DEFINE_integer(
    "export_top_k",
    0,
    "Classification: number of top classes that the SavedModel also returns, most likely first.",
    lower_bound=0,
)
flags.DEFINE_boolean(
    "export_check",
    True,
    "Loads the SavedModel in a fresh process and compares one batch of predict_batch_size "
    "examples with Estimator.predict.",
)
flags.DEFINE_string(
    "checkpoint",
    "latest",
    "For eval, predict and export: latest, best, average:N (average of the weights of the newest N "
    "checkpoints), a path, or ensemble:A,B,... (mean prediction of several of these).",
)
flags.DEFINE_string(
    "predictions",
    "",
    "For predict and export: predictions of the model besides those of its task, such as "
    "embeddings of BERT. Checkpoints without the head of the task will do.",
)
flags.DEFINE_string(
    "input",
    "",
    "For predict, instead of eval_split: an image or recording, a folder of them, a text file with "
    "one sentence, text or prompt per line, or requests for images of a GAN as JSON lines.",
)
flags.DEFINE_string(
    "predict_output",
    "",
    "For predict: output file, .jsonl or .npz, or .txt for text. Default: a file in model_dir.",
)
flags.DEFINE_string(
    "overlay_dir",
    "",
    "For predict with input: folder for the images with the predicted boxes, masks or classes of "
    "pixels drawn in.",
)


_define_group(
    train_steps=(
        flags.IntegerParser(lower_bound=1),
        None,
        "Global step at which training stops.",
    ),
    train_epochs=(
        flags.FloatParser(lower_bound=0),
        None,
        "Epochs to train, instead of train_steps; the later one on the command line wins.",
    ),
)
flags.DEFINE_integer("train_batch_size", 128, "Global batch size for training.", lower_bound=1)
flags.DEFINE_integer("eval_batch_size", 128, "Global batch size for evaluation.", lower_bound=1)
flags.DEFINE_integer("predict_batch_size", 128, "Global batch size for prediction.", lower_bound=1)
flags.DEFINE_integer(
    "accumulate_steps",
    1,
    "Number of micro-batches for gradient accumulation; one optimizer update per global batch.",
    lower_bound=1,
)
flags.DEFINE_enum(
    "precision",
    "float32",
    ["float32", "bfloat16"],
    "Compute dtype of the layers; variables, logits and loss stay float32.",
)

flags.DEFINE_string(
    "warm_start_from",
    "",
    "Checkpoint, or folder of checkpoints, whose variables initialize a new training "
    "(fine-tuning).",
)
flags.DEFINE_string(
    "warm_start_include",
    ".*",
    "Regular expression for the names of the variables that a warm start restores.",
)
flags.DEFINE_integer(
    "save_checkpoints_steps",
    1000,
    "Steps between checkpoints, and between evaluations if no other flag sets these.",
    lower_bound=1,
)
_define_group(
    eval_every_steps=(
        flags.IntegerParser(lower_bound=1),
        None,
        "Steps between evaluations in train_and_eval and continuous_eval. Training saves a "
        "checkpoint at each. Default: every checkpoint is evaluated.",
    ),
    eval_every_epochs=(
        flags.FloatParser(lower_bound=0),
        None,
        "Epochs between evaluations, instead of eval_every_steps; rounded up to whole steps.",
    ),
    eval_every_minutes=(
        flags.FloatParser(lower_bound=0),
        None,
        "Minutes of training between evaluations in train_and_eval, instead of eval_every_steps: "
        "the first checkpoint after them is evaluated.",
    ),
)
flags.DEFINE_integer(
    "keep_checkpoint_max", 5, "Number of newest checkpoints to keep; 0 keeps all.", lower_bound=0
)
flags.DEFINE_string(
    "best_metric",
    "",
    "Metric that selects the best checkpoint in train_and_eval and continuous_eval. The model "
    "declares whether higher or lower is better; NAME:max, NAME:min or -NAME (lower) overrides it.",
)
flags.DEFINE_integer(
    "early_stop_evals",
    0,
    "Early stopping patience: stop after this many evaluations without an improvement of "
    "best_metric; 0 disables early stopping.",
    lower_bound=0,
)
flags.DEFINE_integer(
    "eval_timeout_secs",
    3600,
    "continuous_eval stops when no new checkpoint appears for this many seconds.",
    lower_bound=1,
)
flags.DEFINE_integer(
    "max_restarts",
    0,
    "Maximum number of restarts after a training process dies; each resumes from the newest "
    "readable checkpoint.",
    lower_bound=0,
)

flags.DEFINE_integer(
    "summary_steps",
    100,
    "Steps between training summaries for TensorBoard.",
    lower_bound=1,
)
flags.DEFINE_integer(
    "profile",
    0,
    "Number of training steps to trace for TensorBoard's profile tab, starting at the tenth.",
    lower_bound=0,
)
flags.DEFINE_integer(
    "seed",
    None,
    "Random seed. The same seed gives bit-identical weights on the same machine's CPU.",
    lower_bound=0,
    upper_bound=2**31 - 1,
)

_PATHS = ("data_dir", "model_dir", "export_dir", "warm_start_from")
# Flags whose value is either a keyword or a path; no keyword begins with "~".
_MAY_BE_PATHS = ("cache", "checkpoint", "input", "overlay_dir", "predict_output")
strict_flags.harden(FLAGS, __name__, paths=(*_PATHS, *_MAY_BE_PATHS))

flags.mark_flags_as_required(["model", "dataset", "model_dir"])


@flags.validator("mode")
def _check_mode(mode):
    if mode not in MODES:
        raise flags.ValidationError(f"'{mode}' is unknown.{did_you_mean(mode, MODES)}")
    return True


@flags.validator("model")
def _check_model(model):
    if model is not None and not registry.may_exist(model):
        raise flags.ValidationError(f"'{model}' is unknown.{did_you_mean(model, registry.MODELS)}")
    return True


def _check_given(value):
    if value == "":
        raise flags.ValidationError("it is empty")
    return True


for _name in ("dataset", "data_dir", "model_dir", "train_split", "eval_split", "checkpoint"):
    flags.register_validator(_name, _check_given)


def _check_no_pattern(path):
    # TensorFlow's checkpoint reader finds nothing below such a folder, and its saver, which deletes
    # old checkpoints by glob pattern, would delete those of other folders.
    found = next((character for character in path or "" if character in "*?[\\"), None)
    if found:
        raise flags.ValidationError(
            f"'{found}' is a glob pattern to TensorFlow. Use a path without any of * ? [ \\"
        )
    return True


for _name in ("model_dir", "export_dir", "warm_start_from", "checkpoint"):
    flags.register_validator(_name, _check_no_pattern)


@flags.validator("cache")
def _check_cache(value):
    if value in _CACHES or ("/" in value and not names.is_remote(value)):
        return True
    raise flags.ValidationError(
        f"'{value}' is not a keyword and not a local folder (a path with a slash)."
        f"{did_you_mean(value, _CACHES)}"
    )


@flags.validator("oversample")
def _check_oversample(value):
    if value and not 0 <= _exponent(value) < 1:
        raise flags.ValidationError(f"'{value}' must be one of balanced, sqrt, or in [0, 1)")
    return True


def _exponent(text):
    """Returns the exponent of --oversample; -1 for an invalid one."""
    try:
        return _EXPONENTS[text] if text in _EXPONENTS else strict_flags.to_float(text)
    except ValueError:
        return -1.0


@flags.validator("data_service")
def _check_data_service(addresses):
    for address in addresses:
        found = re.fullmatch(r"grpc://[^/\s]+:([0-9]{1,5})", address)
        if not found or not 0 < int(found[1]) < 2**16:
            raise flags.ValidationError(f"'{address}' must be grpc://HOST:PORT")
    if len({*addresses}) < len(addresses):
        raise flags.ValidationError("an address is given twice")
    return True


@flags.multi_flags_validator(
    ["mode", "data_service", "data_dir", "model_dir", "skip_bad_records", "cache"]
)
def _check_paths_of_workers(values):
    if not values["data_service"] or values["mode"] not in TRAINING_MODES:
        return True
    for name in ["data_dir"] + ["model_dir"] * (values["skip_bad_records"] > 0):
        path = values[name] or "/"
        if not path.startswith("/") and not names.is_remote(path):
            raise flags.ValidationError(
                f"--{name}={path} is relative, but the workers of --data_service have other "
                "working folders. Use an absolute path that they can read, or gs://"
            )
    if values["cache"] not in _CACHES:
        raise flags.ValidationError(
            f"--cache={values['cache']} is not valid with --data_service, whose workers copy no "
            "files. Use auto, memory or none"
        )
    return True


@flags.validator("warm_start_include")
def _check_include(pattern):
    try:
        re.compile(pattern)
    except re.error as error:
        raise flags.ValidationError(f"'{pattern}' is not a regular expression: {error}") from error
    return True


def _allow_only_in(modes, name):
    """Rejects a non-default value of the flag `name` in all other modes."""

    def check(values):
        if values[name] != FLAGS[name].default and values["mode"] not in modes:
            valid = " or ".join(f"--mode={mode}" for mode in modes)
            raise flags.ValidationError(
                f"--{name} is not valid with --mode={values['mode']}. Use {valid}"
            )
        return True

    flags.register_multi_flags_validator(["mode", name], check)


# Flags that apply to one run only: flags.cfg does not store them.
_ONCE = ("max_restarts", "profile", "tpu_wait_minutes")
for _name in ("max_restarts", "profile"):
    _allow_only_in(TRAINING_MODES, _name)
for _name in ("input", "overlay_dir", "predict_output"):
    _allow_only_in(("predict",), _name)


@flags.multi_flags_validator(["overlay_dir", "input"])
def _check_overlays(values):
    if values["overlay_dir"] and not values["input"]:
        raise flags.ValidationError("--overlay_dir draws into the images of --input: set --input")
    return True


@flags.validator("checkpoint")
def _check_ensemble(value):
    parts = checkpoint_files.ensemble_parts(value)
    if len(parts) == 1 or not all(parts) or any(map(checkpoint_files.ensemble_parts, parts)):
        raise flags.ValidationError(
            f"'{value}' must be ensemble:A,B,... of two checkpoints or more"
        )
    return True


@flags.multi_flags_validator(["mode", "checkpoint"])
def _check_checkpoint(values):
    if values["mode"] in TRAINING_MODES and values["checkpoint"] != "latest":
        raise flags.ValidationError(
            f"--checkpoint is not valid with --mode={values['mode']}, which resumes from the "
            "latest checkpoint in model_dir. To start a new training from another checkpoint, use "
            "--warm_start_from"
        )
    return True


@flags.multi_flags_validator(["mode", "train_steps", "train_epochs"])
def _check_length(values):
    given = values["train_steps"] is not None or values["train_epochs"] is not None
    if values["mode"] in TRAINING_MODES and not given:
        raise flags.ValidationError(
            f"--mode={values['mode']} needs --train_steps or --train_epochs"
        )
    return True


def is_own_dataset(name: str) -> bool:
    """Returns True for --dataset=module:FUNCTION. "tfds:NAME" is a prepared data set."""
    return ":" in name and not name.startswith("tfds:")


@flags.multi_flags_validator(
    ["dataset", "data_dir", "image_size", "synthetic_text", "synthetic_tables", "synthetic_audio"]
)
def _check_data(values):
    if is_own_dataset(values["dataset"] or ""):
        return True
    if values["data_dir"] is None and values["dataset"] != "synthetic":
        raise flags.ValidationError(
            "--data_dir is missing: name the folder written by prepare_data.py"
        )
    shapes = ("data_dir", "image_size", "synthetic_text", "synthetic_tables", "synthetic_audio")
    if all(values[name] is None for name in shapes):
        raise flags.ValidationError(
            "--dataset=synthetic needs --image_size, --synthetic_text, --synthetic_tables, "
            "--synthetic_audio or --data_dir"
        )
    return True


@flags.multi_flags_validator(["synthetic_task", "synthetic_text"])
def _check_synthetic_task(values):
    if values["synthetic_task"] in ANNOTATION_TASKS and values["synthetic_text"] is not None:
        raise flags.ValidationError(
            f"--synthetic_task={values['synthetic_task']} is of images. Use --image_size instead "
            "of --synthetic_text"
        )
    return True


@flags.multi_flags_validator(["synthetic_task", "synthetic_tables"])
def _check_synthetic_tables(values):
    task, rows = values["synthetic_task"], values["synthetic_tables"]
    if rows is None:
        return True
    if task not in TABLE_TASKS:
        raise flags.ValidationError(
            f"--synthetic_tables needs --synthetic_task={' or '.join(TABLE_TASKS)}"
        )
    shown = ",".join(rows)
    is_valid = all(text.isdecimal() and 0 < int(text) < 2**31 for text in rows)
    if not is_valid or not rows or (task == "ratings" and len(rows) != 2):
        what = "USERS,ITEMS" if task == "ratings" else "the rows of each category, such as 100,5000"
        raise flags.ValidationError(f"--synthetic_tables={shown} must be {what}")
    return True


@flags.validator("synthetic_audio")
def _check_synthetic_audio(sizes):
    if sizes is None:
        return True
    is_valid = all(text.isdecimal() and 0 < int(text) < 2**24 for text in sizes)
    if not is_valid or len(sizes) not in (2, 4) or (len(sizes) == 4 and int(sizes[2]) < 2):
        raise flags.ValidationError(
            f"{','.join(sizes)} must be RATE,SAMPLES or RATE,SAMPLES,VOCABULARY,TOKENS, such as "
            "16000,256000,29,400"
        )
    return True


@flags.validator("synthetic_text")
def _check_synthetic_text(size):
    if size and (size[0] > _MOST_TOKENS or size[1] > _MOST_SUBWORDS):
        raise flags.ValidationError(
            f"it must be at most {_MOST_TOKENS}x{_MOST_SUBWORDS} (tokens x vocabulary)"
        )
    return True


flags.register_multi_flags_validator(
    ["mode", "export_dir"],
    lambda values: values["mode"] != "export" or values["export_dir"],
    "--mode=export needs --export_dir",
)


@flags.validator("best_metric")
def _check_best_metric(value):
    try:
        metric_direction.split(value)
    except UsageError as error:
        raise flags.ValidationError(str(error)) from error
    return True


_EVERY = ("eval_every_steps", "eval_every_epochs", "eval_every_minutes")


@flags.multi_flags_validator(_EVERY)
def _check_every(values):
    given = [f"--{name}" for name in values if is_of_command_line(name)]
    if len(given) > 1:
        raise flags.ValidationError(f"{' and '.join(given)} are both given. Use one of them")
    zero = [f"--{name}=0" for name in values if values[name] == 0]
    if zero:
        raise flags.ValidationError(f"{zero[0]} must be above 0. Remove it, or use a larger one")
    return True


@flags.validator("eval_splits")
def _check_eval_splits(value):
    given = (value or "test").split(",")
    if not all(given) or len({*given}) < len(given):
        raise flags.ValidationError("it must be different names of splits, NAME,NAME,...")
    return True


@flags.multi_flags_validator(["eval_split", "eval_splits"])
def _check_one_form(values):
    if all(is_of_command_line(name) for name in values):
        raise flags.ValidationError("--eval_split and --eval_splits are both given. Remove one")
    return True


@flags.multi_flags_validator(["mode", "max_eval_examples", "best_metric"])
def _check_max_eval_examples(values):
    is_partial = values["max_eval_examples"] and values["mode"] in BEST_METRIC_MODES
    if is_partial and values["best_metric"]:
        raise flags.ValidationError(
            f"--max_eval_examples={values['max_eval_examples']} cannot select the best checkpoint: "
            "a part of a split has other metrics. Remove it, or set --best_metric= and "
            "--early_stop_evals=0"
        )
    return True


flags.register_multi_flags_validator(
    ["early_stop_evals", "best_metric"],
    lambda values: values["best_metric"] or not values["early_stop_evals"],
    "--early_stop_evals needs --best_metric",
)

# The same as in input_fns.core.caching, which imports TensorFlow.
_CACHES = ("auto", "memory", "none")
_EVALUATES_ALL = ("eval", *BEST_METRIC_MODES)
_EVALUATING_MODES = (*_EVALUATES_ALL, "predict")
_BATCH_SIZES = {
    "train": ["train_batch_size"],
    "eval": ["eval_batch_size"],
    "train_and_eval": ["train_batch_size", "eval_batch_size"],
    "continuous_eval": ["eval_batch_size"],
    "predict": ["predict_batch_size"],
    "export": ["predict_batch_size"],
    "check": ["train_batch_size", "eval_batch_size", "predict_batch_size"],
}


def paths() -> dict[str, str]:
    """Returns `{flag: path}` for the paths that every process of the run must be able to read."""
    given = {name: FLAGS[name].value for name in _PATHS if FLAGS[name].value}
    if FLAGS.cache not in _CACHES:
        given["cache"] = FLAGS.cache
    is_path = FLAGS.checkpoint not in ("latest", "best")
    if is_path and not checkpoint_files.is_made(FLAGS.checkpoint):
        given["checkpoint"] = FLAGS.checkpoint
    return given


def is_of_command_line(name: str) -> bool:
    """Returns True if the command line, not a flagfile, sets a flag; see `startup.start`."""
    return name in FLAGS and getattr(FLAGS[name], "is_own", False)


def is_param_of_command_line(name: str) -> bool:
    """Returns True if a --params of the command line, not of a flagfile, sets a hyperparameter."""
    own = FLAGS.params[-FLAGS["params"].num_own :] if FLAGS["params"].num_own else []
    return any(re.search(rf"(^|,)\s*{name}\s*=", override) for override in own)


def splits_read(is_evaluator: bool = False) -> list[str]:
    """Returns the splits that the mode reads.

    Args:
      is_evaluator: True for the evaluator of a cluster, which evaluates in --mode=train, too.
    """
    trains = FLAGS.mode in (*TRAINING_MODES, "check")
    evaluates = (FLAGS.mode != "train" or is_evaluator) and not FLAGS.input
    is_every = is_evaluator or FLAGS.mode in _EVALUATES_ALL
    evaluated = eval_splits() if is_every else eval_splits()[:1]
    return [FLAGS.train_split] * trains + [*evaluated] * evaluates


def eval_splits() -> tuple[str, ...]:
    """Returns the splits of --eval_splits, or that of --eval_split."""
    return tuple(FLAGS.eval_splits.split(",")) if FLAGS.eval_splits else (FLAGS.eval_split,)


def repaired_split() -> str:
    """Returns the split whose unreadable records are skipped; "" if none are."""
    return FLAGS.train_split if FLAGS.skip_bad_records else ""


def evaluates() -> bool:
    """Returns True if the mode evaluates or predicts."""
    return FLAGS.mode in _EVALUATING_MODES or (FLAGS.mode == "export" and FLAGS.export_check)


def oversample_exponent() -> float | None:
    """Returns the exponent of --oversample, None without it."""
    return _exponent(FLAGS.oversample) if FLAGS.oversample else None


def batch_sizes() -> dict[str, int]:
    """Returns `{flag: global batch size}` for the batch sizes that the mode uses."""
    return {name: FLAGS[name].value for name in _BATCH_SIZES[FLAGS.mode]}


def as_flagfile() -> str:
    """Returns the text of a flagfile with the flags that differ from their defaults.

    `--undefok` makes the other wrapper ignore flags that only this one defines.
    """
    given = {
        module: [
            flag for flag in module_flags if flag.value != flag.default and flag.name not in _ONCE
        ]
        for module, module_flags in FLAGS.flags_by_module_dict().items()
        if not module.startswith("absl")
    }
    others = [flag.name for module in given if module != __name__ for flag in given[module]]
    lines = [flag.serialize() for module_flags in given.values() for flag in module_flags]
    lines += [f"--undefok={','.join(others)}"] if others else []
    return "\n".join(line for line in lines if line) + "\n"
