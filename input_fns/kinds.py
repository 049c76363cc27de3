"""Kinds of data: everything that differs between images, texts, tables and recordings.

A new kind is a subclass of `Kind` in a separate file, such as `audio/kind.py`, and a line of
`KINDS`. A start imports the kind of its data set only, so such a file imports pipelines, TensorFlow
and optional dependencies inside of its methods.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from common.constants import ANNOTATION_TASKS, TABLE_TASKS, WORDPIECE_TASKS
from common.names import counted
from input_fns import DataError
from input_fns.core.dataset_parts import nest
from input_fns.core.target import TargetStatistics

if TYPE_CHECKING:
    from input_fns.anomalies.sample import Anomaly, Sample
    from input_fns.dataset_info import DatasetInfo
    from input_fns.image.annotation_checks import Statistics
    from input_fns.pipeline import Pipeline

# `{key in dataset.json: "module:class"}`.
KINDS = {
    "text": "input_fns.text.parallel_kind:Text",
    "wordpiece": "input_fns.text.wordpiece_kind:WordPiece",
    "tokens": "input_fns.text.tokens_kind:Tokens",
    "annotations": "input_fns.image.annotated_kind:Annotations",
    "ratings": "input_fns.tables.ratings_kind:Ratings",
    "clicks": "input_fns.tables.clicks_kind:Clicks",
    "audio": "input_fns.audio.kind:Audio",
}
SYNTHETIC = "synthetic"  # name of the data sets of random examples
# Kinds of the synthetic data sets of tasks.
_KINDS_OF_TASKS = {
    "translation": "text",
    "language_model": "tokens",
    **dict.fromkeys(WORDPIECE_TASKS, "wordpiece"),
    **dict.fromkeys(ANNOTATION_TASKS, "annotations"),
    **{task: task for task in TABLE_TASKS},
}


@dataclasses.dataclass(frozen=True)
class PipelineOptions:
    """Options of the pipeline of a run: values of the flags with these names.

    Attributes:
      cache: "auto", "memory", "none", or a local folder; see `core.caching`.
      image_size: `(height, width)` of the images that the model gets; None for the stored size.
      augment: operations of the augmentation.
      center_crop: fraction of the sides of an image that evaluation keeps.
      export_text: whether a SavedModel takes text.
      dynamic_padding: whether batches of tokens are as long as their longest row.
      group_by_length: whether training batches have rows of similar length.
      join_windows: how predictions of the windows of a text are joined, one of
        `common.constants.JOINS`.
      params: function that returns the hyperparameters of the model.
      model_features: names of the features that the model declares.
    """

    cache: str = "auto"
    image_size: tuple[int, int] | None = None
    augment: str = ""
    center_crop: float = 0.875
    export_text: bool = False
    dynamic_padding: bool = False
    group_by_length: bool = False
    join_windows: str = "mean"
    params: Callable[[], Mapping[str, Any]] = dict
    model_features: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class SyntheticShapes:
    """Shapes of a synthetic data set: values of the flags `synthetic_*`, and --image_size.

    Attributes:
      task: task of the data set.
      classes: number of classes.
      image_size: `(height, width)`.
      text: tokens of a row, size of the vocabulary.
      tables: number of rows of each embedding table.
      audio: samples per second, samples; and tokens of the vocabulary and of a row, or zeros.
    """

    task: str = ""
    classes: int = 2
    image_size: tuple[int, int] = (0, 0)
    text: tuple[int, int] = (0, 0)
    tables: tuple[int, ...] = ()
    audio: tuple[int, int, int, int] = (0, 0, 0, 0)


@dataclasses.dataclass(frozen=True)
class Preview:
    """An example as people look at it; attributes that it lacks are empty.

    Attributes:
      png: a picture, a PNG file.
      wav: a recording, a WAV file.
      text: a text.
    """

    png: bytes = b""
    wav: bytes = b""
    text: str = ""


@dataclasses.dataclass(frozen=True)
class Kind:
    """Records of any features and labels, and what other kinds have in common with them.

    A subclass is a frozen dataclass. Its fields, declared with `json_fields.field`, are those of
    the kind in dataset.json, and it replaces the methods that differ.
    """

    name: ClassVar[str] = ""  # key in dataset.json; "" for records, and images with classes
    content: ClassVar[str] = "has records of other features"  # for messages: "has ratings"
    noun: ClassVar[str] = "examples"
    flags: ClassVar[tuple[str, ...]] = ()  # `PipelineOptions` that other kinds have no use for
    # Names of its files besides shards, such as "vocab.txt", before `content_name` adds a checksum.
    side_names: ClassVar[tuple[str, ...]] = ()
    side_fields: ClassVar[tuple[str, ...]] = ()  # fields with the names of these files
    model_fields: ClassVar[tuple[str, ...]] = ()  # fields that models read as `properties`

    # Metadata.

    def check(self, data: DatasetInfo) -> None:
        """Raises DataError if the fields in dataset.json do not fit those of `data`."""

    def limits(self, data: DatasetInfo) -> dict[str, tuple[int, Any]]:
        """Returns `{feature: (lowest, limit)}` of features with values in [lowest, limit): ids.

        A limit may be one for each column.
        """
        del data
        return {}

    def top_k_limit(self, data: DatasetInfo) -> tuple[int, str]:
        """Returns the highest value of --export_top_k, and what it is a number of."""
        names = data.target.class_names if data.target else data.class_names
        return len(names), "classes"

    def properties(self) -> dict[str, Any]:
        """Returns properties of the data that models read, besides the number of classes."""
        return {name: getattr(self, name) for name in self.model_fields}

    def preparation(self) -> dict[str, Any]:
        """Returns how the examples were made that a trained model depends on, as JSON types."""
        return {}

    def all_class_names(self, data: DatasetInfo) -> tuple[str, ...]:
        """Returns the class names of the examples, or of their parts, in the order of classes."""
        return data.target.class_names if data.target else data.class_names

    def class_counts(self, data: DatasetInfo, split: str) -> dict[str, int]:
        """Returns how often each class is in a split; {} if that is unknown."""
        return dict(zip(data.class_names, data.splits[split].label_histogram))

    def describe(self, data: DatasetInfo) -> str:
        """Returns what the data set has, for people."""
        num_classes = len(self.all_class_names(data))
        if data.target:
            unit = "classes" if num_classes else "numbers per example"
            return f"{data.target.kind} of {len(data.target.names)} {unit}"
        return counted(num_classes, "class", "classes") if num_classes else ""

    # A run.

    def pipeline(self, data: DatasetInfo, options: PipelineOptions) -> Pipeline:
        """Returns the pipeline that feeds a model.

        Raises:
          DataError: the options do not fit the data set.
        """
        from input_fns.record_pipeline import RecordPipeline

        return RecordPipeline(data, options.cache)

    # Inspection, which `prepare_data.py` does before it ends and in --mode=inspect, and a start.

    def side_files(self, data: DatasetInfo, split_names: Iterable[str]) -> list[str]:
        """Returns the names of files of these splits that are not shards, such as a vocabulary."""
        del data, split_names
        return [getattr(self, name) for name in self.side_fields]

    def file_problems(
        self, data: DatasetInfo, name: str, num_bytes: int, num_lines: int
    ) -> Iterator[str]:
        """Yields how the size of a side file differs from that in dataset.json: "has ..."."""
        del data, name, num_bytes, num_lines
        return iter(())

    def statistics(self, data: DatasetInfo) -> Statistics | None:
        """Returns checks of records that need more than `limits`, and sums of what they hold.

        It has the members of `image.annotation_checks.Statistics`. Images are decoded unless it
        `decodes_images`.
        """
        return TargetStatistics(data) if data.target else None

    def split_lines(self, data: DatasetInfo, split_name: str, num_examples: int) -> list[str]:
        """Returns lines about a split, for people."""
        del data, split_name, num_examples
        return []

    def first_example(self, data: DatasetInfo, split_name: str) -> list[str]:
        """Returns lines that show the first example of a valid split."""
        del data, split_name
        return []

    def previews(self, data: DatasetInfo, features: Mapping[str, np.ndarray]) -> list[Preview]:
        """Returns examples as people look at them; [] if they are no sight.

        Args:
          data: the data set.
          features: features `[n, ...]` as the pipeline gives them to a model.
        """
        del data, features
        return []

    def contact_sheet(self, data: DatasetInfo) -> tuple[str, bytes] | None:
        """Returns a PNG file of some examples, and what it shows; None without images."""
        image = data.features.get("image")
        if not data.num_classes or image is None or len(image.shape) != 3:
            return None
        from input_fns.image import contact_sheet

        return "images of each class", contact_sheet.of_classes(data)

    def count_anomalies(self, data: DatasetInfo) -> Iterator[Anomaly]:
        """Yields what is odd about the numbers in dataset.json."""
        del data
        return iter(())

    def anomalies(self, sample: Sample) -> Iterator[Anomaly]:
        """Yields what is odd about some examples of a split: little can be learned from them."""
        from input_fns.image import image_anomalies

        return image_anomalies.of_pixels(sample)

    # Synthetic data.

    @classmethod
    def synthetic(cls, shapes: SyntheticShapes) -> DatasetInfo:
        """Returns a data set of random examples of this kind, without files."""
        raise DataError(f"{cls.__name__} has no synthetic data sets without --data_dir")

    def random_examples(self, pipeline: Pipeline, size: int, seed: int) -> tuple[dict, Any]:
        """Returns random examples like those of the evaluation: NumPy features and labels.

        Args:
          pipeline: the pipeline that they imitate.
          size: number of examples.
          seed: seed of the numbers.
        """
        random, data, limits = np.random.default_rng(seed), pipeline.data, pipeline.data.limits

        def draw(name, feature):
            limit = limits[name][1] if name in limits else 256
            return random.integers(0, limit, [size, *feature.shape]).astype(feature.dtype)

        features = {name: draw(name, feature) for name, feature in pipeline.features.items()}
        if data.target:
            return nest(features), data.target.random(random, size)
        labels = {name: draw(name, data.features[name]) for name in data.labels}
        if data.num_classes:
            labels["label"] = random.integers(0, data.num_classes, size).astype(np.int32)
        return nest(features), nest(labels) if data.labels else labels.get("label", ())

    def random_training_examples(
        self, pipeline: Pipeline, size: int, seed: int
    ) -> tuple[dict, Any]:
        """Returns random examples like those of the training; see `random_examples`."""
        return self.random_examples(pipeline, size, seed)

    def random_host_examples(self, batches: Iterator[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
        """Returns batches of `random_examples` as host metrics get them."""
        return batches


def synthetic_dataset(features: dict, class_names: Iterable[str] = (), **more: Any) -> DatasetInfo:
    """Returns a data set without files: 50,000 random examples in train and 10,000 in test.

    Args:
      features: see `DatasetInfo`.
      class_names: see `DatasetInfo`.
      **more: other attributes of `DatasetInfo`.
    """
    from input_fns.dataset_info import DatasetInfo, splits_without_files  # imports this module

    splits = splits_without_files({"train": 50_000, "test": 10_000})
    return DatasetInfo(SYNTHETIC, "", features, tuple(class_names), splits, **more)


def class_names(count: int) -> tuple[str, ...]:
    """Returns the class names of a synthetic data set."""
    return tuple(f"class {number}" for number in range(count))


def synthetic(shapes: SyntheticShapes) -> DatasetInfo:
    """Returns the data set of random examples that `shapes` describes, without files."""
    if any(shapes.audio):
        return find("audio").synthetic(shapes)
    if any(shapes.text) or shapes.tables or shapes.task in ANNOTATION_TASKS:
        return find(_KINDS_OF_TASKS[shapes.task]).synthetic(shapes)
    from input_fns.image.kind import Images

    return Images.synthetic(shapes)


@functools.cache
def find(name: str) -> type[Kind]:
    """Returns the kind with a key of dataset.json."""
    module, _, attribute = KINDS[name].partition(":")
    return getattr(importlib.import_module(module), attribute)


def without_fields(data: DatasetInfo) -> Kind:
    """Returns the kind of a data set whose dataset.json has no fields of one."""
    has_classes = data.class_names and not data.labels
    if set(data.features) - set(data.labels) == {"image"} and (has_classes or data.target):
        from input_fns.image.kind import Images

        return Images()
    return Kind()
