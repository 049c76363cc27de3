r"""Speed of GPT-2 on a CPU beside nanoGPT and transformers in PyTorch, interleaved.

    python -m benchmarks.language_model_speed --torch_python=peers/bin/python
        [--nanogpt_checkout=DIR] [--parts=nano,training,generation] [--size=small] [--rounds=3]
        [--steps=0] [--runtimes=tf.saved_model.load]

nano        trains configs/tinyshakespeare_gpt.cfg, and nanoGPT's `model.py` with the same sizes and
            the loop of its `train.py` (batches, schedule, clipping, fused AdamW as it chooses); 12
            rows of 64 tokens, --steps=200. Needs --nanogpt_checkout.
training    fine-tunes GPT-2 of --size, 124 million parameters, on --training_rows=2 rows of 256
            random tokens, with dropout 0.1, AdamW and gradient clipping; `GPT2LMHeadModel` of
            transformers with PyTorch's fused AdamW; --steps=10
generation  continues 1 and 8 prompts of 64 tokens by 128 tokens, greedy, with a key/value cache: an
            export of --size in TensorFlow and in ONNX Runtime, and `generate` of transformers. Both
            have random weights. Needs tf2onnx and onnxruntime.

Rates of training are from the end of the first or second step to the end of the last. Prints
medians and ratios of a round. All sides use all cores; on a busy machine run it on one
(`taskset -c 0`). --torch_python is the Python of an environment with PyTorch:

    python3.11 -m venv peers && peers/bin/pip install torch==2.13.0 transformers==4.46.3
"""

from __future__ import annotations

import functools
import json
import os
import statistics
import tempfile

from absl import app, flags

from benchmarks.subprocesses import (
    compare,
    format_ratios,
    interleave,
    run_cpu,
    run_python,
    train_rate,
)
from models.text import gpt
from tools import runtimes

TRAINING_TOKENS = 256
PROMPT_TOKENS, NEW_TOKENS, PROMPTS = 64, 128, (1, 8)

NANOGPT = """
import json, math, sys, time
import numpy as np
import torch
checkout, steps = json.loads(sys.argv[1])
sys.path.insert(0, checkout)
from model import GPT, GPTConfig
torch.manual_seed(1337)
rows, length, vocab_size = 12, 64, 65
data = np.random.default_rng(0).integers(0, vocab_size, 1_000_000).astype(np.uint16)
sizes = {"n_layer": 4, "n_head": 4, "n_embd": 128, "block_size": length, "bias": False}
model = GPT(GPTConfig(vocab_size=vocab_size, dropout=0.0, **sizes))
optimizer = model.configure_optimizers(0.1, 1e-3, (0.9, 0.99), "cpu")

def batch():
    begins = torch.randint(len(data) - length, (rows,))
    pieces = [torch.from_numpy(data[b : b + length + 1].astype(np.int64)) for b in begins]
    return torch.stack([p[:-1] for p in pieces]), torch.stack([p[1:] for p in pieces])

def train(step):
    rate = 1e-4 + 4.5e-4 * (1 + math.cos(math.pi * step / steps))
    for group in optimizer.param_groups:
        group["lr"] = rate
    _, loss = model(*batch())
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)

for step in range(2):
    train(step)
first = time.time()
for step in range(steps):
    train(step)
print(json.dumps(steps * rows / (time.time() - first)))
"""

TRANSFORMERS_TRAINING = """
import json, sys, time
import numpy as np
import torch
from transformers import GPT2Config, GPT2LMHeadModel
rows, length, steps, sizes = json.loads(sys.argv[1])
model = GPT2LMHeadModel(GPT2Config(**sizes)).train()
optimizer = torch.optim.AdamW(model.parameters(), 5e-5, weight_decay=0.01, fused=True)
random = np.random.default_rng(0)

def train():
    ids = torch.from_numpy(random.integers(0, 50257, [rows, length]))
    optimizer.zero_grad()
    model(input_ids=ids, labels=ids).loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()

for _ in range(2):
    train()
first = time.time()
for _ in range(steps):
    train()
print(json.dumps(steps * rows / (time.time() - first)))
"""

OUR_GENERATION = """
import json, sys
import numpy as np
from tools import runtimes
path, name, prompt_tokens, new_tokens, prompts = json.loads(sys.argv[1])
runtime = runtimes.RUNTIMES[name](path)
length = prompt_tokens + new_tokens
tokens = np.random.default_rng(0).integers(50256, size=[max(prompts), length], dtype=np.int32)

def rate(count):
    inputs = {"prompt": tokens[:count], "seed": np.zeros(count, np.int32)}
    inputs["prompt_length"] = np.full(count, prompt_tokens, np.int32)
    inputs["max_tokens"] = np.full(count, length, np.int32)
    assert (runtime(inputs)["length"] == length).all(), "a continuation has ended"
    return count * new_tokens / runtime.seconds(inputs, 3)

print(json.dumps([rate(count) for count in prompts]))
"""

