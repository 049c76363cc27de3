"""Targets: the flags of the three programs, and flagfiles."""

from __future__ import annotations

import importlib
import shlex
from unittest import mock

from absl import flags

from tools.fuzzing import mutations, running
from tools.fuzzing.case import (
    REFUSED,
    Case,
    changes,
    judge,
    require,
    require_unchanged,
    run_program,
    snapshot,
)
from tools.fuzzing.flag_values import NUMBERS, PARAMS, VALUES

# --tpu would connect to other machines; the others are handled separately.
_SKIPPED = {"tpu", "flagfile", "undefok", "params"}


class _FlagsTarget:
    """A target that sets one to three flags of a program to odd values. Default: run_cpu.py."""

    files = "stripes"
    relative_paths = True  # a value such as "a" may create a folder in the working directory
    program = "run_cpu.py"
    modules = ("engine.cli.flags", "engine.cli.cpu_flags")
    modes = ("train", "eval", "train_and_eval", "predict", "export")

    def prepare(self, base):
        """Writes a data set and a model."""
        running.write_stripes(base / "data")
        running.train(base)

    def start(self, case: Case) -> list[str]:
        """Returns a valid command line in the case's folder."""
        (case.work / "file").write_text("a file")
        case.copy_base("data")
        case.copy_base("model")
        return running.arguments(case.work)

    def run(self, case: Case) -> str:
        """Parses and resolves the flags, or sometimes runs the program."""
        self.define()
        argv = self.start(case)
        chosen = [text.replace("WORK", str(case.work)) for text in self.choose(case)]
        plan = case.complete({"flags": [*argv[1:], *chosen], "runs": case.random.random() < 0.1})
        argv = [argv[0], *plan["flags"]]
        before = snapshot(case.work)
        signature = f"flags of {self.program} change other files"
        with require_unchanged(case.root, signature, "a/b/work"):
            outcome = self.judge(run_program(argv, self.modules, lambda: self.main(plan["runs"])))
        if outcome == REFUSED:
            changed = changes(before, snapshot(case.work))
            detail = f"{shlex.join(argv)[-300:]}: {'; '.join(changed)[:300]}"
            require(not changed, f"flags of {self.program} are refused, and files change", detail)
        return outcome

    def judge(self, done) -> str:
        """Returns whether the program `ACCEPTED` or `REFUSED` its flags."""
        return judge(done, self.program)

    def main(self, runs: bool) -> None:
        """Resolves the flags, or runs the program if `runs`."""
        with running.resolved():
            pass

    def define(self) -> None:
        """Imports the modules that define the flags."""
        for name in self.modules:
            importlib.import_module(name)

    def flag_values(self) -> flags.FlagValues:
        """Returns the flags."""
        return importlib.import_module(self.modules[0]).FLAGS

    def choose(self, case: Case) -> list[str]:
        """Returns one to three flags with odd values."""
        rng = case.random
        by_module = self.flag_values().flags_by_module_dict()
        ours = [flag for name in self.modules for flag in by_module.get(name, ())]
        names = sorted({flag.name for flag in ours} - _SKIPPED)
        found = []
        for _ in range(rng.choice((1, 1, 2, 3))):
            name = rng.choice([*names, "params"] if "params" in self.flag_values() else names)
            value = rng.choice(VALUES)
            if name == "params":
                value = f"{rng.choice(PARAMS)}={value}"
            elif rng.random() < 0.6:
                parser = self.flag_values()[name].parser
                parser = getattr(parser, "wrapped", parser)  # of common.strict_flags
                numbers = NUMBERS if isinstance(parser, flags.IntegerParser) else [value]
                value = str(rng.choice(getattr(parser, "enum_values", None) or numbers))
            found.append(f"--{name}={value}")
        if rng.random() < 0.5 and self.modes:
            found.insert(0, f"--mode={rng.choice(self.modes)}")
        return found


