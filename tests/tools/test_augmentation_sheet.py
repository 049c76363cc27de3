"""The sheet of augmented images."""

import numpy as np
import pytest
from PIL import Image

from input_fns.convert import writer
from input_fns.convert.source import RawArrays, RawDataset
from tools import augmentation_sheet


@pytest.mark.slow
def test_sheet_of_grayscale_images(tmp_path):
    images = np.arange(9 * 8 * 6, dtype=np.uint8).reshape(9, 8, 6, 1)
    splits = {"train": RawArrays(images, np.arange(9) % 2)}
    writer.write(RawDataset("grey", ("a", "b"), splits), str(tmp_path / "data"))
    augmentation_sheet.main(
        str(tmp_path / "data"), str(tmp_path / "sheet.png"), "flip", "shift:0.2"
    )
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.size == (230 + 8 * 67, 2 * 67)
        assert len(np.unique(np.asarray(sheet)[:, 230:])) > 50
