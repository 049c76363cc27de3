"""Differences between the variables of two trainings, and the text and verdict of a comparison."""

from __future__ import annotations

import dataclasses
import fractions

import numpy as np

from tpu.connect.topology import Topology

EQUAL, NOT_EQUAL, PER_CORE = 0, 1, 3  # exit statuses; 2 is that of a failure
# Differences up to this multiple of what another order of the same examples causes are rounding.
_ROUNDING_FACTOR = 20
# A variable of which another order changes this part is rounding itself, such as the bias of the
# keys in attention, whose gradient is 0.
_NOTHING_BUT_ROUNDING = 0.1
# More float32 epsilons per step than another order of the same sums changes, unless the training
# amplifies it. A sum of n terms changes by sqrt(n) epsilons of the sum of their absolute values:
# which is 1,000 for a million terms, or for 10,000 that cancel to a tenth.
_MOST_EPSILONS = 1000
# A factor is a finding only if the values agree this well.
_NEARLY_EQUAL = 1e-2
# A factor leaves that much of a difference if it explains it in part.
_CLEARLY_LESS = 0.1
# Part of the variables that differ and must have a factor for it to be that of the gradients.
_NEARLY_ALL = 0.9
# Elements that are compared at a time: a table of embeddings may take half of the memory.
_CHUNK = 1 << 22


@dataclasses.dataclass(frozen=True)
class Difference:
    """A variable after training on emulated cores and on the CPU.

    Attributes:
      name: name in the checkpoint.
      is_trainable: False for the state of the optimizer, moving averages and counters.
      factor: what the CPU's values are multiplied by first. Not 1 if that makes all values equal:
        an optimizer's moments, if gradients are summed over the cores and not averaged, or if the
        cores average sums over their batches: a fraction.
      largest: max abs difference; infinite if values are NaN or infinite in one training only.
      relative: `largest`, relative to the max abs value of the variable on the CPU.
      rounding: the relative difference of two trainings on the CPU with the examples of each batch
        in another order; None if unknown.
      is_exact: True for integers and booleans, of which no difference is rounding.
      is_finite: False if values are NaN or infinite in both trainings.
    """

    name: str
    is_trainable: bool
    factor: float
    largest: float
    relative: float
    rounding: float | None
    is_exact: bool = False
    is_finite: bool = True


@dataclasses.dataclass
class Comparison:
    """Results of a comparison.

    Attributes:
      steps: number of training steps.
      where: "file:line" of the call of `train`.
      differences: one for each variable.
      causes: what may make the results differ other than by rounding.
      digests: SHA-256 of the variables, `{"emulated cores" or "CPU": hex digits}`.
      notes: other facts about the trainings.
      proofs: results of the further trainings that look for the cause of a difference.
      is_per_core: True if they prove that the results differ only by what each core computes on
        its own batch.
      own: names and places of what each core computes on its own batch.
      is_repeatable: False if the same training on the CPU gives other variables the second time.
    """

    steps: int
    where: str
    differences: list[Difference]
    causes: list[str]
    digests: dict[str, str]
    notes: list[str] = dataclasses.field(default_factory=list)
    proofs: list[str] = dataclasses.field(default_factory=list)
    is_per_core: bool = False
    own: list[str] = dataclasses.field(default_factory=list)
    is_repeatable: bool = True

    @property
    def largest(self) -> list[Difference]:
        """The differences of variables that are more than rounding, the largest weights first."""
        return _more_than_rounding(self.differences)

    @property
    def is_decided(self) -> bool:
        """True if rounding does not drown the differences of most variables, nor NaN any."""
        is_finite = all(difference.is_finite for difference in self.differences)
        if (
            not is_finite
            or not self.is_repeatable
            or 2 * len(self.largest) <= len(self.differences)
        ):
            return False
        # A difference much larger than an amplified rounding is still one.
        return bool(self.not_rounding) or not self.is_amplified

    @property
    def is_amplified(self) -> bool:
        """True if another order of the examples changes most weights by more than rounding."""
        known = [d for d in self.differences if d.rounding and not d.is_exact]  # frozen ones: 0
        known = [d for d in known if d.is_trainable] or known
        too_large = [d for d in known if d.rounding > most_rounding(self.steps)]
        return 2 * len(too_large) > len(known)

    @property
    def has_factors(self) -> bool:
        """True if the report shows factors."""
        return any(difference.factor != 1 for difference in self.largest)

    @property
    def has_sums(self) -> bool:
        """True if factors show that the cores average sums over the examples of their batches."""
        return any(difference.factor < 1 for difference in self.largest)

    @property
    def not_rounding(self) -> list[Difference]:
        """The differences that are too large to be rounding."""
        return not_rounding(self.differences, self.steps)

    @property
    def status(self) -> int:
        """The exit status."""
        if not self.is_decided:
            return NOT_EQUAL
        if not self.not_rounding:
            return EQUAL
        return PER_CORE if self.is_per_core else NOT_EQUAL


