"""Conversion of BERT checkpoints; tests/test_bert_against_transformers.py compares the outputs."""

import functools
import importlib.util
import json
import pickle
import struct

import numpy as np
import pytest
import tensorflow as tf

from common.errors import UsageError
from engine.checkpoints import writer
from input_fns.convert.options import Options
from models.text import bert, bert_pretraining
from tests import bert_data
from tools import bert_checkpoint, bert_hugging_face
from tools.encoder_formats import FORMATS

NAME_OF = FORMATS["bert"].name_of
CONFIG = {
    "vocab_size": 11,
    "num_hidden_layers": 1,
    "hidden_size": 6,
    "num_attention_heads": 3,
    "intermediate_size": 5,
    "max_position_embeddings": 7,
    "type_vocab_size": 2,
}
PARAMS = {
    **bert.default_params(),
    **{ours: CONFIG[key] for ours, key in bert_hugging_face.PARAMS.items() if key in CONFIG},
}
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TOKENS = [*SPECIAL, *(f"token{i}" for i in range(CONFIG["vocab_size"] - len(SPECIAL)))]
needs_safetensors = pytest.mark.skipif(
    not importlib.util.find_spec("safetensors"), reason="safetensors is not installed"
)


@functools.cache
def make_variables():
    """Random values of all variables of pre-training."""
    with tf.Graph().as_default():
        names = (*bert.FEATURES, "masked_lm_positions")
        features = {name: tf.zeros([1, 4], tf.int32) for name in names}
        bert_pretraining.inference(features, PARAMS, training=False)
        shapes = {v.op.name: v.shape.as_list() for v in tf.compat.v1.global_variables()}
    random = np.random.default_rng(0)
    return {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def make_tensors(variables):
    """The tensors of Hugging Face with the values of `variables`."""
    tensors = {
        f"bert.{NAME_OF(name)}" if name.startswith("bert/")
        else NAME_OF(name): value.T if name.endswith("/kernel") else value
        for name, value in variables.items()
    }  # fmt: skip
    words = tensors["bert.embeddings.word_embeddings.weight"]
    return {**tensors, "cls.predictions.decoder.weight": words}


@pytest.fixture
def released(tmp_path):
    """A folder as google-research/bert releases them; returns it and the variables."""
    folder, variables = tmp_path / "released", make_variables()
    writer.write(str(folder / "bert_model.ckpt"), variables)
    (folder / "bert_config.json").write_text(json.dumps({**CONFIG, "hidden_act": "gelu"}))
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in TOKENS))
    return str(folder), variables


def convert(tensors, **changes):
    return bert_hugging_face.to_variables(tensors, {**PARAMS, **changes}, len(TOKENS))


def read(folder):
    reader = tf.train.load_checkpoint(f"{folder}/bert_model.ckpt")
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def assert_equal(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


def test_names_of_hugging_face():
    names = {
        "bert/embeddings/token_type_embeddings": "embeddings.token_type_embeddings.weight",
        "bert/embeddings/LayerNorm/gamma": "embeddings.LayerNorm.weight",
        "bert/encoder/layer_11/attention/self/key/bias": "encoder.layer.11.attention.self.key.bias",
        "bert/pooler/dense/kernel": "pooler.dense.weight",
        "cls/predictions/transform/LayerNorm/beta": "cls.predictions.transform.LayerNorm.bias",
        "cls/squad/output_weights": "qa_outputs.weight",
    }
    assert {name: NAME_OF(name) for name in names} == names


def test_tensors_become_variables_and_kernels_are_transposed():
    variables = make_variables()
    found, left_out = convert(make_tensors(variables))
    assert_equal(found, variables)
    assert not left_out


def test_an_encoder_without_heads_and_with_old_names():
    variables = {n: v for n, v in make_variables().items() if n.startswith(("bert/em", "bert/en"))}
    tensors = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("Norm.bias", "Norm.beta"): value
        for name, value in make_tensors(variables).items()
        if not name.startswith("cls")
    }
    tensors["bert.embeddings.position_ids"] = np.arange(7.0)
    assert_equal(convert(tensors)[0], variables)


