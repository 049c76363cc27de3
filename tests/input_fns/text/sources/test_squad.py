"""Windows of contexts, and where the answers are in them."""

import json

import numpy as np
import pytest

from input_fns import DataError, convert, dataset_info
from input_fns.convert import writer
from input_fns.convert.options import Options
from input_fns.convert.source import Broken, Row
from input_fns.text.sources import squad_windows
from input_fns.text.sources.squad_windows import Windows
from input_fns.text.wordpiece import WordPieceTokenizer
from tests import squad_files
from tests.squad_files import CAFE, PARIS, question

TOKENIZER = WordPieceTokenizer(squad_files.VOCAB, True)
REASONS = ["no answer is given", "the answer is not in the context where answer_start says"]


def read(folder, lines=None, **options):
    """The raw data set; `lines` collects what is printed."""
    sizes = {"max_length": 40, "max_query_length": 16, "doc_stride": 9, **options}
    vocabulary = str(folder / "vocab.txt")
    options = Options("squad", source=str(folder), vocabulary=vocabulary, **sizes)
    return convert.read(options, (lines if lines is not None else []).append)


def rows(split):
    """Rows as `{name: array}`."""
    for row in split:
        assert isinstance(row, Row)
        yield {
            name: np.frombuffer(row.values[name], feature.dtype).reshape(feature.shape)
            for name, feature in row.features.items()
        }


def dev(folder, *paragraphs, **options):
    """The split "validation" of some questions."""
    squad_files.write(folder, dev=squad_files.content(*paragraphs))
    return read(folder, **options).splits["validation"]


def labels(split, context):
    """The texts of the labels of all windows; "" for no answer."""
    found = []
    for row in rows(split):
        first, last = int(row["start_positions"]), int(row["end_positions"])
        found.append(context[row["token_starts"][first] : row["token_ends"][last]] if first else "")
    return found


def test_a_row_is_the_question_and_a_window_of_the_context(tmp_path):
    split = dev(tmp_path, ("Paris is the capital of France.", [question("a", "What is it?")]))
    (row,) = rows(split)
    decoded = TOKENIZER.decode(row["input_ids"])
    assert decoded == "[CLS] what is it ? [SEP] paris is the capital of france . [SEP]"
    size, question_size = len(decoded.split()) + 1, 7  # "it" is two pieces
    assert row["input_mask"].tolist() == [1] * size + [0] * (40 - size)
    segments = [0] * question_size + [1] * (size - question_size) + [0] * (40 - size)
    assert row["segment_ids"].tolist() == segments


def test_windows_start_every_doc_stride_tokens(tmp_path):
    paragraph = (PARIS, [question("a", "What?")])
    found = list(rows(dev(tmp_path, paragraph, max_length=15, max_query_length=4, doc_stride=5)))
    tokens = TOKENIZER.encode([PARIS])[0].ids
    capacity = 15 - 2 - 3
    starts = range(0, len(tokens) - capacity + 5, 5)
    assert len(found) == len(starts) > 3
    for row, start in zip(found, starts):
        window = tokens[start : start + capacity]
        assert row["input_ids"][4 : 4 + len(window)].tolist() == window
    assert start + capacity >= len(tokens)


@pytest.mark.parametrize(
    ("capacity", "stride", "length", "starts"),
    [
        (5, 2, 0, []),
        (5, 2, 1, [0]),
        (5, 2, 5, [0]),
        (5, 2, 6, [0, 2]),
        (5, 2, 7, [0, 2]),
        (5, 2, 8, [0, 2, 4]),
        (5, 5, 11, [0, 5, 10]),
    ],
)
def test_the_last_window_ends_with_the_context(capacity, stride, length, starts):
    assert list(Windows(capacity, stride, length).starts) == starts


def has_most_context(windows, number):
    """One token at a time, over all windows."""
    spans = [windows.tokens(i) for i in range(len(windows.starts))]

    def score(span, token):
        return min(token - span[0], span[-1] - token) + 0.01 * len(span)

    found = []
    for token in spans[number]:
        scores = {i: score(span, token) for i, span in enumerate(spans) if token in span}
        found.append(max(scores, key=scores.get) == number)
    return found