class CpuFlags(_FlagsTarget):
    """Flags of run_cpu.py."""

    name = "flags_cpu"

    def start(self, case):
        """Returns a valid command line."""
        argv = super().start(case)
        return [*argv, "--mode=train", "--train_steps=8", f"--export_dir={case.work}/export"]

    def main(self, runs):
        """Resolves the flags; runs the program if numbers are small."""
        import run_cpu

        values = self.flag_values()
        numbers = [values[name].value for name in values]
        is_small = all(abs(n) < 10_000 for n in numbers if isinstance(n, (int, float)))
        if is_small and runs:
            run_cpu.main()
        else:
            super().main(runs)


class TpuFlags(_FlagsTarget):
    """Flags of run_tpu.py, on emulated cores."""

    name = "flags_tpu"
    program = "run_tpu.py"
    modules = ("engine.cli.flags", "tpu.connect.flags")

    def start(self, case):
        """Returns a valid command line."""
        argv = super().start(case)
        tpu = ["--tpu=emulator", "--tpu_topology=1x2"]
        return ["run_tpu.py", *argv[1:], *tpu, "--mode=train", "--train_steps=8"]

    def judge(self, done):
        """Returns `ACCEPTED` or `REFUSED`; errors of a TPU may have several lines."""
        return judge(done, self.program, many_lines=True)

    def main(self, runs):
        """Connects to the emulated TPU and resolves the flags, without running the mode."""
        import run_tpu
        from engine.cli import modes

        if self.flag_values().mode != "check":
            with mock.patch.object(modes, "run"):
                run_tpu.main()


class PrepareFlags(_FlagsTarget):
    """Flags of prepare_data.py."""

    name = "flags_prepare"
    program = "prepare_data.py"
    modules = ("input_fns.convert.flags",)
    modes = ("convert", "inspect")

    def start(self, case):
        """Returns a valid command line."""
        from tools.fuzzing import samples

        (case.work / "file").write_text("a file")
        samples.write_images(case.work / "source")
        case.copy_base("data")
        kind = case.random.choice(("mnist", "image_folder", "image_csv", "parallel_text"))
        given = ["prepare_data.py", f"--dataset={kind}", f"--data_dir={case.work}/new"]
        if kind == "mnist":
            samples.write_idx(case.work / "idx")
            return [*given, f"--source={case.work}/idx"]
        if kind == "parallel_text":
            samples.write_parallel_text(case.work / "text")
            return [*given, f"--source={case.work}/text", "--languages=en,de", "--vocab_size=512"]
        given.append(f"--source={case.work}/source/images")
        if kind == "image_csv":
            return [*given, f"--csv={case.work}/source/table.csv", "--split_column=split"]
        return [*given, "--validation_fraction=0.3"]

    def main(self, runs):
        """Prepares the data set."""
        import prepare_data

        prepare_data.main()

    def choose(self, case):
        """Returns flags with few worker processes."""
        return [text for text in super().choose(case) if not text.startswith("--workers=9")]


class Flagfile(_FlagsTarget):
    """A flagfile, such as flags.cfg, of run_cpu.py."""

    name = "flags_cfg"
    modes = ()
    _tokens = (
        *("--flagfile=WORK/flags.cfg", "--flagfile=", "--mode=", "--", "-", "#", "//", "="),
        *("--seed=", "--undefok=", "--undefok=x,", "--x=1", "--params=", "\ufeff", "\r"),
        *("--params=a=b", "--train_steps", "--noexport_check=1"),
    )

    def choose(self, case):
        """Returns --flagfile with a mutated flags.cfg."""
        path = case.work / "flags.cfg"
        path.write_bytes((case.base / "model" / "flags.cfg").read_bytes())
        tokens = [token.replace("WORK", str(case.work)) for token in self._tokens]

        def mutate(data):
            text = data.decode().replace(
                str(case.base.with_name(f"{case.base.name}.partial")), str(case.work)
            )
            if case.random.random() < 0.7:
                return mutations.mutate_text(case.random, text, (*tokens, *VALUES))
            return mutations.mutate_bytes(case.random, text.encode(), [t.encode() for t in tokens])

        mutations.mutate_file(case.random, path, mutate)
        return [f"--flagfile={path}"]


TARGETS = (CpuFlags(), TpuFlags(), PrepareFlags(), Flagfile())
