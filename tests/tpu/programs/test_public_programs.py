"""Public TPUEstimator programs run unmodified, on tiny data.

The environment variable TPU_PROGRAMS is a folder with checkouts of tensorflow/tpu, mesh and
tensor2tensor, google-research/bert, albert, electra and simclr, brightmart/roberta_zh,
ConnorJL/GPT2 and GoogleCloudPlatform/cloudml-samples on GitHub, in folders named tpu, mesh and so
on. Some programs need PyYAML, tensorflow-datasets, tensorflow-hub and other packages; see
`Case.packages`.
"""

import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

from tests.tpu.programs import public_programs as programs
from tpu.connect import topology

ROOT = pathlib.Path(__file__).parents[3]
# Names of the calls in the report of `check`.
MODES = {
    "train": "train",
    "evaluate": "eval",
    "predict": "predict",
    "export": "export",
}
TIME_LIMIT = 1800  # seconds; minutes are usual
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        "TPU_PROGRAMS" not in os.environ,
        reason="TPU_PROGRAMS is not set: a folder with checkouts of tensorflow/tpu, bert, ...",
    ),
]


@pytest.fixture
def run(tmp_path):
    """`run(case, command, *options)` yields `(expected calls, process)` for each run of a case."""

    def run_all(case, command, *options):
        checkouts = pathlib.Path(os.environ["TPU_PROGRAMS"]).resolve()
        for package in case.packages:
            pytest.importorskip(package)
        if not (checkouts / case.path).exists():
            pytest.skip(f"{checkouts} has no {case.path}")
        (tmp_path / "data").mkdir()
        case.write_data(tmp_path / "data")
        program = checkouts / case.path
        python_path = [str(checkouts / folder) for folder in case.python_path.split()]
        environment = {}
        if program.suffix == ".ipynb":
            program = write_script(program, programs.SHAKESPEARE_REPLACEMENTS, tmp_path)
            environment["COLAB_TPU_ADDR"] = "10.0.0.2:8470"
        # The folder of the program comes first: tensorflow/tpu has a package `common`, too.
        folders = [*python_path, str(ROOT), os.environ.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, folders))
        cores = topology.find(case.topology).num_cores
        where = f"--devices=cpu:{cores}" if command == "run" else f"--topology={case.topology}"
        options = [where, *options, *["--tf1"] * case.is_tf1]
        for calls, more_arguments in case.runs.items():
            arguments = in_folders(f"{case.arguments} {more_arguments}", tmp_path).split()
            done = subprocess.run(
                [sys.executable, "-m", "tpu", command, *options, str(program), *arguments],
                env={**os.environ, **environment},
                cwd=tmp_path,
                capture_output=True,
                text=True,
                timeout=TIME_LIMIT,
            )
            yield calls, done

    return run_all


def in_folders(text, folder):
    """Replaces the placeholders of the folders."""
    folders = {"DATA": f"{folder}/data", "OUT": f"{folder}/out"}
    return re.sub("DATA|OUT", lambda match: folders[match[0]], text)


def write_script(notebook, replacements, folder):
    """Writes the code cells of a notebook as a script, and a stub of google.colab next to it.

    Args:
      notebook: path of the notebook.
      replacements: `{regular expression: replacement}`; each must occur in the cells.
      folder: folder of the script.

    Returns:
      The path of the script.
    """
    cells = json.loads(notebook.read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    lines = [line for line in "\n".join(code).splitlines() if not line.lstrip().startswith("!")]
    source = "\n".join(lines)
    for pattern, replacement in replacements.items():
        source, count = re.subn(pattern, in_folders(replacement, folder), source, flags=re.M)
        assert count, f"{notebook} has no {pattern}"
    script = folder / "notebook.py"
    script.write_text(source)
    colab = folder / "google" / "colab"
    colab.mkdir(parents=True)
    (colab / "__init__.py").touch()
    (colab / "auth.py").write_text("def authenticate_user():\n    pass\n")
    return script


@pytest.mark.parametrize("case", programs.CASES, ids=str)
def test_emulate(case, run):
    for calls, done in run(case, "emulate"):
        assert done.returncode == 0, done.stderr[-3000:]
        assert done.stderr.splitlines()[-1] == f"tpu: on emulated cores: {calls}"


@pytest.mark.parametrize("case", programs.CASES, ids=str)
def test_run(case, run):
    pytest.importorskip("jax", reason="the extra 'pjrt' is not installed")
    for calls, done in run(case, "run"):
        last = done.stderr.splitlines()[-1]
        if case is programs.EMBEDDING:
            assert done.returncode == 1
            assert last.startswith("tpu: error: PJRT devices have no TPU embeddings (at ")
        else:
            assert done.returncode == 0, done.stderr[-3000:]
            assert last == f"tpu: on PJRT devices: {calls}"


@pytest.fixture
def check(run, tmp_path):
    """`check(case)` yields `(expected calls, fields of the report)` for each run of a case."""

    def check_all(case):
        report = tmp_path / "report.json"
        effort = "quick" if importlib.util.find_spec("libtpu") else "off"
        options = (f"--report={report}", f"--compiler={effort}", f"--steps={case.check_steps}")
        for calls, done in run(case, "check", *options):
            assert done.returncode == 0, done.stdout + done.stderr[-3000:]
            yield calls, json.loads(report.read_text())

    return check_all


@pytest.mark.parametrize("case", programs.CASES, ids=str)
def test_check(case, check):
    for calls, report in check(case):
        names = [call.split()[1] for call in calls.split(", ")]
        assert list(report["modes"]) == [MODES[name] for name in names]
        for mode, fields in report["modes"].items():
            assert fields["outputs" if mode == "export" else "sizes"], mode


def test_check_counts_the_ids_of_embeddings(check):
    [(_, report)] = check(programs.EMBEDDING)
    assert [len(fields["embeddings"]) for fields in report["modes"].values()] == [2, 2]


@pytest.mark.parametrize(
    "case", [programs.MNIST, programs.BERT_ON_ONE_CORE, programs.SHAKESPEARE], ids=str
)
def test_compare(case, run):
    [(_, done)] = run(case, "compare", "--steps=4", "--without_clipping")
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert "\nequal up to rounding" in done.stdout


def test_compare_finds_that_bert_sums_gradients(run):
    # Its Adam adds 1e-6 to the root of the second moment, which 8 cores make 8 times as large.
    [(_, done)] = run(programs.BERT_PRETRAINING, "compare", "--steps=4", "--without_clipping")
    assert done.returncode == 1, done.stderr[-3000:]
    assert "\nfactors: gradients are summed over the cores, not averaged" in done.stdout
