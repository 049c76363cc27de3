"""GPT-2: what each output depends on, and that the cache, chunks and masks agree."""

import numpy as np
import pytest
import tensorflow as tf

from common.constants import DROPOUT_SEED
from models import registry
from models.layers import dropout
from models.model import ModelError
from models.text import gpt
from tests import numerics, variable_values
from tests.marks import slow

LENGTH, VOCAB, END = 11, 23, 22
LAYERS, HIDDEN = 2, 12
# Of each layer two norms of 7 operations, attention of 12, a feed-forward net of 5 and two sums.
NETWORK = {"terms": 4 * HIDDEN, "depth": LAYERS * (2 * 7 + 12 + 5 + 2) + 2 + 7 + 1 + 4}


def params(**changes):
    sizes = {"num_layers": LAYERS, "hidden_size": HIDDEN, "num_heads": 3, "max_positions": LENGTH}
    ids = {"vocab_size": VOCAB, "num_tokens": VOCAB, "end_of_text": END}
    off = {"dropout": 0.0, "attention_dropout": 0.0, "temperature": 0.0}
    return {**gpt.default_params(), **sizes, **ids, **off, **changes}


def value_of(variable):
    """The value of a variable, a function of its name."""
    random = np.random.default_rng(list(variable.op.name.encode()))
    return random.normal(size=variable.shape, scale=0.4) + variable.op.name.endswith("/g")


def run(tensors):
    with tf.compat.v1.Session() as session:
        variable_values.assign_all(session, value_of)
        return session.run(tensors)


def rows(count=3, seed=0):
    return np.random.default_rng(seed).integers(0, END, [count, LENGTH + 1]).astype(np.int32)


def features(tokens):
    full = np.full(len(tokens), LENGTH, np.int32)
    return {"tokens": tf.constant(tokens), "num_tokens": tf.constant(full)}


def log_probs(tokens, training=False, **changes):
    return run(gpt.inference(features(tokens), params(**changes), training)["log_probs"])


def continued(prompts, lengths, most=LENGTH, **changes):
    """The outputs of `decode` for prompts int32 `[n, LENGTH]`."""
    inputs = {
        "prompt": tf.constant(prompts),
        "prompt_length": tf.constant(lengths),
        "max_tokens": tf.fill([len(prompts)], most),
        "seed": tf.range(len(prompts)),
    }
    return run(gpt.decode(inputs, params(**changes)))


PROMPTS, LENGTHS = rows(4, seed=2)[:, :LENGTH], np.array([1, 4, 7, 10], np.int32)


def test_names_and_shapes_are_those_of_openai():
    gpt.inference(features(rows()), params(), training=True)
    found = {v.op.name: v.shape.as_list() for v in tf.compat.v1.trainable_variables()}
    layers = {}
    for i in range(LAYERS):
        for scope, (size, units) in {
            "attn/c_attn": (HIDDEN, 3 * HIDDEN),
            "attn/c_proj": (HIDDEN, HIDDEN),
            "mlp/c_fc": (HIDDEN, 4 * HIDDEN),
            "mlp/c_proj": (4 * HIDDEN, HIDDEN),
        }.items():
            layers[f"model/h{i}/{scope}/w"] = [1, size, units]
            layers[f"model/h{i}/{scope}/b"] = [units]
    norms = ["model/ln_f", *(f"model/h{i}/ln_{k}" for i in range(LAYERS) for k in (1, 2))]
    norms = {f"{scope}/{name}": [HIDDEN] for scope in norms for name in "gb"}
    embeddings = {"model/wte": [VOCAB, HIDDEN], "model/wpe": [LENGTH, HIDDEN]}
    assert found == {**layers, **norms, **embeddings}


def test_sizes_are_those_of_the_releases():
    for size, millions in {"small": 124, "medium": 355, "large": 774, "xl": 1558}.items():
        sizes = gpt.SIZES[size]
        width, layers = sizes["hidden_size"], sizes["num_layers"]
        weights = (50257 + 1024) * width + layers * (12 * width**2 + 13 * width) + 2 * width
        assert round(weights / 1e6) == millions
    assert registry.find("gpt_medium").default_params()["num_heads"] == 16


def test_a_token_depends_on_those_before_it_only():
    tokens = rows(1)
    changed = tokens.copy()
    changed[0, 6] = (changed[0, 6] + 1) % END
    before, after = log_probs(tokens)[0], log_probs(changed)[0]
    np.testing.assert_array_equal(before[:5], after[:5])
    assert (before[6:] != after[6:]).all()


@pytest.mark.parametrize("changes", [{"logits_positions": 4}, {"recompute": True}])
def test_chunks_of_logits_and_recomputed_layers_give_the_same_gradients(changes):
    def gradients(**changes):
        with tf.Graph().as_default():
            with dropout.seeded({DROPOUT_SEED: tf.zeros([1, 2], tf.int32)}):
                outputs = gpt.inference(features(rows()), params(**changes), training=True)
            variables = tf.compat.v1.trainable_variables()
            found = tf.gradients(-tf.reduce_mean(outputs["log_probs"]), variables)
            return run([outputs, list(map(tf.convert_to_tensor, found))])

    expected, found = gradients(), gradients(**changes)
    arithmetic = {"terms": 3 * LENGTH * VOCAB, "depth": 2 * NETWORK["depth"]}
    for ours, theirs in zip(tf.nest.flatten(found), tf.nest.flatten(expected)):
        numerics.assert_close(ours, theirs, **arithmetic)


