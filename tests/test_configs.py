"""Every recipe can be read, resolved and built at its real size."""

import pathlib

import pytest
import tensorflow as tf
from absl import flags

from engine.cli import hparams, pipelines
from engine.train import forward
from input_fns import kinds
from input_fns.audio import augment as audio
from input_fns.image import augment
from models import registry
from tests.marks import slow

_ALL = sorted((pathlib.Path(__file__).parents[1] / "configs").glob("*.cfg"))
BERT = [path for path in _ALL if path.stem.startswith("bert_")]
DETECTION = [path for path in _ALL if "retinanet" in path.stem or "rcnn" in path.stem]
# Number of classes of each recipe of segmentation.
MASKS = {"camvid_unet": 11, "cityscapes_deeplab_v3-8": 19}
RATINGS = [path for path in _ALL if path.stem == "movielens_neumf"]
CLICKS = [path for path in _ALL if path.stem.startswith("criteo_")]
SYNTHETIC = [path for path in _ALL if path.stem.startswith("synthetic_")]
LANGUAGE_MODELS = [path for path in _ALL if path.stem.endswith("_gpt")]
TOWERS = [path for path in _ALL if path.stem.endswith("two_tower")]
TABLES = [*RATINGS, *CLICKS, *SYNTHETIC, *TOWERS]
# Samples per second, samples of a row, and the vocabulary and its tokens or the number of classes.
AUDIO = {
    "fsdd_keywords": (8000, 12000, 0, 0, 10),
    "fsdd_digits_ctc": (8000, 48000, 11, 7, 0),
    "librispeech_conformer_v3-8": (16000, 256000, 29, 400, 0),
}
GANS = [path for path in _ALL if "_gan" in path.stem]
OTHERS = {*MASKS, *AUDIO, *(path.stem for path in GANS)}
CONFIGS = [
    path
    for path in _ALL
    if path not in BERT + DETECTION + TABLES + LANGUAGE_MODELS and path.stem not in OTHERS
]
# Trainable parameters, worked out layer by layer.
PARAMETERS = {
    "digits": 9 * 32 + 64 + 9 * 32 * 32 + 64 + (4 * 4 * 32 + 1) * 128 + 129 * 10,
    "mnist_mlp": 785 * 512 + 513 * 10,
    "apple_leaf_transfer": (768 + 1) * 4,  # the last layer alone
    "imagenet_resnet50": 25_557_032,
    "imagenet_efficientnet_b0": 5_288_548,
    "fashion_mnist_cnn": 10 * 64 + (13 * 13 * 64 + 1) * 10,
    "multi30k_tiny": 8192 * 128
    + 4 * (4 * 129 * 128 + 129 * 256 + 257 * 128 + 2 * 256)
    + 4 * (8 * 129 * 128 + 129 * 256 + 257 * 128 + 3 * 256)
    + 2 * 256,
    "cifar10_cnn": (28 * 32 + 289 * 32 + 289 * 64 + 577 * 64) + (6 * 6 * 64 + 1) * 512 + 513 * 10,
}
# The recipes of larger slices have the networks of the smaller ones; cifar10_resnet and
# multi30k_tiny have a smaller ResNet and Transformer than these.
LIKE_OTHERS = ("-32", "imagenet_resnet50", "imagenet_efficientnet_b0", "wmt14_base")


