"""Programs that end or replace their process, fork, or close its streams."""

import builtins
import os
import sys

import pytest

from tpu.programs import processes, streams


class Ended(BaseException):
    """The process would have ended with this status."""


@pytest.fixture
def ended(monkeypatch):
    """`ended(program)` runs it to the end of its process; returns how, and the exit status."""

    def end(status):
        raise Ended(status)

    def run(program):
        found = []

        def on_end(how, status):
            found.append(how)
            return 3 if status is None else status

        with pytest.raises(Ended) as error:
            program.run(on_end)
        return (*found, error.value.args[0])

    monkeypatch.setattr(processes, "_real_exit", end)
    return run


@pytest.mark.parametrize(
    ("source", "how", "status"),
    [
        ("os._exit(0)", "os._exit(0)", 0),
        ("os._exit(7)", "os._exit(7)", 7),
        ("os.execv('/bin/true', ['true'])", "os.execv('/bin/true', ...)", 3),
        ("os.execle('/bin/true', 'true', {})", "os.execve('/bin/true', ...)", 3),
    ],
)
def test_end_of_the_process_is_handled_first(script, ended, source, how, status):
    program = script(f"import os\n{source}")
    found, code = ended(program)
    assert (found, code) == (f"{how} at {program.target}:2", status)


def test_thread_that_ends_the_process(script, monkeypatch):
    statuses = []
    monkeypatch.setattr(processes, "_real_exit", statuses.append)
    script(
        "import os, threading\n"
        "thread = threading.Thread(target=os._exit, args=(4,))\n"
        "thread.start()\n"
        "thread.join()"
    ).run(lambda how, status: status + 1)
    assert statuses == [5]


def test_forked_process_of_the_program_ends_as_usual(script, capfd):
    script(
        "import os, sys\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    sys.exit(5)\n"
        "print('child', os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))"
    ).run()
    assert capfd.readouterr().out == "child 5\n"


def test_forked_process_does_not_return_from_the_program(script, tmp_path):
    pid = os.getpid()
    script("import os\nif os.fork():\n    os.wait()").run()
    assert os.getpid() == pid


@pytest.mark.parametrize(
    "source",
    [
        "sys.stdout.close(); sys.stderr.close()",
        "sys.stdout = sys.stderr = None",
        "sys.stdout = sys.stderr = open(os.devnull, 'w')",
        "os.close(1); os.close(2)",
        "os.dup2(os.open(os.devnull, os.O_WRONLY), 1)",
        "import builtins; builtins.print = None",
    ],
)
def test_report_is_written_where_stdout_was(script, source, capfd, monkeypatch):
    monkeypatch.setattr(builtins, "print", print)
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        stream = open(descriptor, "w", closefd=False)  # noqa: SIM115
        monkeypatch.setattr(sys, name, stream)  # instead of that of pytest
    script(f"import os, sys\n{source}").run()
    streams.report("all is well")
    assert capfd.readouterr().out == "all is well\n"


def test_report_goes_to_stderr_without_stdout(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdout", None)
    streams.report("all is well")
    assert capsys.readouterr().err == "all is well\n"


def test_reader_that_is_gone_is_no_error(monkeypatch):
    read, write = os.pipe()
    os.close(read)
    with open(write, "w") as stream:
        streams.write("all is well\n", stream)
