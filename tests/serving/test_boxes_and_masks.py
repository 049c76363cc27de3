"""Every runtime returns the boxes and the class maps that `Estimator.predict` returns."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from input_fns import dataset_info
from models.vision import resnet
from tests import annotated_data, numerics, shapes_data
from tools import runtimes
from tools.serving_equality import export_run

BATCH = 13
FLAGS = {
    "detection": [
        "--model=retinanet",
        "--params=backbone=resnet18,backbone_width=0.1,fpn_channels=8,head_convs=1,max_level=5",
        "--params=nms_candidates=60,max_detections=20,anchor_size=2,score_threshold=0.001",
    ],
    "instance_segmentation": [
        "--model=mask_rcnn",
        "--params=backbone=resnet18,backbone_width=0.1,fpn_channels=8,min_level=3,max_level=5",
        "--params=rpn_samples=16,rpn_candidates=40,num_proposals=20,roi_samples=8",
        "--params=box_head_units=16,mask_head_channels=4,nms_candidates=20,max_detections=6",
        "--params=score_threshold=0.001",
    ],
    "segmentation": ["--model=unet", "--params=width=4,depth=2"],
}
COMMON = [
    "--dataset=shapes",
    "--eval_split=train",
    "--image_size=64x48",
    f"--predict_batch_size={BATCH}",
    "--train_batch_size=8",
    "--train_steps=20",
    "--params=optimizer=adam,learning_rate=0.01,batch_norm_momentum=0.5",
    "--params=pixel_mean=127.5,pixel_scale=0.0078",
    "--seed=1",
    "--noexport_check",
]
# The longest sum has 3x3 pixels of 51 channels. Nine convolutions of the backbone and five of the
# pyramid and a head, each with a product and a sum of batch norm; ten operations of a box. Masks
# have two dense layers of boxes, four operations of RoIAlign and six convolutions more.
ARITHMETIC = {"terms": 9 * 51, "depth": 14 * 3 + 10}
MASK_ARITHMETIC = {"terms": 9 * 51, "depth": (14 + 2 + 6) * 3 + 10 + 4}
TASKS = tuple(FLAGS)
NAMES = ("tf.saved_model.load", "C API", "TensorFlow Lite", "ONNX Runtime", "OpenVINO")


@pytest.fixture(scope="module")
def export(run_with, tmp_path_factory):
    """Returns a function from a task to a model of drawn shapes, exported, and its predictions."""

    @functools.lru_cache
    def make(task):
        folder = tmp_path_factory.mktemp(task)
        data_dir = _prepare(folder, task)
        flags = [*FLAGS[task], *COMMON, f"--data_dir={data_dir}", f"--model_dir={folder}/model"]
        with pytest.MonkeyPatch.context() as patch, tf.Graph().as_default():
            patch.setitem(resnet.DEPTHS, 18, ((1, 1, 1, 1), False))
            run_with(*flags, "--mode=train")
            return export_run(str(folder / "export"), *flags)

    return make


def _prepare(folder, task):
    """Writes a data set of `BATCH` drawings; returns its folder."""
    if task == "instance_segmentation":
        pytest.importorskip("pycocotools")
        return shapes_data.prepare_coco(folder, {"train": BATCH}, task, "shapes")
    data = annotated_data.write(folder, task, [shapes_data.draw(i) for i in range(BATCH)])
    (folder / "dataset.json").write_text(dataset_info.to_json(data))
    return folder


@pytest.mark.slow  # tests/contract/test_cases.py exports and checks a detector
@pytest.mark.numeric
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("name", NAMES)
def test_a_runtime_returns_what_is_predicted(name, task, export, raw):
    exported = export(task)
    if runtimes.missing(name):
        pytest.skip(f"needs {runtimes.missing(name)}")
    try:
        answer = runtimes.RUNTIMES[name](exported.path)(raw(exported))
    except FileNotFoundError as error:  # no C compiler
        pytest.skip(str(error))
    expected = exported.predictions
    for key in expected.keys() - {"boxes", "scores", "masks"}:
        np.testing.assert_array_equal(answer[key], expected[key], err_msg=key)
    if "boxes" not in expected:
        assert len(np.unique(expected["classes"])) > 1
        return
    assert expected["num_detections"].min() > 0
    if "masks" in expected:
        numerics.assert_close(answer["masks"], expected["masks"], magnitude=8.0, **MASK_ARITHMETIC)
        numerics.assert_far(
            answer["masks"][::-1], expected["masks"], magnitude=8.0, **MASK_ARITHMETIC
        )
    # A coordinate is at most a side of a picture; the errors of logits and codes of at most 8.
    for key, magnitude in {"boxes": 8 * 128.0, "scores": 8.0}.items():
        rounding = {**ARITHMETIC, "magnitude": magnitude}
        numerics.assert_close(answer[key], expected[key], name=key, **rounding)
        numerics.assert_far(answer[key][::-1], expected[key], **rounding)


@pytest.mark.slow
def test_names_of_detections_are_those_of_their_classes(export, raw):
    exported = export("detection")
    answer = runtimes.SavedModel(exported.path)(raw(exported))
    names = np.array([b"", *(name.encode() for name in shapes_data.CLASS_NAMES)], object)
    is_found = np.arange(20) < answer["num_detections"][:, np.newaxis]
    expected = names[np.where(is_found, answer["classes"] + 1, 0)]
    np.testing.assert_array_equal(answer["class_names"], expected)