def most_rounding(steps: int) -> float:
    """Returns the largest relative difference that is the rounding of some steps, not amplified."""
    return _MOST_EPSILONS * steps * float(np.finfo(np.float32).eps)


def includes(differences: list[Difference], variable: str) -> bool:
    """Returns True if a variable, or a slot of an optimizer for it, is among differences."""
    return any(f"{found.name}/".startswith(f"{variable}/") for found in differences)


def not_rounding(differences: list[Difference], steps: int) -> list[Difference]:
    """Returns the differences of a training of some steps that are too large to be rounding."""
    counted = _more_than_rounding(differences)
    typical = np.median([d.rounding for d in counted if d.rounding is not None] or [0])
    smallest = max(typical, steps * np.finfo(np.float32).eps)

    def limit(difference):
        if difference.is_exact:
            return 0
        return _ROUNDING_FACTOR * max(smallest, difference.rounding or 0)

    return [d for d in counted if not d.relative <= limit(d)]


def compare(a, b, trainable, num_replicas: int, rounding) -> list[Difference]:
    """Returns the differences between the variables of two trainings.

    Args:
      a: `{name: array}` of the training on emulated cores.
      b: the same, or fewer variables, on the CPU.
      trainable: names of the trainable variables.
      num_replicas: number of replicas, of which sums of gradients may be a multiple, and means of
        sums a fraction.
      rounding: `{name: relative difference}` that rounding causes; {} if unknown.
    """
    plain, scaled = [], []
    for name, value in b.items():
        is_exact = value.dtype.kind in "biu"
        found = {1: difference(a[name], value)}
        # Sums of gradients are num_replicas times their mean, sums of squares its square.
        if found[1][1] > _NEARLY_EQUAL and not is_exact:
            powers = [num_replicas, num_replicas**2]
            # Other state, such as a counter of each core, is less for another reason.
            powers += [1 / power for power in powers if _is_slot(name, trainable)]
            for factor in powers:
                found[factor] = difference(a[name], value, factor)
        close = [factor for factor in found if found[factor][1] <= _NEARLY_EQUAL]
        best = min(found, key=lambda factor: found[factor][1])
        is_clear = found[best][1] < _CLEARLY_LESS * found[1][1]
        factor = min(close) if close else best if is_clear else 1
        is_finite = is_exact or bool(np.isfinite(a[name]).all() or np.isfinite(value).all())
        for differences, multiple in ((plain, 1), (scaled, factor)):
            differences.append(
                Difference(
                    *(name, name in trainable, multiple, *found[multiple], rounding.get(name)),
                    *(is_exact, is_finite),
                )
            )
    return _with_common_factors(plain, scaled)


def _with_common_factors(plain, scaled):
    """Returns the differences in `scaled`, but those in `plain` if other variables lack a factor.

    All gradients are a multiple, so that nearly all slots of the optimizer are one; likewise
    weights that begin at 0.
    """
    result = list(plain)
    for is_trainable in (True, False):
        differ = [
            index
            for index, (one, best) in enumerate(zip(plain, scaled))
            if one.is_trainable == is_trainable and not one.is_exact and _is_counted(one)
            if one.relative > _NEARLY_EQUAL or best.factor != 1
        ]
        larger = [index for index in differ if scaled[index].factor > 1]
        smaller = [index for index in differ if scaled[index].factor < 1]
        for have_factor in (larger, smaller):
            if len(have_factor) >= _NEARLY_ALL * len(differ):
                for index in have_factor:
                    result[index] = scaled[index]
    return result


def _is_slot(name, trainable):
    """Returns True for the state of an optimizer, whose name has that of a trainable variable."""
    parts = name.split("/")
    prefixes = ("/".join(parts[i:j]) for j in range(1, len(parts)) for i in range(j))
    return any(prefix in trainable for prefix in prefixes)


