"""Detection against tf-models-official and torchvision: anchors, targets, losses, NMS, network.

Needs tf-models-official 2.15 or torchvision, which no part of this package needs.
"""

import contextlib
import importlib.util
import io
import sys
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

from common.params import Floats
from models.detection import anchors, assignment, boxes, fpn, losses, nms
from models.layers import losses as layer_losses
from tests import detection_data, variable_values
from tests.detection_data import random_boxes

TOLERANCE = 1e-5  # relative to the largest number of an array, but at least to 1
SIZE, NUM_CLASSES = (128, 256), 5
PARAMS = {
    **anchors.default_params(),
    **assignment.default_params(),
    **losses.default_params(),
    **nms.default_params(),
    "max_level": 6,
}

needs_models = pytest.mark.skipif(
    importlib.util.find_spec("official") is None, reason="tf-models-official is not installed"
)
needs_torchvision = pytest.mark.skipif(
    importlib.util.find_spec("torchvision") is None, reason="torchvision is not installed"
)


# What tf-models-official imports, but does not use here.
UNUSED = ("cv2", "immutabledict", "matplotlib", "matplotlib.pyplot", "tensorflow_datasets")
MISSING = [name for name in UNUSED if importlib.util.find_spec(name.partition(".")[0]) is None]


@pytest.fixture(autouse=True)
def stubs(monkeypatch):
    """Stubs for packages that tf-models-official imports."""
    for name in MISSING:
        monkeypatch.setitem(sys.modules, name, mock.MagicMock())


def assert_near(found, expected):
    scale = max(1.0, np.abs(expected).max(initial=0))
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE * scale)


def run(*tensors):
    with tf.compat.v1.Session() as session:
        session.run(tf.compat.v1.global_variables_initializer())
        found = session.run(list(tensors))
    return found[0] if len(tensors) == 1 else found


def swapped(array):
    """Returns boxes with x and y swapped, as torchvision has them."""
    return np.ascontiguousarray(array[..., [1, 0, 3, 2]])


def their_anchors():
    from official.vision.ops import anchor

    ratios = list(PARAMS["anchor_ratios"])
    return anchor.Anchor(3, PARAMS["max_level"], 3, ratios, PARAMS["anchor_size"], SIZE)


@needs_models
def test_anchors_equal_those_of_tf_models():
    assert_near(anchors.flat(SIZE, PARAMS), run(their_anchors().boxes))