@pytest.mark.parametrize(
    "path",
    [slow(path) if path.stem.endswith(LIKE_OTHERS) else path for path in CONFIGS],
    ids=lambda path: path.stem,
)
def test_a_recipe_is_built(path, like_real):
    recipe = flags.FLAGS
    recipe.unparse_flags()
    recipe(["program", f"--flagfile={path}", "--data_dir=d", "--model_dir=m"])
    assert recipe.train_steps or recipe.train_epochs
    model = registry.find(recipe.model)
    data = like_real(recipe.dataset)
    properties = {"num_classes": len(data.class_names)}
    if data.kind:
        properties = {"vocab_size": data.kind.vocab_size}
    params = hparams.resolve(model, recipe.params, properties)
    batch_size = recipe.train_batch_size
    features = {
        name: tf.compat.v1.placeholder(
            tf.uint8 if name == "image" else tf.int32, [batch_size, *feature.shape]
        )
        for name, feature in next(iter(data.splits["train"])).features.items()
    }
    if recipe.image_size:
        shape = [batch_size, *recipe.image_size, 3]
        features = {"image": tf.compat.v1.placeholder(tf.uint8, shape)}
    logits = forward.infer(model, features, params, training=True)["logits"]
    if data.kind:
        assert logits.shape.as_list() == [batch_size, data.kind.max_length, params["vocab_size"]]
    else:
        assert logits.shape.as_list() == [batch_size, params["num_classes"]]
    variables = tf.compat.v1.trainable_variables()
    parameters = sum(variable.shape.num_elements() for variable in variables)
    assert parameters == PARAMETERS.get(path.stem, parameters)


@pytest.mark.parametrize("path", LANGUAGE_MODELS, ids=lambda path: path.stem)
def test_a_recipe_of_a_language_model_is_built(path):
    recipe = flags.FLAGS
    recipe.unparse_flags()
    recipe(["program", f"--flagfile={path}", "--data_dir=d", "--model_dir=m"])
    data = kinds.synthetic(kinds.SyntheticShapes("language_model", text=(64, 65)))
    properties = {"vocab_size": 65, "num_tokens": 65, "max_length": 64, "end_of_text": 0}
    params = hparams.resolve(registry.find(recipe.model), recipe.params, properties)
    features = {
        name: tf.compat.v1.placeholder(tf.int32, [recipe.train_batch_size, *feature.shape])
        for name, feature in data.features.items()
    }
    forward.infer(registry.find(recipe.model), features, params, training=True)
    sizes = (variable.shape.num_elements() for variable in tf.compat.v1.trainable_variables())
    layer = 4 * 129 * 128 + 129 * 512 + 513 * 128 + 2 * 256
    assert sum(sizes) == (65 + 64) * 128 + 4 * layer + 256


CLASSES = {
    "bccd": 3,
    "coco": 80,
    "coco_instances": 80,
    "people": 1,
    "shapes": 2,
    "shapes_instances": 2,
}


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize(
    "path",
    [path if path.stem.startswith("shapes") else slow(path) for path in DETECTION],
    ids=lambda path: path.stem,
)
def test_a_recipe_of_detection_is_built(path):
    recipe = flags.FLAGS
    recipe.unparse_flags()
    recipe(["program", f"--flagfile={path}", "--data_dir=d", "--model_dir=m"])
    model = registry.find(recipe.model)
    properties = {"num_classes": CLASSES[recipe.dataset]}
    params = hparams.resolve(model, recipe.params, properties, recipe.precision)
    size = [recipe.train_batch_size, *recipe.image_size, 3]
    features = {
        "image": tf.compat.v1.placeholder(tf.uint8, size),
        "image_info": tf.compat.v1.placeholder(tf.float32, [size[0], 3]),
    }
    outputs = forward.infer(model, features, params, training=False)
    found = model.predictions(features, outputs, params)
    assert found["boxes"].shape.as_list() == [size[0], params["max_detections"], 4]
    if params["backbone"] == "resnet50":
        sizes = (variable.shape.num_elements() for variable in tf.compat.v1.trainable_variables())
        heads = {"retinanet": _retinanet_heads, "mask_rcnn": _mask_rcnn_heads}[recipe.model]
        backbone = 25_557_032 - 2049 * 1000  # without the classifier
        assert sum(sizes) == backbone + heads(CLASSES[recipe.dataset])


CONVOLUTION = (9 * 256 + 1) * 256
# Of five output convolutions, with batch norm.
OUTPUTS = 5 * (CONVOLUTION + 2 * 256)


def _retinanet_heads(num_classes):
    """Returns the parameters of 3 lateral and the output convolutions, and of heads."""
    pyramid = (512 + 1024 + 2048 + 3) * 256 + OUTPUTS
    return pyramid + 8 * (CONVOLUTION + 5 * 2 * 256) + (9 * 256 + 1) * 9 * (num_classes + 4)