@pytest.mark.parametrize(("capacity", "stride"), [(1, 1), (5, 1), (7, 3), (8, 4), (6, 6)])
@pytest.mark.parametrize("length", [1, 6, 19, 30])
def test_each_token_has_the_most_context_in_one_window(capacity, stride, length):
    windows = Windows(capacity, stride, length)
    count = np.zeros(length, int)
    for number in range(len(windows.starts)):
        found = windows.has_most_context(number)
        assert found.tolist() == has_most_context(windows, number)
        count[windows.tokens(number)] += found
    assert count.tolist() == [1] * length


@pytest.mark.parametrize(("capacity", "stride"), [(1, 1), (5, 1), (7, 3), (6, 6)])
@pytest.mark.parametrize("length", [0, 1, 6, 19])
def test_windows_are_counted_without_a_look_at_each(capacity, stride, length):
    windows = Windows(capacity, stride, length)
    tokens = [windows.tokens(number) for number in range(len(windows.starts))]
    assert windows.num_tokens == sum(map(len, tokens))
    for first, last in ((f, la) for f in range(length) for la in range(f, length)):
        assert windows.hold(first, last) == any(first in t and last in t for t in tokens)


def test_places_are_code_points_of_the_context(tmp_path):
    (row,) = rows(dev(tmp_path, (CAFE, [question("a")]), max_length=60))
    in_context = row["token_ends"] > 0
    places = zip(row["token_starts"][in_context], row["token_ends"][in_context])
    texts = [CAFE[start:end] for start, end in places]
    assert [text for text in texts if text in "中文😀("] == ["中", "文", "😀", "("]
    # The second segment without its [SEP].
    assert np.flatnonzero(in_context).tolist() == np.flatnonzero(row["segment_ids"])[:-1].tolist()


@pytest.mark.parametrize(
    ("answer", "start", "label"),
    [
        ("Paris", 0, "Paris"),
        ("Louis XIV", 40, "Louis XIV"),
        ("4 years old.", PARIS.index("4 years"), "4 years old."),
        ("XIV,  the\nking", 46, "XIV, the king"),  # spaces may differ
        (" of", PARIS.index(" of"), "of"),
        ("capita", 13, "capital"),  # a part of a token
        ("64", 36, "64"),
    ],
)
def test_a_label_is_the_tokens_that_overlap_the_answer(tmp_path, answer, start, label):
    split = dev(tmp_path, (PARIS, [question("a", "What?", (answer, start))]), max_length=60)
    assert labels(split, PARIS) == [label]


def test_an_answer_is_found_behind_characters_of_several_bytes(tmp_path):
    answer = ("Café", CAFE.index("Café", 5))
    split = dev(tmp_path, (CAFE, [question("a", "What?", answer)]), max_length=60)
    assert labels(split, CAFE) == ["Café"]
    (row,) = rows(split)
    assert row["token_starts"][row["start_positions"]] == answer[1]


def test_windows_that_cut_the_answer_have_the_label_of_none(tmp_path):
    answer = ("Louis XIV, the king", 40)
    sizes = {"max_length": 20, "max_query_length": 4, "doc_stride": 5}
    found = labels(dev(tmp_path, (PARIS, [question("a", "What?", answer)]), **sizes), PARIS)
    assert {"", answer[0]} == set(found)


def test_the_first_answer_that_is_in_the_context_is_the_label(tmp_path):
    answers = [("Rome", 0), ("Paris is", 0), ("Paris", 0)]
    split = dev(tmp_path, (PARIS, [question("a", "What?", *answers)]), max_length=60)
    assert labels(split, PARIS) == ["Paris is"]


BAD = [
    (PARIS, [question("none"), question("wrong", "What?", ("Paris", 1)), question("empty")]),
    ("\u200b", [question("blank", "What?", ("\u200b", 0))]),
    (PARIS, [question("good", "What?", ("Paris", 0))]),
]


