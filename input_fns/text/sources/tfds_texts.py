"""Texts of tensorflow-datasets: translations, questions, tags of words, classes and scores.

See `convert.tfds`.
"""

from __future__ import annotations

import json

import numpy as np

from input_fns import DataError
from input_fns.convert.files import note
from input_fns.convert.source import RawDataset
from input_fns.convert.tables import Places
from input_fns.convert.tfds import Reader, of_class
from input_fns.dataset_info import LeftOut
from input_fns.text import squad_json
from input_fns.text.sources import text_files, token_files
from input_fns.text.sources.parallel_text import RawText
from input_fns.text.sources.squad import RawQuestions
from input_fns.text.sources.text_files import CLASSIFICATION, REGRESSION, LabelledTable
from input_fns.text.sources.token_files import RawSentences

_LABEL, _UNLABELLED = ("label",), -1
_WORDS, _TAGS = ("tokens", "words"), ("ner", "ner_tags", "tags", "upos", "pos")
# Features of one or two texts, as in GLUE.
_TEXTS = (
    *(("text",), ("sentence",), ("review",), ("sentence1", "sentence2"), ("premise", "hypothesis")),
    *(("question", "sentence"), ("question1", "question2"), ("question", "passage")),
)


def _find_translation(features, options):
    languages = getattr(features, "languages", None)
    if not languages:
        return None
    if len(options.languages) != 2 or not set(options.languages) <= set(languages):
        raise DataError(
            f"{options.dataset} has the languages {', '.join(languages)}. Name source and target: "
            f"--languages={','.join(languages[:2])}"
        )
    return dict(zip(("source", "target"), options.languages))


def _read_translation(tables, roles, options) -> RawDataset:
    splits = {}
    for split in tables.splits:
        source, target = tables.columns(split, list(roles.values()))
        splits[split] = RawText(list(source), list(target), np.arange(1, len(source) + 1))
    return RawDataset(options.dataset, (), splits, encoder="text.sources.subwords")


def _find_tags(features, options):
    inside = {name: getattr(feature, "feature", None) for name, feature in features.items()}
    words = of_class(inside, "Text", _WORDS)
    tags = of_class(inside, "ClassLabel", (*options.label_columns, *_TAGS))
    return {"words": words, "tags": tags} if words and tags else None


def _read_tags(tables, roles, options) -> RawDataset:
    names, splits = tables.features[roles["tags"]].feature.names, {}
    for split, name in tables.splits.items():
        words, tags = tables.columns(split, list(roles.values()))
        splits[split] = RawSentences(
            [[word.decode("utf-8", "replace") for word in sentence] for sentence in words],
            [[names[tag] for tag in sentence] for sentence in tags],
            Places(f"{name}, example ", np.arange(len(words))),
        )
    return token_files.to_dataset(options, splits, LeftOut())


def _find_questions(features, options):
    del options
    names = {"context", "question", "answers"}
    found = {name: name for name in ("context", "question", "title", "id") if name in features}
    inside = getattr(features["answers"], "feature", {}) if "answers" in features else {}
    if not names <= {*found, "answers"} or not {"text", "answer_start"} <= set(inside):
        return None
    return {**found, "answer": "answers/text", "start": "answers/answer_start"}


