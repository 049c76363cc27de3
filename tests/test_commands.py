"""Every command in the README and in docs/ runs on small files, or is listed in NOT_RUN with why.

`make test` parses their flags; `make test-all` runs them.
"""

import gzip
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from engine.checkpoints import writer
from engine.cli import flags
from input_fns.convert import flags as convert_flags
from models import registry
from models.layers import traced
from models.text import bert, encoders
from tests import audio_data, formats, shapes_data
from tests.input_fns.text.sources import text_data
from tools import digit_strings, keras_network, keras_weights

ROOT = pathlib.Path(__file__).parents[1]
PROGRAM_FLAGS = {
    "prepare_data.py": convert_flags.FLAGS,
    "run_cpu.py": flags.FLAGS,
    "run_tpu.py": flags.FLAGS,
}
# Prefixes of commands that are not run, and why.
NOT_RUN = {
    "make": "CI is `make test`; the others take minutes or a machine that may be changed",
    "tools/setup.sh": "`make test` runs it",
    "tools/image/base.sh": "needs root, debootstrap and a container engine",
    "tensorboard": "serves until it is stopped",
    "saved_model_cli": "tests/test_run_cpu.py runs the line that an export prints",
    "gcloud": "needs Google Cloud",
    "git": "needs the place where the package is published",
    "docker": "needs Docker; written from its public documentation",
    "curl": "needs the server that docker starts",
    "python prepare_data.py --dataset=SOURCE": "a form, not a command",
    "python run_cpu.py --strategy=mirrored --flagfile=...": "a form; tests/test_strategy.py",
    "python -m tpu": "tests/tpu/programs",
    "python run_tpu.py --tpu=pjrt": "needs an interpreter with JAX; tests/tpu/pjrt",
    "python run_tpu.py --tpu=my-tpu": "tests/tpu/connect/test_named_tpu.py",
    "tpu-estimator": "tests/test_packaging.py",
    "python -m tools.tpu_vm": "tests/tpu/vm",
    "python -m tools.local_cluster": "tests/test_cluster.py",
    "python -m tools.data_service": "tests/test_data_service.py",
    "python run_tpu.py --data_service": "tests/test_data_service.py",
    "python prepare_data.py --dataset=image_masks": "needs CamVid; tests/input_fns",
    "python run_cpu.py --flagfile=configs/camvid_unet.cfg": "tests/test_segmentation.py",
    "python run_cpu.py --flagfile=runs/camvid/flags.cfg": "tests/test_segmentation.py",
    "python run_cpu.py --flagfile=configs/pennfudan": "needs PennFudan; test_configs.py",
    "python run_cpu.py --model=gpt --dataset=tinyshakespeare": "hours; test_language_model.py",
    "python prepare_data.py --dataset=ratings": "needs MovieLens-100k; tests/input_fns",
    "python run_cpu.py --flagfile=configs/movielens_neumf.cfg": "tests/test_recommendation.py",
    "python run_cpu.py --flagfile=runs/movielens/flags.cfg": "tests/test_recommendation.py",
    "python run_tpu.py --flagfile=configs/movielens_neumf.cfg": "tests/test_tpu_embeddings.py",
    "python -m examples.rl.train": "tests/examples/rl",
    "python run_tpu.py --mode=check --tpu_topology=v3-8 --flagfile=configs/librispeech": (
        "minutes of building Conformer-small; tests/test_configs.py"
    ),
    "python prepare_data.py --dataset=imagenet": "needs its archives; tests/input_fns/image",
    "python prepare_data.py --dataset=coco --source=DOWNLOADS": "needs its archives",
    "python prepare_data.py --dataset=tfds:": "needs tensorflow-datasets; test_tfds.py",
    "python prepare_data.py --dataset=librispeech": "needs its archives; tests/input_fns/audio",
    "python prepare_data.py --dataset=criteo": "needs Criteo's files; tests/test_clicks.py",
    "python prepare_data.py --mode=inspect --data_dir=data/criteo": "needs Criteo's files",
    "python run_cpu.py --flagfile=runs/criteo/flags.cfg": "needs Criteo's files",
    "python run_cpu.py --flagfile=configs/criteo": "needs Criteo's files; tests/test_clicks.py",
    "python run_tpu.py --flagfile=configs/coco_retinanet": (
        "minutes of building RetinaNet-R50; tests/test_configs.py"
    ),
    "python -m wikiextractor": "needs WikiExtractor and its dump",
    "python -m tools.bert_checkpoint": "tests/tools/test_bert_checkpoint.py",
    "python -m tools.gpt_checkpoint": "tests/tools/test_gpt_checkpoint.py",
    "python prepare_data.py --dataset=lm_text --source=texts": "needs the vocabulary of GPT-2",
    "python run_cpu.py --model=gpt --params=size=small": "124 million weights; tests/models/text",
    "python -m benchmarks.gan_quality": "needs trained generators; tests/test_gan.py",
    "python -m tools.job_manifest": "tests/tools/test_job_manifest.py",
    "python -m tools.local_pods": "tests/tools/test_local_pods.py",
    "python -m tools.serving_equality": "tests/serving/test_runtimes.py",
    "python -m tf2onnx.convert": "tests/serving/test_recipes.py",
}
# Of the commands whose check finds an error, which their page shows.
REFUSED = "--flagfile=configs/criteo_dlrm_v3-32.cfg"
# Placeholders in the pages and their values here.
PLACEHOLDERS = {
    "$TPU": "emulator",
    "--tpu=local": "--tpu=emulator",
    "gs://my-bucket": "bucket",
    "gs://BUCKET": "bucket",
    "runs/NAME": "runs/digits",
    "...": "",
}
DIGITS = ["--flagfile=configs/digits.cfg", "--data_dir=data/digits", "--model_dir=runs/digits"]
# From `make run` and docs/data.md.
BEFORE = [
    ["prepare_data.py", "--dataset=digits", "--data_dir=data/digits"],
    ["prepare_data.py", "--dataset=cifar10", "--source=DOWNLOADS", "--data_dir=data/cifar10"],
    ["run_cpu.py", *DIGITS],
]
# Appended to each command, so that it ends soon: later flags win.
SHORT = ["--train_steps=2", "--save_checkpoints_steps=2", "--noexport_check"]
SHORT_FLAGS = {
    "run_cpu.py": SHORT,
    "run_tpu.py": [*SHORT, "--iterations_per_loop=2", "--check_compiler=off"],
}


