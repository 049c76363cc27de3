"""Trains a GPT-2 on characters, continues prompts, exports it; and on emulated TPU cores."""

import json
import math
import pathlib
import re

import numpy as np
import pytest
import tensorflow as tf

from engine.train import loss_reduction
from input_fns import convert, dataset_info
from input_fns.convert import writer
from input_fns.convert.options import Options
from input_fns.kinds import PipelineOptions
from tests import numerics
from tests.marks import runs_bfloat16

ROOT = pathlib.Path(__file__).parents[1]
LENGTH, BATCH, STEPS = 16, 16, 30
TEXT = "".join(f"{i} and {i + 1} are {2 * i + 1}.\n" for i in range(120))
SIZES = "num_layers=2,hidden_size=16,num_heads=2,max_positions=16,dropout=0,attention_dropout=0"
# Each step sums the gradients of the tokens of a global batch; variables of magnitude 1.
ARITHMETIC = {"terms": BATCH * LENGTH, "depth": 5, "magnitude": 1.0}


@pytest.fixture(scope="session")
def characters_dir(once):
    """A data set of characters."""

    def build(path):
        path.mkdir()
        (path / "input.txt").write_text(TEXT)
        source = str(path / "input.txt")
        options = Options("lm_text", source=source, max_length=LENGTH, tokenizer="characters")
        writer.write(convert.read(options), str(path / "data"))

    return once("characters", build) / "data"


@pytest.fixture(scope="session")
def documents_dir(once):
    """A data set of short documents and a long one: rows with several and with few tokens."""

    def build(path):
        path.mkdir()
        texts = [*(f"{i} and {i}" for i in range(60)), "the end of it " * 9, *"abcdefgh"]
        (path / "input.txt").write_text("<|endoftext|>".join(texts))
        source = str(path / "input.txt")
        options = Options("lm_text", source=source, max_length=LENGTH, tokenizer="characters")
        writer.write(convert.read(options), str(path / "data"))

    return once("documents", build) / "data"


@pytest.fixture(scope="session")
def run_gpt(run_with, run_tpu_with, characters_dir):
    """Runs a wrapper: `run_gpt(model_dir, "--mode=eval", on_tpu=False)`."""

    def run(model_dir, *arguments, on_tpu=False):
        (run_tpu_with if on_tpu else run_with)(
            "--model=gpt",
            f"--params=size=nano,{SIZES},learning_rate=0.01",
            "--dataset=lm_text",
            f"--data_dir={characters_dir}",
            f"--model_dir={model_dir}",
            "--seed=1",
            *(f"--{mode}_batch_size={BATCH}" for mode in ("train", "eval", "predict")),
            *(["--tpu=emulator"] if on_tpu else []),
            *arguments,
        )

    return run


@pytest.fixture(scope="module")
def model_dir(run_gpt, tmp_path_factory, serve_in_this_process):
    """A model_dir with an evaluation and an export."""
    path = tmp_path_factory.mktemp("gpt")
    flags = [f"--train_steps={STEPS}", "--eval_split=validation", "--params=top_k=9"]
    with serve_in_this_process():
        run_gpt(path, *flags, f"--export_dir={path}/export")
    return path


@pytest.fixture(scope="module")
def pipeline(characters_dir):
    data = dataset_info.load(str(characters_dir), "lm_text")
    return data.kind.pipeline(data, PipelineOptions())


@pytest.mark.slow(cost=0.1)
def test_the_metrics_are_those_of_the_text(model_dir, result, pipeline):
    found, split = result(model_dir, STEPS)["eval"], pipeline.data.kind.splits["validation"]
    total = math.log(found["perplexity"]) * split.num_tokens
    assert found["bits_per_byte"] == pytest.approx(total / math.log(2) / split.num_bytes, rel=1e-5)
    assert found["average_loss"] == pytest.approx(math.log(found["perplexity"]), rel=1e-5)
    assert found["perplexity"] < len(set(TEXT)) * 0.8


def read_lines(path):
    with open(path) as file:
        return list(map(json.loads, file))


