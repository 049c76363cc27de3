"""Speech from WAV files to an export: run_cpu.py, run_tpu.py, serving."""

import functools
import json

import numpy as np
import pytest
import tensorflow as tf

import run_cpu
import run_tpu
from common.errors import UsageError
from input_fns.audio.audio_pipeline import AudioPipeline
from input_fns.core import serving
from models.layers import device
from models.speech import log_mel
from tests import audio_data, numerics
from tests.conftest import EMULATED, _runner
from tests.marks import slow
from tools import runtimes
from tools.serving_equality import export_run

BATCHES = [
    *("--train_batch_size=13", "--eval_batch_size=5", "--predict_batch_size=5", "--seed=1"),
    "--noexport_check",  # starts a process
]
FRONT_END = "--params=num_mels=12,window_ms=20"
KEYWORDS = ["--model=keyword_cnn", FRONT_END, "--params=channels=[4,6],learning_rate=0.01"]
SPEECH = [
    *("--model=conformer_ctc_tiny", FRONT_END),
    "--params=num_blocks=1,hidden_size=16,num_heads=2,kernel_size=3,learning_rate=0.01",
]
AUGMENT = "--augment=speed:0.9:1.1 shift:0.02 noise:10:40 time_mask:1:0.2 mel_mask:1:0.2"


@pytest.fixture(scope="module")
def keywords(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keywords")
    raw = audio_data.write_folder(folder / "raw")
    return audio_data.prepare("audio_folder", raw, folder / "data", test_fraction=0.2)


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    raw = audio_data.write_manifest(folder / "raw")
    return audio_data.prepare("speech_manifest", raw, folder / "data")


@pytest.fixture(scope="module")
def runs(keywords, texts):
    """Runs run_cpu.py on keywords or texts: `runs["keywords"](model_dir, *arguments)`."""
    split = "--eval_split=test"
    return {
        "keywords": _runner(
            run_cpu, *BATCHES, *KEYWORDS, split, "--dataset=audio_folder",
            f"--data_dir={keywords.data_dir}",
        ),
        "texts": _runner(
            run_cpu, *BATCHES, *SPEECH, split, "--dataset=speech_manifest",
            f"--data_dir={texts.data_dir}",
        ),
    }  # fmt: skip


@pytest.fixture(scope="module")
def trained(runs, tmp_path_factory):
    """Returns the model_dir of a model after 30 steps and an evaluation: `trained("texts")`."""

    @functools.cache
    def train(name):
        folder = tmp_path_factory.mktemp(name)
        runs[name](folder, "--mode=train_and_eval", "--train_steps=30", AUGMENT)
        return folder

    return train


@pytest.fixture(scope="module")
def exports(trained):
    """Returns an export of a model, with the predictions of the Estimator: `exports("texts")`."""

    @functools.cache
    def export(name):
        folder = trained(name)
        flagfile = f"--flagfile={folder / 'flags.cfg'}"
        return export_run(str(folder / "export"), flagfile, "--noexport_check")

    return export


@functools.lru_cache
def _load(path):
    return tf.saved_model.load(path)


def served(exported, signature, **inputs):
    answer = _load(exported.path).signatures[signature]
    return {name: tensor.numpy() for name, tensor in answer(**inputs).items()}


@pytest.mark.slow
def test_keywords_are_learned(trained):
    found = json.loads((trained("keywords") / "result_30.json").read_text())["eval"]
    assert found["examples"] == 8
    assert found["accuracy"] >= 0.75


@pytest.mark.slow(cost=0.1)
def test_an_evaluation_has_the_error_rates(trained):
    found = json.loads((trained("texts") / "result_30.json").read_text())["eval"]
    assert found["examples"] == 9
    assert 0 <= found["character_error_rate"] <= 1
    assert 0 <= found["word_error_rate"] <= 1


@pytest.mark.parametrize("name", [slow("keywords"), slow("texts")])
@pytest.mark.usefixtures("eager")
def test_wav_files_are_served_like_their_samples(exports, keywords, texts, name):
    pipeline = AudioPipeline({"keywords": keywords, "texts": texts}[name])
    receivers = pipeline.receivers()
    answers = {}
    for signature in (serving.RAW, serving.AUDIO_BYTES, serving.TF_EXAMPLE):
        request = receivers[signature].requests("test", 7)
        fed = {key: tf.constant(value) for key, value in request.items()}
        answers[signature] = served(exports(name), signature, **fed)
    raw = answers.pop(serving.RAW)
    for answer in answers.values():
        for key, expected in raw.items():
            if expected.dtype.kind == "f":
                np.testing.assert_allclose(answer[key], expected, rtol=1e-5)
            else:
                np.testing.assert_array_equal(answer[key], expected)
        if name == "texts":
            assert [t.decode() for t in answer["text"]] == pipeline.to_text(raw["tokens"])


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (audio_data.wav(audio_data.tone(300, rate=16000), rate=16000), "not at 8000 Hz"),
        (audio_data.wav(audio_data.tone(300, 0.7)), "does not have 1 to 4800 samples"),
        (audio_data.wav(audio_data.tone(300), bits=64, is_float=True), "floats of 32"),
        (b"text", "."),
    ],
    ids=["rate", "length", "64 bits", "text"],
)
def test_an_invalid_wav_file_is_an_error(exports, content, reason):
    with pytest.raises(tf.errors.InvalidArgumentError, match=reason):
        served(exports("texts"), "audio_bytes", audio_bytes=tf.constant([content]))


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
def test_a_stereo_file_is_served_as_its_mean(exports):
    mono = audio_data.tone(300)
    # Steps of two, so that the mean of both channels has 16 bits.
    left = np.round(mono * 2**14) / 2**14
    both = np.stack([left * 1.5, left * 0.5], axis=1)
    files = [audio_data.wav(both), audio_data.wav(left)]
    answer = served(exports("texts"), "audio_bytes", audio_bytes=tf.constant(files))
    np.testing.assert_allclose(*answer["score"], rtol=1e-4)