TRANSFORMERS_GENERATION = """
import json, sys, time
import numpy as np
import torch
from transformers import GPT2Config, GPT2LMHeadModel
sizes, prompt_tokens, new_tokens, prompts = json.loads(sys.argv[1])
model = GPT2LMHeadModel(GPT2Config(**sizes)).eval()
ids = np.random.default_rng(0).integers(50256, size=[max(prompts), prompt_tokens])
exactly = {"max_new_tokens": new_tokens, "min_new_tokens": new_tokens, "do_sample": False}

def run(ids):
    start = time.perf_counter()
    found = model.generate(ids, attention_mask=torch.ones_like(ids), pad_token_id=50256, **exactly)
    assert found.shape[1] == prompt_tokens + new_tokens
    return time.perf_counter() - start

def rate(count):
    given = torch.from_numpy(ids[:count])
    run(given)
    return count * new_tokens / float(np.median([run(given) for _ in range(3)]))

with torch.inference_mode():
    print(json.dumps([rate(count) for count in prompts]))
"""

flags.DEFINE_list("parts", ["nano", "training", "generation"], "What to measure.")
flags.DEFINE_string("torch_python", None, "Python with PyTorch and transformers.", required=True)
flags.DEFINE_string("nanogpt_checkout", "", "Checkout of karpathy/nanoGPT.")
flags.DEFINE_enum("size", "small", list(gpt.SIZES), "Size of training and generation.")
flags.DEFINE_list("runtimes", ["tf.saved_model.load", "ONNX Runtime"], "Runtimes of the export.")
flags.register_validator(
    "runtimes",
    lambda names: set(names) <= set(runtimes.RUNTIMES),
    f"must be of {', '.join(runtimes.RUNTIMES)}",
)
flags.DEFINE_integer("rounds", 3, "Rounds; each runs every side once.")
flags.DEFINE_integer("steps", 0, "Training steps; 0: those above.")
flags.DEFINE_integer("training_rows", 2, "Rows of a step of GPT-2.")


def main(_):
    """Runs the parts and prints a line per side."""
    parts = {"nano": _nano, "training": _training, "generation": _generation}
    for name in flags.FLAGS.parts:
        parts[name]()


def _nano():
    given = flags.FLAGS
    steps, torch = given.steps or 200, given.torch_python
    sides = {
        "ours": functools.partial(
            train_rate,
            "--flagfile=configs/tinyshakespeare_gpt.cfg",
            "--dataset=synthetic",
            "--synthetic_task=language_model",
            "--synthetic_text=64x65",
            f"--train_steps={steps + 1}",
        ),
        "nanoGPT": lambda: run_python(
            NANOGPT, json.dumps([given.nanogpt_checkout, steps]), python=torch
        ),
    }
    compare("nano", sides, given.rounds, describe=_rows)


def _training():
    given = flags.FLAGS
    steps, rows, torch = given.steps or 10, given.training_rows, given.torch_python
    sides = {
        "ours": functools.partial(
            train_rate,
            "--model=gpt",
            f"--params={_our_sizes()},optimizer=adamw,weight_decay=0.01,clip_norm=1,learning_rate=5e-5",
            "--dataset=synthetic",
            "--synthetic_task=language_model",
            f"--synthetic_text={TRAINING_TOKENS}x50257",
            f"--train_batch_size={rows}",
            f"--train_steps={steps + 1}",
        ),
        "transformers": lambda: run_python(
            TRANSFORMERS_TRAINING,
            json.dumps([rows, TRAINING_TOKENS, steps, _their_sizes()]),
            python=torch,
        ),
    }
    compare("training", sides, given.rounds, describe=_rows)


def _generation():
    given = flags.FLAGS
    sizes = PROMPT_TOKENS, NEW_TOKENS, PROMPTS
    with tempfile.TemporaryDirectory() as folder:
        path = _export(folder)

        def ours(runtime):
            return run_python(OUR_GENERATION, json.dumps([path, runtime, *sizes]))

        def theirs():
            arguments = json.dumps([_their_sizes(), *sizes])
            return run_python(TRANSFORMERS_GENERATION, arguments, python=given.torch_python)

        sides = {f"ours, {name}": functools.partial(ours, name) for name in given.runtimes}
        sides["transformers"] = theirs
        rounds = interleave(sides, given.rounds)
    for i, count in enumerate(PROMPTS):
        rates = {name: [found[i] for found in rounds[name]] for name in sides}
        for name, found in rates.items():
            ratios = format_ratios(found, rates["transformers"])
            shown = f"{statistics.median(found):.1f} tokens/s; this / transformers {ratios}"
            print(f"generation, {count} prompts, {name}: {shown}", flush=True)


def _export(folder):
    """Exports a model with random weights; returns the path of its SavedModel."""
    given = (
        "--model=gpt",
        f"--params={_our_sizes()},temperature=0",
        "--dataset=synthetic",
        "--synthetic_task=language_model",
        f"--synthetic_text={PROMPT_TOKENS + NEW_TOKENS}x50257",
        "--train_batch_size=1",
        "--best_metric=",
        f"--model_dir={folder}/model",
    )
    run_cpu(*given, "--mode=train", "--train_steps=1")
    run_cpu(*given, "--mode=export", f"--export_dir={folder}/export", "--noexport_check")
    (version,) = os.listdir(f"{folder}/export")
    return f"{folder}/export/{version}"


def _our_sizes():
    return f"size={flags.FLAGS.size},vocab_size=50257,max_positions=1024"


def _their_sizes():
    names = {"num_layers": "n_layer", "hidden_size": "n_embd", "num_heads": "n_head"}
    return {names[name]: value for name, value in gpt.SIZES[flags.FLAGS.size].items()}


def _rows(rate):
    return f"{rate:.2f} rows/s"


if __name__ == "__main__":
    app.run(main)
