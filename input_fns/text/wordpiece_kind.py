"""WordPiece text, for BERT."""

from __future__ import annotations

import dataclasses
import importlib
import math
import os

import numpy as np

from common import names
from common.constants import JOINS, SENTENCEPIECE, TRUNCATE, WINDOWS, WORDPIECE_TASKS
from common.errors import UsageError
from input_fns import DataError, kinds
from input_fns.core.dataset_parts import MAX_EXAMPLE_BYTES, Feature, listed
from input_fns.core.json_fields import (
    Fields,
    boolean,
    field,
    file_name,
    file_name_or_empty,
    integer,
    integer_in,
    named,
    nested,
    one_of,
    strings,
)
from input_fns.core.target import FEATURE
from input_fns.kinds import Kind
from input_fns.text.parallel_kind import check_rows

_TASK_LABELS = {
    "classification": (),
    "regression": ("score",),
    "token_classification": ("tag_ids",),
    "squad": ("start_positions", "end_positions"),
    "pretraining": ("masked_lm_ids", "masked_lm_weights", "next_sentence_labels"),
}
# Features that a task needs besides those of all tasks; features and labels of each token.
_TASK_FEATURES = {
    "squad": ("question_index", "token_starts", "token_ends", "is_max_context"),
    "pretraining": ("masked_lm_positions",),
}
_ROWS = ("tag_ids", "token_starts", "token_ends", "is_max_context")
# Features that hold places in a row, and those that are 0 or 1.
_PLACES = ("masked_lm_positions", "start_positions", "end_positions")
_WINDOWS = "a data set of long texts, prepared with --truncate=windows. Remove it"
_FLAGS = ("input_mask", "segment_ids", "masked_lm_weights", "next_sentence_labels")


@dataclasses.dataclass(frozen=True)
class WordPieceSplit:
    """Texts and tokens of a split of WordPiece text.

    Attributes:
      num_texts: number of texts, pairs of texts, sentences or questions in the source.
      num_tokens: number of stored tokens, without padding.
      num_truncated: number of texts that were truncated to max_length.
      left_out: number of texts that are not stored, by reason.
      side_file: name of a file in the folder of the data set with what the host needs to interpret
        predictions, such as the questions of SQuAD; "" without one.
    """

    num_texts: int = field(integer)
    num_tokens: int = field(integer)
    num_truncated: int = field(integer, default=0)
    left_out: dict[str, int] = field(named(integer), default_factory=dict)
    side_file: str = field(file_name_or_empty, default="")

    def describe(self, num_rows: int, max_length: int) -> str:
        """Returns one line about the split, stored in `num_rows` rows of `max_length` tokens."""
        full = self.num_tokens / max(1, num_rows * max_length)
        return (
            f"{self.num_texts} texts, {self.num_tokens} tokens, in {num_rows} rows of "
            f"{max_length}, {full:.0%} full, {self.num_truncated} truncated{listed(self.left_out)}"
        )


