"""Hints for unknown flags: what they tell to write is accepted."""

import ast
import pathlib
import re

import pytest

from engine.cli import cpu_flags, flags, hparams, other_names
from input_fns.convert import flags as convert_flags
from models import registry
from tpu.connect import flags as tpu_flags

ROOT = pathlib.Path(__file__).parents[3]
PROGRAMS = {
    "run_cpu.py": set(cpu_flags.FLAGS),
    "run_tpu.py": set(tpu_flags.FLAGS),
    "prepare_data.py": set(convert_flags.FLAGS),
}
# Flags of absl, saved_model_cli, spm_train, Apache Beam and tools/data_service.py.
OTHERS = {"help", "helpfull", "helpshort", "flagfile", "undefok"}
OTHERS |= {"dir", "tag_set", "signature_def", "inputs", "pad_id", "eos_id", "host", "port"}
OTHERS |= {"direct_num_workers"}
MODELS = ("bert_base_squad", "bert_embedder", "resnet", "saved_model", "two_tower")


def strings(folder):
    """Yields the strings of the modules in a folder, with the place, without docstrings."""
    for path in sorted((ROOT / folder).rglob("*.py")):
        tree = ast.parse(path.read_text())
        docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and id(node) not in docs
            ):
                yield f"{path}:{node.lineno}", node.value


@pytest.mark.parametrize("folder", ["common", "engine", "input_fns", "models"])
def test_every_flag_in_a_message_is_a_flag(folder):
    known = set().union(*PROGRAMS.values(), OTHERS)
    unknown = [
        (place, name)
        for place, text in strings(folder)
        for name in re.findall(r"(?<![-\w])--(\w+)", text)
        if name not in known and name.removeprefix("no") not in known
    ]
    assert unknown == []


def test_every_hyperparameter_in_a_message_is_one():
    known = set()
    for name in MODELS:
        model = registry.find(name)
        known |= hparams.resolve(model, [], None).keys() | set(model.dataset_properties)
    found = {
        (place, name)
        for folder in ("engine", "input_fns", "models")
        for place, text in strings(folder)
        for name in re.findall(r"--params=(\w+)=", text)
    }
    assert len(found) >= 5
    assert {pair for pair in found if pair[1] not in known} == set()


def test_every_mode_in_a_hint_is_one():
    found = [
        mode for text in other_names.HERE.values() for mode in re.findall(r"--mode=(\w+)", text)
    ]
    assert set(found) <= set(flags.MODES)
    assert found


@pytest.mark.parametrize(
    ("name", "value", "hint"),
    [
        ("init_checkpoint", "bert", "Here it is --warm_start_from"),
        ("vocab_file", "v.txt", "Here it is --vocabulary of prepare_data.py"),
        (
            "max_eval_steps",
            "10",
            "Leave it out: an evaluation reads every example of --eval_split; with "
            "--max_eval_examples=N the first N",
        ),
        ("lower_case", "", "--lower_case is a flag of prepare_data.py"),
        ("tpu_zone", "", "--tpu_zone is a flag of run_tpu.py"),
        ("hidden_units", "[3]", "It is a hyperparameter: write --params=hidden_units=[3]"),
        ("nesterov", "", "It is a hyperparameter: write --params=nesterov=true"),
        ("nonesterov", "", "It is a hyperparameter: write --params=nesterov=false"),
        ("hiden_units", "3", "Did you mean the hyperparameter --params=hidden_units=3?"),
        ("quux", "3", ""),
    ],
)
def test_hints_of_run_cpu(name, value, hint):
    flag_values = {"model": type("Flag", (), {"value": "mlp"}), "warm_start_from": 0, "params": 0}
    flag_values.update(eval_split=0, max_eval_examples=0)
    assert other_names.hint(name, value, flag_values) == hint


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("init_checkpoint", "Here it is --warm_start_from of run_cpu.py and run_tpu.py"),
        ("vocab_file", "Here it is --vocabulary"),
        ("augment", "--augment is a flag of run_cpu.py and run_tpu.py"),
        ("learning_rate", ""),
    ],
)
def test_hints_of_prepare_data(name, hint):
    assert other_names.hint(name, "", convert_flags.FLAGS) == hint