def _mask_rcnn_heads(num_classes):
    """Returns the parameters of 4 lateral and the output convolutions, and of three heads."""
    pyramid = (256 + 512 + 1024 + 2048 + 4) * 256 + OUTPUTS
    proposals = CONVOLUTION + 257 * 3 * (1 + 4)
    boxes = (7 * 7 * 256 + 1) * 1024 + 1025 * 1024 + 1025 * (1 + num_classes + 4 * num_classes)
    masks = 4 * CONVOLUTION + (2 * 2 * 256 + 1) * 256 + 257 * num_classes
    return pyramid + proposals + boxes + masks


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize("name", ["camvid_unet", slow("cityscapes_deeplab_v3-8")])
def test_a_recipe_of_segmentation_is_built(name):
    recipe = flags.FLAGS
    recipe.unparse_flags()
    path = pathlib.Path(__file__).parents[1] / "configs" / f"{name}.cfg"
    recipe(["program", f"--flagfile={path}", "--data_dir=d", "--model_dir=m"])
    model, num_classes = registry.find(recipe.model), MASKS[name]
    properties = {"num_classes": num_classes}
    params = hparams.resolve(model, recipe.params, properties, recipe.precision)
    shape = [recipe.train_batch_size, *recipe.image_size]
    images = tf.compat.v1.placeholder(tf.uint8, [*shape, 3])
    logits = forward.infer(model, {"image": images}, params, training=True)["logits"]
    assert logits.shape.as_list() == [*shape, num_classes]
    assert augment.parse(recipe.augment)


# --max_length of the data set of each recipe, and the number of classes.
TEXT = {"sst2": (64, 2), "cola": (48, 2), "trec": (40, 6), "imdb": (256, 2)}
LIKE_SQUAD1 = ("trec", "imdb", "cola", "-8", "-32")


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize(
    "path",
    [slow(path) if path.stem.endswith(LIKE_SQUAD1) else path for path in BERT],
    ids=lambda path: path.stem,
)
def test_a_recipe_of_bert_is_built(path):
    recipe = flags.FLAGS
    recipe.unparse_flags()
    recipe(["program", f"--flagfile={path}", "--data_dir=d", "--model_dir=m"])
    model = registry.find(recipe.model)
    length, num_classes = TEXT.get(recipe.dataset, (512 if "512" in path.stem else 384, 2))
    task = {"squad": "squad", "pretraining_text": "pretraining"}.get(
        recipe.dataset, "classification"
    )
    data = kinds.synthetic(kinds.SyntheticShapes(task, text=(length, 30522)))
    properties = {"vocab_size": 30522, "max_length": length, "num_classes": num_classes}
    params = hparams.resolve(model, recipe.params, properties, recipe.precision)
    features = {
        name: tf.compat.v1.placeholder(tf.int32, [recipe.train_batch_size, *feature.shape])
        for name, feature in data.features.items()
        if name not in data.labels
    }
    forward.infer(model, features, params, training=True)
    sizes = (variable.shape.num_elements() for variable in tf.compat.v1.trainable_variables())
    parameters = sum(sizes)
    assert parameters == (_bert_base(task) if "base" in path.stem else _minilm(task, num_classes))


def _encoder(layers, hidden):
    """Returns the parameters of an encoder with feed-forward networks of four times its size."""
    embeddings = (30522 + 2 + 512 + 2) * hidden
    return embeddings + layers * (12 * hidden**2 + 13 * hidden)


def _minilm(task, num_classes):
    pooler = 0 if task == "squad" else 385 * 384
    return _encoder(6, 384) + pooler + 385 * num_classes