def test_rows_without_a_token_are_left_out():
    tensors = make_tensors(make_variables())
    padding = np.zeros([5, CONFIG["hidden_size"]], np.float32)
    for name in ("bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight"):
        tensors[name] = np.concatenate([tensors[name], padding])
    tensors["cls.predictions.bias"] = np.zeros([16], np.float32)
    variables, _ = convert(tensors, vocab_size=16)
    assert variables["bert/embeddings/word_embeddings"].shape == (11, 6)
    assert variables["cls/predictions/output_bias"].shape == (11,)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda t: t.pop("bert.encoder.layer.0.output.dense.bias"),
            "0.output.dense.bias is missing",
        ),
        (lambda t: t.update({"bert.encoder.adapter": np.ones(2)}), "encoder.adapter is unknown"),
        (
            lambda t: t.update({"bert.pooler.dense.bias": np.ones([7])}),
            r"pooler.dense.bias is \[7\] instead of \[6\]",
        ),
        (
            lambda t: t.update({"cls.predictions.decoder.weight": np.ones([11, 6])}),
            "decoder.weight differs from embeddings.word_embeddings.weight",
        ),
        (lambda t: t.pop("cls.seq_relationship.bias"), "cls.seq_relationship.bias is missing"),
    ],
)
def test_other_networks_are_refused(change, message):
    tensors = make_tensors(make_variables())
    change(tensors)
    with pytest.raises(UsageError, match=message):
        convert(tensors)


def test_another_depth_is_refused():
    tensors = make_tensors(make_variables())
    with pytest.raises(
        UsageError, match=r"num_hidden_layers=900000000, but .* in the weights is 1"
    ):
        convert(tensors, num_layers=900000000)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "roberta", "hidden_size": None}, "model_type='roberta' is unsupported"),
        ({"hidden_act": "relu"}, "hidden_act='relu' is unsupported"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type='relative_key'"),
        ({"layer_norm_eps": 1e-5}, "layer_norm_eps=1e-05 is unsupported"),
        ({"hidden_size": 7}, "hidden_size=7 must be a multiple of num_heads=3"),
        ({"hidden_size": True}, "hidden_size=True is not a number"),
        ({"num_hidden_layers": None}, "num_hidden_layers=None is not a number"),
        ({"vocab_size": -1}, "vocab_size=-1 must be at least 1"),
        ({"hidden_dropout_prob": float("nan")}, r"dropout=nan must be in \[0, 1\)"),
        ({"hidden_dropout_prob": 10**400}, r"hidden_dropout_prob=10+\.\.\. is too large"),
        ({"initializer_range": float("inf")}, "initializer_range=inf must be above 0 and finite"),
        ({"vocab_size": 10**12}, "vocab_size=1000000000000 must be at most 10000000"),
        ({"num_hidden_layers": 10**6}, "num_layers=1000000 must be at most 1000"),
        (
            {"hidden_size": 65535, "vocab_size": 9**7},
            "hidden_size=65535, .*: more than 17179869184 weights",
        ),
    ],
)
def test_an_invalid_configuration(tmp_path, changes, message):
    (tmp_path / "config.json").write_text(json.dumps({**CONFIG, **changes}))
    with pytest.raises(UsageError, match=message):
        bert_hugging_face.read_params(str(tmp_path), "config.json")


def test_a_vocabulary_of_tokenizer_json(tmp_path):
    path = tmp_path / "tokenizer.json"
    ids = {token: i for i, token in reversed(list(enumerate(TOKENS)))}
    path.write_text(json.dumps({"model": {"type": "WordPiece", "vocab": ids}}))
    assert bert_hugging_face.read_vocabulary(str(tmp_path)) == TOKENS
    (tmp_path / "vocab.txt").write_text("\n".join(TOKENS[1:]))
    with pytest.raises(UsageError, match=r"not a vocabulary of BERT: it lacks \[PAD\]"):
        bert_hugging_face.read_vocabulary(str(tmp_path))
    (tmp_path / "vocab.txt").unlink()
    path.write_text(json.dumps({"model": {"type": "BPE", "vocab": {}}}))
    with pytest.raises(UsageError, match="its model is not WordPiece"):
        bert_hugging_face.read_vocabulary(str(tmp_path))
    path.unlink()
    with pytest.raises(UsageError, match=r"has neither vocab\.txt nor tokenizer\.json"):
        bert_hugging_face.read_vocabulary(str(tmp_path))


