"""All signatures of an export, also called through TensorFlow's C API like a model server."""

import io
import struct
import zlib

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from input_fns.core import serving
from tests import numerics
from tests.marks import slow
from tools import runtimes
from tools.c_runtime import ServingError

InvalidArgumentError = tf.errors.InvalidArgumentError
# Exports for tests whose code is that of any signature.
ONE = ["cnn", slow("translator"), slow("mobilenet")]


def encode_image(height, width, kind, mode="L", seed=0):
    """Returns an image file of random pixels."""
    shape = (height, width, 3) if mode == "RGB" else (height, width)
    pixels = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels, mode).save(file, kind)
    return file.getvalue()


def strings(*values):
    return np.array(values, object)


TARGETS = ["several_labels", "numbers"]
ALL = [*ONE, slow("keras_swish"), slow("EfficientNetB0"), *map(slow, TARGETS)]


@pytest.mark.parametrize("exported", ALL, indirect=True)
def test_all_signatures_match_predict(exported, c_api, assert_predicted, arithmetic):
    runtime = c_api(exported)
    for signature, inputs in exported.requests.items():
        answer, _ = runtime.run(signature, inputs)
        assert answer.keys() >= exported.predictions.keys(), signature
        assert_predicted(exported, answer)
    rolled = {name: np.roll(values, 1, axis=0) for name, values in exported.predictions.items()}
    for name in {"probabilities", "score", "numbers"} & rolled.keys():
        numerics.assert_far(rolled[name], exported.predictions[name], **arithmetic(exported))


def test_images_have_four_signatures(cnn):
    signatures = runtimes.signatures(cnn.path)
    assert sorted(signatures) == ["classify", "image_bytes", "serving_default", "tf_example"]
    methods = {name: signature.method_name for name, signature in signatures.items()}
    assert methods.pop("classify") == "tensorflow/serving/classify"
    assert set(methods.values()) == {"tensorflow/serving/predict"}


def test_classify_scores_top_classes(cnn, in_process, arithmetic):
    examples = cnn.requests[serving.TF_EXAMPLE][serving.EXAMPLES]
    answer = in_process(cnn)(serving.CLASSIFY, {"inputs": examples})
    probabilities = cnn.predictions["probabilities"]
    expected = -np.sort(-probabilities, axis=1)[:, :2]
    numerics.assert_close(answer["scores"], expected, **arithmetic(cnn))
    assert answer["classes"][:, 0].tolist() == [b"%d" % i for i in cnn.predictions["classes"]]


@pytest.mark.slow
def test_classify_scores_all_classes_in_order(mobilenet, in_process, arithmetic):
    examples = mobilenet.requests[serving.TF_EXAMPLE][serving.EXAMPLES][:3]
    answer = in_process(mobilenet)(serving.CLASSIFY, {"inputs": examples})
    expected = mobilenet.predictions["probabilities"][:3]
    numerics.assert_close(answer["scores"], expected, **arithmetic(mobilenet))
    numerics.assert_far(answer["scores"][:, ::-1], expected, **arithmetic(mobilenet))
    assert answer["classes"].tolist() == [[b"%d" % i for i in range(10)]] * 3


@pytest.mark.parametrize("kind", ["jpeg", slow("png")])
def test_image_files_of_any_size(cnn, in_process, kind):
    files = [
        encode_image(50, 41, kind),
        encode_image(7, 300, kind, "RGB", seed=1),
        encode_image(33, 32, kind),
    ]
    answer = in_process(cnn)(serving.IMAGE_BYTES, {"image_bytes": strings(*files)})
    assert answer["probabilities"].shape == (3, 10)


@pytest.mark.parametrize("exported", ONE, indirect=True)
def test_a_batch_of_one(exported, raw, in_process, assert_predicted):
    one = {name: array[:1] for name, array in raw(exported).items()}
    assert_predicted(exported, in_process(exported)(serving.RAW, one), rows=np.s_[:1])


@pytest.mark.parametrize("exported", ["cnn", slow("translator"), slow("mobilenet")], indirect=True)
def test_an_empty_batch_has_empty_outputs(exported, in_process):
    run = in_process(exported)
    for signature, inputs in exported.requests.items():
        none = {name: array[:0] for name, array in inputs.items()}
        if signature == serving.RAW and "image" in inputs:  # oneDNN's convolutions are wrong then
            with pytest.raises(InvalidArgumentError, match=r"image: an empty batch\. Send at"):
                run(signature, none)
            continue
        answer = run(signature, none)
        assert {len(values) for values in answer.values()} == {0}, signature


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize("token", [-1, 384, 2**31 - 1])
def test_token_ids_outside_of_the_vocabulary_are_an_error(translator, raw, in_process, token):
    (rows,) = (array[:2].copy() for array in raw(translator).values())
    rows[1, 3] = token
    with pytest.raises(InvalidArgumentError, match=r"source must be from 0 to 383\. Found"):
        in_process(translator)(serving.RAW, {"source": rows})


@pytest.mark.parametrize(
    ("file", "message"),
    [
        (b"not an image", "Unknown image file format"),
        slow(b"", "Unknown image file format|Input is empty"),
        slow(encode_image(50, 41, "jpeg")[:200], "Invalid JPEG"),
        slow(encode_image(30, 30, "png")[:100], "Invalid PNG"),
    ],
    ids=["text", "empty", "truncated JPEG", "truncated PNG"],
)
def test_invalid_image_files_are_an_error(cnn, in_process, file, message):
    with pytest.raises(InvalidArgumentError, match=message):
        in_process(cnn)(
            serving.IMAGE_BYTES, {"image_bytes": strings(encode_image(8, 8, "png"), file)}
        )


def test_a_huge_image_is_an_error(cnn, in_process):
    # The header contains the size.
    head = struct.pack(">IIBBBBB", 40_000, 40_000, 8, 0, 0, 0, 0)
    file = encode_image(8, 8, "png").replace(encode_image(8, 8, "png")[16:29], head)
    file = file[:29] + struct.pack(">I", zlib.crc32(file[12:29])) + file[33:]
    with pytest.raises(InvalidArgumentError, match="PNG size too large"):
        in_process(cnn)(serving.IMAGE_BYTES, {"image_bytes": strings(file)})


@pytest.mark.parametrize("shape", [(3, 9, 8, 1), slow((3, 8, 8, 3)), slow((3, 64))])
def test_pixels_of_another_shape_are_an_error(cnn, c_api, shape):
    with pytest.raises(ServingError, match=r"is not compatible with expected shape \[\?,8,8,1\]"):
        c_api(cnn)({"image": np.zeros(shape, np.uint8)})


@pytest.mark.slow(cost=0.1)
def test_rows_of_another_length_are_an_error(translator, c_api):
    with pytest.raises(ServingError, match=r"is not compatible with expected shape \[\?,32\]"):
        c_api(translator)({"source": np.ones([3, 31], np.int32)})


@pytest.mark.parametrize("exported", ONE, indirect=True)
def test_an_invalid_record_is_an_error(exported, in_process):
    with pytest.raises(InvalidArgumentError, match="Invalid protocol message"):
        in_process(exported)(serving.TF_EXAMPLE, {serving.EXAMPLES: strings(b"not a record")})


@pytest.mark.parametrize("exported", ONE, indirect=True)
def test_a_record_without_the_feature_is_an_error(exported, in_process):
    empty = tf.train.Example().SerializeToString()
    with pytest.raises(InvalidArgumentError, match="is required but could not be found"):
        in_process(exported)(serving.TF_EXAMPLE, {serving.EXAMPLES: strings(empty)})