@dataclasses.dataclass(frozen=True)
class WordPiece(Kind):
    """Vocabulary and sizes of a data set of WordPiece text.

    Its features are "input_ids", "input_mask" and "segment_ids", integers `[max_length]`, and those
    of the task; see `token_pipeline`.

    Attributes:
      task: one of `common.constants.WORDPIECE_TASKS`.
      vocabulary: name of the vocab.txt, or of the SentencePiece model, in the folder.
      vocab_size: number of lines of vocab.txt, or of pieces.
      max_length: tokens per row, with [CLS] and [SEP].
      lower_case: whether text is lower-cased.
      strip_accents: whether lower-cased text loses its accents.
      has_pairs: whether an example has two texts.
      splits: `{name: WordPieceSplit}`.
      truncate: one of `common.constants.TRUNCATE`: where longer texts lose tokens; "windows": they
        are several rows, with the feature "document_index".
    """

    task: str = field(one_of(WORDPIECE_TASKS))
    vocabulary: str = field(file_name)
    vocab_size: int = field(integer_in(1, 2**31 - 1))
    max_length: int = field(integer_in(1, MAX_EXAMPLE_BYTES))
    lower_case: bool = field(boolean)
    has_pairs: bool = field(boolean)
    splits: dict[str, WordPieceSplit] = field(named(nested(WordPieceSplit)))
    # Data sets of earlier versions have no such fields.
    truncate: str = field(one_of(TRUNCATE), optional=True, default=TRUNCATE[0])
    strip_accents: bool = field(boolean, optional=True, default=True)

    name = "wordpiece"
    content = "is text"
    side_names = ("vocab.txt", "spiece.model", "questions-*.json")
    model_fields = ("vocab_size", "max_length", "has_pairs")
    flags = ("export_text", "group_by_length", "join_windows")

    def check(self, data):
        """Raises DataError if features, labels, classes or properties are not those of the task."""
        check_rows(data.features, ("input_ids", "input_mask", "segment_ids"), self.max_length)
        self._check_features(data)
        self._check_properties(data.properties)
        has_classes = self.task == "classification" and not data.target
        if bool(data.class_names) != has_classes:
            raise DataError(
                f"class_names must {'have names' if has_classes else 'be empty'} for "
                f"wordpiece.task {self.task}"
            )
        for name, feature in data.features.items():
            is_float = name == "score" or (data.target and name == FEATURE)
            kinds, what = ("f", "floats") if is_float else ("iu", "integers")
            if np.dtype(feature.dtype).kind not in kinds:
                raise DataError(f"features.{name}.dtype is {feature.dtype}, and must be of {what}")
        for name in data.splits if self.task == "squad" else ():
            if name not in self.splits or not self.splits[name].side_file:
                raise DataError(f"wordpiece.splits.{name}.side_file is missing, as squad needs it")

    def _check_features(self, data):
        needed, features = _TASK_LABELS[self.task], data.features
        if data.target and self.task != "classification":
            raise DataError(f"target must be missing for wordpiece.task {self.task}")
        if not data.target and set(data.labels) != set(needed):
            raise DataError(
                f"labels are {', '.join(data.labels) or 'missing'}, and must be "
                f"{', '.join(needed) or 'classes'} for wordpiece.task {self.task}"
            )
        num_predictions = features["masked_lm_ids"].shape if "masked_lm_ids" in features else None
        for name in (*needed, *_TASK_FEATURES.get(self.task, ())):
            shape = features[name].shape if name in features else None
            valid = num_predictions if name.startswith("masked_lm") else ()
            if name in _ROWS:
                valid = (self.max_length,)
            if shape is None or shape != valid or features[name].encoding != "raw":
                raise DataError(
                    f"features.{name} must be raw {list(valid or ())} for wordpiece.task"
                )

    def _check_properties(self, properties):
        fields = Fields(properties, "properties")
        if self.task == "token_classification":
            num_tags = fields.integer("num_tags", 1)
            if len(fields.required("tag_names", strings)) != num_tags:
                raise DataError(f"properties.tag_names are not num_tags={num_tags} names")
        if self.task == "squad" or self.truncate == WINDOWS:
            fields.integer("doc_stride", 1, MAX_EXAMPLE_BYTES)
        if self.task == "squad":
            fields.required("has_impossible", boolean)
            fields.integer("max_query_length", 1, max(1, self.max_length - 4))
        if "tag_names" in fields:
            wrong = names.find_class_name_problem(fields.required("tag_names", strings))
            if wrong:
                raise DataError(f"properties.tag_names: {wrong}")

    def limits(self, data):
        """Returns those of token ids, tags, places and flags."""
        limits = {
            **dict.fromkeys(("input_ids", "masked_lm_ids"), self.vocab_size),
            **dict.fromkeys(_PLACES, self.max_length),
            **dict.fromkeys(_FLAGS, 2),
        }
        found = {name: (0, limits[name]) for name in data.features if name in limits}
        if self.task == "token_classification":
            found["tag_ids"] = -1, data.properties["num_tags"]  # -1: no word starts there
        return found

    def preparation(self):
        """Returns where longer texts are truncated, and whether accents are kept."""
        return {"truncation": self.truncate, "accents": self.strip_accents}

    def pipeline(self, data, options):
        """Returns the pipeline of the task."""
        from input_fns.text.document_pipeline import DocumentPipeline
        from input_fns.text.squad_pipeline import SquadPipeline
        from input_fns.text.tag_pipeline import TagDocumentPipeline
        from input_fns.text.token_pipeline import TokenPipeline

        has_windows = self.truncate == WINDOWS and self.task in ("classification", "regression")
        joins = JOINS if self.task == "classification" else JOINS[:2]
        if options.join_windows not in (joins if has_windows else JOINS[:1]):
            raise UsageError(
                f"--join_windows={options.join_windows} needs "
                + (f"one of {', '.join(joins)} for {self.task}" if has_windows else _WINDOWS)
            )

        if options.export_text:
            if self.task not in ("classification", "regression", "squad"):
                raise UsageError(
                    "--export_text needs texts with classes or scores, or questions about texts; "
                    f"{data.name} is a data set of {self.task}"
                )
            if self.vocabulary.endswith(SENTENCEPIECE):
                raise UsageError(
                    "--export_text needs a vocab.txt of WordPiece; the vocabulary of "
                    f"{data.name} is a SentencePiece model. Remove --export_text"
                )
            importlib.import_module("input_fns.text.wordpiece_ops")  # raises what is missing
        make = SquadPipeline if self.task == "squad" else TokenPipeline
        more = {}
        if has_windows:
            make, more = DocumentPipeline, {"join_windows": options.join_windows}
        elif self.truncate == WINDOWS and self.task == "token_classification":
            make = TagDocumentPipeline
        return make(
            data,
            options.cache,
            options.export_text,
            options.dynamic_padding,
            options.group_by_length,
            **more,
        )

    def side_files(self, data, split_names):
        """Returns the vocabulary, and the questions of SQuAD."""
        of_splits = [self.splits[name].side_file for name in split_names if name in self.splits]
        return [self.vocabulary, *of_splits]

    def file_problems(self, data, name, num_bytes, num_lines):
        """Yields another number of lines than that of the vocabulary."""
        is_text = not name.endswith(SENTENCEPIECE)
        if name == self.vocabulary and is_text and num_lines != self.vocab_size:
            yield f"has {num_lines} lines, not vocab_size={self.vocab_size}"

    def split_lines(self, data, split_name, num_examples):
        """Returns a line about the texts."""
        found = self.splits.get(split_name)
        return [found.describe(num_examples, self.max_length)] if found else []

    def first_example(self, data, split_name):
        """Returns the tokens of the first example as text, and its labels."""
        import tensorflow as tf

        from input_fns.core import serving

        tokenizer = self._tokenizer(data)
        (record,) = serving.first_records(data.files(split_name), 1)
        stored = tf.train.Example.FromString(record).features.feature
        values = {
            name: np.frombuffer(
                stored[name].bytes_list.value[0], np.dtype(feature.dtype).newbyteorder("<")
            )
            for name, feature in data.features.items()
        }
        lines = [f"  first: {names.shown(tokenizer.decode(values['input_ids'].tolist()))}"]
        if data.num_classes:
            label = stored["label"].int64_list.value[0]
            lines.append(f"    label = {data.class_names[label]}")
        for name in data.labels:
            row = values[name].tolist()
            if name == "masked_lm_ids":
                row = [names.shown(tokenizer.pieces[i]) for i in row if i != tokenizer.pad_id]
            elif name == "tag_ids":
                row = [data.properties["tag_names"][i] for i in row if i >= 0]
            lines.append(f"    {name} = {row[0] if len(row) == 1 else row}")
        return lines

    def previews(self, data, features):
        """Returns texts as their tokens have them; [] of windows, which are parts of examples."""
        if self.truncate == WINDOWS:
            return []
        decode = self._tokenizer(data).decode
        return [kinds.Preview(text=decode(row.tolist())) for row in features["input_ids"]]

    def _tokenizer(self, data):
        from input_fns.text import encoder_vocabulary

        path = os.path.join(data.data_dir, self.vocabulary)
        return encoder_vocabulary.load(path, self.lower_case, self.strip_accents)

    def anomalies(self, sample):
        """Yields texts of another script."""
        from input_fns.text import text_anomalies

        ids = sample.values("input_ids")
        if "masked_lm_ids" in sample.data.features:
            masked = sample.values("masked_lm_ids")[sample.values("masked_lm_weights") > 0]
            ids = np.concatenate([ids.ravel(), masked])
        pieces = text_anomalies.of_encoder(self.vocabulary, sample.content(self.vocabulary))
        return text_anomalies.of_tokens(sample, ids, pieces)

    @classmethod
    def synthetic(cls, shapes):
        """Returns rows of tokens with 2 classes, or 9 tags; pre-training predicts 15 % of them."""
        task, (max_length, vocab_size) = shapes.task, shapes.text
        row, number = Feature("raw", "int32", (max_length,)), Feature("raw", "int32", ())
        predictions = Feature("raw", "int32", (math.ceil(0.15 * max_length),))
        labels = {
            "classification": {},
            "regression": {"score": Feature("raw", "float32", ())},
            "token_classification": {"tag_ids": row},
            "squad": {"start_positions": number, "end_positions": number},
            "pretraining": {
                "masked_lm_ids": predictions,
                "masked_lm_weights": predictions,
                "next_sentence_labels": number,
            },
        }[task]
        features = dict.fromkeys(("input_ids", "input_mask", "segment_ids"), row)
        if task == "pretraining":
            features["masked_lm_positions"] = predictions
        return kinds.synthetic_dataset(
            {**features, **labels},
            ("0", "1") if task == "classification" else (),
            labels=tuple(labels),
            properties={"num_tags": 9} if task == "token_classification" else {},
            kind=cls(task, "", vocab_size, max_length, True, False, {}),
        )

    def random_examples(self, pipeline, size, seed):
        """Returns rows without padding and random labels of the task."""
        random, data = np.random.default_rng(seed), pipeline.data
        limits = {"score": 2, **{name: limit for name, (_, limit) in data.limits.items()}}
        values = {
            name: random.integers(0, limits[name], [size, *feature.shape], np.int32)
            for name, feature in data.features.items()
            if name in limits
        }
        for name in ("input_mask", "masked_lm_weights"):
            if name in values:
                values[name] = np.ones_like(values[name])
        if data.target:
            return values, data.target.random(random, size)
        labels = {name: values.pop(name) for name in data.labels}
        if "score" in labels:
            labels["score"] = labels["score"].astype(np.float32)
        if data.num_classes:
            return values, random.integers(0, data.num_classes, size).astype(np.int32)
        return values, labels