def test_questions_that_teach_nothing_are_left_out_of_train_and_listed(tmp_path):
    squad_files.write(tmp_path, train=squad_files.content(*BAD))
    split = read(tmp_path, validation_fraction=0.0).splits["train"]
    broken = {row.name.split(": ")[1]: row.reason for row in split if isinstance(row, Broken)}
    expected = dict(zip(["none", "wrong"], REASONS))
    assert broken == {**expected, "empty": REASONS[0], "blank": "the context has no tokens"}
    assert [row.name.split(":")[0] for row in split if isinstance(row, Broken)] == [
        "train-v1.1.json"
    ] * 4
    assert len(split) == len(list(split))


def test_an_answer_longer_than_every_window_is_left_out(tmp_path):
    long = question("long", "What?", (PARIS, 0))
    squad_files.write(tmp_path, train=squad_files.content((PARIS, [long, *BAD[2][1]])))
    split = read(tmp_path, max_length=20, validation_fraction=0.0).splits["train"]
    reasons = [row.reason for row in split if isinstance(row, Broken)]
    assert reasons == ["no window holds the whole answer"]


def test_other_splits_ask_every_question_and_list_those_without_a_label(tmp_path):
    lines = []
    squad_files.write(tmp_path, dev=squad_files.content(*BAD))
    raw = read(tmp_path, lines, max_length=60)
    described = raw.kind.splits["validation"]
    assert described.num_texts == 5
    assert described.left_out == {"the context has no tokens": 1}
    (listed,) = (line for line in lines if REASONS[1] in line)
    assert listed.startswith("validation: 1 question of")
    assert listed.endswith(": wrong")


def test_long_questions_are_truncated_and_counted(tmp_path):
    squad_files.write(tmp_path, dev=squad_files.content((PARIS, [question("a", "what " * 17)])))
    described = read(tmp_path).kind.splits["validation"]
    assert described.num_truncated == 1


def test_number_of_tokens_is_that_of_the_rows(tmp_path):
    squad_files.write(tmp_path, dev=squad_files.paris_questions())
    raw = read(tmp_path)
    stored = sum(row["input_mask"].sum() for row in rows(raw.splits["validation"]))
    assert raw.kind.splits["validation"].num_tokens == stored


def test_the_side_file_has_all_questions_in_order_and_rows_their_numbers(tmp_path):
    squad_files.write(tmp_path, train=squad_files.paris_questions(), test=squad_files.content(*BAD))
    raw = read(tmp_path, seed=4, max_length=60)
    ids = []
    for name, split in raw.kind.splits.items():
        data = json.loads(raw.files[split.side_file])["data"]
        found = [
            (one["id"], paragraph["context"])
            for article in data
            for paragraph in article["paragraphs"]
            for one in paragraph["qas"]
        ]
        assert len(found) == split.num_texts
        for row in (row for row in raw.splits[name] if isinstance(row, Row)):
            (index,) = np.frombuffer(row.values["question_index"], np.int32)
            assert 0 <= index - len(ids) < len(found)
        ids += found
    train, test = ("capital", "year", "king", "café"), ("none", "wrong", "empty", "blank", "good")
    assert [name for name, _ in ids] == [*train, *test]


def test_held_out_questions_leave_with_their_context(tmp_path):
    squad_files.write(tmp_path, train=squad_files.paris_questions())
    raw = read(tmp_path, validation_fraction=0.4)
    contexts = [
        {split.contexts.read(*row[3:5].tolist()).tobytes() for row in split.rows}
        for split in (raw.splits["train"], raw.splits["validation"])
    ]
    assert sorted(map(len, contexts)) == [1, 1]
    assert contexts[0] != contexts[1]


def test_version_2_is_recognized_by_its_impossible_questions(tmp_path):
    squad_files.write(tmp_path, dev=squad_files.paris_questions("v2.0"))
    raw = read(tmp_path)
    assert raw.properties["has_impossible"] is True
    assert json.loads(next(iter(json_files(raw))))["version"] == "v2.0"


def json_files(raw):
    return [content for name, content in raw.files.items() if name.endswith(".json")]


def test_a_written_data_set_reads_back(tmp_path):
    squad_files.write(tmp_path / "raw", dev=squad_files.paris_questions("v2.0"))
    data_dir = str(tmp_path / "data")
    written = writer.write(read(tmp_path / "raw"), data_dir)
    assert dataset_info.load(data_dir, "squad") == written
    assert written.kind.task == "squad"


