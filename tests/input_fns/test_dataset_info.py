"""The contract of a prepared data set."""

import contextlib
import json
import os
import pathlib

import pytest

from input_fns import DataError, dataset_info
from tests import bert_data, shapes_data


def change(data_dir, **fields):
    """Changes top-level fields of a dataset.json."""
    path = os.path.join(data_dir, "dataset.json")
    with open(path) as file:
        content = {**json.load(file), **fields}
    with open(path, "w") as file:
        json.dump(content, file)


def test_splits_features_and_classes(data_dir):
    stripes = dataset_info.load(data_dir, "stripes")
    assert stripes.num_classes == 3
    assert stripes.class_names == ("stripe 0", "stripe 1", "stripe 2")
    assert stripes.features == {"image": dataset_info.Feature("raw", "uint8", (7, 5, 1))}
    assert stripes.features["image"].num_bytes == 35
    assert stripes.split("train").num_examples == 97
    assert stripes.split("test").label_histogram == (14, 14, 13)
    assert [shard.num_examples for shard in stripes.split("test").shards] == [13, 14, 14]


def test_the_identity_of_a_split_is_that_of_its_records():
    def split(*checksums):
        shards = (dataset_info.ShardInfo("", 99, 3, checksum) for checksum in checksums)
        return dataset_info.SplitInfo((), tuple(shards))

    assert split(5, 7).identity == split(5, 7).identity
    assert split(5, 7).identity.startswith("6 examples (CRC-32 ")
    assert split(5, 7).identity != split(7, 5).identity
    assert split(5, 0).identity == "6 examples"  # an older version has stored no checksums


def test_json_and_back(data_dir, tmp_path):
    stripes = dataset_info.load(data_dir, "stripes")
    (tmp_path / "dataset.json").write_text(dataset_info.to_json(stripes))
    assert dataset_info.read(str(tmp_path)).splits == stripes.splits
    assert json.loads(dataset_info.to_json(stripes))["splits"]["train"]["num_examples"] == 97


def test_an_unknown_split(data_dir):
    with pytest.raises(DataError, match="no split 'dev'; it has: train, test"):
        dataset_info.load(data_dir, "stripes").split("dev")


def test_a_missing_folder():
    with pytest.raises(DataError, match="--data_dir=/no/such does not exist; make it with prepare"):
        dataset_info.load("/no/such", "digits")


def test_a_folder_without_dataset_json(tmp_path):
    with pytest.raises(DataError, match=r"holds no dataset\.json: not prepared, or stopped"):
        dataset_info.load(str(tmp_path), "digits")


def test_another_data_set(data_dir):
    with pytest.raises(DataError, match="holds the data set 'stripes', not --dataset=digits"):
        dataset_info.load(data_dir, "digits")


@pytest.mark.parametrize("content", ["not json", "{}", "[]", '{"format": 2, "name": "x"}'])
def test_a_file_that_prepare_data_did_not_write(tmp_path, content):
    (tmp_path / "dataset.json").write_text(content)
    with pytest.raises(DataError, match=r"is not a dataset\.json of prepare_data\.py"):
        dataset_info.load(str(tmp_path), "digits")


def test_a_format_of_another_version(own_data_dir):
    change(own_data_dir, format=1)
    with pytest.raises(DataError, match="has format 1, this version reads 2: prepare the"):
        dataset_info.load(own_data_dir, "stripes")


def test_every_broken_shard_is_counted(own_data_dir):
    os.remove(os.path.join(own_data_dir, "test-00000-of-00003-9126e575.tfrecord"))
    os.truncate(os.path.join(own_data_dir, "train-00002-of-00003-161ff8d4.tfrecord"), 5)
    message = r"2 shards .* has 5 bytes instead of \d+; test-00000-of-00003.* is missing"
    with pytest.raises(DataError, match=message):
        dataset_info.load(own_data_dir, "stripes")


