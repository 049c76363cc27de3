"""No module of the working folder is run by the processes of a converter."""

import os

import numpy as np
from PIL import Image

from input_fns.convert import source
from input_fns.image.sources import image_files, image_folder


def test_worker_processes_import_nothing_from_the_working_folder(tmp_path, monkeypatch):
    for number in range(3):
        path = tmp_path / "raw" / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full([7, 13, 3], number, np.uint8)).save(path)
    (tmp_path / "working").mkdir()
    for name in ("multiprocessing", "pickle", "struct", "threading"):
        (tmp_path / "working" / f"{name}.py").write_text("raise SystemExit(3)\n")
    monkeypatch.chdir(tmp_path / "working")
    monkeypatch.setattr(image_files, "_WORTH_PROCESSES", 0)
    options = source.Options("image_folder", source=str(tmp_path / "raw"), workers=1)
    rows = list(image_folder.read(options).splits["train"])
    assert len(rows) == 3
    assert os.getcwd() == str(tmp_path / "working")