def safetensors(header, data=b"", length=None):
    """Returns the bytes of a model.safetensors."""
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def tensor(**changes):
    return {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changes}}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "cannot be read as safetensors"),
        (safetensors(tensor(), bytes(8), length=2**63), "cannot be read as safetensors"),
        (safetensors(tensor(), bytes(8), length=9**8), "cannot be read as safetensors"),
        (safetensors({**tensor(), "b": tensor()["a"]}, bytes(8)), "cannot be read as safetensors"),
        (safetensors(tensor(data_offsets=[8, 16]), bytes(16)), "cannot be read as safetensors"),
        (safetensors(tensor(data_offsets=[-8, 0]), bytes(8)), "cannot be read as safetensors"),
        (safetensors(tensor(data_offsets=[0, 80]), bytes(8)), "cannot be read as safetensors"),
        (safetensors(tensor(shape=[2**40, 2**40]), bytes(8)), "cannot be read as safetensors"),
        (safetensors(tensor(shape=[-2]), bytes(8)), "cannot be read as safetensors"),
        (safetensors(tensor(dtype="I64", shape=[1]), bytes(8)), "a is I64, not floating point"),
        (safetensors(tensor(), b"\xff" * 8), "a has values that are not finite"),
        (
            safetensors(tensor(dtype="F64", shape=[1]), struct.pack("<d", 1e300)),
            "a has values that are not finite",
        ),
    ],
)
def test_malformed_safetensors_are_one_error(tmp_path, content, message):
    pytest.importorskip("safetensors")
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(UsageError, match=message) as raised:
        bert_hugging_face.read_safetensors(str(tmp_path))
    assert "\n" not in str(raised.value)