def test_two_files_of_one_split_are_refused(tmp_path):
    squad_files.write(tmp_path, dev=squad_files.paris_questions())
    (tmp_path / "dev-v2.0.json").write_text(squad_files.paris_questions("v2.0"))
    with pytest.raises(
        DataError, match=r"dev-v1.1.json and dev-v2.0.json, both of the split 'dev'"
    ):
        read(tmp_path)


def test_a_folder_without_questions_is_refused(tmp_path):
    squad_files.write(tmp_path)
    with pytest.raises(DataError, match=r"has no file that ends in \.json"):
        read(tmp_path)


def test_an_answer_without_a_place_is_no_label(tmp_path):
    """-1 is an unknown place, not the start of the context."""
    questions = [question("known", "What?", ("Paris", 0)), question("not", "What?", ("Paris", -1))]
    content = squad_files.content((PARIS, questions))
    squad_files.write(tmp_path, train=content, dev=content)
    raw = read(tmp_path, max_length=60)
    broken = [row for row in raw.splits["train"] if isinstance(row, Broken)]
    assert [(row.name, row.reason) for row in broken] == [("train-v1.1.json: not", REASONS[1])]
    assert sorted(labels(raw.splits["validation"], PARIS)) == ["", "Paris"]


def test_questions_without_ids_get_some_and_a_line_is_printed(tmp_path):
    lines = []
    entry = {"question": "What?", "answers": [{"text": "Paris", "answer_start": 0}]}
    squad_files.write(tmp_path, dev=squad_files.content((PARIS, [entry, entry])))
    raw = read(tmp_path, lines)
    (article,) = json.loads(raw.files[raw.kind.splits["validation"].side_file])["data"]
    (paragraph,) = article["paragraphs"]
    assert [one["id"] for one in paragraph["qas"]] == ["0-0-0", "0-0-1"]
    assert "dev-v1.1.json has 2 questions without an id" in lines[0]


@pytest.mark.parametrize(
    "names", [("cmrc2018_train", "cmrc2018_dev"), ("Train-v2", "Dev-v2"), ("my.train", "my.valid")]
)
def test_files_may_have_other_names(tmp_path, names):
    squad_files.write(tmp_path)
    for name in names:
        (tmp_path / f"{name}.json").write_text(squad_files.paris_questions())
    assert list(read(tmp_path, max_length=60).splits) == ["train", "validation"]


def test_a_question_must_leave_room_for_the_context(tmp_path):
    squad_files.write(tmp_path, dev=squad_files.paris_questions())
    message = "--max_query_length=37 leaves no room .* in --max_length=40: it must be at most 36"
    with pytest.raises(DataError, match=message):
        read(tmp_path, max_query_length=37)


def test_a_split_without_usable_questions_is_refused(tmp_path):
    squad_files.write(tmp_path, dev=squad_files.content(("", [question("a")])))
    with pytest.raises(DataError, match="no question of 'validation' can be used"):
        read(tmp_path)


def test_windows_of_a_long_context_are_made_one_by_one(tmp_path):
    text = "the king " * 20_000
    split = dev(tmp_path, (text, [question("a", "What?", ("king", 4))]), doc_stride=20)
    assert len(split) == 1 + -(-(40_000 - 35) // 20)
    first = next(iter(split))
    assert isinstance(first, Row)


def test_many_windows_for_each_question_are_warned_of(tmp_path):
    """Questions times windows: an article of a megabyte and 1,000 questions make 200 GB."""
    for length, is_many in ((90, False), (110, True)):
        text = "the king " * (10 * length)
        squad_files.write(tmp_path, dev=squad_files.content((text, [question("a"), question("b")])))
        read(tmp_path, lines := [], doc_stride=20)
        warned = [line for line in lines if "rows for 2 questions" in line]
        assert len(warned) == is_many, lines


def test_find_windows_uses_at_most_the_capacity_as_stride():
    tokens = squad_windows.Tokens(*([np.zeros(50, int)] * 3))
    options = Options("squad", max_length=20, doc_stride=128)
    assert squad_windows.find_windows(np.zeros(7), tokens, options) == Windows(10, 10, 50)