NESTED = 100_000


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"\xff{}", "can't decode byte 0xff in position 0"),
        (b"[" * NESTED + b"]" * NESTED, "it is nested too deep"),
        (b'{"a":' * NESTED, "it is nested too deep"),
        (b'{"format": 2, "format": 2}', 'the key "format" is repeated'),
        (b'{"format": NaN}', "NaN is not a number"),
        (b'{"format": 1' + b"0" * 10_000 + b"}", "is too large"),
        (b"[2]", "the whole is a list, and must be an object"),
    ],
)
def test_a_dataset_json_that_attacks_its_reader(tmp_path, content, problem):
    (tmp_path / "dataset.json").write_bytes(content)
    with pytest.raises(DataError, match=r"is not a dataset\.json of prepare_data\.py") as error:
        dataset_info.read(str(tmp_path))
    assert problem in str(error.value)


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize(
    ("place", "value", "problem"),
    [
        (["format"], "2", 'format is "2", and must be an integer'),
        (["name"], None, "name is null, and must be a line of text"),
        (["class_names"], ["a", "a", "b"], "the class name 'a' occurs more than once"),
        (["class_names"], "abc", 'class_names is "abc", and must be a list'),
        (["class_names", 1], "a\nb", "is not a class name"),
        (["features"], {}, "features is empty"),
        (["features"], {"../x": {}}, 'a key of features is "../x"'),
        (["features", "image", "dtype"], "object", "features.image.dtype is"),
        (["features", "image", "shape", 0], 7.0, "features.image.shape[0] is 7.0"),
        (["features", "image", "shape", 0], -7, "features.image.shape[0] is -7"),
        (["features", "image", "shape"], [2**30, 2**30], "features.image.shape is too large"),
        (["features", "image", "shape"], [], "features.image has the shape [], and must be"),
        (["features", "image", "shape"], [60], "must be [height, width, channels]"),
        (
            ["features", "image"],
            {"encoding": "unpadded", "dtype": "bool", "shape": [7, 5, 1]},
            "features.image is bool, which cannot be unpadded",
        ),
        (
            ["features", "image"],
            {"encoding": "unpadded", "dtype": "uint8", "shape": [7, None, 1]},
            "features.image.shape[1] is null, and must be an integer",
        ),
        (["features", "image", "shape"], [5, 4, 3, 1], "has the shape [5, 4, 3, 1], and must"),
        (["splits"], {}, "splits is empty"),
        (["splits", "train", "shards"], {}, "splits.train.shards is an object"),
        (["splits", "train", "shards", 0, "name"], "/etc/passwd", "must be a plain file name"),
        (["splits", "train", "shards", 0, "name"], "..", "must be a plain file name"),
        (["splits", "train", "shards", 0, "num_bytes"], -1, "must be an integer of at least 0"),
        (["splits", "train", "shards", 0, "num_examples"], True, "must be an integer"),
        (["splits", "train", "shards", 0, "num_examples"], 2**40, "which have no room for so many"),
        (["splits", "train", "shards", 0, "crc32"], 2**32, "from 0 to 4294967295"),
        (["splits", "train", "shards", 0, "offsets"], 7, "must be a list of integers"),
        (["splits", "train", "shards", 0, "offsets"], [0, 7.0], "must be a list of integers"),
        (["splits", "train", "shards", 0, "offsets"], [0, True], "must be a list of integers"),
        (["splits", "train", "shards", 0, "offsets"], [1], "begins with 1 instead of 0"),
        (["splits", "train", "shards", 0, "offsets"], [0] * 20, "cannot divide 32 examples"),
        (["splits", "train", "shards", 0, "offsets"], [0] * 40, "cannot divide 32 examples"),
        (["splits", "train", "shards", 0, "offsets"], [0, 90], "16 examples from byte 0 to 90"),
        (["splits", "train", "shards", 0, "offsets"], [0, -900], "from byte 0 to -900"),
        (
            ["splits", "train", "shards", 0, "offsets"],
            [0, 2**60],
            "from byte 1152921504606846976 to ",
        ),
        (["splits", "train", "broken"], [["a"]], "must be a name and a reason"),
        (["splits", "train", "has_labels"], "no", "must be true or false"),
        (["text"], {"languages": 3}, "text.languages is 3, and must be a list"),
        (["name"], "", "name is empty"),
        (["splits", "train", "num_examples"], 96, "is 96, and its shards have 97"),
        (["splits", "train", "num_examples"], 97.0, "num_examples is 97.0, and must be an"),
        (["splits", "train", "label_histogram"], [50, 47], "has 2 of 3 classes"),
        (["splits", "train", "label_histogram"], [50, 47, 1], "has 98 of 97 examples"),
        (["properties"], {"num_classes": True}, "properties.num_classes is true, and must be"),
        (["properties"], {"num_classes": 3.0}, "properties.num_classes is 3.0, and must be"),
        (["properties"], {"num_classes": 4}, "num_classes is 4, and class_names has 3"),
        (["prepared_with"], [], "prepared_with is a list"),
    ],
)
def test_a_field_that_is_wrong_is_named(own_data_dir, place, value, problem):
    path = os.path.join(own_data_dir, "dataset.json")
    with open(path) as file:
        fields = content = json.load(file)
    for key in place[:-1]:
        content = content[key]
    content[place[-1]] = value
    with open(path, "w") as file:
        json.dump(fields, file)
    with pytest.raises(DataError) as error:
        dataset_info.load(own_data_dir, "stripes")
    assert problem in str(error.value)


