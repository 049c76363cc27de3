"""Interactions of users and items, ranked against negatives.

The model gets, for training, evaluation and prediction:

    user         int32 [batch], index of the user
    items        int32 [batch, candidates], indices: an item of the user, then negatives; -1 for
                 none, as after the last item of a catalogue that is too small
    interaction  label, float32 [batch, candidates]: 1 for the item of the user, else 0

Training draws `num_negatives` for each row of each epoch, uniformly from the items without an
interaction of the user in the training split. Interactions of other splits are unknown to it.
Evaluation ranks against the fixed negatives of the data set, or against all items that the user
has no interaction with in any split.
"""

from __future__ import annotations

import dataclasses
import os

import numpy as np
import tensorflow as tf

from common.constants import NUM_NEGATIVES
from input_fns import DataError
from input_fns.core import caching, records, serving
from input_fns.core.input_context import HostShard
from input_fns.core.records import no_autograph
from input_fns.dataset_info import DatasetInfo, Feature
from input_fns.image import images
from input_fns.record_pipeline import RecordPipeline

TOP_K = 10
SCORES, TOP_K_ITEMS = "scores", "top_k"  # signatures
_BATCH = 1024
_CANDIDATES = 2**22  # at once, if all items are candidates of each row
_BITS = 16  # of a random number; two of them choose an item


