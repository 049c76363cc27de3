"""The flags that both wrappers share, and their checks. Imports no TensorFlow."""

from __future__ import annotations

import re

from absl import flags

from common import strict_flags
from common.messages import did_you_mean
from engine.cli.size_flag import SizeParser, SizeSerializer
from models import registry

MODES = ("train", "eval", "train_and_eval", "continuous_eval", "predict", "export", "check")
TRAINING_MODES = ("train", "train_and_eval")

FLAGS = flags.FLAGS
# Of synthetic text: more than any translator has.
_MOST_TOKENS, _MOST_SUBWORDS = 2**16, 2**20

flags.DEFINE_string(
    "mode", "train_and_eval", f"What to do: {', '.join(MODES)}; check is run_tpu.py's alone."
)
flags.DEFINE_string("model", None, "Name of a model, or package.module:ATTRIBUTE of your own.")
flags.DEFINE_multi_string(
    "params", [], "Hyperparameters, key=value,key=value,...; may be repeated, a later key wins."
)

flags.DEFINE_string(
    "dataset",
    None,
    "Name of the data set that data_dir holds; synthetic: random examples in its place; or "
    "package.module:FUNCTION of your own, from data_dir to a pipeline.",
)
flags.DEFINE_string("data_dir", None, "Folder that prepare_data.py wrote, local or gs://.")
flags.DEFINE_string("train_split", "train", "Split to train on.")
flags.DEFINE_string("eval_split", "test", "Split to evaluate and predict.")
flags.DEFINE(
    SizeParser(),
    "image_size",
    None,
    "Size of the images that the model sees; default: that of the stored ones.",
    serializer=SizeSerializer(),
)
flags.DEFINE_string(
    "augment",
    "",
    "What is done to training images, on the host: words such as 'crop:4 flip', listed in "
    "input_fns/augment.",
)
flags.DEFINE_float(
    "center_crop",
    0.875,
    "Share of the sides of larger images that evaluation sees.",
    lower_bound=0.01,
    upper_bound=1.0,
)
flags.DEFINE_string(
    "cache",
    "auto",
    "Where training examples wait between epochs: memory, none (read anew), a local folder, or "
    "auto: memory up to 1 GiB.",
)
flags.DEFINE_integer(
    "skip_bad_records",
    0,
    "Training goes on without up to this many records of train_split that cannot be read.",
    lower_bound=0,
)
flags.DEFINE_integer(
    "synthetic_classes", 1000, "Classes of --dataset=synthetic without data_dir.", lower_bound=2
)

flags.DEFINE(
    SizeParser(),
    "synthetic_text",
    None,
    "Rows of text of --dataset=synthetic without data_dir: TOKENSxVOCABULARY, such as 128x32768.",
    serializer=SizeSerializer(),
)

flags.DEFINE_string("model_dir", None, "Folder of checkpoints and results, local or gs://.")
flags.DEFINE_string(
    "export_dir",
    "",
    "Folder of SavedModels, local or gs://; train_and_eval exports at its end if it is given.",
)
flags.DEFINE_boolean(
    "export_text",
    False,
    "Of translation: the SavedModel takes text too, and answers in text. TensorFlow Text must be "
    "installed, here and where it is served.",
)
flags.DEFINE_integer(
    "export_top_k",
    0,
    "Of classes: the SavedModel also gives this many of the likeliest, likeliest first.",
    lower_bound=0,
)
flags.DEFINE_boolean(
    "export_check",
    True,
    "Compares the SavedModel, in a fresh process, with a batch of predict_batch_size predictions.",
)
flags.DEFINE_string(
    "checkpoint",
    "latest",
    "For eval, predict and export: latest, best, average:N of the newest N, or a path.",
)
flags.DEFINE_string(
    "input",
    "",
    "For predict, in the place of eval_split: a file of text to be translated line by line, or a "
    "picture or a folder of them.",
)
flags.DEFINE_string(
    "predict_output",
    "",
    "For predict: a .jsonl or .npz file, or of text .txt; default is in model_dir.",
)


class _LengthFlag(flags.Flag):
    """One of two ways to say how long to train: the later on the command line wins."""

    def parse(self, argument):
        """Takes the value, and forgets that of the other way."""
        super().parse(argument)
        for name in _LENGTH_FLAGS:
            if name != self.name:
                FLAGS[name].unparse()


_LENGTH_FLAGS = {
    "train_steps": (flags.IntegerParser(lower_bound=1), "Global step at which training ends."),
    "train_epochs": (
        flags.FloatParser(lower_bound=0),
        "The same in passes over the split; of the two, the later on the command line counts.",
    ),
}
for _name, (_parser, _help) in _LENGTH_FLAGS.items():
    flags.DEFINE_flag(_LengthFlag(_parser, flags.ArgumentSerializer(), _name, None, _help))

