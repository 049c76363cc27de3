"""Runs the wrappers on a case: the model and the data of a folder here, as a user's own files."""

import functools
import json
import os
import shutil

import numpy as np
import pytest

from tests.contract.segmentation_data import write_images

# Steps of training: few, but enough for predictions of several classes, and for some right boxes.
STEPS = {
    "masked_lm": 5,
    "segmentation": 30,
    "detection": 40,
    "embedding": 5,
    "gan": 40,
    "language_model": 40,
    "two_stage": 40,
}


@pytest.fixture(scope="session")
def contract_data_dir(tmp_path_factory):
    """DATA_DIR of all cases; only segmentation reads it."""
    folder = tmp_path_factory.mktemp("contract_data")
    write_images(folder)
    return folder


def _runner(run, data_dir, batch_size, *more):
    def run_case(case, model_dir, *arguments):
        names = f"tests.contract.{case}.model:MODEL", f"tests.contract.{case}.data:make_pipeline"
        modes = ("train", "eval", "predict")
        run(
            f"--model={names[0]}",
            f"--dataset={names[1]}",
            f"--data_dir={data_dir}",
            f"--model_dir={model_dir}",
            "--seed=1",
            *(f"--{mode}_batch_size={batch_size}" for mode in modes),
            *more,
            *arguments,
        )

    return run_case


@pytest.fixture(scope="session")
def run_case(run_with, contract_data_dir):
    """Runs run_cpu.py: `run_case("masked_lm", model_dir, "--mode=train", ...)`."""
    return _runner(run_with, contract_data_dir, 13)


@pytest.fixture(scope="session")
def run_case_on_tpu(run_tpu_with, contract_data_dir):
    """Runs run_tpu.py on two emulated cores; `--tpu_topology=v2-8` in the flags for eight."""
    return _runner(run_tpu_with, contract_data_dir, 14, "--tpu=emulator", "--tpu_topology=1x2")


@pytest.fixture(scope="session")
def trained(run_case, once, tmp_path_factory, serve_in_this_process):
    """Returns the model_dir of a case after training, evaluation and export: `trained(case)`."""

    @functools.cache
    def train(case):
        arguments = [f"--train_steps={STEPS[case]}", "--params=learning_rate=0.01"]

        def build(model_dir):
            with serve_in_this_process():
                run_case(case, model_dir, *arguments, f"--export_dir={model_dir}/export")

        # Evaluations write into it.
        copy = tmp_path_factory.mktemp(case)
        return shutil.copytree(once(case, build), copy, dirs_exist_ok=True)

    return train


@pytest.fixture(scope="session")
def evaluate(run_case, trained):
    """Evaluates with run_cpu.py: the metrics of `evaluate(case, "--eval_batch_size=7")`."""

    def run(case, *arguments, run=run_case):
        run(case, trained(case), "--mode=eval", *arguments)
        with open(trained(case) / f"result_{STEPS[case]}.json") as file:
            return json.load(file)["eval"]

    return run


@pytest.fixture(scope="session")
def predict(run_case, trained):
    """Predicts the split "test": the arrays of `predict(case, ...)`."""

    def run(case, *arguments, run=run_case):
        path = os.path.join(trained(case), "predictions.npz")
        run(case, trained(case), "--mode=predict", f"--predict_output={path}", *arguments)
        with np.load(path) as arrays:
            return dict(arrays)

    return run
