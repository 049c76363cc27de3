"""Targets: the raw files that prepare_data.py converts: IDX, CIFAR, parallel text."""

from __future__ import annotations

import gzip
import os
import pathlib

from tools.fuzzing import mutations, samples
from tools.fuzzing.case import (
    ACCEPTED,
    Case,
    FaultError,
    changes,
    judge,
    require,
    run_program,
    tree,
)


def prepare(*arguments: str):
    """Runs prepare_data.py in this process; returns its `Ended`."""
    import prepare_data

    argv = ["prepare_data.py", *arguments]
    return run_program(argv, ["engine.cli.prepare_data_flags"], prepare_data.main)


def require_clean(data_dir: pathlib.Path) -> None:
    """Requires a data set that can be read, whole, with labels within the classes."""
    from input_fns import DataError, dataset_info, inspection

    try:
        data = dataset_info.read(str(data_dir))
        problems = [p for name in data.splits for p in inspection.inspect(data, name).problems]
    except (DataError, ValueError) as error:
        raise FaultError(
            "accepted, but the data set cannot be inspected", str(error)[:300]
        ) from error
    # Damaged JPEGs that Pillow reads and TensorFlow does not are found by inspection only.
    problems = [line for line in problems if "is no whole JPEG or PNG" not in line]
    require(not problems, "accepted, but inspection finds problems", "; ".join(problems)[:500])
    left = {name for name in os.listdir(data_dir) if "partial" in name or "tmp" in name}
    require(not left, "leftovers in data_dir", ", ".join(sorted(left)))


def convert(case: Case, *arguments: str) -> str:
    """Prepares a data set from a mutated source; returns whether it was accepted.

    In every third case there is a data set in data_dir already, which an error must not change.
    """
    data_dir = case.work / "data"
    arguments = (*arguments, f"--data_dir={data_dir}")
    if case.random.randrange(3) == 0:
        mutations.copy_tree(case.base / "prepared", data_dir)
        arguments = (*arguments, "--overwrite")
    before, old = tree(case.root, "a/b/work/data"), tree(case.work)
    outcome = judge(prepare(*arguments), "prepare_data.py")
    changed = changes(before, tree(case.root, "a/b/work/data"))
    require(not changed, "prepare_data.py writes outside of data_dir", "; ".join(changed)[:300])
    if outcome == ACCEPTED:
        require_clean(data_dir)
        return outcome
    changed = changes(old, tree(case.work))
    require(not changed, "prepare_data.py fails and changes data_dir", "; ".join(changed)[:300])
    return outcome


class Conversion:
    """A target whose files are a source of prepare_data.py."""

    def prepare(self, base: pathlib.Path) -> None:
        """Writes the source, and the data set that is made of it, into `base`."""
        self.write(base / "source")
        arguments = [*self.arguments(base / "source"), f"--data_dir={base / 'prepared'}"]
        ended = prepare(*arguments)
        if ended.status:
            raise RuntimeError(ended.err)

    def write(self, folder: pathlib.Path) -> None:
        """Writes the source."""
        raise NotImplementedError

    def arguments(self, folder: pathlib.Path) -> list[str]:
        """Returns the flags of prepare_data.py for it."""
        raise NotImplementedError


def any_file(case: Case, folder: pathlib.Path) -> pathlib.Path:
    """Returns a file of a folder."""
    return case.random.choice(sorted(path for path in folder.rglob("*") if path.is_file()))


class Idx(Conversion):
    """IDX files, plain and compressed."""

    name = "idx"
    _tokens = (b"\0\0\x08\x03", b"\0\0\x08\x01", b"\0\0\x0d\x03", b"\xff\xff\xff\xff", b"\x1f\x8b")

    def write(self, folder):
        """Writes the source."""
        samples.idx(folder)

    def arguments(self, folder):
        """Returns the flags."""
        return ["--dataset=mnist", f"--source={folder}"]

    def run(self, case: Case) -> str:
        """Mutates one of the four files, compressed or before it is compressed."""
        folder = case.copy_base("source")
        path = any_file(case, folder)
        other = any_file(case, folder).read_bytes()
        unpack = path.suffix == ".gz" and case.random.random() < 0.6

        def mutate(data):
            data = gzip.decompress(data) if unpack else data
            data = mutations.of_bytes(case.random, data, self._tokens, other)
            return gzip.compress(data, mtime=0) if unpack else data

        mutations.of_file(case.random, path, mutate)
        return convert(case, *self.arguments(folder))