@pytest.mark.parametrize(
    ("runtime", "name"),
    [
        slow("tf.saved_model.load", "keywords"), slow("tf.saved_model.load", "texts"),
        slow("C API", "keywords"), slow("C API", "texts"),
        slow("TensorFlow Lite", "keywords"), slow("TensorFlow Lite", "texts"),
        slow("ONNX Runtime", "keywords"), slow("ONNX Runtime", "texts"),
        slow("OpenVINO", "keywords"), slow("OpenVINO", "texts"),
    ],
)  # fmt: skip
def test_runtimes_answer_like_predict(exports, runtime, name):
    if runtimes.missing(runtime):
        pytest.skip(f"needs {runtimes.missing(runtime)}")
    exported = exports(name)
    try:
        answer = runtimes.RUNTIMES[runtime](exported.path)(exported.requests[serving.RAW])
    except FileNotFoundError as error:
        pytest.skip(str(error))
    assert exported.predictions.keys() <= answer.keys()
    for key, value in exported.predictions.items():
        if value.dtype.kind == "f":
            np.testing.assert_allclose(answer[key], value, rtol=1e-4, atol=1e-5, err_msg=key)
        else:
            np.testing.assert_array_equal(answer[key], value, err_msg=key)


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize("name", [slow("keywords"), "texts"])
def test_a_folder_of_wav_files_is_predicted(exports, texts, runs, trained, name, tmp_path, capsys):
    expected = exports(name).predictions
    (tmp_path / "in").mkdir()
    for i, content in enumerate(exports(name).requests[serving.AUDIO_BYTES]["audio_bytes"][:3]):
        (tmp_path / "in" / f"{i}.wav").write_bytes(content)
    (tmp_path / "in" / "bad.wav").write_bytes(b"text")
    output = tmp_path / "out.jsonl"
    capsys.readouterr()
    runs[name](
        trained(name),
        "--mode=predict",
        f"--input={tmp_path / 'in'}",
        f"--predict_output={output}",
    )
    assert "bad.wav is skipped: it is not a WAV file" in capsys.readouterr().out
    lines = [json.loads(line) for line in output.read_text().splitlines()]
    assert [line["name"] for line in lines] == ["0.wav", "1.wav", "2.wav"]
    for i, line in enumerate(lines):
        if name == "keywords":
            np.testing.assert_allclose(
                line["probabilities"], expected["probabilities"][i], rtol=1e-4
            )
        else:
            assert line["text"] == AudioPipeline(texts).to_text(expected["tokens"])[i]


