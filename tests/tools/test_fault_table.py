"""The outcome of a command in the table of faults."""

import sys

from tools import fault_table


def test_outcome_of_a_command_that_fails_before_training():
    done = []
    command = [sys.executable, "-c", "print('starting'); raise ValueError('no such folder')"]
    outcome = fault_table._outcome(command, None, lambda *arguments: done.append(arguments))
    assert outcome == (1, "ValueError: no such folder")
    assert not done
