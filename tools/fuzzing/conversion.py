"""Targets: the files that prepare_data.py converts: IDX, CIFAR, parallel text."""

from __future__ import annotations

import gzip
import os
import pathlib
import subprocess
from collections.abc import Callable

from tools.fuzzing import mutations, samples
from tools.fuzzing.case import (
    ACCEPTED,
    Case,
    FaultError,
    changes,
    judge,
    require,
    require_unchanged,
    run_program,
    snapshot,
)


def prepare(*arguments: str) -> subprocess.CompletedProcess:
    """Runs prepare_data.py in this process."""
    import prepare_data

    argv = ["prepare_data.py", *arguments]
    return run_program(argv, ["input_fns.convert.flags"], prepare_data.main)


def prepare_base(*arguments: str) -> None:
    """Runs prepare_data.py on valid files; raises a RuntimeError if it fails."""
    done = prepare(*arguments)
    if done.returncode:
        raise RuntimeError(done.stderr)


def require_valid(data_dir: pathlib.Path) -> None:
    """Requires a complete data set without problems in inspection, and no temporary files."""
    from input_fns import DataError, dataset_info
    from input_fns.core import inspection

    try:
        data = dataset_info.read(str(data_dir))
        problems = [p for name in data.splits for p in inspection.inspect(data, name).problems]
    except (DataError, ValueError) as error:
        raise FaultError(
            "accepted, but the data set cannot be inspected", str(error)[:300]
        ) from error
    # Only inspection finds damaged JPEGs that Pillow can read and TensorFlow cannot.
    problems = [line for line in problems if "is not a complete JPEG or PNG" not in line]
    require(not problems, "accepted, but inspection finds problems", "; ".join(problems)[:500])
    left = {name for name in os.listdir(data_dir) if "partial" in name or "tmp" in name}
    require(not left, "leftovers in data_dir", ", ".join(sorted(left)))


def convert(case: Case, *arguments: str) -> str:
    """Prepares a data set from a mutated source; returns `ACCEPTED` or `REFUSED`.

    In a third of the cases, data_dir has a data set already, which an error must not change.
    """
    data_dir = case.work / "data"
    given = [*arguments, f"--data_dir={data_dir}"]
    if case.random.randrange(3) == 0:
        case.copy_base("prepared", "data")
        given.append("--overwrite")
    given = case.complete({"arguments": given})["arguments"]
    before = snapshot(case.work)
    with require_unchanged(
        case.root, "prepare_data.py writes outside of data_dir", "a/b/work/data"
    ):
        outcome = judge(prepare(*given), "prepare_data.py")
    if outcome == ACCEPTED:
        require_valid(data_dir)
        return outcome
    changed = changes(before, snapshot(case.work))
    require(not changed, "prepare_data.py fails and changes data_dir", "; ".join(changed)[:300])
    return outcome


class Conversion:
    """A target that mutates a source of prepare_data.py.

    Attributes:
      write: function that writes the source into a folder.
      flags: flags of prepare_data.py for the source; {} is the folder.
    """

    write: Callable[[pathlib.Path], None]
    flags: tuple[str, ...]

    def prepare(self, base: pathlib.Path) -> None:
        """Writes the source and its data set into `base`."""
        self.write(base / "source")
        prepare_base(*self.arguments(base / "source"), f"--data_dir={base / 'prepared'}")

    def arguments(self, folder: pathlib.Path) -> list[str]:
        """Returns the flags of prepare_data.py for the source."""
        return [flag.format(folder) for flag in self.flags]


def any_file(case: Case, folder: pathlib.Path) -> pathlib.Path:
    """Returns a random file of a folder."""
    return case.random.choice(sorted(path for path in folder.rglob("*") if path.is_file()))


def mutate_packed_file(case: Case, path: pathlib.Path, tokens, other: bytes, unpack_share: float):
    """Mutates the bytes of a file; a .gz file is unpacked first in a share of the cases."""
    unpack = path.suffix == ".gz" and case.random.random() < unpack_share

    def mutate(data):
        data = gzip.decompress(data) if unpack else data
        data = mutations.mutate_bytes(case.random, data, tokens, other)
        return gzip.compress(data, mtime=0) if unpack else data

    mutations.mutate_file(case.random, path, mutate)