def test_documents_of_a_row_are_independent_with_a_mask():
    tokens = rows(1)
    tokens[0, [0, 5]] = END
    alone = rows(1)
    alone[0, : LENGTH - 4] = tokens[0, 5:]
    whole = log_probs(tokens, document_mask=True)[0, 5:]
    with tf.Graph().as_default():
        expected = log_probs(alone, document_mask=True)[0, : LENGTH - 5]
    numerics.assert_close(whole[: LENGTH - 5], expected[: len(whole)], **NETWORK)
    with tf.Graph().as_default():
        without = log_probs(tokens)[0, 5:]
    assert np.abs(without - whole).max() > 0.01


@pytest.mark.parametrize("beams", [1, slow(2)])
def test_a_continuation_reads_the_last_document_only_with_a_mask(beams):
    """Of two documents in a prompt the second is continued as if it were alone."""
    prompts, options = rows(2, seed=3)[:, :LENGTH], {"document_mask": True, "beam_size": beams}
    prompts[:, [0, 3]] = END
    found = continued(prompts, np.array([5, 7], np.int32), **options)
    alone = np.roll(prompts, -3, axis=1)
    with tf.Graph().as_default():
        expected = continued(alone, np.array([2, 4], np.int32), most=LENGTH - 3, **options)
    for row, theirs, end in zip(found["tokens"], expected["tokens"], found["length"]):
        assert row[3:end].tolist() == theirs[: end - 3].tolist()
    kept = found["log_probs"][:, 4:], expected["log_probs"][:, 1 : LENGTH - 3]
    numerics.assert_close(*kept, **NETWORK)
    with tf.Graph().as_default():
        plain = continued(prompts, np.array([5, 7], np.int32), beam_size=beams)
    assert np.abs(plain["log_probs"][:, 4:5] - kept[0][:, :1]).max() > 0.01


@pytest.mark.slow(cost=0.1)
def test_greedy_continuations_are_those_without_a_cache():
    found = continued(PROMPTS, LENGTHS)
    for row, length, end in zip(found["tokens"], LENGTHS, found["length"]):
        for place in range(length, end):
            tokens = np.full([VOCAB, LENGTH + 1], END, np.int32)
            tokens[:, :place] = row[:place]
            tokens[:, place] = range(VOCAB)
            with tf.Graph().as_default():
                scores = log_probs(tokens)[:, place - 1]
            assert scores[row[place]] == scores.max()


@pytest.mark.slow(cost=0.1)
def test_log_probs_are_those_of_the_inference():
    found = continued(PROMPTS, LENGTHS)
    tokens = np.concatenate([found["tokens"], np.full([4, 1], END, np.int32)], axis=1)
    with tf.Graph().as_default():
        expected = log_probs(tokens)
    for row, theirs, length in zip(found["log_probs"], expected, found["length"]):
        numerics.assert_close(row[1:length], theirs[: length - 1], **NETWORK)
        assert row[0] == 0
        assert not row[length:].any()


def test_without_room_prompts_are_scored_only():
    found = continued(PROMPTS, LENGTHS, most=1)
    assert found["length"].tolist() == LENGTHS.tolist()
    for row, prompt, length in zip(found["tokens"], PROMPTS, LENGTHS):
        assert row.tolist() == [*prompt[:length], *[END] * (LENGTH - length)]


@pytest.mark.slow(cost=0.1)
def test_a_stop_token_and_max_new_tokens_end_a_continuation():
    free = continued(PROMPTS, LENGTHS)
    stop = int(free["tokens"][0, 3])
    with tf.Graph().as_default():
        found = continued(PROMPTS, LENGTHS, stop_tokens=(stop,))
    first = free["tokens"][0, 1:].tolist().index(stop) + 1
    assert found["length"][0] == first + 1
    assert set(found["tokens"][0, first + 1 :]) <= {END}
    with tf.Graph().as_default():
        found = continued(PROMPTS, LENGTHS, max_new_tokens=2)
    assert found["length"].tolist() == [3, 6, 9, 11]


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize("changes", [{"temperature": 1.0}, {"temperature": 1.0, "top_k": 3}])
def test_a_sample_does_not_depend_on_its_batch(changes):
    prompts, lengths = PROMPTS[[2, 0]], LENGTHS[[2, 0]]
    first = continued(prompts, lengths, **changes)["tokens"][0]
    with tf.Graph().as_default():
        alone = continued(prompts[:1], lengths[:1], **changes)["tokens"][0]
    np.testing.assert_array_equal(first, alone)
    with tf.Graph().as_default():
        other = continued(prompts[:1], lengths[:1], **changes, sampling_seed=1)["tokens"][0]
    assert (other != alone).any()


@pytest.mark.slow(cost=0.1)
def test_a_repetition_penalty_ends_repetition():
    def repeated(tokens):
        return sum(LENGTH - len(set(row)) for row in tokens.tolist())

    plain = continued(PROMPTS, LENGTHS)["tokens"]
    with tf.Graph().as_default():
        penalized = continued(PROMPTS[:, :LENGTH], LENGTHS, repetition_penalty=1e6)["tokens"]
    assert repeated(penalized[:1]) == 0 or repeated(penalized) < repeated(plain)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": 13}, "hidden_size=13 must be a multiple"),
        ({"max_length": 12}, "rows of 12 tokens, but the model max_positions=11"),
        ({"dropout": 1.0}, "dropout=1.0"),
    ],
)
def test_invalid_hyperparameters(changes, message):
    with pytest.raises(ModelError) as error:
        gpt.check_params(params(**changes))
    assert message in str(error.value)
