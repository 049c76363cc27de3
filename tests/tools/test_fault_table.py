"""What the table of faults says of a command. `python -m tools.fault_table` has the faults."""

import sys

from tools import fault_table


def test_a_command_that_ends_before_it_trains_is_told_with_its_error():
    done = []
    command = [sys.executable, "-c", "print('starting'); raise ValueError('no such folder')"]
    outcome = fault_table._outcome(command, None, lambda *arguments: done.append(arguments))
    assert outcome == (1, "ValueError: no such folder")
    assert not done