def commands(page):
    """Yields the arguments, without `python`, of each command of a page that is run."""
    programs = r"(python|make|git|gcloud|docker|curl|tensorboard|tools/|saved_model_cli)\b"
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
    for block in (content for language, content in blocks if not language):
        for line in block.replace("\\\n", " ").splitlines():
            line = " ".join(line.removeprefix("$ ").split())
            if re.match(programs, line) and not line.startswith(tuple(NOT_RUN)):
                for word, meaning in PLACEHOLDERS.items():
                    line = line.replace(word, meaning)
                python, *words = shlex.split(line, comments=True)
                assert python == "python"
                yield [*words, *abbreviated_flags(words)]


def abbreviated_flags(words):
    """Returns the flags that a page abbreviates with `...`: --data_dir and --model_dir."""
    text = " ".join(words)
    if not words[0].startswith("run_") or re.search(r"--data_dir|flags\.cfg|synthetic", text):
        return []
    recipe = re.search(r"--flagfile=(configs/\S+)", text)
    if recipe is None:
        return DIGITS
    (dataset,) = re.findall(r"(?m)^--dataset=(.*)", (ROOT / recipe[1]).read_text())
    return [f"--data_dir=data/{dataset}", f"--model_dir=runs/{dataset}"]


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMANDS = {page.name: words for page in PAGES if (words := list(commands(page)))}


def test_the_commands_that_are_not_run_exist():
    text = "\n".join(" ".join(page.read_text().replace("\\\n", " ").split()) for page in PAGES)
    assert [start for start in NOT_RUN if start not in text] == []


