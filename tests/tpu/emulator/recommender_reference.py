"""The training of `recommender` in NumPy, in float64, example by example."""

import numpy as np

from tests.tpu.emulator import recommender
from tests.tpu.emulator.recommender import FEATURES, TABLES


def train(
    num_cores,
    rule,
    num_slots=(),
    *,
    num_hosts=1,
    is_mod=False,
    stale=0,
    iterations=10,
    sum_duplicates=True,
):
    """Returns the variables after `recommender.STEPS` steps, in the order of the checkpoint.

    Args:
      num_cores: number of cores.
      rule: function (step, table name, rows, slots..., gradients) to new rows and slots.
      num_slots: the first value of each slot.
      num_hosts: number of hosts.
      is_mod: True if id i is in row i // num_hosts of host i % num_hosts.
      stale: number of updates that a lookup misses.
      iterations: steps per loop; the first lookup of a loop misses no update.
      sum_duplicates: False to update a row once for each of its ids.
    """
    data = recommender.batches(num_cores)
    data = {name: value.reshape(len(value), -1, *value.shape[3:]) for name, value in data.items()}
    order = {name: _order(table.rows, num_hosts, is_mod) for name, table in TABLES.items()}
    state = {}
    for name in TABLES:
        values = recommender.initial(name).astype(np.float64)
        state[name] = [values, *(np.full_like(values, slot) for slot in num_slots)]
        state[name] = [array[np.argsort(order[name])] for array in state[name]]
    dense = {name: recommender.initial_weights(name).astype(np.float64) for name in FEATURES}
    waiting = []
    for step in range(recommender.STEPS):
        tables = {name: arrays[0] for name, arrays in state.items()}
        batch = {name: value[step] for name, value in data.items()}
        touched, dense = _step(tables, dense, batch)
        waiting.append((step, touched))
        keep = stale if (step + 1) % iterations else 0
        while len(waiting) > keep:
            _update(state, rule, *waiting.pop(0), sum_duplicates)
    found = {f"dense/{name}": value for name, value in dense.items()}
    for name, arrays in state.items():
        for i, array in enumerate(arrays):
            found[f"{name}/{i}"] = array[order[name]]
    return found


def predict(tables, dense, batch):
    """Returns the predictions of a batch, [batch]."""
    return np.array(
        [
            sum(
                (row * factor * np.atleast_2d(dense[name])[position]).sum()
                for name in FEATURES
                for _, row, factor, position in _lookups(tables, name, batch, example)
            )
            for example in range(len(batch["label"]))
        ]
    )


def _step(tables, dense, batch):
    """Returns [(table, id, gradient)] and the new dense weights."""
    errors = (predict(tables, dense, batch) - batch["label"]) / len(batch["label"])
    touched, new = [], {name: value.copy() for name, value in dense.items()}
    for name, feature in FEATURES.items():
        for example, error in enumerate(errors):
            for index, row, factor, position in _lookups(tables, name, batch, example):
                weights = np.atleast_2d(dense[name])[position]
                touched.append((feature.table, index, error * factor * weights))
                np.atleast_2d(new[name])[position] -= recommender.DENSE_RATE * error * factor * row
    return touched, new


def _lookups(tables, name, batch, example):
    """Yields (id, its row, factor, position) of an example."""
    feature = FEATURES[name]
    ids = np.atleast_1d(batch[name][example])
    weights = batch[feature.weight][example] if feature.weight else np.ones(len(ids))
    weights = np.where(ids < 0, 0, weights).astype(np.float64)
    combiner = "sum" if feature.length else TABLES[feature.table].combiner
    scale = {"mean": weights.sum(), "sqrtn": (weights**2).sum() ** 0.5}.get(combiner, 1)
    for position, index in enumerate(ids):
        if index >= 0 and not (feature.length and position >= feature.length):
            row = tables[feature.table][index]
            yield index, row, weights[position] / scale, position if feature.length else 0


def _update(state, rule, step, touched, sum_duplicates):
    if sum_duplicates:
        sums = {}
        for table, index, gradient in touched:
            sums[table, index] = sums.get((table, index), 0) + gradient
        touched = [(*key, gradient) for key, gradient in sums.items()]
    for name, arrays in state.items():
        # A lookup of a later step may hold the old table.
        state[name] = [array.copy() for array in arrays]
    for table, index, gradient in touched:
        rows = [array[index] for array in state[table]]
        for array, row in zip(state[table], rule(step, table, *rows, gradient)):
            array[index] = row


def _order(rows, num_hosts, is_mod):
    """Returns the id of each row of a checkpoint."""
    if not is_mod:
        return np.arange(rows)
    return np.concatenate([np.arange(host, rows, num_hosts) for host in range(num_hosts)])
