"""Click logs, for ranking."""

from __future__ import annotations

import dataclasses

import numpy as np

from input_fns import DataError, kinds
from input_fns.core.dataset_parts import Feature
from input_fns.core.json_fields import array, field, file_name, integer, integer_in, named
from input_fns.kinds import Kind

_NUM_NUMBERS = 13  # of Criteo's click logs
_ROWS = array(integer_in(1, 2**31 - 1))


@dataclasses.dataclass(frozen=True)
class Clicks(Kind):
    """Click logs: numbers, categories and whether there was a click, the class.

    Its features are "numbers", float32 `[numbers]`, and "categories", int32 `[categories]`, rows of
    the embedding table of each category; see `clicks_pipeline`.

    Attributes:
      table_rows: number of rows of each table. Row 0 is for a missing value; then come the values
        of the vocabulary, the most frequent first, and the hashed rows of all other values.
      vocabulary_rows: number of rows of each table before the hashed ones.
      vocabulary: name of a file with a line for each of them, table after table: the name of the
        category, a tab, and the value, "" if missing.
      missing: number of missing values of all splits, by name; names without any are left out.
    """

    table_rows: tuple[int, ...] = field(_ROWS)
    vocabulary_rows: tuple[int, ...] = field(_ROWS)
    vocabulary: str = field(file_name)
    missing: dict[str, int] = field(named(integer), default_factory=dict)

    name = "clicks"
    content = "has clicks"
    side_names = ("categories.txt",)
    side_fields = ("vocabulary",)
    model_fields = ("table_rows",)

    def check(self, data):
        """Raises DataError if the features are not numbers and categories, or a table is wrong."""
        numbers, num_tables = data.features.get("numbers"), len(self.table_rows)
        needed = {"numbers": numbers, "categories": Feature("raw", "int32", (num_tables,))}
        is_valid = numbers == Feature("raw", "float32", numbers.shape[:1] if numbers else ())
        if data.features != needed or not is_valid or not numbers.shape:
            raise DataError(
                "features must be numbers, raw float32 [n], and categories, raw int32 "
                f"[{num_tables}], as clicks needs"
            )
        if data.num_classes != 2:
            raise DataError("class_names must be 2, as clicks needs")
        if len(self.vocabulary_rows) != num_tables or not all(
            known < rows for known, rows in zip(self.vocabulary_rows, self.table_rows)
        ):
            raise DataError("clicks.vocabulary_rows must be below clicks.table_rows, one for each")

    def limits(self, data):
        """Returns those of the rows of the tables."""
        return {"categories": (0, self.table_rows)}

    def describe(self, data):
        """Returns the numbers of categories, of rows and of missing values."""
        line = (
            f"{len(self.table_rows)} categories, {sum(self.table_rows)} rows of embeddings, "
            f"{sum(self.table_rows) - sum(self.vocabulary_rows)} of them hashed"
        )
        missing = sum(self.missing.values())
        return f"{line}; {missing} missing values" if missing else line

    def pipeline(self, data, options):
        """Returns a `ClicksPipeline`."""
        from input_fns.tables.clicks_pipeline import ClicksPipeline

        return ClicksPipeline(data, options.cache)

    def file_problems(self, data, name, num_bytes, num_lines):
        """Yields another number of lines than that of all vocabularies."""
        if num_lines != sum(self.vocabulary_rows):
            yield f"has {num_lines} lines, not the {sum(self.vocabulary_rows)} of vocabulary_rows"

    @classmethod
    def synthetic(cls, shapes):
        """Returns click logs."""
        features = {
            "numbers": Feature("raw", "float32", (_NUM_NUMBERS,)),
            "categories": Feature("raw", "int32", (len(shapes.tables),)),
        }
        kind = cls(shapes.tables, shapes.tables, "")
        return kinds.synthetic_dataset(features, ("no click", "click"), kind=kind)

    def random_examples(self, pipeline, size, seed):
        """Returns uniform rows of the tables and numbers like log(1 + x) of counts."""
        random, shape = np.random.default_rng(seed), pipeline.features["numbers"].shape
        numbers = np.log1p(random.exponential(10, [size, *shape])).astype(np.float32)
        categories = random.integers(0, self.table_rows, [size, len(self.table_rows)])
        features = {"numbers": numbers, "categories": categories.astype(np.int32)}
        return features, random.integers(0, 2, size).astype(np.int32)