@pytest.mark.parametrize("page", COMMANDS)
def test_commands_have_valid_flags(page, monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    # Stands for the flags.cfg that an earlier command writes.
    (tmp_path / "flags.cfg").write_text("\n".join(DIGITS))
    for program, *arguments in COMMANDS[page]:
        if program in PROGRAM_FLAGS:
            values = PROGRAM_FLAGS[program]
            values.unparse_flags()
            written = f"--flagfile={tmp_path}/flags.cfg"
            arguments = [re.sub("^--flagfile=(runs|bucket)/.*", written, a) for a in arguments]
            values([program, *arguments, "--data_dir=data"])


def write_fashion_mnist(folder, random):
    folder.mkdir()
    for split in ("train", "t10k"):
        images, labels = random.integers(0, 256, [20, 28, 28]), np.arange(20) % 10
        for kind, array in (("images-idx3", images), ("labels-idx1", labels)):
            packed = gzip.compress(formats.idx(array))
            (folder / f"{split}-{kind}-ubyte.gz").write_bytes(packed)


def write_cifar10(folder, random):
    folder.mkdir()
    for name in formats.CIFAR10_BATCHES:
        pixels, labels = random.integers(0, 256, [7, 3072]), np.arange(7)
        (folder / f"{name}.bin").write_bytes(formats.cifar_binary(pixels, labels))


LEAVES = ("healthy", "black_rot", "rust", "scab")


def write_photos(folder, random):
    folder.mkdir()
    for i in range(24):
        pixels = random.integers(0, 256, [40, 40, 3], dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{i}.jpg")


def write_labels(table):
    lines = [f"{i}.jpg,{LEAVES[i % 4]},{i // 4}" for i in range(24)]
    table.write_text("\n".join(["image,label,leaf_id", *lines]))


def write_targets(folder):
    """Writes the tables of labels and of numbers that docs/targets.md names."""
    kinds = ("rust", "scab", "rust scab", "")
    lines = [f"{i}.jpg,{kinds[i % 4]}" for i in range(24)]
    (folder / "labels_of_leaves.csv").write_text("\n".join(["image,labels", *lines]))
    lines = [f"{i}.jpg,{i + 3},{i * 0.5}" for i in range(24)]
    (folder / "sizes.csv").write_text("\n".join(["image,width,height", *lines]))
    (folder / "comments").mkdir()
    lines = [f"the film is {i},{i % 2},{i // 2 % 2}" for i in range(40)]
    (folder / "comments" / "train.csv").write_text("\n".join(["text,toxic,insult", *lines]))
    (folder / "ratings").mkdir()
    lines = [f"the film is {i},{i / 2},{-i}" for i in range(40)]
    (folder / "ratings" / "train.csv").write_text("\n".join(["text,joy,anger", *lines]))


def write_one_hot_labels(table):
    lines = ["image,split_by_shot," + ",".join(LEAVES)]
    for i in range(24):
        split = "test" if i > 19 else "validation" if i > 15 else "train"
        lines.append(f"{i}.jpg,{split}," + ",".join(str(int(i % 4 == kind)) for kind in range(4)))
    table.write_text("\n".join(lines))


def write_released_bert(folder, size="tiny", name="bert_model.ckpt"):
    """Writes a checkpoint with the vocabulary beside it."""
    folder.mkdir(exist_ok=True)
    text_data.vocab_file(folder)
    params = {
        **registry.find("bert_classifier").default_params(),
        **encoders.SIZES[size],
        "vocab_size": text_data.TOKENIZER.vocab_size,
    }
    with tf.Graph().as_default():
        features = {name: tf.zeros([1, 2], tf.int32) for name in bert.FEATURES}
        encoders.pool(encoders.encode(features, params, False), params)
        shapes = {v.op.name: v.shape.as_list() for v in tf.compat.v1.global_variables()}
    writer.write(f"{folder}/{name}", {n: np.zeros(s, "f4") for n, s in shapes.items()})


def write_sst2(folder):
    folder.mkdir()
    for split in ("train", "dev"):
        rows = "".join(f"a {word} film\t{int(word == 'fine')}\n" for word in ("fine", "bad") * 20)
        (folder / f"{split}.tsv").write_text(f"sentence\tlabel\n{rows}")


def write_squad2(folder):
    folder.mkdir()
    for split in ("train", "dev"):
        questions = [
            {
                "id": f"{split}-{i}",
                "question": "is the film good?",
                "answers": [{"text": "good", "answer_start": 12}] if i % 2 else [],
                "is_impossible": not i % 2,
            }
            for i in range(8)
        ]
        paragraph = {"context": "the film is good.", "qas": questions}
        content = {"version": "v2.0", "data": [{"title": "films", "paragraphs": [paragraph]}]}
        (folder / f"{split}-v2.0.json").write_text(json.dumps(content))


def write_texts(folder):
    """Writes the texts for BERT that docs/data_text.md and docs/text.md name."""
    for name in ("GLUE/SST-2", "reviews", "wiki"):
        (folder / name).mkdir(parents=True)
    sentences = [f"the film is {word} {i}" for i, word in enumerate(["good", "bad"] * 20)]
    for split in ("train", "dev"):
        rows = [f"{sentence}\t{i % 2}" for i, sentence in enumerate(sentences)]
        table = "\n".join(["sentence\tlabel", *rows])
        (folder / "GLUE" / "SST-2" / f"{split}.tsv").write_text(table)
    rows = [f"film {i},{sentence},{i % 5}" for i, sentence in enumerate(sentences)]
    (folder / "reviews" / "train.csv").write_text("\n".join(["title,review,stars", *rows]))
    (folder / "sentences.txt").write_text("\n".join(sentences))
    (folder / "pairs").mkdir()
    rows = [f"{i % 6}\t{a}\t{b}" for i, (a, b) in enumerate(zip(sentences, sentences[::-1]))]
    for split in ("train", "dev"):
        table = "\n".join(["score\tsentence1\tsentence2", *rows])
        (folder / "pairs" / f"{split}.tsv").write_text(table)
    (folder / "new.csv").write_text("\n".join(["review", *sentences[:3]]))
    (folder / "wiki" / "a.txt").write_text("\n\n".join([*sentences, "\n".join(sentences)]))


def write_annotated_images(folder):
    """Writes the images with boxes and masks that docs/data_boxes.md names."""
    shapes_data.write_coco(folder / "shapes_coco", {"train": 6, "val": 3})
    shapes_data.write_voc(folder / "VOC2007", {"train": 6, "val": 3})
    shapes_data.write_voc_objects(folder / "VOC2012", {"train": 6})
    shapes_data.write_yolo(folder / "roboflow_export", {"train": 6, "val": 3})
    shapes_data.write_masks(folder / "drawn", {"train": 6, "val": 3})
    for split in ("train", "val"):
        for kind, suffix in (("images", ""), ("masks", "annot")):
            place = folder / "CamVid" / f"{split}{suffix}"
            place.parent.mkdir(exist_ok=True)
            (folder / "drawn" / kind / split).rename(place)


def write_label_studio(folder):
    """Writes an export of Label Studio: paths of its server, a missing image."""
    shapes_data.write_coco(folder, {"train": 24})
    (folder / "train").rename(folder / "images")
    path = folder / "annotations" / "instances_train.json"
    content = json.loads(path.read_text())
    for number, image in enumerate(content["images"]):
        prefix = "..\\..\\label-studio\\media\\upload\\1\\" if number % 2 else "images/"
        image["file_name"] = prefix + image["file_name"]
    (folder / "result.json").write_text(json.dumps(content))
    path.unlink()
    path.parent.rmdir()
    min((folder / "images").iterdir()).unlink()


@pytest.fixture
def _files(tmp_path, monkeypatch, pair_files):
    """Changes to a folder that holds the files that the commands of the pages read."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(1)
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    write_fashion_mnist(tmp_path / "IDX_FOLDER", random)
    write_cifar10(tmp_path / "DOWNLOADS", random)
    for folder in ("images", "IMAGES"):
        write_photos(tmp_path / folder, random)
    write_labels(tmp_path / "train.csv")
    write_one_hot_labels(tmp_path / "labels.csv")
    write_targets(tmp_path)
    for folder in ("texts", "raw", "wmt14"):
        (tmp_path / folder).symlink_to(pair_files)
    for folder in ("uncased_L-2_H-128_A-2", "uncased"):
        write_released_bert(tmp_path / folder)
    write_released_bert(tmp_path / "BERT", "small")
    write_released_bert(tmp_path / "electra_small", "electra_small", "electra_small")
    write_squad2(tmp_path / "squad2")
    write_sst2(tmp_path / "SST-2")
    write_texts(tmp_path)
    write_annotated_images(tmp_path)
    write_label_studio(tmp_path / "export")
    audio_data.write_fsdd(tmp_path / "recordings")
    tables = {"train": 40, "dev": 4, "test": 4, "validated": 2}
    audio_data.write_common_voice(tmp_path / "cv-corpus-17.0" / "cy", tables)
    columns, row = "filename,fold,target,category,src_file", "{i}.wav,{i},0,{label},{i}"
    audio_data.write_labelled_table(tmp_path / "ESC-50-master", "meta/esc50.csv", columns, row)
    columns, row = "slice_file_name,fold,class", "{i}.wav,{i},{label}"
    table = "metadata/UrbanSound8K.csv"
    audio_data.write_labelled_table(tmp_path / "UrbanSound8K", table, columns, row, 22)
    shapes_data.write_coco(tmp_path / "shapes", {"train": 16, "val": 20})
    (tmp_path / "new.en").symlink_to(pair_files / "test.en")
    (tmp_path / "input.txt").write_text(
        "To be, or not to be: that is the question, 0123456789.\n" * 90
    )
    (tmp_path / "prompts.txt").write_text("To be\nthat is\n")
    (tmp_path / "wanted.jsonl").write_text('{"seed": [7, 8], "steps": 3, "class": 2}\n')
    with tf.Graph().as_default(), tf.compat.v1.Session():
        network = tf.keras.applications.MobileNet(weights=None, include_top=False, alpha=0.75)
        network.save_weights("mobilenet_7_5_224_tf_no_top.h5")
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/keras.md").read_text(), re.DOTALL)
    (tmp_path / "my_networks.py").write_text(code)
    with traced.tensorflow_2():
        layers = [tf.keras.layers.Conv2D(3, 3, input_shape=(32, 32, 3))]
        tf.keras.Sequential(layers).save(tmp_path / "FOLDER", include_optimizer=False)


@pytest.fixture
def run(prepare, run_with, run_tpu_with):
    """Runs a shortened command."""

    def run_command(program, *arguments):
        if program == "-m" and arguments[0] == "tools.digit_strings":
            digit_strings.main(list(arguments[1:]))
        elif program == "-m":
            tools = {"tools.keras_weights": keras_weights, "tools.keras_network": keras_network}
            tools[arguments[0]].main(*arguments[1:])
        elif program == "prepare_data.py":
            is_text = "--dataset=parallel_text" in arguments
            prepare(*arguments, *(["--vocab_size=512"] if is_text else []))
        else:
            wrapper = {"run_cpu.py": run_with, "run_tpu.py": run_tpu_with}[program]
            wrapper(*arguments, *SHORT_FLAGS[program])

    return run_command


def _order(words):
    """Sorts tools that write raw data before the preparation of data, and that before others."""
    return 0 if "tools.digit_strings" in words else 1 + ("prepare" not in words[0])


@pytest.mark.slow
@pytest.mark.usefixtures("_files")
# tests/test_docs.py runs own_model.md and own_data.md, whose pages contain the code.
@pytest.mark.parametrize("page", [page for page in COMMANDS if not page.startswith("own_")])
def test_commands_run(page, run):
    made = [words[-1] for words in COMMANDS[page] if words[0] == "prepare_data.py"]
    before = [words for words in BEFORE if words[-1] not in made]
    # A page may train before it prepares the data.
    for words in sorted([*before, *COMMANDS[page]], key=_order):
        if "--mode=check" in words:
            with pytest.raises(SystemExit) as end:
                run(*words)
            assert end.value.code == (1 if REFUSED in words else 0)
        else:
            run(*words)


@pytest.mark.slow  # two minutes: the newcomer's path
def test_a_newcomer_reaches_ap50_of_0_9(prepare, run_with, tmp_path, result, monkeypatch):
    shapes_data.write_coco(tmp_path / "shapes", {"train": 400, "val": 60})
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    monkeypatch.chdir(tmp_path)
    for program, *arguments in COMMANDS["detection.md"]:
        if "parts" in " ".join(arguments):
            continue  # of the export of Label Studio
        prepare(*arguments) if program == "prepare_data.py" else run_with(*arguments)
    assert result("runs/shapes", 200)["eval"]["AP50"] >= 0.9
    folders = (pathlib.Path("runs/shapes/eval"), pathlib.Path("detections"))
    evaluated, predicted = ((folder / "detections.json").read_text() for folder in folders)
    assert evaluated == predicted
    assert len(pathlib.Path("new.jsonl").read_text().splitlines()) == 60
    (path,) = pathlib.Path("runs/shapes/export").iterdir()
    image_id, drawing = next(iter(shapes_data.drawings("val", 1).items()))
    content = pathlib.Path("shapes", "val", shapes_data.file_name(image_id)).read_bytes()
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        model = tf.compat.v1.saved_model.load(session, ["serve"], str(path))
        signature = model.signature_def["image_bytes"]
        served = session.run(
            {name: tensor.name for name, tensor in signature.outputs.items()},
            {signature.inputs["image_bytes"].name: [content]},
        )
    shown = served["scores"][0] >= 0.5
    expected = [shapes_data.CLASS_NAMES[number].encode() for number in drawing.classes]
    assert sorted(served["class_names"][0][shown].tolist()) == sorted(expected)


PYTHON = """#!/bin/sh
# A Python whose environments have a pip that writes to a log and waits for a file.
case "$*" in
  "-m venv "*) mkdir -p .venv/bin; cp "$0" .venv/bin/python; echo venv >> log ;;
  "-m pip --version") exit 0 ;;
  "-m pip "*) echo begin >> log; until [ -e waits ]; do sleep 0.05; done; echo end >> log ;;
  *) exec %s "$@" ;;