@pytest.mark.slow
def test_resuming_augments_alike(trained, runs, variables, tmp_path):
    for steps in (11, 30):
        runs["keywords"](tmp_path, "--mode=train", f"--train_steps={steps}", AUGMENT)
    whole, resumed = variables(trained("keywords")), variables(tmp_path)
    assert whole.keys() == resumed.keys()
    for name, value in whole.items():
        np.testing.assert_array_equal(value, resumed[name], err_msg=name)


# Emulated cores against one CPU, with recordings of different lengths.
STEPS, GLOBAL_BATCH = 10, 16
EQUALITY = [
    "--mode=train",
    f"--train_steps={STEPS}",
    f"--train_batch_size={GLOBAL_BATCH}",
    "--params=optimizer=momentum,momentum=0.7,learning_rate=0.02,dropout=0,schedule=cosine",
    AUGMENT,
]
CASES = {
    "keywords": ["--params=batch_norm_cross_replica=true"],
    "texts": ["--params=attention_dropout=0"],
}


@pytest.fixture
def excess(runs, keywords, texts, variables, tmp_path):
    """Trains on one CPU and on 8 cores; returns the difference in tolerances: `excess(name)`."""

    def measure(name):
        cpu = runs[name]
        cpu(tmp_path / "start", *EQUALITY, *CASES[name], "--train_steps=1")
        both = [*EQUALITY, *CASES[name], f"--warm_start_from={tmp_path / 'start'}"]
        cpu(tmp_path / "cpu", *both)
        data = {"keywords": keywords, "texts": texts}[name]
        flags = {"keywords": KEYWORDS, "texts": SPEECH}[name]
        sizes = ["--eval_batch_size=16", "--predict_batch_size=16", "--seed=1"]
        tpu = _runner(
            run_tpu, *flags, *sizes, EMULATED[0], "--tpu_topology=1x8", f"--dataset={data.name}",
            f"--data_dir={data.data_dir}", "--eval_split=test",
        )  # fmt: skip
        tpu(tmp_path / "tpu", *both)
        found, expected = variables(tmp_path / "tpu"), variables(tmp_path / "cpu")
        assert found["global_step"] == expected["global_step"] == STEPS
        # As tests/test_tpu_equals_cpu.py; a frame is a term of the gradients, too.
        terms = GLOBAL_BATCH * 50
        return numerics.excess(found, expected, terms=terms, depth=STEPS, magnitude=1.0)

    return measure


@pytest.fixture
def exact_spectra(monkeypatch):
    """Turns off the split of factors on a TPU, exact to 15 bits: test_log_mel.py has its error."""
    monkeypatch.setattr(log_mel, "_rounded", tf.identity)


@pytest.mark.slow
@pytest.mark.usefixtures("smooth_activations", "exact_spectra")
@pytest.mark.parametrize("name", CASES)
def test_8_cores_train_like_one_cpu(excess, name):
    assert excess(name) < 1


@pytest.mark.slow
@pytest.mark.usefixtures("smooth_activations")
def test_a_loss_normalized_per_core_differs(excess, monkeypatch):
    monkeypatch.setattr(
        device.Device, "cross_replica_sum", lambda self, tensor: tensor * self.num_replicas
    )
    assert excess("texts") > 20


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize(
    "flags",
    [
        [*KEYWORDS, "--synthetic_audio=8000,2000", "--synthetic_classes=3"],
        slow([*SPEECH, "--synthetic_audio=8000,4000,9,6", AUGMENT]),
    ],
    ids=["keywords", "texts"],
)
def test_synthetic_recordings_are_trained(tmp_path, flags):
    run = _runner(run_cpu, *BATCHES, *flags, "--dataset=synthetic")
    run(tmp_path, "--mode=train", "--train_steps=2")


def test_recordings_take_no_image_size(runs, tmp_path):
    with pytest.raises(UsageError, match="image_size needs images, but audio_folder has"):
        runs["keywords"](tmp_path, "--mode=train", "--train_steps=1", "--image_size=32")


def test_an_unknown_augmentation_is_an_error(runs, tmp_path):
    with pytest.raises(ValueError, match="'flip' is unknown; valid are speed, shift"):
        runs["keywords"](tmp_path, "--mode=train", "--train_steps=1", "--augment=flip")