def _bert_base(task):
    heads = {
        "squad": 769 * 2,
        # Pooler; the transform of masked tokens, its norm and its bias; the next sentence.
        "pretraining": 769 * 768 + 769 * 768 + 2 * 768 + 30522 + 769 * 2,
    }
    return _encoder(12, 768) + heads[task]


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize("path", GANS, ids=lambda path: path.stem)
def test_a_recipe_of_a_gan_is_built(path):
    recipe = flags.FLAGS
    recipe.unparse_flags()
    recipe(["program", f"--flagfile={path}", "--data_dir=d", "--model_dir=m"])
    model, batch = registry.find(recipe.model), recipe.train_batch_size
    shape = [28, 28, 1] if recipe.dataset == "fashion_mnist" else [32, 32, 3]
    properties = {"num_classes": 10, "image_shape": shape}
    params = hparams.resolve(model, recipe.params, properties, recipe.precision)
    features = {
        "image": tf.compat.v1.placeholder(tf.uint8, [batch, *shape]),
        "latent": tf.compat.v1.placeholder(tf.float32, [batch, params["latent_size"]]),
        "class_id": tf.compat.v1.placeholder(tf.int32, [batch]),
    }
    outputs = forward.infer(model, features, params, training=True)
    assert outputs["image"].shape.as_list() == [batch, *shape]
    assert outputs["logits"].shape.as_list() == [batch]
    counts = {"generator": 0, "discriminator": 0}
    for variable in tf.compat.v1.trainable_variables():
        counts[variable.op.name.partition("/")[0]] += variable.shape.num_elements()
    assert counts == _gan_parameters(params)


def _gan_parameters(params):
    """Returns the parameters of sngan with 10 classes, layer by layer."""
    (height, width, channels), size = params["image_shape"], params["width"]
    stages = 2 if height == 28 else 3
    small = height // 2**stages * (width // 2**stages)

    def block(of, to, norm):
        return (9 * of + 1) * to + (9 * to + 1) * to + (of + 1) * to + norm * (of + to)

    sizes = [size * 2**i for i in range(stages + 1)]
    generator = (params["latent_size"] + 1) * small * sizes[-1]
    # Scale and offset of batch norm, and ten of classes.
    generator += sum(block(of, to, 2 + 20) for to, of in zip(sizes, sizes[1:]))
    generator += 2 * size + (9 * size + 1) * channels
    downs = [channels, *sizes[:-1]], sizes[:stages]
    discriminator = sum(block(of, to, 0) for of, to in zip(downs[0], downs[1]))
    discriminator += block(sizes[-2], sizes[-1], 0) + (sizes[-1] + 1) + 10 * sizes[-1]
    return {"generator": generator, "discriminator": discriminator}