def predict(run_gpt, model_dir, folder, prompts, *more):
    (folder / "prompts.txt").write_text("".join(f"{prompt}\n" for prompt in prompts))
    files = [f"--input={folder}/prompts.txt", f"--predict_output={folder}/out.jsonl"]
    run_gpt(model_dir, "--mode=predict", "--eval_split=none", *files, *more)
    return read_lines(folder / "out.jsonl")


@pytest.mark.slow(cost=0.1)
def test_prompts_are_continued_in_their_order_at_any_batch_size(run_gpt, model_dir, tmp_path):
    prompts = ["1 and", "are", "3 and 4 are", "<|endoftext|>"]
    lines = predict(run_gpt, model_dir, tmp_path, prompts)
    assert [line["prompt"] for line in lines] == [*prompts[:3], ""]
    assert all(0 < line["num_tokens"] < LENGTH and line["log_prob"] < 0 for line in lines)
    assert len({line["text"] for line in lines}) > 1
    again = predict(run_gpt, model_dir, tmp_path, prompts, "--predict_batch_size=3")
    assert [line["text"] for line in again] == [line["text"] for line in lines]
    other = predict(run_gpt, model_dir, tmp_path, prompts, "--params=sampling_seed=1")
    assert [line["text"] for line in other] != [line["text"] for line in lines]


@pytest.mark.slow(cost=0.1)
def test_the_export_generates_and_scores(run_gpt, model_dir, pipeline, session):
    (path,) = (model_dir / "export").iterdir()
    model = tf.compat.v1.saved_model.load(session, ["serve"], str(path))
    ids = pipeline.tokenizer.encode(["1 and", "3 and 4 are"])
    tokens = np.stack([pipeline.prompt_row(row, "") for row in ids])
    length = np.array(list(map(len, ids)), np.int32)

    def call(name, **inputs):
        signature = model.signature_def[name]
        fed = {signature.inputs[key].name: value for key, value in inputs.items()}
        return session.run({k: v.name for k, v in signature.outputs.items()}, fed)

    generated = call("generate", tokens=tokens, length=length)
    for row, prompt, begin in zip(generated["tokens"], tokens, length):
        assert row[:begin].tolist() == prompt[:begin].tolist()
    assert (generated["length"] > length).all()
    seeds = tokens.sum(axis=1, dtype=np.int32)  # those of "generate"
    controls = {"max_tokens": np.full(2, LENGTH, np.int32), "seed": seeds}
    served = call("serving_default", prompt=tokens, prompt_length=length, **controls)
    np.testing.assert_array_equal(served["tokens"], generated["tokens"])
    scored = call("score", tokens=generated["tokens"], length=generated["length"])
    arithmetic = {"terms": 64, "depth": 80}  # of tests/models/text/test_gpt.py
    token_log_probs = scored["token_log_probs"]
    numerics.assert_close(token_log_probs, served["log_probs"], **arithmetic)
    np.testing.assert_allclose(scored["log_prob"], token_log_probs.sum(axis=1), rtol=1e-5)
    assert any(name.startswith("tokenizer-") for name in map(str, _names(path / "assets")))


