"""Targets: the values of every flag of the three programs, and flagfiles."""

from __future__ import annotations

import importlib
import shlex

from absl import flags

from tools.fuzzing import mutations, running
from tools.fuzzing.case import REFUSED, Case, changes, judge, require, run_program, tree
from tools.fuzzing.flag_values import NUMBERS, PARAMS, VALUES

# These reach out of the machine.
_SKIPPED = {"tpu", "flagfile", "undefok", "params"}


class _Flags:
    """A target: one to three flags of a program get odd values."""

    files = "stripes"
    relative_paths = True  # a value such as "a" may be a folder in the working directory

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
        """Parses the flags and resolves them, or sometimes does what they say."""
        self.define()
        argv = self.start(case)
        chosen = self.choose(case)
        argv += [text.replace("WORK", str(case.work)) for text in chosen]
        before, inside = tree(case.root, "a/b/work"), tree(case.work)
        outcome = self.judge(run_program(argv, self.modules, lambda: self.main(case)))
        changed = changes(before, tree(case.root, "a/b/work"))
        require(not changed, f"flags of {self.program} change other files", "; ".join(changed))
        if outcome == REFUSED:
            changed = changes(inside, tree(case.work))
            detail = f"{shlex.join(chosen)[:300]}: {'; '.join(changed)[:300]}"
            require(not changed, f"flags of {self.program} are refused, and files change", detail)
        return outcome

    def judge(self, ended) -> str:
        """Returns whether the program accepted its flags."""
        return judge(ended, self.program)

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
                numbers = NUMBERS if isinstance(parser, flags.IntegerParser) else [value]
                value = str(rng.choice(getattr(parser, "enum_values", None) or numbers))
            found.append(f"--{name}={value}")
        if rng.random() < 0.5 and self.modes:
            found.insert(0, f"--mode={rng.choice(self.modes)}")
        return found


class CpuFlags(_Flags):
    """Those of run_cpu.py."""

    name = "flags_cpu"
    program = "run_cpu.py"
    modules = ("engine.cli.flags", "engine.cli.cpu_flags")
    modes = ("train", "eval", "train_and_eval", "predict", "export")

    def start(self, case):
        """Returns a valid command line."""
        given = super().start(case)
        return [*given, "--mode=train", "--train_steps=8", f"--export_dir={case.work}/export"]

    def main(self, case):
        """Resolves the flags; one time in ten does what they say, if that is little."""
        import run_cpu
        from engine.cli import resolve_flags

        values = self.flag_values()
        numbers = [values[name].value for name in values]
        small = all(abs(n) < 10_000 for n in numbers if isinstance(n, (int, float)))
        if small and case.random.random() < 0.1:
            run_cpu.main()
        else:
            resolve_flags.resolve()


class TpuFlags(_Flags):
    """Those of run_tpu.py, on emulated cores."""

    name = "flags_tpu"
    program = "run_tpu.py"
    modules = ("engine.cli.flags", "tpu.connect.flags")
    modes = ("train", "eval", "train_and_eval", "predict", "export")

    def start(self, case):
        """Returns a valid command line."""
        given = super().start(case)
        tpu = ["--tpu=emulator", "--tpu_topology=1x2"]
        return ["run_tpu.py", *given[1:], *tpu, "--mode=train", "--train_steps=8"]

    def judge(self, ended):
        """Returns whether the program accepted its flags; of a TPU it lists all problems."""
        return judge(ended, self.program, many_lines=True)

    def main(self, case):
        """Asks for the emulated TPU and resolves the flags."""
        import run_tpu
        from engine.cli import resolve_flags
        from tpu.connect import connection

        if self.flag_values().mode == "check":
            return
        iterations = run_tpu._iterations_per_loop()
        with connection.connect(run_tpu._request()) as tpu:
            resolve_flags.resolve(iterations if tpu.use_tpu else 1, tpu.use_tpu)


class PrepareFlags(_Flags):
    """Those of prepare_data.py."""

    name = "flags_prepare"
    program = "prepare_data.py"
    modules = ("engine.cli.prepare_data_flags",)
    modes = ("convert", "inspect")

    def start(self, case):
        """Returns a valid command line."""
        from tools.fuzzing import samples

        (case.work / "file").write_text("a file")
        samples.pictures(case.work / "source")
        case.copy_base("data")
        kind = case.random.choice(("mnist", "image_folder", "image_csv", "parallel_text"))
        given = ["prepare_data.py", f"--dataset={kind}", f"--data_dir={case.work}/new"]
        if kind == "mnist":
            samples.idx(case.work / "idx")
            return [*given, f"--source={case.work}/idx"]
        if kind == "parallel_text":
            samples.parallel_text(case.work / "text")
            return [*given, f"--source={case.work}/text", "--languages=en,de", "--vocab_size=512"]
        given.append(f"--source={case.work}/source/images")
        if kind == "image_csv":
            return [*given, f"--csv={case.work}/source/table.csv", "--split_column=split"]
        return [*given, "--validation_fraction=0.3"]

    def main(self, case):
        """Prepares the data set."""
        import prepare_data

        prepare_data.main()

    def choose(self, case):
        """Returns flags; processes that run at once are few."""
        return [text for text in super().choose(case) if not text.startswith("--workers=9")]


class Flagfile(_Flags):
    """A flagfile, such as flags.cfg."""

    name = "flags_cfg"
    program = "run_cpu.py"
    modules = ("engine.cli.flags", "engine.cli.cpu_flags")
    modes = ()
    _tokens = (
        "--flagfile=WORK/flags.cfg",
        "--flagfile=",
        "--mode=",
        "--",
        "-",
        "#",
        "//",
        "=",
        "--seed=",
        "--undefok=",
        "--undefok=x,",
        "--x=1",
        "--params=",
        "\ufeff",
        "\r",
        "--params=a=b",
        "--train_steps",
        "--noexport_check=1",
    )

    def choose(self, case):
        """Mutates flags.cfg, and names it."""
        path = case.work / "flags.cfg"
        path.write_bytes((case.base / "model" / "flags.cfg").read_bytes())
        tokens = [token.replace("WORK", str(case.work)) for token in self._tokens]

        def mutate(data):
            text = data.decode().replace(
                str(case.base.with_name(f"{case.base.name}.partial")), str(case.work)
            )
            if case.random.random() < 0.7:
                return mutations.of_text(case.random, text, (*tokens, *VALUES))
            return mutations.of_bytes(case.random, text.encode(), [t.encode() for t in tokens])

        mutations.of_file(case.random, path, mutate)
        return [f"--flagfile={path}"]

    def main(self, case):
        """Resolves the flags."""
        from engine.cli import resolve_flags

        resolve_flags.resolve()


TARGETS = (CpuFlags(), TpuFlags(), PrepareFlags(), Flagfile())
