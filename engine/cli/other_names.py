"""What flags of google-research/bert and tensorflow/tpu are called here, for hints in errors."""

from __future__ import annotations

import contextlib
import importlib
import re

from common.messages import similar

_WHOLE_SPLIT = (
    "Leave it out: an evaluation reads every example of --eval_split; with --max_eval_examples=N "
    "the first N"
)
# A sentence stands for itself.
HERE = {
    "init_checkpoint": "--warm_start_from",
    "output_dir": "--model_dir",
    "bert_config_file": "--params=size=NAME, or the sizes in --params",
    "task_name": "--dataset",
    "train_file": "--source, a folder",
    "predict_file": "--source, a folder",
    "input_file": "--source, a folder",
    "vocab_file": "--vocabulary",
    "do_lower_case": "--lower_case",
    "max_seq_length": "--max_length",
    "do_whole_word_mask": "--whole_word_mask",
    "random_seed": "--seed",
    "do_train": "--mode=train",
    "do_eval": "--mode=eval or train_and_eval",
    "do_predict": "--mode=predict",
    "num_train_steps": "--train_steps",
    "num_train_epochs": "--train_epochs",
    "num_warmup_steps": "--params=warmup_steps=N",
    "warmup_proportion": "--params=warmup_steps=N, in steps",
    "base_learning_rate": "--params=learning_rate=X",
    "null_score_diff_threshold": "--params=null_threshold=X",
    "use_tpu": "run_tpu.py",
    "tpu_name": "--tpu",
    "hparams": "--params",
    # Of Keras' `fit`.
    "epochs": "--train_epochs",
    "batch_size": "--train_batch_size, --eval_batch_size and --predict_batch_size",
    "validation_split": "--validation_fraction of prepare_data.py",
    "val_fraction": "--validation_fraction of prepare_data.py",
    "val_split": "--validation_fraction of prepare_data.py",
    "steps_per_epoch": "--train_steps or --train_epochs, of the whole training",
    "config_file": "--flagfile",
    "resnet_depth": "--params=depth=N",
    "max_eval_steps": _WHOLE_SPLIT,
    "eval_steps": _WHOLE_SPLIT,
    "num_eval_images": _WHOLE_SPLIT,
    "num_train_images": "Leave it out: the data set has the number",
    "steps_per_eval": "--eval_every_steps",
    "iterations": "--iterations_per_loop",
    "num_cores": "--tpu, whose cores are all used",
    "num_tpu_cores": "--tpu, whose cores are all used",
    "master": "--tpu",
}
_PREPARE_DATA = "input_fns.convert.flags"
# Modules of flags and the programs that have them.
_PROGRAMS = {
    "engine.cli.flags": "run_cpu.py and run_tpu.py",
    "engine.cli.cpu_flags": "run_cpu.py",
    "tpu.connect.flags": "run_tpu.py",
    _PREPARE_DATA: "prepare_data.py",
}


def hint(name: str, value: str, flag_values) -> str:
    """Returns what to write instead of an unknown flag; "" if nothing is known.

    Args:
      name: of the flag.
      value: its value, "" if unknown.
      flag_values: the flags of the program, parsed as far as they are known.
    """
    if name in HERE:
        text = _with_programs(HERE[name], flag_values)
        return text if text[0].isupper() else f"Here it is {text}"
    program = _program(name)
    if program:
        return f"--{name} is a flag of {program}"
    if "params" not in flag_values:
        return ""
    found = _hyperparameters(flag_values["model"].value)
    if name.startswith("no") and found.get(name[2:]) in (True, False):
        return f"It is a hyperparameter: write --params={name[2:]}=false"
    if name in found:
        return f"It is a hyperparameter: write --params={name}={value or _example(found[name])}"
    close = similar(name, found)
    return f"Did you mean the hyperparameter --params={close}={value or 'VALUE'}?" if close else ""


def _with_programs(text, flag_values):
    """Returns a hint with the programs of the flags that the running one does not have."""
    for name in re.findall(r"--(\w+)", text):
        if name not in flag_values:
            text = text.replace(f"--{name}", f"--{name} of {_program(name)}", 1)
    return text


def _program(name):
    """Returns the programs that have a flag, "" if none has."""
    flags_of = {module: importlib.import_module(module).FLAGS for module in _PROGRAMS}
    if name in flags_of[_PREPARE_DATA]:
        return _PROGRAMS[_PREPARE_DATA]
    for module, program in _PROGRAMS.items():
        if module != _PREPARE_DATA:
            own = flags_of[module].flags_by_module_dict().get(module, ())
            if name in {flag.name for flag in own}:
                return program
    return ""


def _hyperparameters(model):
    """Returns the default hyperparameters of a model and of training, of the latter if it fails."""
    from engine.train import optimizers, schedules  # TensorFlow takes seconds

    found = {**optimizers.default_params(), **schedules.default_params()}
    with contextlib.suppress(Exception):  # no model, an unknown one, or one with an error
        from models import registry

        found.update(registry.find(model).default_params())
    return found


def _example(default):
    return "true" if isinstance(default, bool) else "VALUE"
