"""Trains, evaluates, predicts and exports Mask R-CNN on drawn circles and squares; on a TPU too."""

import json
import os

import numpy as np
import pytest
import tensorflow as tf

from common import instance_masks
from engine.train import loss_reduction
from tests import detector_cores, shapes_data

pytest.importorskip("pycocotools")
pytestmark = pytest.mark.usefixtures("shallow_backbone")

SMALL = (
    "--model=mask_rcnn",
    "--dataset=shapes",
    "--image_size=64x64",
    "--train_batch_size=8",
    "--predict_batch_size=5",
    "--eval_split=validation",
    "--params=backbone=resnet18,backbone_width=0.1,fpn_channels=8,min_level=3,max_level=6",
    "--params=rpn_samples=16,rpn_candidates=20,num_proposals=20,roi_samples=8,box_head_units=16",
    "--params=mask_head_channels=4,nms_candidates=20,max_detections=6,score_threshold=0.001",
)


@pytest.fixture(scope="module")
def shapes_dir(tmp_path_factory):
    """Prepared drawings: 16 for training, 11 for validation, some of them without shapes."""
    folder = tmp_path_factory.mktemp("shapes")
    splits, task = {"train": 16, "val": 11}, "instance_segmentation"
    return shapes_data.prepare_coco(folder, splits, task, "shapes")


@pytest.fixture(scope="module")
def model_dir(run_with, shapes_dir, tmp_path_factory):
    """A model of two steps, evaluated and exported."""
    path = str(tmp_path_factory.mktemp("mask_rcnn"))
    steps = ["--train_steps=2", "--save_checkpoints_steps=2", "--eval_batch_size=7"]
    best = ["--mode=train_and_eval", "--best_metric=mask_AP50", f"--export_dir={path}/export"]
    run_with(f"--model_dir={path}", f"--data_dir={shapes_dir}", *SMALL, *steps, *best)
    return path


def read(*parts):
    with open(os.path.join(*parts)) as file:
        return json.load(file)


@pytest.mark.slow
def test_an_evaluation_writes_metrics_masks_and_pictures(model_dir, shapes_dir, result):
    evaluated = result(model_dir, 2)["eval"]
    assert evaluated["examples"] == 11
    assert 0 <= evaluated["mask_AP"] <= evaluated["mask_AP50"] < 1
    assert {"objectness_loss", "rpn_box_loss", "class_loss", "box_loss", "mask_loss"} <= set(
        evaluated
    )
    assert "first_detections_2.png" in os.listdir(os.path.join(model_dir, "eval"))
    images = shapes_data.drawings("val", 11)
    for one in read(model_dir, "eval", "detections.json"):
        pixels = instance_masks.from_rle(one["segmentation"])
        assert pixels.shape == images[one["image_id"]].image.shape[:2]


@pytest.mark.slow
def test_the_metrics_are_those_of_pycocotools_and_the_json_of_the_source(
    model_dir, shapes_dir, result
):
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    evaluated = result(model_dir, 2)["eval"]
    truth = COCO(str(shapes_dir.parent / "raw" / "annotations" / "instances_val.json"))
    found = read(model_dir, "eval", "detections.json")
    for prefix, iou_type in (("", "bbox"), ("mask_", "segm")):
        # With a bbox, pycocotools takes the area of that for the size of a mask.
        kept = [{k: v for k, v in one.items() if not prefix or k != "bbox"} for one in found]
        official = COCOeval(truth, truth.loadRes(kept), iou_type)
        official.evaluate()
        official.accumulate()
        official.summarize()
        names = ("AP", "AP50", "AP75", "AP_small", "AP_medium", "AP_large", "AR_1", "AR_10")
        ours = [evaluated[prefix + name] for name in names]
        np.testing.assert_allclose(ours, official.stats[: len(names)], rtol=0, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [1, 3, 8])