class Cifar(Conversion):
    """CIFAR's binary files, pickles and archives."""

    name = "cifar"
    _tokens = (
        b"cos\nsystem\n(S'touch outside'\ntR.",
        b"cbuiltins\neval\n",
        b"\x80\x02",
        b"U\x04data",
        b"U\x06labels",
        b"\x8a\xff",
        b"X\xff\xff\xff\x7f",
        b"T\xff\xff\xff\x7f",
        b"((((((((((",
        b"]q\0",
        b"N.",
        b"../../outside/x",
        b"0000000",
        b"J\xff\xff\xff\xff",
    )

    def write(self, folder):
        """Writes the source."""
        samples.cifar(folder)

    def arguments(self, folder):
        """Returns the flags."""
        return ["--dataset=cifar10", f"--source={folder}/binary"]

    def run(self, case: Case) -> str:
        """Mutates one file of one version."""
        folder = case.copy_base("source")
        version = case.random.choice(("binary", "pickles", "archive", "hundred"))
        path = any_file(case, folder / version)
        other = any_file(case, folder).read_bytes()
        unpack = path.suffix == ".gz" and case.random.random() < 0.7

        def mutate(data):
            data = gzip.decompress(data) if unpack else data
            data = mutations.of_bytes(case.random, data, self._tokens, other)
            return gzip.compress(data, mtime=0) if unpack else data

        mutations.of_file(case.random, path, mutate)
        dataset = "cifar100" if version == "hundred" else "cifar10"
        return convert(case, f"--dataset={dataset}", f"--source={folder / version}")


class ParallelText(Conversion):
    """Parallel text, plain and compressed, and the vocabulary that it is encoded with."""

    name = "text"

    def write(self, folder):
        """Writes the source, and the vocabulary of a data set beside it."""
        samples.parallel_text(folder)
        first = folder.parent / "first"
        ended = prepare(*self._text(folder), "--vocab_size=512", f"--data_dir={first}")
        if ended.status:
            raise RuntimeError(ended.err)
        (learnt,) = first.glob("vocabulary*.model")
        (folder / "vocabulary.model").write_bytes(learnt.read_bytes())

    def arguments(self, folder):
        """Returns the flags."""
        return [*self._text(folder), f"--vocabulary={folder}/vocabulary.model"]

    def _text(self, folder):
        source = ["--dataset=parallel_text", f"--source={folder}", "--languages=en,de"]
        return [*source, "--name=pairs", "--max_length=32"]

    def run(self, case: Case) -> str:
        """Mutates a file of text, or the vocabulary."""
        folder = case.copy_base("source")
        path = any_file(case, folder)
        other = any_file(case, folder).read_bytes()
        tokens = ("\u2581", "one " * 40, "\ufeff", "\r", "\u2028", "\x85", "<s>", "\x1c", "🙂")

        def mutate(data):
            if path.suffix == ".model" or case.random.random() < 0.4:
                encoded = [token.encode() for token in tokens]
                return mutations.of_bytes(case.random, data, encoded, other)
            return mutations.of_text(case.random, data.decode(), tokens)

        what = mutations.of_file(case.random, path, mutate)
        if what == "content" and path.suffix != ".model" and case.random.random() < 0.2:
            packed = gzip.compress(path.read_bytes(), mtime=0)
            path.unlink()
            if case.random.random() < 0.5:
                packed = mutations.of_bytes(case.random, packed)
            path.with_name(f"{path.name}.gz").write_bytes(packed)
        return convert(case, *self.arguments(folder))


TARGETS = (Idx(), Cifar(), ParallelText())