esac
"""


def test_two_setups_at_once_install_one_after_the_other(tmp_path):
    (tmp_path / "tools").mkdir()
    (tmp_path / "requirements").mkdir()
    shutil.copy("tools/setup.sh", tmp_path / "tools")
    (tmp_path / "requirements" / "tensorflow.txt").write_text("")
    python = tmp_path / "python"
    python.write_text(PYTHON % sys.executable)
    python.chmod(0o755)
    command = ["tools/setup.sh", "tensorflow"]
    environment = {**os.environ, "PYTHON": str(python)}
    log = tmp_path / "log"
    with subprocess.Popen(command, cwd=tmp_path, env=environment) as first:
        while first.poll() is None and not (log.exists() and "begin" in log.read_text()):
            time.sleep(0.05)
        pipe = {"stdout": subprocess.PIPE, "text": True}
        with subprocess.Popen(command, cwd=tmp_path, env=environment, **pipe) as second:
            line = second.stdout.readline()
            (tmp_path / "waits").touch()
    assert (first.returncode, second.returncode) == (0, 0)
    assert line == "setup: waiting for another setup of this folder\n"
    assert log.read_text().split() == ["venv", "begin", "end"]  # the second has nothing to do


@pytest.mark.slow
def test_a_crashed_worker_ends_make_test_with_an_error(tmp_path):
    makefile = (ROOT / "Makefile").read_text()
    [line] = re.findall(r"^PYTEST := \$\(IN_VENV\) (.*)$", makefile, re.MULTILINE)
    passes = "import pytest\n@pytest.mark.parametrize('i', range(6))\ndef test_a(i):\n    pass\n"
    for name in "abdefghi":
        (tmp_path / f"test_{name}.py").write_text(passes)
    (tmp_path / "test_c.py").write_text(f"{passes}    import os; i == 2 and os.abort()\n")
    done = subprocess.run(
        [sys.executable, *line.split(), "-p", "no:cacheprovider"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,  # without the option it waits forever
    )
    assert done.returncode == 1
    assert "crashed while running 'test_c.py::test_a[2]'" in done.stdout