@dataclasses.dataclass(frozen=True)
class RatingsPipeline(RecordPipeline):
    """Feeds interactions with negatives; see the module.

    Attributes:
      num_negatives: negatives of each training row.
      has_sampling_probability: adds the feature "sampling_probability" to training, float32
        `[batch]`: the share of the rows of the split that have the item.
      rank_all_items: evaluation and prediction have all items as candidates.
    """

    data: DatasetInfo
    cache: str = caching.AUTO
    num_negatives: int = NUM_NEGATIVES
    has_sampling_probability: bool = False
    rank_all_items: bool = False
    outside = "an index in the shards does not match dataset.json"

    @property
    def features(self) -> dict[str, Feature]:
        """Features of an example in prediction, as the model gets them.

        `rank_all_items` changes the number of items of the batches, not that of the signatures.
        """
        return {
            "user": Feature("raw", "int32", ()),
            "items": Feature("raw", "int32", (1 + self.data.kind.num_negatives,)),
        }

    def path(self, name: str) -> str:
        """Returns the path of a file of `data.kind`."""
        return os.path.join(self.data.data_dir, name)

    # Stages.

    def draw(self, count, seed):
        """Returns float32 `[count, 2 * num_negatives]` in [0, 1)."""
        return tf.random.stateless_uniform([count, 2 * self.num_negatives], seed)

    @no_autograph
    def batch_transform(self, features, labels, random):
        """Returns features and labels of the model; in training with random numbers instead."""
        del labels
        if random is not None:
            return {**features, "random": random}, ()
        return _candidates(features["user"], features["item"], features["negatives"])

    def in_order(self, split: str, host_shard: HostShard | None = None) -> tf.data.Dataset:
        """Returns every row once, in order, with its negatives; see `RecordPipeline`.

        Raises:
          DataError: the split has no fixed negatives, or their file is invalid.
        """
        ratings = self.data.kind
        if self.rank_all_items:
            rows = max(1, min(_BATCH, _CANDIDATES // ratings.num_items))
            stored = self.stored(split, host_shard=host_shard)
            return self._with_all_items(stored.rebatch(rows))
        if split not in ratings.negatives:
            raise DataError(
                f"split '{split}' of {self.data.name} has no negatives to rank against. Evaluate "
                f"{' or '.join(sorted(ratings.negatives))}"
            )
        path = self.path(ratings.negatives[split])
        row_bytes = ratings.num_negatives * np.dtype(np.int32).itemsize
        size = tf.io.gfile.stat(path).length
        if size != self.data.split(split).num_examples * row_bytes:
            raise DataError(
                f"{path} has {size} bytes, not {row_bytes} for each row of '{split}'. Prepare the "
                "data set again with prepare_data.py --overwrite"
            )

        @no_autograph
        def parse(content):
            negatives = tf.io.decode_raw(content, tf.int32)
            negatives = tf.ensure_shape(negatives, [None, ratings.num_negatives])
            return images.checked(
                negatives, ratings.num_items, f"{path}: {self.outside}", lowest=-1
            )

        def add_negatives(stored, negatives):
            features, labels = stored
            return self.batch_transform({**features, "negatives": negatives}, labels, None)

        negatives = tf.data.FixedLengthRecordDataset(path, row_bytes).batch(_BATCH)
        negatives = records.select_host_rows(negatives, host_shard).rebatch(_BATCH).map(parse)
        stored = self.stored(split, host_shard=host_shard).rebatch(_BATCH)
        return records.parallel_map(tf.data.Dataset.zip((stored, negatives)), add_negatives)

    def _with_all_items(self, stored):
        """Returns batches of rows with all items as candidates.

        The items that the user has an interaction with in any split are -1.
        """
        num_items = self.data.kind.num_items

        def add_items(row, keys):
            features, labels = row
            user = tf.cast(features["user"], tf.int64)
            first, last = (tf.searchsorted(keys, (user + i) * num_items) for i in (0, 1))
            places = tf.ragged.range(first, last)
            known = tf.cast(tf.gather(keys, places.values) % num_items, tf.int32)
            negatives = tf.broadcast_to(tf.range(num_items), [tf.size(user), num_items])
            negatives = tf.tensor_scatter_nd_update(
                negatives,
                tf.stack([tf.cast(places.value_rowids(), tf.int32), known], axis=1),
                tf.fill([tf.size(known)], -1),
            )
            return self.batch_transform({**features, "negatives": negatives}, labels, None)

        @no_autograph
        def sort_keys(features, labels):
            del labels
            user, item = (tf.cast(features[name], tf.int64) for name in ("user", "item"))
            return tf.sort(user * num_items + item)

        first, *others = map(self.stored, self.data.splits)
        for other in others:
            first = first.concatenate(other)
        size = sum(split.num_examples for split in self.data.splits.values())
        keys = first.rebatch(size).map(sort_keys).cache().repeat()
        return records.parallel_map(tf.data.Dataset.zip((stored, keys)), add_items)

    # Serving.

    @property
    def input_limits(self) -> dict[str, tuple]:
        """`{feature: (lowest, limit)}` of the values of a request; see `serving.checked`."""
        ratings = self.data.kind
        return {"user": (-1, ratings.num_users), "items": (-1, ratings.num_items)}  # -1: unknown

    def receivers(self, top_k: int = 0) -> dict[str, serving.Receiver]:
        """Returns the serving input receivers by signature.

        They take indices, as the model; `scores` takes ids, string `[batch]`, of users and items;
        `top_k` takes ids of users and returns the items with the highest scores of all.

        Args:
          top_k: number of items; 0: `TOP_K`.
        """
        count = top_k or min(TOP_K, self.data.kind.num_items)

        def scores(predictions, features):
            del features
            return {"score": _scores(predictions)[:, 0]}

        def top_items(predictions, features):
            del features
            # The first of equal scores: for an unknown user the most popular items.
            found, items = tf.math.top_k(_scores(predictions), count)
            return {
                "item_id": self._ids_of_items().lookup(tf.cast(items, tf.int64)),
                "score": found,
            }

        return {
            serving.RAW: RecordPipeline.receivers(self)[serving.RAW],
            SCORES: serving.Receiver(
                serving.string_inputs("user_id", "item_id"),
                lambda inputs: {
                    "user": self._indices("users", inputs["user_id"]),
                    "items": self._indices("items", inputs["item_id"])[:, tf.newaxis],
                },
                scores,
                lambda split, count: dict(
                    zip(("user_id", "item_id"), self._first_ids(split, count))
                ),
            ),
            TOP_K_ITEMS: serving.Receiver(
                serving.string_inputs("for_user_id"),
                lambda inputs: {
                    "user": self._indices("users", inputs["for_user_id"]),
                    "items": tf.range(self.data.kind.num_items)[tf.newaxis],
                },
                top_items,
                lambda split, count: {"for_user_id": next(self._first_ids(split, count))},
            ),
        }

    def _indices(self, kind, ids):
        """Returns int32 `[batch]`, the index of each id; -1 for an unknown one."""
        text, line = tf.lookup.TextFileIndex.WHOLE_LINE, tf.lookup.TextFileIndex.LINE_NUMBER
        # The popularity of an item follows its id.
        initializer = tf.lookup.TextFileInitializer(
            self.path(getattr(self.data.kind, kind)),
            tf.string,
            text if kind == "users" else 0,
            tf.int64,
            line,
        )
        return tf.cast(tf.lookup.StaticHashTable(initializer, -1).lookup(ids), tf.int32)

    def _ids_of_items(self):
        """Returns a table from the index of an item to its id."""
        initializer = tf.lookup.TextFileInitializer(
            self.path(self.data.kind.items),
            tf.int64,
            tf.lookup.TextFileIndex.LINE_NUMBER,
            tf.string,
            0,
        )
        return tf.lookup.StaticHashTable(initializer, "")

    def _first_ids(self, split, count):
        """Returns ids of users and of their items of the first rows, objects `[count]`."""
        features = self._first_features(split, count)
        indices = {"users": features["user"], "items": features["items"][:, 0]}
        for kind, wanted in indices.items():
            with tf.io.gfile.GFile(self.path(getattr(self.data.kind, kind)), "rb") as file:
                ids = [line.split(b"\t")[0] for line in file.read().split(b"\n")]
            yield np.array([ids[i] for i in wanted], object)

    # Training.

    def train_input_fn(self, split: str, seed: int, start_step: int = 0):
        """Returns an input_fn for training; see `RecordPipeline`.

        The negatives of a row are a function of the seed and the step.
        """
        input_fn = RecordPipeline.train_input_fn(self, split, seed, start_step)

        def add_negatives(batch, positives):
            features, _ = batch
            user, random = features.pop("user"), features.pop("random")
            negatives = self.choose_negatives(user, positives, random)
            item = features.pop("item")
            if self.has_sampling_probability:
                features["sampling_probability"] = tf.gather(positives["shares"], item)
            candidates, labels = _candidates(user, item, negatives)
            return {**features, **candidates}, labels

        def with_negatives(params):
            dataset = tf.data.Dataset.zip((input_fn(params), self.positives(split)))
            return records.prefetched(records.parallel_map(dataset, add_negatives))

        return with_negatives

    def positives(self, split: str) -> tf.data.Dataset:
        """Returns the interactions of a split as one endless element, for `choose_negatives`.

        It is in memory, 8 bytes per interaction and user: `keys`, int64 `[interactions]`, in
        increasing order, `user * num_items` plus the number of items before this one that the user
        has no interaction with; `starts`, int64 `[users + 1]`, the first key of each user; and
        `shares`, float32 `[items]`, the share of the interactions that are with each item.
        """
        num_users, num_items = self.data.kind.num_users, self.data.kind.num_items

        @no_autograph
        def index(features, labels):
            del labels
            user, item = (tf.cast(features[name], tf.int64) for name in ("user", "item"))
            keys = tf.sort(user * num_items + item)
            first = tf.range(num_users + 1, dtype=tf.int64) * num_items
            starts = tf.searchsorted(keys, first, out_type=tf.int64)
            places = tf.range(tf.size(keys, tf.int64), dtype=tf.int64)
            return {
                "keys": keys - (places - tf.gather(starts, keys // num_items)),
                "starts": starts,
                "shares": tf.math.bincount(
                    tf.cast(item, tf.int32), minlength=num_items, dtype=tf.float32
                )
                / tf.cast(tf.size(item), tf.float32),
            }

        dataset = self.stored(split).rebatch(self.data.split(split).num_examples)
        return dataset.map(index).cache().repeat()

    @no_autograph
    def choose_negatives(self, user, positives, random):
        """Returns items that users have no interaction with, each with the same probability.

        Args:
          user: int32 `[batch]`.
          positives: the element of `positives`.
          random: float32 `[batch, 2 * n]` in [0, 1).

        Returns:
          int32 `[batch, n]`; -1 for a user with an interaction with every item.
        """
        if not self.num_negatives:
            return tf.zeros([user.shape[0], 0], tf.int32)
        num_items = self.data.kind.num_items
        user = tf.cast(user, tf.int64)[:, tf.newaxis]
        start, end = (tf.gather(positives["starts"], user + i) for i in (0, 1))
        num_left = num_items - (end - start)
        high, low = tf.split(tf.cast(random * 2.0**_BITS, tf.int64), 2, axis=1)
        number = (high * 2**_BITS + low) * num_left // 2 ** (2 * _BITS)  # in [0, num_left)
        # The item is its number among those left, plus the positives before it.
        query = user * num_items + number
        place = tf.searchsorted(
            positives["keys"], tf.reshape(query, [-1]), side="right", out_type=tf.int64
        )
        item = number + tf.reshape(place, tf.shape(query)) - start
        item = tf.where(num_left > 0, item, -1)
        return tf.ensure_shape(tf.cast(item, tf.int32), [user.shape[0], self.num_negatives])


def _scores(predictions):
    """Returns the scores of the candidates, `[batch, candidates]`; 0 for an unknown id."""
    return predictions["scores" if "scores" in predictions else "probabilities"]


def _candidates(user, item, negatives):
    """Returns features and labels of the model."""
    items = tf.concat([item[:, tf.newaxis], negatives], axis=1)
    interaction = tf.concat([tf.ones_like(item)[:, tf.newaxis], tf.zeros_like(negatives)], axis=1)
    return {"user": user, "items": items}, {"interaction": tf.cast(interaction, tf.float32)}