flags.DEFINE_integer("train_batch_size", 128, "Global batch size of training.", lower_bound=1)
flags.DEFINE_integer("eval_batch_size", 128, "Global batch size of evaluation.", lower_bound=1)
flags.DEFINE_integer("predict_batch_size", 128, "Global batch size of prediction.", lower_bound=1)
flags.DEFINE_integer(
    "accumulate_steps",
    1,
    "Parts into which a batch of training is cut, each in memory by itself; one update for all.",
    lower_bound=1,
)
flags.DEFINE_enum(
    "precision",
    "float32",
    ["float32", "bfloat16"],
    "What the layers compute in; variables, logits and loss are float32.",
)

flags.DEFINE_string(
    "warm_start_from", "", "Checkpoint, or folder of them, that a new training begins with."
)
flags.DEFINE_string(
    "warm_start_include", ".*", "Regular expression of the variables that a warm start takes."
)
flags.DEFINE_integer(
    "save_checkpoints_steps",
    1000,
    "Steps between checkpoints, and so between evaluations.",
    lower_bound=1,
)
flags.DEFINE_integer("keep_checkpoint_max", 5, "Newest checkpoints kept; 0: all.", lower_bound=0)
flags.DEFINE_string(
    "best_metric",
    "",
    "Metric by which train_and_eval and continuous_eval keep the best checkpoint. One with loss, "
    "error or perplexity in its name is better the smaller it is.",
)
flags.DEFINE_integer(
    "early_stop_evals",
    0,
    "Stop after this many evaluations without a better best_metric; 0: never.",
    lower_bound=0,
)
flags.DEFINE_integer(
    "eval_timeout_secs",
    3600,
    "continuous_eval ends when no checkpoint has come for this long.",
    lower_bound=1,
)
flags.DEFINE_integer(
    "max_restarts",
    0,
    "Restarts of a training that dies, from its last good checkpoint.",
    lower_bound=0,
)

flags.DEFINE_integer(
    "summary_steps",
    100,
    "Steps between the points of TensorBoard's training curves.",
    lower_bound=1,
)
flags.DEFINE_integer(
    "profile",
    0,
    "Steps of training to be traced for TensorBoard's profile tab, from the tenth on.",
    lower_bound=0,
)
flags.DEFINE_integer(
    "seed",
    None,
    "Makes a run repeatable, bit for bit on one CPU.",
    lower_bound=0,
    upper_bound=2**31 - 1,
)

_PATHS = ("data_dir", "model_dir", "export_dir", "warm_start_from")
# Of these some values are words and others paths; no word begins with "~".
_MAY_BE_PATHS = ("cache", "checkpoint", "input", "predict_output")
strict_flags.harden(FLAGS, __name__, paths=(*_PATHS, *_MAY_BE_PATHS))

flags.mark_flags_as_required(["model", "dataset", "model_dir"])


@flags.validator("mode")
def _check_mode(mode):
    if mode not in MODES:
        raise flags.ValidationError(f"'{mode}' is unknown.{did_you_mean(mode, MODES)}")
    return True


@flags.validator("model")
def _check_model(model):
    if model is not None and ":" not in model and model not in registry.MODELS:
        raise flags.ValidationError(f"'{model}' is unknown.{did_you_mean(model, registry.MODELS)}")
    return True


def _check_given(value):
    if value == "":
        raise flags.ValidationError("it is empty")
    return True


for _name in ("dataset", "data_dir", "model_dir", "train_split", "eval_split", "checkpoint"):
    flags.register_validator(_name, _check_given)


def _check_no_pattern(path):
    # Its reader finds no checkpoint below such a folder, and its saver, which removes old ones by
    # a pattern, would remove those of other folders too.
    found = next((character for character in path or "" if character in "*?[\\"), None)
    if found:
        raise flags.ValidationError(
            f"'{found}' in the path of a checkpoint is a pattern to TensorFlow. Use a path without "
            "any of * ? [ \\"
        )
    return True


for _name in ("model_dir", "export_dir", "warm_start_from", "checkpoint"):
    flags.register_validator(_name, _check_no_pattern)


@flags.validator("cache")
def _check_cache(value):
    if value in _CACHES or ("/" in value and "://" not in value):
        return True
    raise flags.ValidationError(
        f"'{value}' is none of {', '.join(_CACHES)}, and no folder of a local disk, which is "
        f"written with a slash.{did_you_mean(value, _CACHES)}"
    )


