"""Invalid flags and files give one error line and exit status 2; nothing is written."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest
from PIL import Image

import run_cpu
import run_tpu
from input_fns import DataError
from input_fns.convert import writer
from input_fns.core import memory
from tests import ratings_data, shapes_data


@pytest.fixture
def error_line(data_dir, tmp_path, capsys, exit_status):
    """Runs run_cpu.py with invalid flags; returns the one line that it prints."""

    def run_invalid(*arguments):
        defaults = [
            "--mode=train",
            "--model=mlp",
            "--dataset=stripes",
            f"--data_dir={data_dir}",
            f"--model_dir={tmp_path}/model",
            "--train_steps=3",
            "--train_batch_size=13",
        ]
        before = tree(tmp_path)
        capsys.readouterr()
        assert exit_status(run_cpu, *defaults, *arguments) == 2
        assert tree(tmp_path) == before
        (line,) = capsys.readouterr().err.splitlines()
        return line

    return run_invalid


def tree(path):
    """Every file and folder under a path."""
    return sorted(str(found) for found in pathlib.Path(path).rglob("*"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--mode=trian"], "'trian' is unknown. Did you mean 'train'?"),
        (["--mode="], "--mode=: '' is unknown. Valid: check, continuous_eval, eval"),
        (["--model=convnets"], "'convnets' is unknown. Did you mean 'convnet'?"),
        (["--model=no_such_module:MODEL"], "no module 'no_such_module'"),
        (
            ["--model=models.vision.mlp:MODLE"],
            "models.vision.mlp has no models.model.Model named 'MODLE'",
        ),
        (["--train_step=3"], "Unknown command line flag 'train_step'. Did you mean: train_steps"),
        (["--learning_rate=0.1"], "write --params=learning_rate=0.1"),
        (["--init_checkpoint=bert"], "flag 'init_checkpoint'. Here it is --warm_start_from"),
        (["train"], "unexpected argument 'train'"),
        (["--train_steps=0"], "0 is not a positive integer"),
        (["--train_epochs=0"], "--train_epochs=0.0 must be above 0"),
        (["--train_epochs=nan"], "it is not a finite decimal number"),
        (["--train_epochs=1e300"], "is more than 2147483647 training steps"),
        (["--train_steps=9223372036854775808"], "it is larger than 2147483647"),
        (["--keep_checkpoint_max=²"], "'²' is not a decimal integer"),
        (["--center_crop=nan"], "it is not a finite decimal number"),
        (["--image_size=99999999x99999999"], "each of at most 7 digits"),
        (["--synthetic_text=128"], "must be TOKENSxVOCABULARY, such as 128x32768"),
        (["--synthetic_text=8x9999999"], "it must be at most 65536x1048576"),
        (
            ["--synthetic_text=8x99", "--synthetic_task=detection"],
            "--synthetic_task=detection is of images. Use --image_size",
        ),
        (["--augment=mosaic:1"], "--augment: box_crop, scale_jitter, mosaic need boxes or masks"),
        (["--model_dir=~unknown_user/x"], "the home folder of '~' is unknown"),
        (["--best_metric= accuracy"], "it begins or ends with a space"),
        (["--mode=eval", "--checkpoint="], "flag --checkpoint=: it is empty"),
        (["--mode=eval", "--checkpoint=average:²"], "must be average:N, such as average:5"),
        (["--model=.:MODEL"], "--model=.:MODEL must be package.module:ATTRIBUTE"),
        (["--dataset=os:getcwd"], "must be a function that takes data_dir"),
        (["--params=hidden_units=[²]"], "is not a list of int. Write hidden_units=[1,2]"),
        (["--params=warmup_steps=1_000"], "warmup_steps=1_000 is not a valid int"),
        (["--params=learning_rate=1e400"], "learning_rate=1e400 is not a valid float"),
        (["--train_batch_size=-1"], "-1 is not a positive integer"),
        (["--eval_batch_size=many"], "'many' is not a decimal integer"),
        (["--model_dir="], "flag --model_dir=: it is empty"),
        (["--model_dir=runs/[1]"], "'[' is a glob pattern to TensorFlow"),
        (["--export_dir=served/*"], "'*' is a glob pattern to TensorFlow"),
        (["--warm_start_from=runs\\1"], "'\\' is a glob pattern to TensorFlow"),
        (
            ["--mode=eval", "--checkpoint=runs/?/model.ckpt-3"],
            "'?' is a glob pattern",
        ),
        (["--mode=export"], "--mode=export needs --export_dir"),
        (["--early_stop_evals=3"], "--early_stop_evals needs --best_metric"),
        (["--eval_split=a", "--eval_splits=a,b"], "--eval_split and --eval_splits are both given"),
        (["--eval_splits=a,,b"], "it must be different names of splits, NAME,NAME,..."),
        (
            ["--eval_every_steps=3", "--eval_every_minutes=5"],
            "--eval_every_steps and --eval_every_minutes are both given. Use one of them",
        ),
        (["--eval_every_epochs=0"], "--eval_every_epochs=0 must be above 0"),
        (
            ["--mode=train_and_eval", "--max_eval_examples=9", "--best_metric=accuracy"],
            "--max_eval_examples=9 cannot select the best checkpoint",
        ),
        (["--best_metric=-fid:max"], "has a minus and :max. Write fid:min or fid:max"),
        (["--warm_start_include=("], "'(' is not a regular expression"),
        (["--mode=predict", "--predict_output=p.csv"], "must end in .jsonl or .npz"),
        (["--flagfile=/no/such/file.cfg"], "/no/such/file.cfg"),
        (["--params=hiden_units=3"], "'hiden_units' is unknown. Did you mean 'hidden_units'?"),
        (["--params=hidden_units"], "'hidden_units' is not of the form key=value"),
        (["--params=hidden_units=3;4"], "is not a list of int. Write hidden_units=[1,2]"),
        (["--params=hidden_units=[3,4"], "'[' without ']' in 'hidden_units=[3,4'"),
        (["--params=hidden_units=[0]"], "hidden_units=[0] must be above 0"),
        (["--params=dropout=a lot"], "dropout=a lot is not a valid float"),
        (["--params=dropout=1"], "dropout=1.0 must be in [0, 1)"),
        (["--params=dropout=nan"], "dropout=nan is not a valid float"),
        (["--params=pixel_scale=0"], "pixel_scale=0.0 must be above 0"),
        (["--params=label_smoothing=1.5"], "label_smoothing=1.5 must be in [0, 1)"),
        (["--oversample=often"], "'often' must be one of balanced, sqrt, or in [0, 1)"),
        (["--params=class_weights=[1,2]"], "class_weights=[1,2] has 2 weights for 3 classes"),
        (["--params=nesterov=yes"], "nesterov=yes is not a valid bool"),
        (["--params=warmup_steps=2.5"], "warmup_steps=2.5 is not a valid int"),
        (["--params=optimizer=adamm"], "optimizer=adamm is unknown. Did you mean 'adam"),
        (["--params=schedule=cosin"], "schedule=cosin is unknown. Did you mean 'cosine'?"),
        (["--params=schedule=step"], "schedule=step and decay_boundaries need each other"),
        (["--params=learning_rate=-1"], "learning_rate=-1.0 must be above 0"),
        (["--params=num_classes=7"], "num_classes=7, but the data set has 3"),
        (["--model=convnet", "--params=layers=[conf:3:3,flatten]"], "'conf:3:3' is not a layer"),
        (["--model=convnet", "--params=layers=[dense:3]"], "'dense:3' needs 'flatten'"),
        (["--train_split=training"], "has no split 'training'; it has: train, test"),
        (["--mode=eval", "--eval_split=val"], "has no split 'val'; it has: train, test"),
        (["--data_dir=/no/such/dir"], "--data_dir=/no/such/dir does not exist"),
        (["--dataset=strips"], "holds the data set 'stripes', not --dataset=strips"),
        (["--mode=eval"], "no checkpoint in"),
        (["--mode=eval", "--checkpoint=best"], "train with --best_metric to keep one"),
        (["--mode=predict", "--checkpoint=/no/such.ckpt"], "no checkpoint in /no/such.ckpt"),
        (["--warm_start_from=/no/such/dir"], "no checkpoint in /no/such/dir"),
        (["--mode=eval", "--profile=2"], "--profile is not valid with --mode=eval"),
        (["--mode=eval", "--predict_output=x.jsonl"], "Use --mode=predict"),
        (["--checkpoint=best"], "--checkpoint is not valid with --mode=train,"),
        (["--cache=Memory"], "not a local folder (a path with a slash). Did you mean 'memory'?"),
        (["--cache=gs://bucket/x"], "Valid: auto, memory, none."),
        (["--dataset=no_such_module:read"], "--dataset=no_such_module:read: no module"),
        (["--dataset=models.vision.mlp:MODEL"], "models.vision.mlp:MODEL is not a function"),
        (["--dataset=builtins:str"], "returns str, which lacks assets"),
        (
            ["--dataset=builtins:str", "--augment=flip"],
            "--augment is not valid with a custom --dataset",
        ),
        (["--model=:MODEL"], "--model=:MODEL must be package.module:ATTRIBUTE"),
        (["--model=convnet", "--params=layers=[pool:9,flatten]"], "'pool:9' gets images of"),
        (["--mode=predict", "--max_restarts=2"], "Use --mode=train or --mode=train_and_eval"),
        (["--strategy=mirorred"], "none|mirrored|multi_worker_mirrored"),
        (["--replicas=2"], "--replicas needs --strategy=mirrored"),
        (["--strategy=mirrored", "--replicas=2"], "13 is not divisible by 2 replicas"),
        (
            ["--params=lazy_embeddings=true,weight_decay=0.1"],
            "lazy_embeddings: weight_decay=0.1 updates every row",
        ),
        (
            ["--params=lazy_embeddings=true,optimizer=adamw"],
            "lazy_embeddings: optimizer=adamw updates every row",
        ),
        (["--accumulate_steps=2"], "13 is not divisible by --accumulate_steps=2. Use"),
        (
            ["--best_metric=acuracy"],
            "--best_metric=acuracy is unknown. Did you mean 'accuracy'? If not, write "
            "--best_metric=acuracy:max if higher is better, acuracy:min if lower is",
        ),
        (["--max_eval_steps=10"], "Leave it out: an evaluation reads every example"),
        (["--params=warmup_steps=9"], "warmup_steps=9 is more than the 3 steps of this training"),
        (["--params=nesterov=true"], "nesterov=True has no effect with optimizer=adam"),
        (["--export_top_k=2"], "--export_top_k has no effect: --mode=train does not export"),
        (["--synthetic_classes=7"], "--synthetic_classes has no effect with --dataset=stripes"),
        (["--params=hidden_units=[],dropout=0.5"], "dropout=0.5 has no effect with hidden_units="),
        (
            ["--best_metric=f2"],
            "Write --best_metric=f2:max if higher is better, f2:min if lower is",
        ),
        (["--best_metric=-f2"], "--best_metric=f2 is unknown. Valid: accuracy, average_loss"),
    ],
)
def test_an_invalid_flag_and_its_message(error_line, arguments, message):
    assert message in error_line(*arguments)


def edit_json(name, change):
    """Returns a function that changes the content of the JSON of drawn shapes."""

    def edit(folder):
        path = folder / "annotations" / f"instances_{name}.json"
        content = json.loads(path.read_text())
        change(content)
        path.write_text(json.dumps(content))

    return edit


@pytest.mark.parametrize(
    ("dataset", "message", "edit"),
    [
        (
            "coco",
            "SOURCE/annotations/instances_train.json: images: the id 5 is repeated",
            edit_json("train", lambda c: c["images"].append({**c["images"][0], "file_name": "x"})),
        ),
        (
            "coco",
            "left out: 4 annotations of a category that is not in the JSON",
            edit_json("train", lambda c: [a.update(category_id=9) for a in c["annotations"]]),
        ),
        (
            "coco",
            "'0000005.png' and '../a/0000005.png' are both of SOURCE/train/0000005.png",
            edit_json(
                "train",
                lambda c: c["images"][1].update(file_name=f"../a/{c['images'][0]['file_name']}"),
            ),
        ),
        (
            "coco",
            "left out: 4 with a bbox that is not four numbers",
            edit_json("train", lambda c: [a.update(bbox=[1, 2, 3]) for a in c["annotations"]]),
        ),
        (
            "coco",
            "100% of the boxes of 'train' are inside the first pixel of their image",
            edit_json("train", lambda c: [a.update(bbox=[0, 0, 0.5, 1]) for a in c["annotations"]]),
        ),
        (
            "coco",
            "all 4 boxes of 'train' are a crowd (iscrowd=1) or difficult",
            edit_json("train", lambda c: [a.update(iscrowd=1) for a in c["annotations"]]),
        ),
        (
            "coco",
            "it is not the JSON of COCO, an object with images, annotations, categories",
            edit_json("train", lambda c: [c.clear(), c.update(shapes=[])]),
        ),
        (
            "coco",
            "category 3 is 'ring', and 'circle' in SOURCE/annotations/instances_train.json",
            edit_json("val", lambda c: c["categories"][0].update(name="ring")),
        ),
        (
            "coco",
            "no image of the split 'train' of SOURCE has a valid box; left out: nothing",
            edit_json("train", lambda c: c.update(annotations=[])),
        ),
        (
            "coco",
            "in none of SOURCE/annotations, SOURCE/images, SOURCE. Name the folder with",
            lambda folder: shutil.rmtree(folder / "train"),
        ),
        (
            "voc",
            "SOURCE/Annotations/0000005.xml, line 1: a DOCTYPE, which VOC does not have",
            lambda folder: [
                path.write_text('<!DOCTYPE a [<!ENTITY b "c">]>\n<annotation>&b;</annotation>')
                for path in (folder / "Annotations").iterdir()
            ],
        ),
        (
            "voc",
            "SOURCE/Annotations has no XML of '../x', which ImageSets lists",
            lambda folder: (folder / "ImageSets" / "Main" / "train.txt").write_text("../x\n"),
        ),
        (
            "image_masks",
            "need --class_names or SOURCE/classes.txt; 3 of them have the values 0, 1, 2, 255",
            lambda folder: (folder / "classes.txt").unlink(),
        ),
        (
            "image_masks",
            "Use --image_suffix and --mask_suffix for the ends of their names that differ",
            lambda folder: [
                path.rename(path.with_name(f"{path.stem}_mask.png"))
                for path in (folder / "masks" / "train").iterdir()
            ],
        ),
        (
            "image_masks",
            "(2 files, the first SOURCE/masks/train/0000005.jpg), which changes values",
            lambda folder: [
                path.rename(path.with_suffix(".jpg"))
                for path in (folder / "masks" / "train").iterdir()
            ],
        ),
        (
            "image_masks",
            "Name the color of each class with --mask_values=#ff0000,#d2b48c,#000000,#ffffff,",
            lambda folder: [
                Image.new("RGB", (16, 16), color).save(path)
                for path, color in zip(
                    sorted((folder / "masks" / "train").iterdir()), ("red", "tan")
                )
            ],
        ),
        (
            "image_masks",
            "masks have 2 to 255 classes, and 1 are named",
            lambda folder: (folder / "classes.txt").write_text("ground\n"),
        ),
    ],
)
def test_invalid_annotations_and_their_message(prepare, tmp_path, dataset, message, edit):
    write = {
        "coco": shapes_data.write_coco,
        "voc": shapes_data.write_voc,
        "image_masks": shapes_data.write_masks,
    }[dataset]
    folder = tmp_path / "SOURCE"
    write(folder, {"train": 2, "val": 1}, size=(16, 16), side=(4, 6))
    edit(folder)
    with pytest.raises(DataError) as found:
        prepare(f"--dataset={dataset}", f"--source={folder}", f"--data_dir={tmp_path}/data")
    assert not (tmp_path / "data").exists()
    line = str(found.value).replace(str(tmp_path) + "/", "")
    assert message in line
    assert "\n" not in line


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("u.data", "1\t5\t3\t7\n1\t5\t3\n", "SOURCE/u.data, line 2: 3 values instead of 4"),
        (
            "u.data",
            "1\t5\t3\t7\n1\t5\t3\tyesterday\n",
            "line 2: the time 'yesterday' is not a number",
        ),
        (
            "u.data",
            "1\t\t3\t7\n1\t5\tgood\t7\n",
            "line 1: '' is not a valid item id (2 such lines)",
        ),
        (
            "ratings.dat",
            "1::5::3::7::9\n",
            "if there is no header line, name all columns, such as --columns=",
        ),
        (
            "ratings.csv",
            "fan,film,stars\n1,5,3\n",
            "it has fan, film, stars. Name them with --user_column",
        ),
        ("ratings.csv", "user,item,asin\n", "the columns 'item' and 'asin': choose one"),
        ("ratings.csv", "user;item;time\n", "separated by ';', set --delimiter=';'"),
        ("ratings.csv", "user,item,time\n1,5,inf\n", "line 2: the time 'inf' is not a number"),
        ("u.data", "", "SOURCE/u.data has no interactions"),
        ("u.data", "1\t5\t3\t7\n1\t6\t3\t8\n", "no user has 3 items, which the splits need"),
        ("u.item", "", "has no file such as u.data, ratings.dat"),
    ],
)
def test_invalid_ratings_and_their_message(prepare, tmp_path, name, content, message):
    folder = tmp_path / "SOURCE"
    folder.mkdir()
    (folder / name).write_text(content)
    with pytest.raises(DataError) as found:
        prepare("--dataset=ratings", f"--source={folder}", f"--data_dir={tmp_path}/data")
    assert not (tmp_path / "data").exists()
    line = str(found.value).replace(str(tmp_path) + "/", "")
    assert message in line
    assert "\n" not in line


ROW = ["1", *["7"] * 13, *["0000000a"] * 26]


@pytest.mark.parametrize(
    ("message", "lines"),
    [
        ("line 1: 39 values instead of 40: a row without a label", [ROW[1:], *[ROW] * 20]),
        ("line 21: 41 values instead of 40", [*[ROW] * 20, [*ROW, "1"]]),
        ("line 1: the label '2' is not 0 or 1", [["2", *ROW[1:]], *[ROW] * 20]),
        ("line 1: I1 '0.5' is not an integer", [["1", "0.5", *ROW[2:]], *[ROW] * 20]),
        ("line 1: C26 '00000A' is not 8 hexadecimal digits", [[*ROW[:-1], "00000A"], *[ROW] * 20]),
        ("SOURCE/train.txt has no rows", []),
        ("has 2 rows, too few for the splits 'train' and 'validation' and 'test'", [ROW, ROW]),
    ],
)
def test_invalid_click_logs_and_their_message(prepare, tmp_path, message, lines):
    folder = tmp_path / "SOURCE"
    folder.mkdir()
    (folder / "train.txt").write_text("".join("\t".join(line) + "\n" for line in lines))
    with pytest.raises(DataError) as found:
        prepare("--dataset=criteo", f"--source={folder}", f"--data_dir={tmp_path}/data")
    assert not (tmp_path / "data").exists()
    line = str(found.value).replace(str(tmp_path) + "/", "")
    assert message in line
    assert "\n" not in line


@pytest.fixture(scope="module")
def ratings_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tpu_embeddings")
    ratings_data.prepare(folder / "raw", ratings_data.rows(), folder / "data")
    return folder / "data"


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ("tpu_embedding_rows=-1", "tpu_embedding_rows=-1 must not be below 0"),
        ("optimizer=momentum", "the TPU embedding 'gmf/users' cannot use optimizer=momentum"),
        ("lazy_embeddings=false", "the TPU embedding 'gmf/users' updates the rows of a batch only"),
        ("clip_norm=1", "'gmf/users' has no part in the global norm of the gradients"),
        ("trainable=logits/.*", "the TPU embedding 'gmf/users' cannot be frozen"),
    ],
)
def test_invalid_tpu_embeddings_and_their_message(
    ratings_dir, tmp_path, capsys, exit_status, params, message
):
    flags = [
        "--mode=train",
        "--model=neumf",
        "--dataset=ratings",
        f"--data_dir={ratings_dir}",
        f"--model_dir={tmp_path}/model",
        "--train_steps=3",
        "--train_batch_size=16",
        "--tpu=emulator",
        "--tpu_topology=v2-8",
        "--params=lazy_embeddings=true,tpu_embedding_rows=1",
    ]
    assert exit_status(run_tpu, *flags, f"--params={params}") == 2
    assert not tree(tmp_path)
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


@pytest.mark.parametrize("value", ["a\nb", "a\0b", "a\x1b[31m", "caf\udce9", "a\u2028b"])
@pytest.mark.parametrize("flag", ["model_dir", "params", "best_metric", "strategy", "tpu"])
def test_control_characters_in_a_flag_value(error_line, flag, value):
    line = error_line(f"--{flag}={value}")
    assert f"--{flag}=" in line
    assert line.isprintable()


def test_a_long_number_is_shortened_in_the_message(error_line):
    line = error_line(f"--train_steps={'9' * 5000}")
    assert "... (5000): it is larger than 2147483647" in line
    assert len(line) < 300


def test_a_batch_larger_than_the_free_memory(error_line, monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: 2**30)
    line = error_line("--train_batch_size=1000000000")
    # 35 pixels: a byte while the batch waits, 4 while it is used.
    assert "a batch of 1000000000 examples takes at least 163.0 GiB, and 1.0 GiB are free" in line


def test_a_model_larger_than_the_free_memory(tiny_flags, tmp_path, exit_status, capsys):
    more = ["--mode=train", "--train_steps=1", f"--model_dir={tmp_path}/model"]
    assert exit_status(run_cpu, *tiny_flags, *more, "--params=hidden_units=900000000") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "a model of 35,100,000,003 parameters does not fit in memory" in line


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"--best_metric=caf\xe9\n", "is not UTF-8 text"), (b"--seed=1\0\n", "a control character")],
)
def test_a_flagfile_that_is_not_text(error_line, tmp_path, content, message):
    (tmp_path / "flags.cfg").write_bytes(content)
    assert message in error_line(f"--flagfile={tmp_path}/flags.cfg")


def test_a_flagfile_with_a_byte_order_mark(error_line, tmp_path):
    (tmp_path / "flags.cfg").write_bytes(b"\xef\xbb\xbf--model=mlp\n--dataset=digits\n")
    assert "begins with a byte order mark" in error_line(f"--flagfile={tmp_path}/flags.cfg")


def test_a_flagfile_that_is_a_folder(error_line, tmp_path):
    assert "not a file" in error_line(f"--flagfile={tmp_path}")


@pytest.mark.parametrize(
    ("name", "message"), [("folder.jsonl", "is a folder"), ("n" * 250 + ".npz", "longer than 200")]
)
def test_an_invalid_predict_output(error_line, tmp_path, name, message):
    (tmp_path / "folder.jsonl").mkdir()
    assert message in error_line("--mode=predict", f"--predict_output={tmp_path}/{name}")


def test_predict_skips_a_pipe(tmp_path, trained_dir, exit_status, tiny_flags, capsys):
    os.mkfifo(tmp_path / "pipe.png")
    os.symlink(tmp_path, tmp_path / "again")
    more = ["--mode=predict", f"--model_dir={trained_dir}", f"--input={tmp_path}"]
    assert exit_status(run_cpu, *tiny_flags, *more) == 2
    output = capsys.readouterr()
    assert "pipe.png is skipped: it is not a file" in output.out
    assert "none of the 1 examples of input can be read" in output.err


def test_an_empty_data_dir(error_line, tmp_path):
    os.makedirs(tmp_path / "empty")
    assert "holds no dataset.json" in error_line(f"--data_dir={tmp_path}/empty")


def test_a_missing_shard(error_line, own_data_dir):
    os.remove(os.path.join(own_data_dir, "train-00001-of-00003-e45eb784.tfrecord"))
    line = error_line(f"--data_dir={own_data_dir}")
    assert "train-00001-of-00003-e45eb784.tfrecord is missing" in line


def test_a_truncated_shard(error_line, own_data_dir):
    path = os.path.join(own_data_dir, "train-00001-of-00003-e45eb784.tfrecord")
    size = os.path.getsize(path)
    os.truncate(path, size - 10)
    assert f"has {size - 10} bytes instead of {size}" in error_line(f"--data_dir={own_data_dir}")


def test_a_split_without_examples(error_line, own_data_dir):
    path = os.path.join(own_data_dir, "dataset.json")
    with open(path) as file:
        fields = json.load(file)
    fields["splits"]["test"].update(shards=[], num_examples=0, label_histogram=[0, 0, 0])
    with open(path, "w") as file:
        json.dump(fields, file)
    line = error_line("--mode=train_and_eval", f"--data_dir={own_data_dir}")
    assert "split 'test' of stripes" in line
    assert "has no examples" in line


def test_a_model_dir_that_cannot_be_written(error_line, tmp_path):
    (tmp_path / "file").write_text("")
    assert "cannot be written" in error_line(f"--model_dir={tmp_path}/file/model")


def test_a_warm_start_pattern_without_a_match(error_line, trained_dir):
    line = error_line(f"--warm_start_from={trained_dir}", "--warm_start_include=encoder/.*")
    assert "--warm_start_include=encoder/.* matches no variable" in line


def test_a_model_dir_of_another_model(error_line, trained_dir):
    before = tree(trained_dir)
    more = [f"--model_dir={trained_dir}", "--train_steps=99", "--params=hidden_units=5"]
    assert "dense_0/bias is [512] in the checkpoint, [5] in this model" in error_line(*more)
    assert tree(trained_dir) == before


def test_a_shard_label_outside_the_classes(own_data_dir, tmp_path, tiny_flags, exit_status, capsys):
    """The error names the record of the first label that dataset.json does not allow."""
    path = os.path.join(own_data_dir, "dataset.json")
    with open(path) as file:
        fields = json.load(file)
    fields["class_names"].pop()
    for split in fields["splits"].values():
        *counts, last = split["label_histogram"]
        split["label_histogram"] = [counts[0] + last, *counts[1:]]
    with open(path, "w") as file:
        json.dump(fields, file)
    training = ["--mode=train", "--train_steps=3", f"--model_dir={tmp_path}/model"]
    assert exit_status(run_cpu, *tiny_flags, *training, f"--data_dir={own_data_dir}") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "train-00000-of-00003-cf74b940.tfrecord, record 2 at byte " in line
    assert "its label [2] is none of the 2 classes" in line


def random_bytes(size):
    return bytes(i * 37 % 251 for i in range(size))


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_a_shard_of_random_bytes(own_data_dir, trained_dir, mode, tiny_flags, exit_status, capsys):
    name = {
        "train": "train-00001-of-00003-e45eb784.tfrecord",
        "eval": "test-00001-of-00003-d9160a07.tfrecord",
    }[mode]
    path = os.path.join(own_data_dir, name)
    size = os.path.getsize(path)
    with open(path, "wb") as file:
        file.write(random_bytes(size))
    more = [f"--mode={mode}", f"--data_dir={own_data_dir}", f"--model_dir={trained_dir}"]
    assert exit_status(run_cpu, *tiny_flags, *more, "--train_steps=41") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{name}, record 0 at byte 0: corrupted record" in line


def test_a_label_outside_the_classes_in_raw_data(raw_dataset, tmp_path):
    raw_dataset.splits["test"].labels[7] = 3
    try:
        with pytest.raises(ValueError, match="example 7 has label 3, outside the 3 classes"):
            writer.write(raw_dataset, str(tmp_path / "data"))
    finally:
        raw_dataset.splits["test"].labels[7] = 7 % 3
    assert not os.path.exists(tmp_path / "data")


def test_exit_status_2_and_one_line_in_a_process():
    more = ["--model=mlp", "--dataset=stripes", "--data_dir=none", "--model_dir=none"]
    command = [sys.executable, "run_cpu.py", "--mode=trian", "--train_steps=3", *more]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "run_cpu.py: error: flag --mode=trian: 'trian' is unknown. Did you mean 'train'?"
    ]


def test_help_imports_no_tensorflow():
    code = (
        "import runpy, sys\n"
        "sys.argv = ['run_cpu.py', '--help']\n"
        "try: runpy.run_path('run_cpu.py', run_name='__main__')\n"
        "except SystemExit: print('tensorflow' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"
    assert "--train_batch_size" in done.stdout