def difference(a, b, factor: float = 1) -> tuple[float, float]:
    """Returns the max abs difference of `a` and `factor * b`, also relative to the max of `b`.

    NaN and infinities are equal to themselves.
    """
    if a.shape != b.shape:
        return np.inf, np.inf
    largest = scale = 0.0
    a, b = a.reshape(-1), b.reshape(-1)
    if b.dtype.kind == "c":
        a, b = a.view(a.real.dtype), b.view(b.real.dtype)
    with np.errstate(invalid="ignore"):
        for start in range(0, a.size, _CHUNK):
            x = a[start : start + _CHUNK].astype(np.float64)
            y = factor * b[start : start + _CHUNK].astype(np.float64)
            same = (x == y) | (np.isnan(x) & np.isnan(y))
            distance = np.where(same, 0, np.abs(x - y))
            largest = max(largest, float(np.nan_to_num(distance, nan=np.inf).max()))
            scale = max(scale, float(np.abs(y[np.isfinite(y)]).max(initial=0)))
    return largest, largest / scale if scale else largest


def format_text(comparison: Comparison, tpu_topology: Topology, rows: int = 8) -> str:
    """Returns a comparison as text for a terminal: the `rows` largest differences of each kind."""
    differences = comparison.largest
    parts = [
        (name, [d for d in differences if d.is_trainable == is_trainable])
        for name, is_trainable in (("weights", True), ("other variables", False))
    ]
    shown = [d for _, part in parts for d in part[:rows]]
    width = max(map(len, ("other variables", *(d.name for d in shown))))
    lines = [
        f"{comparison.steps} steps on emulated cores ({tpu_topology.name}) and with use_tpu=False, "
        f"train at {comparison.where}"
    ]
    for name, part in parts:
        lines += ["", f"{name:<{width}}  factor  max abs difference  relative  another order"]
        for d in part[:rows]:
            rounding = "unknown" if d.rounding is None else f"{d.rounding:.1e}"
            factor = fractions.Fraction(d.factor).limit_denominator()
            lines.append(
                f"{d.name:<{width}}  {factor!s:>6}  {d.largest:18.1e}  {d.relative:8.1e}  "
                f"{rounding:>13}"
            )
        if len(part) > rows:
            lines.append(f"and {len(part) - rows} with smaller differences")
    return "\n".join([*lines, "", *_notes(comparison), _verdict(comparison)])


def _is_counted(difference):
    return (difference.rounding or 0) < _NOTHING_BUT_ROUNDING


def _more_than_rounding(differences):
    counted = filter(_is_counted, differences)
    return sorted(counted, key=lambda d: (not d.is_trainable, -d.relative))


def _notes(comparison):
    notes = list(comparison.notes)
    left_out = len(comparison.differences) - len(comparison.largest)
    if left_out:
        notes.append(
            f"left out: {left_out} variables that another order of the examples changes as much "
            "(rounding, or a loss that depends on the order)"
        )
    if comparison.has_sums:
        notes.append(
            "factors: gradients are as many times smaller as there are cores: the loss is a sum "
            "over the examples of a core, of which CrossShardOptimizer takes the mean. Use the "
            "mean over the examples. Adam does not depend on the scale, except for its epsilon"
        )
    elif comparison.has_factors:
        notes.append(
            "factors: gradients are summed over the cores, not averaged: CrossShardOptimizer "
            "averages in compute_gradients and minimize, not in apply_gradients. Adam does not "
            "depend on the scale, except for its epsilon"
        )
    notes += [f"may differ: {cause}" for cause in comparison.causes]
    notes += comparison.proofs
    return notes + [f"SHA-256 {name}: {digest}" for name, digest in comparison.digests.items()]


def _verdict(comparison):
    infinite = [d.name for d in comparison.differences if not d.is_finite]
    if infinite:
        return (
            f"undecided: {len(infinite)} variables are NaN or infinite in both trainings, such as "
            f"'{infinite[0]}'. Use fewer --steps, or mend the training"
        )
    if not comparison.is_repeatable:
        return (
            "undecided: the training on the CPU gives other variables the second time. Does "
            "model_fn use a Python counter, a clock or random numbers without a seed?"
        )
    if not comparison.is_decided and comparison.is_amplified:
        return (
            "undecided: another order of the examples changes most weights by more than rounding "
            f"({most_rounding(comparison.steps):.1e}), which the training amplifies, or the loss "
            "depends on the order. Use fewer --steps"
        )
    if not comparison.is_decided:
        return "undecided: most variables are nothing but rounding. Use fewer --steps"
    different = comparison.not_rounding
    if comparison.status == PER_CORE:
        own = ", ".join(comparison.own) or "by an operation that was not found in the graph"
        return f"differs only by what each core computes on its own batch: {own}"
    if different:
        weights = sum(d.is_trainable for d in different)
        return (
            f"NOT equal up to rounding: {weights} weights, {len(different) - weights} other "
            "variables"
        )
    return f"equal up to rounding{' and the factors' if comparison.has_factors else ''}"
