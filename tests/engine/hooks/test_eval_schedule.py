"""Which checkpoints are evaluated, by steps and by minutes of training."""

import itertools
import math
import types
from fractions import Fraction

import pytest

from engine.hooks.eval_schedule import EvalSchedule, EvalTimer


def steps_of(schedule, count):
    steps = [0]
    for _ in range(count):
        steps.append(schedule.next_step(steps[-1]))
    return steps[1:]


@pytest.mark.parametrize(
    ("every", "expected"),
    [
        (Fraction(5), [5, 10, 15, 20]),
        (Fraction(97, 13), [8, 15, 23, 30]),  # an epoch of 97 examples in batches of 13
        (Fraction("0.1") * 30, [3, 6, 9, 12]),  # as floats 0.1 * 30 * 3 is above 9
        (Fraction("0.3"), [1, 2, 3, 4]),
    ],
)
def test_steps_are_rounded_up(every, expected):
    assert steps_of(EvalSchedule(every), 4) == expected


def test_no_step_is_due_at_every_checkpoint():
    assert EvalSchedule().next_step(7) == math.inf


def due(schedule, steps, start_step=0):
    timer = EvalTimer(schedule, "none", types.SimpleNamespace(seconds=lambda: 0.0), start_step)
    return [step for step in steps if timer.is_due(step)]


def test_every_checkpoint_is_due_by_default():
    assert due(EvalSchedule(), [3, 6, 7]) == [3, 6, 7]


def test_the_first_checkpoint_after_a_step_of_the_schedule_is_due():
    assert due(EvalSchedule(Fraction(5)), [3, 5, 8, 12, 14, 15]) == [5, 12, 15]


def test_a_resumed_training_continues_the_schedule():
    assert due(EvalSchedule(Fraction(5)), [8, 9, 10], start_step=6) == [10]


class FakeClock:
    """Returns the given seconds, one after another."""

    def __init__(self, *seconds):
        self._seconds = itertools.chain(seconds)

    def seconds(self):
        return next(self._seconds)


def test_minutes_are_counted_from_the_last_evaluation(tmp_path):
    # Start, three checkpoints, the end of the evaluation, two checkpoints.
    clock = FakeClock(100, 130, 159, 160, 160, 200, 221)
    timer = EvalTimer(EvalSchedule(every_minutes=1), str(tmp_path), clock)
    assert [timer.is_due(step) for step in (1, 2, 3)] == [False, False, True]
    timer.restart()
    assert [timer.is_due(step) for step in (4, 5)] == [False, True]


def test_minutes_are_counted_across_restarts(tmp_path):
    schedule = EvalSchedule(every_minutes=1)
    assert not EvalTimer(schedule, str(tmp_path), FakeClock(0, 50)).is_due(1)
    timer = EvalTimer(schedule, str(tmp_path), FakeClock(900, 905, 910))
    assert [timer.is_due(step) for step in (2, 3)] == [False, True]


@pytest.mark.parametrize("content", ["", "[]", '{"seconds_since_evaluation": "x"}', "{"])
def test_a_broken_file_starts_at_0(tmp_path, content):
    (tmp_path / "eval_schedule.json").write_text(content)
    timer = EvalTimer(EvalSchedule(every_minutes=1), str(tmp_path), FakeClock(0, 59))
    assert not timer.is_due(1)