def test_the_batch_size_of_an_evaluation_does_not_matter(
    run_with, shapes_dir, model_dir, result, batch_size
):
    before = result(model_dir, 2)["eval"]
    batches = [f"--eval_batch_size={batch_size}", f"--predict_batch_size={batch_size}"]
    run_with(
        f"--model_dir={model_dir}", f"--data_dir={shapes_dir}", *SMALL, "--mode=eval", *batches
    )
    after = result(model_dir, 2)["eval"]
    for name in ("AP", "AP50", "mask_AP", "mask_AP50", "class_loss", "box_loss"):
        assert after[name] == pytest.approx(before[name], rel=1e-5)


@pytest.mark.slow
def test_a_saved_model_returns_masks_in_the_picture(model_dir, run_with, tmp_path):
    (folder,) = (path for path in os.listdir(f"{model_dir}/export") if path.isdigit())
    drawing = shapes_data.draw(100_000)
    picture = tmp_path / "photo.png"
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        picture.write_bytes(session.run(tf.io.encode_png(drawing.image)))
        signatures = tf.compat.v1.saved_model.load(
            session, ["serve"], f"{model_dir}/export/{folder}"
        )
        signature = signatures.signature_def["image_bytes"]
        ((_, given),) = signature.inputs.items()
        outputs = {name: info.name for name, info in signature.outputs.items()}
        found = session.run(outputs, {given.name: [picture.read_bytes()]})
        count = int(found["num_detections"][0])
        assert count
        files = found["mask_files"][0]
        assert set(files[count:]) <= {b""}
        masks = [session.run(tf.io.decode_png(file))[..., 0] for file in files[:count]]
    size = drawing.image.shape[:2]
    for mask, small, box in zip(masks, found["masks"][0], found["boxes"][0]):
        expected = instance_masks.paste(small, box, size)
        # Of pixels at the threshold float32 and float64 may differ.
        assert (mask > 0).shape == size
        assert ((mask > 0) != expected).mean() < 1e-3
    output = tmp_path / "found.jsonl"
    run_with(
        f"--flagfile={model_dir}/flags.cfg",
        *("--mode=predict", f"--input={picture}", f"--predict_output={output}"),
    )
    line = json.loads(output.read_text())
    rles = [
        instance_masks.to_rle(instance_masks.paste(small, box, size))
        for small, box in zip(found["masks"][0][:count], found["boxes"][0])
    ]
    assert [one["size"] for one in line["segmentations"]] == [list(size)] * count
    same = [
        (instance_masks.from_rle(ours) == instance_masks.from_rle(theirs)).mean()
        for ours, theirs in zip(line["segmentations"], rles)
    ]
    assert min(same) > 0.999


@pytest.fixture
def excess(run_with, run_tpu_with, shapes_dir, variables, tmp_path):
    """Trains on a CPU and on 8 cores, two images per core with 0 to 4 boxes.

    Returns the largest difference of the variables in tolerances.
    """

    def measure():
        flags = [
            *SMALL,
            f"--data_dir={shapes_dir}",
            # Not a multiple of 4: a TPU's stem, which pools first, equals the other one with ReLU
            # only, not with a smooth activation (tests/models/layers/test_conv_batch_norm.py).
            "--image_size=62x62",
            # All anchors are proposals. Of proposals with almost equal scores, rounding decides
            # which is the best of the candidates, and which one NMS keeps.
            "--params=rpn_candidates=300,num_proposals=1200,rpn_nms_iou=1",
        ]
        # Each step sums the gradients of the cells that the RoIs of the batch read.
        return detector_cores.excess(
            run_with, run_tpu_with, variables, tmp_path, flags, steps=3, terms=8 * 14 * 14 * 16
        )

    return measure


@pytest.mark.slow
@pytest.mark.usefixtures("smooth_activations")
def test_cores_with_unequal_numbers_of_boxes_train_like_one(excess):
    assert excess() < 1


@pytest.mark.slow
@pytest.mark.usefixtures("smooth_activations")
def test_a_loss_normalized_per_core_differs(excess, monkeypatch):
    """Negative control."""

    def of_core(terms, params):
        del params
        return {
            name: float(detector_cores.BATCH)
            if term.weights is None
            else tf.reduce_sum(term.weights)
            for name, term in terms.items()
        }

    monkeypatch.setattr(loss_reduction, "denominators", of_core)
    assert excess() > 20
