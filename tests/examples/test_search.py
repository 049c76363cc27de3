"""The search over hyperparameters, as docs/python.md starts it."""

import pathlib
import subprocess
import sys

import pytest

from input_fns import convert
from input_fns.convert import writer
from input_fns.convert.options import Options

ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.slow
def test_a_search_continues_with_more_trials(tmp_path):
    pytest.importorskip("optuna", reason="optuna is not installed: make setup-dev")
    data_dir, folder = str(tmp_path / "data"), tmp_path / "search"
    writer.write(convert.read(Options("digits", validation_fraction=0.1)), data_dir)
    for more, trials in ((2, 2), (1, 3)):
        command = [sys.executable, "examples/search.py", f"--data_dir={data_dir}"]
        command += [f"--folder={folder}", f"--trials={more}", "--steps=3"]
        done = subprocess.run(
            command, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert len(list(folder.glob("trial_*"))) == trials
        assert "best: trial " in done.stdout