@pytest.mark.slow(cost=0.1)
@pytest.mark.usefixtures("eager")
def test_the_page_makes_text_of_an_export(model_dir, capsys):
    (path,) = (model_dir / "export").iterdir()
    page = (ROOT / "docs/language_models.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(code, {"EXPORT": str(path), "PROMPTS": ["1 and", "3 and 4 are"]})
    texts = capsys.readouterr().out.replace("<|endoftext|>", "")
    assert texts.strip()
    assert set(texts) <= set(TEXT)


def _names(folder):
    return [path.name for path in folder.iterdir()]


@pytest.mark.slow(cost=0.1)
def test_a_released_checkpoint_is_a_warm_start(run_gpt, model_dir, tmp_path, variables, capsys):
    start = [f"--warm_start_from={model_dir}", "--mode=train", "--train_steps=1"]
    run_gpt(tmp_path, *start, "--params=learning_rate=1e-9")
    before, after = variables(model_dir), variables(tmp_path)
    np.testing.assert_allclose(after["model/wte"], before["model/wte"], atol=1e-7)
    assert "restored" in capsys.readouterr().out


@pytest.mark.slow(cost=0.1)
def test_a_checkpoint_of_another_size_is_one_line(run_gpt, model_dir, tmp_path):
    start = [f"--warm_start_from={model_dir}", "--mode=train", "--train_steps=1"]
    with pytest.raises(Exception, match="has num_layers=2, but this model has num_layers=3"):
        run_gpt(tmp_path, *start, "--params=num_layers=3")


TRAIN = ["--mode=train", "--train_steps=5", "--save_checkpoints_steps=5", "--params=epsilon=0.01"]


@pytest.mark.slow
@pytest.mark.parametrize("topology", ["1x2", "1x8"])
def test_training_on_tpu_cores_equals_that_on_a_cpu(run_gpt, variables, tmp_path, topology):
    run_gpt(tmp_path / "start", *TRAIN, "--train_steps=1")
    start = f"--warm_start_from={tmp_path}/start"
    run_gpt(tmp_path / "cpu", *TRAIN, start)
    tpu = [start, "--iterations_per_loop=5", f"--tpu_topology={topology}"]
    run_gpt(tmp_path / "tpu", *TRAIN, *tpu, on_tpu=True)
    found, expected = variables(tmp_path / "tpu"), variables(tmp_path / "cpu")
    assert numerics.excess(found, expected, **ARITHMETIC) < 1


@pytest.mark.slow
@pytest.mark.parametrize("changes", ["document_mask=true", "recompute=true,logits_positions=5"])
def test_variants_train_on_tpu_cores_as_on_a_cpu(
    run_gpt, documents_dir, variables, tmp_path, changes
):
    """The last rows of the documents predict few tokens: the loss is a mean over those of all."""
    train = [*TRAIN, f"--data_dir={documents_dir}", f"--params={changes}"]
    run_gpt(tmp_path / "start", *train, "--train_steps=1")
    start = f"--warm_start_from={tmp_path}/start"
    run_gpt(tmp_path / "cpu", *train, start)
    tpu = [start, "--iterations_per_loop=5", "--tpu_topology=v2-8"]
    run_gpt(tmp_path / "tpu", *train, *tpu, on_tpu=True)
    found, expected = variables(tmp_path / "tpu"), variables(tmp_path / "cpu")
    assert numerics.excess(found, expected, **ARITHMETIC) < 1
    if changes == "document_mask=true":
        run_gpt(tmp_path / "plain", *train, start, "--params=document_mask=false")
        assert numerics.excess(variables(tmp_path / "plain"), expected, **ARITHMETIC) > 2


@pytest.mark.slow
def test_cores_with_unequal_numbers_of_tokens(
    run_gpt, documents_dir, variables, tmp_path, monkeypatch
):
    """One row of a global batch of 2 has few tokens: a mean of the means of cores differs."""
    train = [*TRAIN, f"--data_dir={documents_dir}", "--train_batch_size=2", "--seed=3"]
    train.append("--train_steps=30")  # the whole split: its last row is among them
    run_gpt(tmp_path / "start", *train, "--train_steps=1")
    tpu = [f"--warm_start_from={tmp_path}/start", "--tpu_topology=1x2", "--iterations_per_loop=5"]
    run_gpt(tmp_path / "cpu", *train, tpu[0])
    run_gpt(tmp_path / "tpu", *train, *tpu, on_tpu=True)
    expected = variables(tmp_path / "cpu")
    arithmetic = {**ARITHMETIC, "depth": 30}
    assert numerics.excess(variables(tmp_path / "tpu"), expected, **arithmetic) < 1

    def per_core(terms, params):
        return {name: tf.reduce_sum(term.weights) for name, term in terms.items()}

    monkeypatch.setattr(loss_reduction, "denominators", per_core)
    run_gpt(tmp_path / "other", *train, *tpu, on_tpu=True)
    assert numerics.excess(variables(tmp_path / "other"), expected, **arithmetic) > 2


@pytest.mark.slow
@runs_bfloat16
def test_bfloat16_on_tpu_cores(run_gpt, variables, tmp_path):
    """Within roundings of bfloat16 of float32, and not equal to it."""
    run_gpt(tmp_path / "start", *TRAIN, "--train_steps=1")
    train = [*TRAIN, f"--warm_start_from={tmp_path}/start"]
    found = {}
    for name, precision, on_tpu in (
        ("float32", "float32", False),
        ("cpu", "bfloat16", False),
        ("tpu", "bfloat16", True),
    ):
        tpu = ["--iterations_per_loop=5", "--tpu_topology=v2-8"] if on_tpu else []
        run_gpt(tmp_path / name, *train, f"--precision={precision}", *tpu, on_tpu=on_tpu)
        found[name] = variables(tmp_path / name)
    steps = {"terms": 30, "depth": 1, "dtype": "bfloat16", "magnitude": 5 * 0.01}
    assert numerics.excess(found["tpu"], found["cpu"], **steps) < 1
    assert numerics.excess(found["tpu"], found["float32"], **ARITHMETIC) > 1


@pytest.mark.slow
def test_a_resumed_training_ends_with_bit_identical_weights(run_gpt, variables, tmp_path):
    train = ["--mode=train", "--save_checkpoints_steps=3", "--params=dropout=0.1"]
    run_gpt(tmp_path / "once", *train, "--train_steps=6")
    run_gpt(tmp_path / "twice", *train, "--train_steps=3")
    run_gpt(tmp_path / "twice", *train, "--train_steps=6")
    once, twice = variables(tmp_path / "once"), variables(tmp_path / "twice")
    assert once["global_step"] == twice["global_step"] == 6
    for name, value in once.items():
        np.testing.assert_array_equal(value, twice[name], err_msg=name)


@pytest.mark.slow
def test_evaluation_and_generation_on_tpu_cores(run_gpt, model_dir, result, tmp_path):
    checkpoint = f"--checkpoint={model_dir}/model.ckpt-{STEPS}"
    (tmp_path / "prompts.txt").write_text("1 and\nare\n3 and 4 are\n")
    for name, on_tpu in (("cpu", False), ("tpu", True)):
        topology = ["--tpu_topology=1x2"] if on_tpu else []
        run_gpt(
            tmp_path / name, checkpoint, "--mode=eval", "--eval_split=validation", *topology,
            on_tpu=on_tpu,
        )  # fmt: skip
        output = [f"--input={tmp_path}/prompts.txt", f"--predict_output={tmp_path}/{name}.jsonl"]
        run_gpt(model_dir, "--mode=predict", *output, *topology, on_tpu=on_tpu)
    key = f"eval_{model_dir.name}"
    on_cpu, on_tpu = (result(tmp_path / name, STEPS)[key] for name in ("cpu", "tpu"))
    for name in ("perplexity", "bits_per_byte", "average_loss"):
        numerics.assert_close(on_tpu[name], on_cpu[name], terms=13 * LENGTH, depth=80, name=name)
    assert texts_of(tmp_path / "cpu.jsonl") == texts_of(tmp_path / "tpu.jsonl")


@pytest.mark.slow
def test_beam_search_on_tpu_cores(run_gpt, model_dir, tmp_path):
    (tmp_path / "prompts.txt").write_text("1 and\nare\n3 and 4 are\n")
    for name, beams, on_tpu in (("cpu", 3, False), ("tpu", 3, True), ("greedy", 1, False)):
        output = [f"--input={tmp_path}/prompts.txt", f"--predict_output={tmp_path}/{name}.jsonl"]
        search = f"--params=beam_size={beams}" + (",temperature=0" if beams == 1 else "")
        topology = ["--tpu_topology=1x2"] if on_tpu else []
        run_gpt(model_dir, "--mode=predict", *output, search, *topology, on_tpu=on_tpu)
    assert texts_of(tmp_path / "cpu.jsonl") == texts_of(tmp_path / "tpu.jsonl")
    assert texts_of(tmp_path / "cpu.jsonl") != texts_of(tmp_path / "greedy.jsonl")


def texts_of(path):
    return [line["text"] for line in read_lines(path)]