@flags.validator("warm_start_include")
def _check_include(pattern):
    try:
        re.compile(pattern)
    except re.error as error:
        raise flags.ValidationError(f"'{pattern}' is no regular expression: {error}") from error
    return True


def _refuse_but_in(modes, name):
    """Makes the flag `name` an error in other modes, unless it has its default."""

    def check(values):
        if values[name] != FLAGS[name].default and values["mode"] not in modes:
            wanted = f"--mode={modes[0]}" if len(modes) == 1 else "training"
            raise flags.ValidationError(f"--{name} is for {wanted}, not --mode={values['mode']}")
        return True

    flags.register_multi_flags_validator(["mode", name], check)


# Of one run alone: no flags.cfg hands them to the next.
_ONCE = ("max_restarts", "profile")
for _name in _ONCE:
    _refuse_but_in(TRAINING_MODES, _name)
for _name in ("input", "predict_output"):
    _refuse_but_in(("predict",), _name)


@flags.multi_flags_validator(["mode", "checkpoint"])
def _check_checkpoint(values):
    if values["mode"] in TRAINING_MODES and values["checkpoint"] != "latest":
        raise flags.ValidationError(
            f"--checkpoint is not for --mode={values['mode']}, which goes on from the latest in "
            "model_dir; --warm_start_from begins a new training with the values of another"
        )
    return True


@flags.multi_flags_validator(["mode", *_LENGTH_FLAGS])
def _check_length(values):
    given = any(values[name] is not None for name in _LENGTH_FLAGS)
    if values["mode"] in TRAINING_MODES and not given:
        raise flags.ValidationError(
            f"--mode={values['mode']} needs --train_steps or --train_epochs"
        )
    return True


def is_own_dataset(name: str) -> bool:
    """Whether --dataset names a function of the user's; "tfds:NAME" was prepared as any other."""
    return ":" in name and not name.startswith("tfds:")


@flags.multi_flags_validator(["dataset", "data_dir", "image_size", "synthetic_text"])
def _check_data(values):
    if is_own_dataset(values["dataset"] or ""):
        return True
    if values["data_dir"] is None and values["dataset"] != "synthetic":
        raise flags.ValidationError("Flag --data_dir must have a value other than None.")
    shapes = ("data_dir", "image_size", "synthetic_text")
    if all(values[name] is None for name in shapes):
        raise flags.ValidationError(
            "--dataset=synthetic needs --image_size, --synthetic_text or --data_dir"
        )
    return True


@flags.validator("synthetic_text")
def _check_synthetic_text(size):
    if size and (size[0] > _MOST_TOKENS or size[1] > _MOST_SUBWORDS):
        raise flags.ValidationError(
            f"it is at most {_MOST_TOKENS}x{_MOST_SUBWORDS}, tokens by subwords"
        )
    return True


@flags.multi_flags_validator(["mode", "export_dir"])
def _check_export(values):
    if values["mode"] == "export" and not values["export_dir"]:
        raise flags.ValidationError("--mode=export needs --export_dir")
    return True


@flags.multi_flags_validator(["early_stop_evals", "best_metric"])
def _check_early_stop(values):
    if values["early_stop_evals"] and not values["best_metric"]:
        raise flags.ValidationError("--early_stop_evals needs --best_metric")
    return True


# As input_fns.caching has them, which imports TensorFlow.
_CACHES = ("auto", "memory", "none")
_EVALUATING_MODES = ("eval", "train_and_eval", "continuous_eval", "predict")
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
    """Returns `{flag: path}` of the flags that name what other processes of the run must see."""
    given = {name: FLAGS[name].value for name in _PATHS if FLAGS[name].value}
    if FLAGS.cache not in _CACHES:
        given["cache"] = FLAGS.cache
    if FLAGS.checkpoint not in ("latest", "best") and not FLAGS.checkpoint.startswith("average:"):
        given["checkpoint"] = FLAGS.checkpoint
    return given


def evaluates() -> bool:
    """Whether the mode evaluates or predicts."""
    return FLAGS.mode in _EVALUATING_MODES or (FLAGS.mode == "export" and FLAGS.export_check)


def batch_sizes() -> dict[str, int]:
    """Returns `{flag: global batch size}` of the flags that the mode uses."""
    return {name: FLAGS[name].value for name in _BATCH_SIZES[FLAGS.mode]}


def as_flagfile() -> str:
    """Returns the flags of this package that differ from their defaults, as a flagfile.

    Those of one program alone may be read by the other: it is told to pass over them.
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
