"""Interactions of users and items, for recommendation."""

from __future__ import annotations

import dataclasses

import numpy as np

from common.constants import NUM_NEGATIVES
from input_fns import DataError, kinds
from input_fns.core.dataset_parts import Feature, listed
from input_fns.core.json_fields import field, file_name, integer, integer_in, named
from input_fns.kinds import Kind

EVALUATION_NEGATIVES = 99  # of each evaluation row (He et al. 2017, arXiv:1708.05031)


@dataclasses.dataclass(frozen=True)
class Ratings(Kind):
    """Interactions of users and items.

    Its features are "user" and "item", int32 scalars, indices; see `ratings_pipeline`.

    Attributes:
      num_users: number of users.
      num_items: number of items.
      num_negatives: negatives of each evaluation row.
      users: name of a file with the id of each user, one per line, in the order of the indices.
      items: name of a file with the id of each item and, after a tab, its interactions in "train".
        The most popular item is the first.
      negatives: `{split: name of a file}` of evaluation splits: int32 `[rows, num_negatives]`,
        little-endian; -1 where a user has no more items left.
      left_out: number of interactions that are not stored, by reason.
    """

    num_users: int = field(integer_in(1, 2**31 - 1))
    num_items: int = field(integer_in(1, 2**31 - 1))
    num_negatives: int = field(integer_in(1, 2**16))
    users: str = field(file_name)
    items: str = field(file_name)
    negatives: dict[str, str] = field(named(file_name))
    left_out: dict[str, int] = field(named(integer), default_factory=dict)

    name = "ratings"
    content = "has ratings"
    side_names = ("users.txt", "items.txt", "negatives-*.bin")
    model_fields = ("num_users", "num_items")

    def check(self, data):
        """Raises DataError if the features are not a user and an item."""
        if data.features != dict.fromkeys(("user", "item"), Feature("raw", "int32", ())):
            raise DataError("features must be user and item, raw int32 scalars, as ratings needs")
        unknown = [name for name in self.negatives if name not in data.splits]
        if unknown:
            raise DataError(f"ratings.negatives has {unknown[0]!a}, which is not a split")
        if data.labels or data.class_names:
            raise DataError("labels and class_names must be empty for ratings")

    def limits(self, data):
        """Returns those of the indices."""
        return {"user": (0, self.num_users), "item": (0, self.num_items)}

    def top_k_limit(self, data):
        """Returns the number of items: the export ranks them for a user."""
        return self.num_items, "items"

    def describe(self, data):
        """Returns the numbers of users and items, and what is left out."""
        return f"{self.num_users} users, {self.num_items} items{listed(self.left_out)}"

    def pipeline(self, data, options):
        """Returns a `RatingsPipeline` with the negatives that the hyperparameters ask for."""
        from input_fns.tables.ratings_pipeline import RatingsPipeline

        params = options.params()
        return RatingsPipeline(
            data,
            options.cache,
            num_negatives=params.get("num_negatives", NUM_NEGATIVES),
            has_sampling_probability=params.get("logq_correction", False),
            rank_all_items=params.get("rank_all_items", False),
        )

    @property
    def files(self) -> tuple[str, ...]:
        """Names of all files, in the folder of the data set."""
        return (self.users, self.items, *self.negatives.values())

    def side_files(self, data, split_names):
        """Returns the files of users, items and negatives."""
        return list(self.files)

    def file_problems(self, data, name, num_bytes, num_lines):
        """Yields other numbers of users, items or negatives."""
        for field_name, listed_in in (("num_users", self.users), ("num_items", self.items)):
            if name == listed_in and num_lines != getattr(self, field_name):
                yield f"has {num_lines} lines, not {field_name}={getattr(self, field_name)}"
        for split, listed_in in self.negatives.items():
            expected = 4 * data.splits[split].num_examples * self.num_negatives
            if name == listed_in and num_bytes != expected:
                yield (
                    f"has {num_bytes} bytes, not the {expected} of num_negatives="
                    f"{self.num_negatives} of the examples of '{split}'"
                )

    def anomalies(self, sample):
        """Yields evaluation rows with too few candidates, or of too few users."""
        from input_fns.tables import ratings_anomalies

        return ratings_anomalies.of_negatives(sample)

    @classmethod
    def synthetic(cls, shapes):
        """Returns interactions of users and items."""
        index = Feature("raw", "int32", ())
        kind = cls(*shapes.tables, EVALUATION_NEGATIVES, "", "", {})
        return kinds.synthetic_dataset({"user": index, "item": index}, kind=kind)

    def random_examples(self, pipeline, size, seed):
        """Returns users with a positive and all negatives of training and evaluation."""
        random = np.random.default_rng(seed)
        width = 1 + max(self.num_negatives, pipeline.num_negatives)
        items = random.integers(0, self.num_items, [size, width], np.int32)
        interaction = np.zeros([size, width], np.float32)
        interaction[:, 0] = 1
        user = random.integers(0, self.num_users, size, np.int32)
        return {"user": user, "items": items}, {"interaction": interaction}

    def random_training_examples(self, pipeline, size, seed):
        """Returns users with a positive and the negatives of training."""
        features, labels = self.random_examples(pipeline, size, seed)
        candidates = slice(1 + pipeline.num_negatives)
        features["items"] = features["items"][:, candidates]
        features["sampling_probability"] = np.full(size, np.float32(1 / self.num_items))
        return features, {"interaction": labels["interaction"][:, candidates]}
