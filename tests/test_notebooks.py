"""The notebooks run from top to bottom; the stop button of a notebook ends a training."""

import importlib.util
import json
import pathlib
import re

import pytest

jupyter_client = pytest.importorskip("jupyter_client", reason="needs the extra dev")

from tools import notebooks  # noqa: E402

ROOT = pathlib.Path(__file__).parents[1]
PATHS = sorted(notebooks.FOLDER.glob("*.ipynb"))


def cells(path, kind):
    return [c for c in json.loads(path.read_text())["cells"] if c["cell_type"] == kind]


def by_notebook(function):
    return pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)(function)


@by_notebook
def test_outputs_are_stored(path):
    code = cells(path, "code")
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell["outputs"]]
    assert len(outputs) >= 3
    assert not [output for output in outputs if output["output_type"] == "error"]


@by_notebook
def test_no_path_of_a_machine_is_stored(path):
    assert re.findall(r"/(?:tmp|root|home|work|Users)/", path.read_text()) == []


@by_notebook
def test_links_are_valid(path):
    for cell in cells(path, "markdown"):
        for link in re.findall(r"\]\(([^)#]+)", "".join(cell["source"])):
            assert "://" in link or (path.parent / link).exists(), link


def run_first_cell(path, monkeypatch, installed):
    """Returns the variables of the first cell where only modules with `installed(name)` exist."""
    first = "".join(cells(path, "code")[0]["source"])
    assert '%pip install --quiet "estimator-models[' in first
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name if installed(name) else None)
    found = {}
    exec(re.sub(r"%pip .*", "pass", first), found)
    return found


@by_notebook
def test_the_first_cell_does_nothing_where_all_is_installed(path, monkeypatch):
    assert "source" not in run_first_cell(path, monkeypatch, lambda name: True)


@by_notebook
def test_the_first_cell_installs_extras_that_another_notebook_has_not(path, monkeypatch):
    """Notebooks of one kernel share the packages that the first one installed."""
    needed = run_first_cell(path, monkeypatch, lambda name: True)["needed"]
    assert needed[0] == "estimator_models"
    for missing in needed:
        assert "source" in run_first_cell(path, monkeypatch, lambda name, m=missing: name != m)


@pytest.mark.parametrize("is_clone", [True, False])
@by_notebook
def test_the_first_cell_installs_the_clone_that_it_is_in(path, is_clone, tmp_path, monkeypatch):
    monkeypatch.chdir(path.parent if is_clone else tmp_path)
    source = run_first_cell(path, monkeypatch, lambda name: False)["source"]
    assert source == (f"file://{ROOT}" if is_clone else "git+REPOSITORY")


@pytest.mark.slow  # minutes
@by_notebook
def test_a_notebook_runs(path, tmp_path):
    done = notebooks.run(path, str(tmp_path))
    assert sum(bool(cell.outputs) for cell in done.cells if cell.cell_type == "code") >= 3


TRAIN = """
import estimator_models as em
em.prepare_data(dataset="digits", data_dir="data")
em.train("digits", data_dir="data", model_dir="runs", mode="train", train_steps=10**6)
"""


@pytest.fixture
def kernel(tmp_path):
    """A client of a kernel in a folder."""
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    manager, client = jupyter_client.manager.start_new_kernel(cwd=str(tmp_path), env=environment)
    yield manager, client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def outputs_until_idle(client, request, on_output=lambda message: None):
    """Returns the output messages of a request."""
    found = []
    while True:
        message = client.get_iopub_msg(timeout=120)
        if message["parent_header"].get("msg_id") != request:
            continue
        if message["content"].get("execution_state") == "idle":
            return found
        if message["msg_type"] in ("stream", "display_data", "update_display_data", "error"):
            found.append(message)
            on_output(message)


@pytest.mark.slow  # a kernel that imports TensorFlow
def test_the_stop_button_ends_a_training_that_saves(kernel, tmp_path):
    manager, client = kernel
    updates = []

    def interrupt(message):
        updates.append(message["msg_type"] == "update_display_data")
        if sum(updates) == 2 and updates[-1]:
            manager.interrupt_kernel()

    outputs = outputs_until_idle(client, client.execute(TRAIN), interrupt)
    kinds = [message["msg_type"] for message in outputs]
    progress = [m["content"] for m in outputs if "display_data" in m["msg_type"]]
    steps = [each for each in progress if each["data"]["text/plain"].startswith("step ")]
    assert len({each["transient"]["display_id"] for each in steps}) == 1  # one line, updated
    assert len(steps) >= 3
    (error,) = (m["content"] for m in outputs if m["msg_type"] == "error")
    assert error["traceback"] == ["Interrupted: stopped; the same call resumes"]
    assert kinds[-1] == "error"
    text = "".join(m["content"]["text"] for m in outputs if m["msg_type"] == "stream")
    saved = re.search(r"saved runs/model\.ckpt-(\d+)", text)[1]
    assert (tmp_path / "runs" / f"model.ckpt-{saved}.index").exists()
    # The kernel lives, and its next call resumes.
    resumed = TRAIN.replace("10**6", str(int(saved) + 3))
    outputs = outputs_until_idle(client, client.execute(resumed))
    text = "".join(m["content"]["text"] for m in outputs if m["msg_type"] == "stream")
    assert f"from step {saved} up to step {int(saved) + 3}" in text
