"""The call path from a wrapper's main to the model's losses is short, and the same in both."""

import dataclasses
import pathlib
import traceback

import pytest

from tests.contract.masked_lm import model

ROOT = pathlib.Path(__file__).parents[2]
CASE = "masked_lm"
MAX_FRAMES = 10
# They call the model_fn in the loop of a session.run: the emulated cores, several steps on a CPU.
EMULATOR = "tpu/emulator/"
LOOPS = ("engine/train/host_loop.py",)


class EndOfPathError(Exception):
    """Ends a run when its path has reached the losses function."""


@pytest.fixture
def stacks(monkeypatch):
    """Returns a list of the stacks of each call of the losses function.

    Our own frames only, without those of the emulator, which a TPU does not need. The call ends the
    run.
    """
    found = []

    def losses(*_):
        frames = [
            (str(path.relative_to(ROOT)), frame.name)
            for frame in traceback.extract_stack()
            if ROOT in (path := pathlib.Path(frame.filename)).parents
            and not {"tests", "site-packages"} & set(path.parts)
            and EMULATOR not in path.as_posix()
        ]
        found.append(frames)
        raise EndOfPathError

    monkeypatch.setattr(model, "MODEL", dataclasses.replace(model.MODEL, losses=losses))
    return found


def describe(frames):
    return "\n".join(f"{path} {name}" for path, name in frames)


def test_it_is_short_and_the_same_in_both_wrappers(run_case, run_case_on_tpu, stacks, tmp_path):
    paths = {}
    for wrapper, run in (("run_cpu.py", run_case), ("run_tpu.py", run_case_on_tpu)):
        with pytest.raises(EndOfPathError):
            run(CASE, tmp_path / wrapper, "--mode=train", "--train_steps=1")
        frames = stacks[-1]
        assert frames[0] == (wrapper, "main"), describe(frames)
        assert len(frames) <= MAX_FRAMES, f"{len(frames)} frames:\n{describe(frames)}"
        paths[wrapper] = [
            ("the wrapper" if path == wrapper else path, name)
            for path, name in frames
            if path not in LOOPS
        ]
    cpu, tpu = paths.values()
    assert cpu == tpu, f"{describe(cpu)}\n\n{describe(tpu)}"