@pytest.mark.parametrize("path", RATINGS, ids=lambda path: path.stem)
def test_a_recipe_of_ratings_is_built(path):
    recipe = flags.FLAGS
    recipe.unparse_flags()
    recipe(["program", f"--flagfile={path}", "--data_dir=d", "--model_dir=m"])
    model = registry.find(recipe.model)
    sizes = {"num_users": 943, "num_items": 1682}  # of MovieLens 100K
    params = hparams.resolve(model, recipe.params, sizes)
    batch = [recipe.train_batch_size]
    with tf.Graph().as_default():
        features = {
            "user": tf.compat.v1.placeholder(tf.int32, batch),
            "items": tf.compat.v1.placeholder(tf.int32, [*batch, 1 + params["num_negatives"]]),
        }
        outputs = forward.infer(model, features, params, training=True)
        labels = {"interaction": tf.zeros(features["items"].shape)}
        terms = model.losses(features, labels, outputs, params)
        variables = tf.compat.v1.trainable_variables()
        count = sum(variable.shape.num_elements() for variable in variables)
    assert all(term.values.shape == batch for term in terms.values())
    # Embeddings of 128 and 128, layers of 128 and 64, and one logit.
    assert count == (943 + 1682) * 256 + 257 * 128 + 129 * 64 + (128 + 64 + 1)


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize("path", CLICKS, ids=lambda path: path.stem)
def test_a_recipe_of_clicks_is_built(path):
    recipe = flags.FLAGS
    recipe.unparse_flags()
    recipe(["program", f"--flagfile={path}", "--data_dir=d", "--model_dir=m"])
    model, rows = registry.find(recipe.model), [1000] * 26
    params = hparams.resolve(model, recipe.params, {"table_rows": rows})
    model.check_params(params)
    batch = recipe.train_batch_size
    with tf.Graph().as_default():
        features = {
            "numbers": tf.compat.v1.placeholder(tf.float32, [batch, 13]),
            "categories": tf.compat.v1.placeholder(tf.int32, [batch, 26]),
        }
        assert forward.infer(model, features, params, training=True)["logits"].shape == [batch]
        variables = tf.compat.v1.trainable_variables()
        count = sum(variable.shape.num_elements() for variable in variables)
    width = params["embedding_size"]
    bottom = [13, *params["bottom_units"], width]
    top = [width + 27 * 26 // 2, *params["top_units"], 1]
    layers = [*zip(bottom, bottom[1:]), *zip(top, top[1:])]
    assert count == 26_000 * width + sum((i + 1) * j for i, j in layers)


@pytest.mark.parametrize("path", SYNTHETIC, ids=lambda path: path.stem)
def test_a_synthetic_recipe_is_read(path):
    recipe = flags.FLAGS
    recipe.unparse_flags()
    recipe(["program", f"--flagfile={path}", "--model_dir=m"])
    properties = pipelines.from_flags(["train"]).properties
    model = registry.find(recipe.model)
    model.check_params(hparams.resolve(model, recipe.params, properties))


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize("name", [*list(AUDIO)[:2], slow("librispeech_conformer_v3-8")])
def test_a_recipe_of_speech_is_built(name):
    recipe = flags.FLAGS
    recipe.unparse_flags()
    path = pathlib.Path(__file__).parents[1] / "configs" / f"{name}.cfg"
    recipe(["program", f"--flagfile={path}", "--data_dir=d", "--model_dir=m"])
    audio.parse(recipe.augment)
    model = registry.find(recipe.model)
    sample_rate, max_samples, vocab_size, max_tokens, num_classes = AUDIO[name]
    sizes = {"vocab_size": vocab_size, "max_tokens": max_tokens, "num_classes": num_classes}
    properties = {"sample_rate": sample_rate, **{key: n for key, n in sizes.items() if n}}
    params = hparams.resolve(model, recipe.params, properties)
    batch = [recipe.train_batch_size]
    with tf.Graph().as_default():
        features = {
            "waveform": tf.compat.v1.placeholder(tf.float32, [*batch, max_samples]),
            "num_samples": tf.compat.v1.placeholder(tf.int32, batch),
        }
        outputs = forward.infer(model, features, params, training=True)
        labels = {"tokens": tf.ones([*batch, max_tokens], tf.int32)}
        labels = tf.zeros(batch, tf.int32) if num_classes else labels
        terms = model.losses(features, labels, outputs, params)
        variables = tf.compat.v1.trainable_variables()
        count = sum(variable.shape.num_elements() for variable in variables)
    assert all(term.values.shape == batch for term in terms.values())
    if name.startswith("librispeech"):
        assert 8e6 < count < 9.5e6  # 10.3 million in the paper, with the LSTM of its decoder


@pytest.mark.parametrize("path", TOWERS, ids=lambda path: path.stem)
def test_a_recipe_of_two_towers_is_built(path):
    recipe = flags.FLAGS
    recipe.unparse_flags()
    recipe(["program", f"--flagfile={path}", "--data_dir=d", "--model_dir=m"])
    model, batch = registry.find(recipe.model), recipe.train_batch_size
    params = hparams.resolve(model, recipe.params, {"num_users": 943, "num_items": 1682})
    with tf.Graph().as_default():
        features = {
            "user": tf.compat.v1.placeholder(tf.int32, [batch]),
            "items": tf.compat.v1.placeholder(tf.int32, [batch, 1]),
            "sampling_probability": tf.compat.v1.placeholder(tf.float32, [batch]),
        }
        outputs = forward.infer(model, features, params, training=True)
        variables = tf.compat.v1.trainable_variables()
        count = sum(variable.shape.num_elements() for variable in variables)
    assert outputs["logits"].shape == [batch, batch]
    assert count == (943 + 1682) * 64