def test_a_pickle_is_refused_unread(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "vocab.txt").write_text("".join(f"{token}\n" for token in TOKENS))
    (tmp_path / "pytorch_model.bin").write_bytes(pickle.dumps(print))
    with pytest.raises(UsageError, match="can execute code when they are read"):
        bert_checkpoint.main("from_hugging_face", str(tmp_path), str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_a_training_checkpoint_becomes_a_released_one(tmp_path, released):
    folder, variables = released
    slots = {f"{name}/adam_m": value + 1 for name, value in variables.items()}
    optimizer = {"beta1_power": np.float32(0.5), "global_step": np.int64(3)}
    writer.write(f"{folder}/model.ckpt-3", {**variables, **slots, **optimizer})
    bert_checkpoint.main("to_google", f"{folder}/model.ckpt-3", str(tmp_path / "out"))
    assert_equal(read(tmp_path / "out"), variables)
    config = json.loads((tmp_path / "out" / "bert_config.json").read_text())
    assert config == {**config, **CONFIG, "hidden_act": "gelu"}
    assert (tmp_path / "out" / "vocab.txt").read_text().split() == TOKENS


def test_the_moving_average_takes_the_place_of_the_weights(tmp_path, released):
    folder, variables = released
    averages = {f"{name}/ExponentialMovingAverage": value + 1 for name, value in variables.items()}
    writer.write(f"{folder}/model.ckpt-3", {**variables, **averages, "global_step": np.int64(3)})
    bert_checkpoint.main("to_google", f"{folder}/model.ckpt-3", str(tmp_path / "out"))
    assert_equal(read(tmp_path / "out"), {name: value + 1 for name, value in variables.items()})


def test_an_existing_folder_is_left_alone(tmp_path, released):
    with pytest.raises(UsageError, match=r"exists\. Choose a new folder"):
        bert_checkpoint.main("to_google", released[0], str(tmp_path))


def test_a_vocabulary_of_another_size(tmp_path, released):
    with open(f"{released[0]}/vocab.txt", "a") as file:
        file.write("more\n")
    with pytest.raises(UsageError, match="has 11 word embeddings, but its vocabulary 12 tokens"):
        bert_checkpoint.main("to_google", released[0], str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_rows_without_a_token_are_kept(tmp_path, released):
    """A released vocabulary may be shorter than the embeddings, which are padded."""
    tokens = TOKENS[:-2]
    with open(f"{released[0]}/vocab.txt", "w", encoding="utf-8-sig") as file:
        file.write("\r\n".join(tokens))
    bert_checkpoint.main("to_google", released[0], str(tmp_path / "out"))
    assert (tmp_path / "out" / "vocab.txt").read_text().split() == tokens
    assert json.loads((tmp_path / "out" / "bert_config.json").read_text())["vocab_size"] == 11


@needs_safetensors
def test_there_and_back(tmp_path, released):
    folder, variables = released
    bert_checkpoint.main("to_hugging_face", folder, str(tmp_path / "theirs"))
    bert_checkpoint.main("from_hugging_face", str(tmp_path / "theirs"), str(tmp_path / "ours"))
    assert_equal(read(tmp_path / "ours"), variables)


@pytest.fixture
def regression(released):
    """A checkpoint of a regression of two numbers; returns its path and the variables."""
    folder, variables = released
    random = np.random.default_rng(1)
    head = {
        "output_weights": random.normal(size=[2, CONFIG["hidden_size"]]),
        "output_bias": random.normal(size=[2]),
        "target/mean": [3, -40],
        "target/scale": [0.5, 7],
    }
    encoder = {name: value for name, value in variables.items() if name.startswith("bert/")}
    variables = {**encoder, **{name: np.float32(value) for name, value in head.items()}}
    writer.write(f"{folder}/model.ckpt-3", variables)
    return f"{folder}/model.ckpt-3", variables


@needs_safetensors
def test_numbers_of_a_regression_are_in_the_units_of_the_labels(tmp_path, regression):
    source, variables = regression
    bert_checkpoint.main("to_hugging_face", source, str(tmp_path / "theirs"))
    tensors = bert_hugging_face.read_safetensors(str(tmp_path / "theirs"))
    x = np.random.default_rng(2).normal(size=[3, CONFIG["hidden_size"]])
    logits = x @ variables["output_weights"].T + variables["output_bias"]
    numbers = x @ tensors["classifier.weight"].T + tensors["classifier.bias"]
    expected = logits * variables["target/scale"] + variables["target/mean"]
    np.testing.assert_allclose(numbers, expected, rtol=1e-5)


@needs_safetensors
def test_a_regression_of_hugging_face_has_no_scaling(tmp_path, regression, released):
    source, variables = regression
    with open(f"{released[0]}/bert_config.json", "w") as file:
        json.dump({**CONFIG, "problem_type": "regression"}, file)
    bert_checkpoint.main("to_hugging_face", source, str(tmp_path / "theirs"))
    bert_checkpoint.main("from_hugging_face", str(tmp_path / "theirs"), str(tmp_path / "ours"))
    expected = {"target/mean": np.zeros(2), "target/scale": np.ones(2)}
    assert_equal(
        read(tmp_path / "ours"), {**bert_checkpoint._with_scaled_head(variables), **expected}
    )


def test_a_released_regression_keeps_mean_and_scale(tmp_path, regression):
    source, variables = regression
    bert_checkpoint.main("to_google", source, str(tmp_path / "out"))
    assert_equal(read(tmp_path / "out"), variables)


def write_run(folder, variables, rows, task):
    """Writes the model_dir of bert_classifier on a table; returns it."""
    (folder / "texts").mkdir()
    (folder / "texts" / "train.csv").write_text(rows)
    columns = tuple(rows.split("\n")[0].split(",")[1:])
    options = Options(
        "text_files",
        source=str(folder / "texts"),
        vocabulary=f"{folder}/released/vocab.txt",
        max_length=5,
        task=task,
        text_columns=("text",),
        label_columns=columns,
        validation_fraction=0.0,
    )
    data_dir = bert_data._write(folder, options)
    count = 1 if task == "regression" and len(columns) == 1 else 2
    head = {"output_weights": np.ones([count, CONFIG["hidden_size"]]), "output_bias": [1] * count}
    encoder = {name: value for name, value in variables.items() if name.startswith("bert/")}
    head = {name: np.float32(value) for name, value in head.items()}
    writer.write(f"{folder}/run/model.ckpt-1", {**encoder, **head, "global_step": np.int64(1)})
    sizes = ",".join(f"{name}={PARAMS[name]}" for name in bert_hugging_face.PARAMS)
    (folder / "run" / "flags.cfg").write_text(
        f"--model=bert_classifier\n--params={sizes}\n--data_dir={data_dir}\n"
    )
    return f"{folder}/run"


@needs_safetensors
@pytest.mark.parametrize(
    ("rows", "task", "problem_type", "names"),
    [
        (
            "text,label\na,no\nb,yes\n",
            "classification",
            "single_label_classification",
            ["no", "yes"],
        ),
        (
            "text,rude,threat\na,1,0\nb,0,1\n",
            "multilabel",
            "multi_label_classification",
            ["rude", "threat"],
        ),
        ("text,price,size\na,1,5\nb,3,4\n", "regression", "regression", ["price", "size"]),
        ("text,score\na,1\nb,3\n", "regression", "regression", ["LABEL_0"]),
    ],
)
def test_a_configuration_names_the_outputs(tmp_path, released, rows, task, problem_type, names):
    run = write_run(tmp_path, released[1], rows, task)
    bert_checkpoint.main("to_hugging_face", run, f"{tmp_path}/theirs")
    config = json.loads((tmp_path / "theirs" / "config.json").read_text())
    assert config["problem_type"] == problem_type
    assert config["id2label"] == {str(i): name for i, name in enumerate(names)}


@needs_safetensors
def test_a_released_configuration_names_the_outputs(tmp_path, released):
    rows = "text,rude,threat\na,1,0\nb,0,1\n"
    run = write_run(tmp_path, released[1], rows, "multilabel")
    bert_checkpoint.main("to_google", run, f"{tmp_path}/ours")
    bert_checkpoint.main("to_hugging_face", f"{tmp_path}/ours", f"{tmp_path}/theirs")
    bert_checkpoint.main("from_hugging_face", f"{tmp_path}/theirs", f"{tmp_path}/again")
    for name in ("ours/bert_config.json", "theirs/config.json", "again/bert_config.json"):
        config = json.loads((tmp_path / name).read_text())
        assert config["problem_type"] == "multi_label_classification"
        assert config["id2label"] == {"0": "rude", "1": "threat"}


@needs_safetensors
def test_weights_in_several_files(tmp_path):
    from safetensors.numpy import save_file

    parts = {"1.safetensors": {"a": np.ones(2)}, "2.safetensors": {"b": np.float32([3])}}
    for name, tensors in parts.items():
        save_file(tensors, tmp_path / name)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}}))
    assert_equal(bert_hugging_face.read_safetensors(str(tmp_path)), {"a": np.ones(2), "b": [3]})
    save_file({"b": np.float32([np.nan])}, tmp_path / "2.safetensors")
    with pytest.raises(UsageError, match="b has values that are not finite"):
        bert_hugging_face.read_safetensors(str(tmp_path))
    for name, message in {"../1": "does not name files", "3.safetensors": "3.* is missing"}.items():
        index.write_text(json.dumps({"weight_map": {"a": name}}))
        with pytest.raises(UsageError, match=message):
            bert_hugging_face.read_safetensors(str(tmp_path))


@needs_safetensors
@pytest.mark.parametrize("content", [b"", b"\xff" * 100, b"\x10" + bytes(7) + b"{" * 16])
def test_an_invalid_safetensors_file(tmp_path, content):
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(UsageError, match="cannot be read as safetensors"):
        bert_hugging_face.read_safetensors(str(tmp_path))