@needs_torchvision
def test_anchors_equal_those_of_torchvision():
    # torchvision rounds the sides of anchors, and centers them on the corners of the cells.
    import torch
    from torchvision.models.detection.anchor_utils import AnchorGenerator

    generator = AnchorGenerator(((32,), (64,), (128,), (256,)), ((1.0,),) * 4)
    strides = (8, 16, 32, 64)
    grids = [[side // stride for side in SIZE] for stride in strides]
    generator.set_cell_anchors(torch.float32, torch.device("cpu"))
    theirs = generator.grid_anchors(grids, [[stride] * 2 for stride in strides])
    square = {**PARAMS, "anchor_scales": 1, "anchor_ratios": Floats([1])}
    for level, found in zip(theirs, anchors.by_level(SIZE, square).values()):
        half_cell = SIZE[0] / found.shape[0] / 2
        assert_near(found.reshape(-1, 4), swapped(level.numpy()) + half_cell)


@needs_models
@pytest.mark.parametrize("seed", range(3))
def test_targets_equal_those_of_tf_models(seed):
    from official.vision.ops import anchor

    random = np.random.default_rng(seed)
    wanted = random_boxes(random, 1, 12, size=128.0)
    classes = random.integers(0, NUM_CLASSES, [1, 12]).astype(np.int32)
    labeler = anchor.AnchorLabeler(PARAMS["positive_iou"], PARAMS["negative_iou"])
    theirs = their_anchors()
    their_classes, their_codes, _, class_weights, box_weights = run(
        *labeler.label_anchors(theirs.multilevel_boxes, wanted[0], classes[0][:, np.newaxis])[:2],
        {},
        *labeler.label_anchors(theirs.multilevel_boxes, wanted[0], classes[0][:, np.newaxis])[3:],
    )
    our_anchors = anchors.flat(SIZE, PARAMS)
    labels = {"boxes": wanted, "classes": classes, "is_crowd": np.zeros_like(classes)}
    targets = assignment.assign(
        our_anchors, {name: tf.constant(value) for name, value in labels.items()}, PARAMS
    )
    targets, codes = run(targets, boxes.encode(targets.boxes, our_anchors))
    found = targets.classes[0]
    flat = np.concatenate([level.ravel() for level in their_classes.values()])
    np.testing.assert_array_equal(found >= 0, box_weights > 0)
    np.testing.assert_array_equal(found != assignment.IGNORED, class_weights > 0)
    np.testing.assert_array_equal(found[found >= 0], flat[found >= 0])
    flat = np.concatenate([level.reshape(-1, 4) for level in their_codes.values()])
    assert_near(codes[0][found >= 0], flat[found >= 0])


@needs_torchvision
def test_codes_equal_those_of_torchvision():
    import torch
    from torchvision.models.detection._utils import BoxCoder

    random = np.random.default_rng(0)
    around, wanted = (np.add(random_boxes(random, 50), [0, 0, 1, 1]) for _ in range(2))
    around, wanted = around.astype(np.float32), wanted.astype(np.float32)
    coder = BoxCoder((1.0, 1.0, 1.0, 1.0))
    theirs = [torch.from_numpy(swapped(array)) for array in (wanted, around)]
    codes = coder.encode_single(*theirs)
    assert_near(run(boxes.encode(tf.constant(wanted), around)), swapped(codes.numpy()))
    random_codes = random.normal(size=[50, 4], scale=3).astype(np.float32)
    decoded = coder.decode_single(torch.from_numpy(swapped(random_codes)), theirs[1])
    assert_near(run(boxes.decode(tf.constant(random_codes), around)), swapped(decoded.numpy()))


FOCAL = [(0.25, 1.5), (0.25, 2.0), (0.6, 1.0)]


def random_answers():
    random = np.random.default_rng(0)
    logits = random.normal(size=[7, NUM_CLASSES], scale=4).astype(np.float32)
    return logits, random.uniform(size=logits.shape) < 0.3


@needs_models
@pytest.mark.parametrize(("alpha", "gamma"), FOCAL)
def test_focal_loss_and_gradient_equal_those_of_tf_models(alpha, gamma):
    from official.vision.losses import retinanet_losses

    values, is_class = random_answers()
    logits = tf.constant(values)
    ours = layer_losses.sigmoid_focal(tf.constant(is_class), logits, alpha, gamma)
    theirs = retinanet_losses.focal_loss(logits, tf.cast(is_class, tf.float32), alpha, gamma)
    found = run(ours, theirs, *tf.gradients(ours, logits), *tf.gradients(theirs, logits))
    assert_near(found[0], found[1])
    assert_near(found[2], found[3])


@needs_torchvision
@pytest.mark.parametrize(("alpha", "gamma"), FOCAL)
def test_focal_loss_equals_that_of_torchvision(alpha, gamma):
    import torch
    from torchvision.ops import sigmoid_focal_loss

    values, is_class = random_answers()
    theirs = sigmoid_focal_loss(
        torch.from_numpy(values), torch.from_numpy(is_class.astype(np.float32)), alpha, gamma
    )
    assert_near(
        run(layer_losses.sigmoid_focal(is_class, tf.constant(values), alpha, gamma)), theirs.numpy()
    )


@needs_models
def test_huber_loss_equals_that_of_keras_as_tf_models_uses_it():
    errors = np.random.default_rng(0).normal(size=[6, 4]).astype(np.float32)
    theirs = tf.keras.losses.Huber(0.1, reduction="none")(tf.zeros([6, 4]), errors)
    ours = tf.reduce_mean(layer_losses.huber(tf.constant(errors), 0.1), axis=-1)
    assert_near(*run(ours, theirs))


@needs_torchvision
@pytest.mark.parametrize("threshold", [0.2, 0.5])
def test_suppression_equals_that_of_torchvision(threshold):
    import torch
    from torchvision.ops import batched_nms

    random = np.random.default_rng(0)
    candidates = random_boxes(random, 1, 300)
    groups = random.integers(0, 3, [1, 300]).astype(np.int32)
    kept = run(nms.suppress(tf.constant(candidates), groups, tf.ones([1, 300], tf.bool), threshold))
    theirs = batched_nms(
        torch.from_numpy(swapped(candidates[0])),
        torch.linspace(1, 0, 300),
        torch.from_numpy(groups[0]),
        threshold,
    )
    assert np.flatnonzero(kept[0]).tolist() == theirs.tolist()


def random_outputs(seed, shapes):
    """Logits, of which a few are high, and codes: `{level: [2, h, w, ...]}` each."""
    random = np.random.default_rng(seed)
    scores, codes = {}, {}
    for level, (height, width) in shapes.items():
        shape = [2, height, width, 9 * NUM_CLASSES]
        scores[level] = random.normal(-7, 1.5, shape).astype(np.float32)
        codes[level] = random.normal(0, 0.3, [2, height, width, 36]).astype(np.float32)
    return scores, codes


SHAPES = {level: [side >> level for side in SIZE] for level in range(3, 7)}
# All pairs above the threshold are candidates, as in the others.
DETECTION = {**PARAMS, "nms_candidates": 500, "max_detections": 200}


def flat(levels, size):
    return np.concatenate([x.reshape(2, -1, size) for x in levels.values()], axis=1)


def detect(scores, codes, heights, widths):
    info = np.stack([heights, widths, np.ones(2)], axis=-1).astype(np.float32)
    logits = tf.constant(flat(scores, NUM_CLASSES))
    our_anchors = tf.constant(anchors.flat(SIZE, DETECTION))
    return run(nms.detect(our_anchors, logits, flat(codes, 4), tf.constant(info), DETECTION))


def assert_same_detections(ours, boxes, scores, classes):
    # The others keep boxes that clipping leaves without an area.
    inside = (boxes[:, 2:] > boxes[:, :2]).all(axis=1)
    count = ours["num_detections"]
    assert 200 > count == inside.sum() > 20
    assert_near(ours["boxes"][:count], boxes[inside])
    assert_near(ours["scores"][:count], scores[inside])
    np.testing.assert_array_equal(ours["classes"][:count], classes[inside])


@needs_models
@pytest.mark.parametrize("version", ["v1", "v2"])
def test_detections_of_all_levels_equal_those_of_tf_models(version):
    from official.vision.modeling.layers import detection_generator

    scores, codes = random_outputs(0, SHAPES)
    ours = detect(scores, codes, [128, 100], [256, 90])
    generator = detection_generator.MultilevelDetectionGenerator(
        pre_nms_top_k=4000, max_num_detections=200, nms_version=version
    )
    # It leaves out the first class, the background.
    with_background = {
        str(level): np.concatenate(
            [-50 * np.ones([*x.shape[:3], 9, 1]), x.reshape(*x.shape[:3], 9, -1)], -1
        )
        .reshape(*x.shape[:3], -1)
        .astype(np.float32)
        for level, x in scores.items()
    }
    theirs = run(
        generator(
            {str(level): tf.constant(x) for level, x in codes.items()},
            {level: tf.constant(x) for level, x in with_background.items()},
            {level: tf.stack([x, x]) for level, x in their_anchors().multilevel_boxes.items()},
            tf.constant([[128.0, 256], [100, 90]]),
        )
    )
    for i, count in enumerate(theirs["num_detections"]):
        assert_same_detections(
            {name: x[i] for name, x in ours.items()},
            theirs["detection_boxes"][i][:count],
            theirs["detection_scores"][i][:count],
            theirs["detection_classes"][i][:count] - 1,
        )


@needs_torchvision
def test_detections_of_all_levels_equal_those_of_torchvision():
    import torch
    from torchvision.models.detection import retinanet

    scores, codes = random_outputs(1, SHAPES)
    ours = detect(scores, codes, [128, 100], [256, 90])
    backbone = torch.nn.Identity()
    backbone.out_channels = 8
    theirs = retinanet.RetinaNet(
        backbone, NUM_CLASSES, score_thresh=0.05, nms_thresh=0.5, detections_per_img=200,
        topk_candidates=4000, anchor_generator=retinanet._default_anchorgen(),
    )  # fmt: skip
    per_level = [torch.from_numpy(swapped(level.reshape(-1, 4))) for level in
                 anchors.by_level(SIZE, DETECTION).values()]  # fmt: skip
    found = theirs.postprocess_detections(
        {
            "cls_logits": [
                torch.from_numpy(x.reshape(2, -1, NUM_CLASSES)) for x in scores.values()
            ],
            "bbox_regression": [
                torch.from_numpy(swapped(x.reshape(2, -1, 4))) for x in codes.values()
            ],
        },
        [per_level] * 2,
        [(128, 256), (100, 90)],
    )
    for i, expected in enumerate(found):
        assert_same_detections(
            {name: x[i] for name, x in ours.items()},
            swapped(expected["boxes"].numpy()),
            expected["scores"].numpy(),
            expected["labels"].numpy(),
        )


@needs_models
def test_pyramid_and_heads_equal_those_of_tf_models():
    from official.vision.modeling.decoders.fpn import FPN
    from official.vision.modeling.heads.dense_prediction_heads import RetinaNetHead

    params = {
        **fpn.default_params(), **PARAMS, "num_classes": NUM_CLASSES, "fpn_channels": 8,
        "head_convs": 2, "max_level": 7, "batch_norm_momentum": 0.9, "batch_norm_epsilon": 1e-3,
        "batch_norm_cross_replica": False,
    }  # fmt: skip
    random = np.random.default_rng(0)
    shapes = {3: [2, 16, 24, 6], 4: [2, 8, 12, 7], 5: [2, 4, 6, 9]}
    maps = {level: random.normal(size=s).astype(np.float32) for level, s in shapes.items()}
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        ours = fpn.heads(
            fpn.pyramid({k: tf.constant(v) for k, v in maps.items()}, params, False), params, False
        )

        def value_of(variable):
            noise = random.normal(size=variable.shape, scale=0.2).astype(np.float32)
            return np.abs(noise) + 1 if "variance" in variable.op.name else noise

        values = variable_values.assign_all(session, value_of)
        ours = session.run(ours)

        specs = {str(level): tf.TensorShape(shape) for level, shape in shapes.items()}
        pyramid = FPN(specs, 3, 7, 8)
        head = RetinaNetHead(3, 7, NUM_CLASSES, 9, 2, 8)
        theirs = head(pyramid({str(k): tf.constant(v) for k, v in maps.items()}))[:2]
        for layer, ours_of in ((pyramid, fpn_name), (head, head_name)):
            for weight in layer.weights:
                value = values[ours_of(weight.name.partition(":")[0])]
                weight.load(value, session)
        theirs = session.run(theirs)
    for mine, other in zip((ours["class_logits"], ours["box_codes"]), theirs):
        for level, found in mine.items():
            assert_near(found, other[str(level)])


def fpn_name(name):
    """Returns our name of a variable of tf-models' FPN."""
    layer, _, kind = name.rpartition("/")
    kind_of, _, level = layer.rpartition("_")
    kind_of = {"post_hoc": "output", "coarser": "output"}.get(kind_of, kind_of)
    return f"fpn/{kind_of}_{level}/{kind}"


def head_name(name):
    """Returns our name of a variable of tf-models' head."""
    layer, kind = name.split("/")[-2:]
    if layer in ("scores", "boxes"):
        return {"scores": "class_head/logits", "boxes": "box_head/codes"}[layer] + f"/{kind}"
    net, _, rest = layer.partition("-")
    scope = {"classnet": "class_head", "boxnet": "box_head"}[net]
    numbers = [int(part) for part in rest.split("_")[1:]]
    if len(numbers) == 1:
        return f"{scope}/conv_{numbers[0] + 1}/{kind}"
    return f"{scope}/norm_{numbers[1] + 1}_level_{numbers[0]}/{kind}"


def test_average_precision_equals_the_output_of_pycocotools(tmp_path):
    pytest.importorskip("pycocotools")
    from pycocotools import coco, cocoeval

    metric = detection_data.make_metric()
    random = np.random.default_rng(0)
    for _ in range(9):
        detection_data.update(metric, *detection_data.random_image(random))
    truth, results = detection_data.write_files(metric, tmp_path)
    with contextlib.redirect_stdout(io.StringIO()):
        annotations = coco.COCO(truth)
        official = cocoeval.COCOeval(annotations, annotations.loadRes(results), "bbox")
        official.evaluate()
        official.accumulate()
        official.summarize()
    assert list(metric.result().values()) == official.stats.tolist()