def _read_questions(tables, roles, options) -> RawDataset:
    left_out, splits = LeftOut(), {}
    for split, name in tables.splits.items():
        articles: dict[str, dict[str, list]] = {}
        for number, values in enumerate(zip(*tables.columns(split, list(roles.values())))):
            row = {
                role: value.decode("utf-8", "replace") if isinstance(value, bytes) else value
                for role, value in zip(roles, values)
            }
            answers = [
                {"text": text.decode("utf-8", "replace"), "answer_start": int(start)}
                for text, start in zip(row["answer"], row["start"])
            ]
            question = {"id": row.get("id", str(number)), "question": row["question"]}
            question.update(answers=answers, is_impossible=not answers)
            article = articles.setdefault(row.get("title", ""), {})
            article.setdefault(row["context"], []).append(question)
        data = [
            {
                "title": title,
                "paragraphs": [{"context": each, "qas": qas} for each, qas in contexts.items()],
            }
            for title, contexts in articles.items()
        ]
        # The checks are those of the files.
        questions = squad_json.parse(json.dumps({"data": data}), name, left_out, note)
        splits[split] = RawQuestions(name, questions, np.arange(len(questions)))
    encoder = "text.sources.squad_encode"
    return RawDataset(options.dataset, (), splits, left_out=left_out, encoder=encoder)


def _find_texts(features, options):
    there = {name for name, feature in features.items() if of_class({name: feature}, "Text")}
    only = tuple(there) if len(there) == 1 else ()
    usual = next((names for names in _TEXTS if there.issuperset(names)), only)
    names = options.text_columns or usual
    missing = [name for name in names if name not in there]
    if missing or len(names) > 2:
        raise DataError(
            f"--text_columns={','.join(names)}: one or two of the texts {', '.join(sorted(there))}"
        )
    return dict(zip(("text", "second text"), names))


def _find_classes(features, options):
    label, texts = of_class(features, "ClassLabel", _LABEL), _find_texts(features, options)
    return {**texts, "label": label} if texts and label else None


def _find_scores(features, options):
    texts = _find_texts(features, options)
    score = features["label"] if texts and "label" in features else None
    is_score = getattr(score, "shape", None) == () and np.dtype(score.np_dtype).kind == "f"
    return {**texts, "score": "label"} if is_score else None


def _read_labelled(tables, roles, options) -> RawDataset:
    feature, splits = tables.features[list(roles.values())[-1]], {}
    names = tuple(getattr(feature, "names", ()))
    for split in tables.splits:
        *texts, labels = tables.columns(split, list(roles.values()))
        texts = tuple([text.decode("utf-8", "replace") for text in column] for column in texts)
        places = list(tables.names(split, len(labels)))
        is_to_predict = all(label == _UNLABELLED for label in labels)
        if is_to_predict:
            labels = [None] * len(labels)
        else:
            labels = [names[label] if names else repr(float(label)) for label in labels]
        table = LabelledTable(places, texts, labels, columns=tuple(roles.values()))
        empty = [row for row, both in enumerate(zip(*texts)) if not any(map(str.strip, both))]
        if is_to_predict:  # predictions belong to the examples by their number
            empty = []
        splits[split] = text_files.without_rows(table, dict.fromkeys(empty, "rows without a text"))
    task = CLASSIFICATION if names else REGRESSION
    return text_files.to_dataset(options, splits, task, names)


_OPTIONS = "vocabulary vocab_size max_length"
READERS = (
    Reader(
        *("classification", "translations", "texts in two languages"),
        *(f"{_OPTIONS} subwords", _find_translation, _read_translation),
    ),
    Reader(
        *("classification", "questions", "context, question and answers as in SQuAD"),
        *(
            f"{_OPTIONS} lower_case strip_accents doc_stride max_query_length",
            _find_questions,
            _read_questions,
        ),
    ),
    Reader(
        *("classification", "words with tags", "a sequence of texts and a sequence of labels"),
        *(f"{_OPTIONS} lower_case strip_accents label_columns", _find_tags, _read_tags),
    ),
    Reader(
        *(CLASSIFICATION, "texts with classes", "one or two texts and a label"),
        *(
            f"{_OPTIONS} lower_case strip_accents truncate doc_stride",
            _find_classes,
            _read_labelled,
        ),
    ),
    Reader(
        *(REGRESSION, "texts with scores", "one or two texts and a label that is a float"),
        *(f"{_OPTIONS} lower_case strip_accents truncate doc_stride", _find_scores, _read_labelled),
    ),
)