def test_a_shard_that_was_renamed_over_another(own_data_dir):
    """What two runs of prepare_data.py into one folder left, before names held checksums."""
    first, second, _ = dataset_info.read(own_data_dir).split("train").shards
    path = os.path.join(own_data_dir, "dataset.json")
    with open(path) as file:
        text = file.read()
    with open(path, "w") as file:
        file.write(text.replace(str(first.crc32), str(second.crc32 ^ 1)))
    with pytest.raises(DataError, match=f"{first.name} is not the name of records with crc32"):
        dataset_info.load(own_data_dir, "stripes")


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_a_dataset_json_that_is_not_a_file(tmp_path, make):
    make(tmp_path / "dataset.json")
    with pytest.raises(DataError, match=r"dataset\.json is not a file"):
        dataset_info.read(str(tmp_path))


@pytest.fixture(scope="module")
def documents_dir(tmp_path_factory):
    return bert_data.prepare_pretraining(tmp_path_factory.mktemp("documents"))


@pytest.mark.parametrize(
    ("place", "value", "problem"),
    [
        (("wordpiece", "task"), "translation", r"wordpiece\.task is .translation., and"),
        (
            ("wordpiece", "task"),
            "squad",
            "labels are masked_lm_ids, .* must be start_positions",
        ),
        (("wordpiece", "max_length"), 23, r"features\.input_ids is not raw \[23\]"),
        (("wordpiece", "vocab_size"), 0, r"wordpiece\.vocab_size is 0"),
        (
            ("wordpiece", "vocabulary"),
            "../vocab.txt",
            r"wordpiece\.vocabulary .* plain file name",
        ),
        (("wordpiece", "lower_case"), 1, r"wordpiece\.lower_case is 1, and must be true or false"),
        (("wordpiece", "truncate"), "start", r"wordpiece\.truncate is .start., and must be one of"),
        (("wordpiece", "splits"), {"train": {}}, r"wordpiece\.splits\.train\.num_texts is missing"),
    ],
)
def test_a_field_of_wordpiece_text_that_is_wrong_is_named(
    documents_dir, tmp_path, place, value, problem
):
    with open(os.path.join(documents_dir, "dataset.json")) as file:
        content = json.load(file)
    content[place[0]][place[1]] = value
    (tmp_path / "dataset.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match=problem):
        dataset_info.read(str(tmp_path))


def wordpiece_json(task, features, labels, properties):
    """Returns a dataset.json of rows of 8 tokens; `features` are `{name: shape}`."""
    shapes = {**{name: [8] for name in ("input_ids", "input_mask", "segment_ids")}, **features}
    return json.dumps(
        {
            "format": dataset_info.FORMAT,
            "name": "texts",
            "features": {
                name: {"encoding": "raw", "dtype": "int32", "shape": shape}
                for name, shape in shapes.items()
            },
            "class_names": [],
            "splits": {"train": {"label_histogram": [], "shards": [], "broken": []}},
            "labels": labels,
            "properties": properties,
            "wordpiece": {
                "task": task,
                "vocabulary": "vocab.txt",
                "vocab_size": 9,
                "max_length": 8,
                "lower_case": True,
                "has_pairs": True,
                "splits": {
                    "train": {
                        "num_texts": 0,
                        "num_tokens": 0,
                        "num_truncated": 0,
                        "left_out": {},
                        "side_file": "questions.json",
                    }
                },
            },
        }
    )


@pytest.fixture(scope="module")
def shapes_dir(tmp_path_factory):
    """A small data set of COCO, for detection."""
    folder = tmp_path_factory.mktemp("shapes")
    return str(shapes_data.prepare_coco(folder, {"train": 5, "val": 3}, "detection"))


@pytest.mark.parametrize(
    ("place", "value", "problem"),
    [
        (["properties", "category_ids"], [7, 3], ""),
        (["properties", "category_ids"], ["round", 3], ""),
        (["properties", "category_ids"], [1, 1], r"properties\.category_ids: the id 1 is repeated"),
        (["properties", "category_ids"], [1], r"category_ids has 1 ids for 2 classes"),
        (["properties", "category_ids"], [1, 2, 3], r"category_ids has 3 ids for 2 classes"),
        (["properties", "category_ids"], 3, r"category_ids is 3, and must be a list"),
        (["properties", "category_ids"], None, r"category_ids is null, and must be a list"),
        (["properties", "category_ids"], [True, 2], r"category_ids\[0\] is not an id"),
        (["properties", "category_ids"], [1.5, 2], r"category_ids\[0\] is not an id"),
        (["properties", "image_ids"], "../ids.json", r"image_ids .* must be a plain file name"),
        (["properties", "image_ids"], 7, r"image_ids is 7, and must be a plain file name"),
        (["annotations", "splits", "train", "num_images"], 4, "num_images is 4, .* has 5 examples"),
        (["annotations", "splits", "dev"], {}, r"annotations\.splits\.dev\.num_images is missing"),
        (["audio"], {}, r"audio\.sample_rate is missing"),
    ],
)
def test_fields_of_annotations_agree(shapes_dir, tmp_path, place, value, problem):
    with open(os.path.join(shapes_dir, "dataset.json")) as file:
        fields = content = json.load(file)
    for key in place[:-1]:
        content = content[key]
    content[place[-1]] = value
    (tmp_path / "dataset.json").write_text(json.dumps(fields))
    with pytest.raises(DataError, match=problem) if problem else contextlib.nullcontext():
        dataset_info.read(str(tmp_path))


def test_a_data_set_is_of_one_kind(documents_dir, tmp_path):
    content = json.loads(pathlib.Path(documents_dir, "dataset.json").read_text())
    ids = content["features"]["input_ids"]
    content["features"].update(source=ids, target=ids)
    sizes = {"vocab_size": 9, "max_length": ids["shape"][0]}
    names = {"languages": ["en", "de"], "vocabulary": "a.model"}
    content["text"] = {**names, **sizes, "splits": {}}
    (tmp_path / "dataset.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match="it has text and wordpiece: a data set is of one kind"):
        dataset_info.read(str(tmp_path))


TAGS = {"num_tags": 2, "tag_names": ["A", "B"]}
SQUAD = {"has_impossible": False, "doc_stride": 4, "max_query_length": 4}
POSITIONS = {"start_positions": [], "end_positions": [], "question_index": []}
TOKENS = {name: [8] for name in ("token_starts", "token_ends", "is_max_context")}


@pytest.mark.parametrize(
    ("task", "features", "properties", "problem"),
    [
        ("token_classification", {"tag_ids": [8]}, TAGS, ""),
        ("token_classification", {"tag_ids": [7]}, TAGS, r"features\.tag_ids must be raw \[8\]"),
        ("token_classification", {"tag_ids": [8]}, {}, r"properties\.num_tags is missing"),
        ("token_classification", {"tag_ids": [8]}, {**TAGS, "num_tags": 3}, "are not num_tags=3"),
        (
            "token_classification",
            {"tag_ids": [8]},
            {**TAGS, "tag_names": ["A", "A"]},
            "tag_names: the class name 'A' occurs more than once",
        ),
        ("classification", {}, {}, r"class_names must have names for wordpiece\.task class"),
        (
            "regression",
            {"score": []},
            {},
            r"features\.score\.dtype is int32, and must be of floats",
        ),
        ("squad", {**POSITIONS, **TOKENS}, SQUAD, ""),
        (
            "squad",
            POSITIONS,
            SQUAD,
            r"features\.token_starts must be raw \[8\]",
        ),
        ("squad", {**POSITIONS, **TOKENS, "question_index": [2]}, SQUAD, r"index must be raw \[\]"),
        ("squad", {**POSITIONS, **TOKENS}, {**SQUAD, "max_query_length": 5}, "is 5, .* to 4"),
        ("squad", {**POSITIONS, **TOKENS}, {**SQUAD, "doc_stride": "4"}, "must be an integer"),
    ],
)
def test_a_task_has_its_features_and_properties(tmp_path, task, features, properties, problem):
    known = ("tag_ids", "start_positions", "end_positions", "score")
    labels = [name for name in features if name in known]
    (tmp_path / "dataset.json").write_text(wordpiece_json(task, features, labels, properties))
    with pytest.raises(DataError, match=problem) if problem else contextlib.nullcontext():
        dataset_info.read(str(tmp_path))


@pytest.mark.parametrize(
    ("name", "limit"),
    [("input_ids", len(bert_data.VOCAB.splitlines())), ("masked_lm_positions", 24)],
)
def test_tokens_and_places_have_limits(documents_dir, name, limit):
    assert dataset_info.read(documents_dir).limits[name] == (0, limit)


def test_a_data_set_without_an_index(own_data_dir):
    """As earlier versions wrote it."""
    path = os.path.join(own_data_dir, "dataset.json")
    with open(path) as file:
        fields = json.load(file)
    for shard in fields["splits"]["train"]["shards"]:
        del shard["offsets"]
    with open(path, "w") as file:
        json.dump(fields, file)
    stripes = dataset_info.load(own_data_dir, "stripes")
    assert {shard.offsets for shard in stripes.split("train").shards} == {()}
    assert "offsets" not in dataset_info.to_json(stripes).partition('"test"')[0]


def test_an_index_is_one_line(data_dir):
    stripes = dataset_info.load(data_dir, "stripes")
    (offsets, *_) = [shard.offsets for shard in stripes.split("train").shards]
    assert f'"offsets": [{",".join(map(str, offsets))}]\n' in dataset_info.to_json(stripes)


def test_a_remote_shard_is_one_request(data_dir, monkeypatch):
    stripes = dataset_info.load(data_dir, "stripes")
    sizes = {stripes.path(s): s.num_bytes for n in stripes.splits for s in stripes.split(n).shards}
    missing, other, *_ = sizes
    del sizes[missing]
    sizes[other] += 1
    requests = []

    def num_bytes(path):
        requests.append(path)
        if path not in sizes:
            raise FileNotFoundError
        return sizes[path]

    monkeypatch.setattr(dataset_info.folders, "is_remote", lambda path: True)
    monkeypatch.setattr(dataset_info.folders, "missing_error", lambda path: FileNotFoundError)
    monkeypatch.setattr(dataset_info.folders, "num_bytes", num_bytes)
    first, second = dataset_info.broken_shards(stripes)
    assert first == f"{os.path.basename(missing)} is missing"
    assert second.startswith(f"{os.path.basename(other)} has ")
    assert sorted(requests) == sorted([missing, *sizes])