class Idx(Conversion):
    """IDX files, plain and gzipped."""

    name = "idx"
    write = staticmethod(samples.write_idx)
    flags = ("--dataset=mnist", "--source={}")
    _tokens = (b"\0\0\x08\x03", b"\0\0\x08\x01", b"\0\0\x0d\x03", b"\xff\xff\xff\xff", b"\x1f\x8b")

    def run(self, case: Case) -> str:
        """Mutates one of the four files."""
        folder = case.copy_base("source")
        path = any_file(case, folder)
        other = any_file(case, folder).read_bytes()
        mutate_packed_file(case, path, self._tokens, other, unpack_share=0.6)
        return convert(case, *self.arguments(folder))


class Cifar(Conversion):
    """Binary files, pickles and archives of CIFAR."""

    name = "cifar"
    write = staticmethod(samples.write_cifar)
    flags = ("--dataset=cifar10", "--source={}/binary")
    _tokens = (
        *(b"cos\nsystem\n(S'touch outside'\ntR.", b"cbuiltins\neval\n", b"\x80\x02", b"U\x04data"),
        *(b"U\x06labels", b"\x8a\xff", b"X\xff\xff\xff\x7f", b"T\xff\xff\xff\x7f", b"(((((((((("),
        *(b"]q\0", b"N.", b"../../outside/x", b"0000000", b"J\xff\xff\xff\xff"),
    )

    def run(self, case: Case) -> str:
        """Mutates one file of one version."""
        folder = case.copy_base("source")
        version = case.random.choice(("binary", "pickles", "archive", "hundred"))
        path = any_file(case, folder / version)
        other = any_file(case, folder).read_bytes()
        mutate_packed_file(case, path, self._tokens, other, unpack_share=0.7)
        dataset = "cifar100" if version == "hundred" else "cifar10"
        return convert(case, f"--dataset={dataset}", f"--source={folder / version}")


class ParallelText(Conversion):
    """Parallel text, plain and gzipped, and its vocabulary."""

    name = "text"
    flags = (
        *("--dataset=parallel_text", "--source={}", "--languages=en,de", "--name=pairs"),
        *("--max_length=32", "--vocabulary={}/vocabulary.model"),
    )

    def write(self, folder):
        """Writes the source and a vocabulary learned from it."""
        samples.write_parallel_text(folder)
        first = folder.parent / "first"
        given = self.arguments(folder)[:-1]
        prepare_base(*given, "--vocab_size=512", f"--data_dir={first}")
        (vocabulary,) = first.glob("vocabulary*.model")
        (folder / "vocabulary.model").write_bytes(vocabulary.read_bytes())

    def run(self, case: Case) -> str:
        """Mutates a text file or the vocabulary."""
        folder = case.copy_base("source")
        path = any_file(case, folder)
        other = any_file(case, folder).read_bytes()
        tokens = ("\u2581", "one " * 40, "\ufeff", "\r", "\u2028", "\x85", "<s>", "\x1c", "🙂")

        def mutate(data):
            if path.suffix == ".model" or case.random.random() < 0.4:
                encoded = [token.encode() for token in tokens]
                return mutations.mutate_bytes(case.random, data, encoded, other)
            return mutations.mutate_text(case.random, data.decode(), tokens)

        change = mutations.mutate_file(case.random, path, mutate)
        if change == "content" and path.suffix != ".model" and case.random.random() < 0.2:
            packed = gzip.compress(path.read_bytes(), mtime=0)
            path.unlink()
            if case.random.random() < 0.5:
                packed = mutations.mutate_bytes(case.random, packed)
            path.with_name(f"{path.name}.gz").write_bytes(packed)
        return convert(case, *self.arguments(folder))


TARGETS = (Idx(), Cifar(), ParallelText())
