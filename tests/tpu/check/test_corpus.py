"""Small programs of every style: which findings the lint has, and on which line.

`corpus/correct` has programs without mistakes, `corpus/mistakes` those with one. A comment
`# finding: LEVEL CODE` marks each line with a finding; there must be no others. A program is a
model_fn, with MODE if it is not for training. Add one for each report of a false or missed finding.
"""

import contextlib
import importlib.util
import pathlib
import re

import pytest

from tests.tpu.check.regression import make_estimator, rows
from tpu import tf1
from tpu.check import graph_builder, lint, sizes
from tpu.check.graph_builder import CheckedMode
from tpu.connect import topology

CORPUS = pathlib.Path(__file__).parent / "corpus"
PROGRAMS = sorted(CORPUS.glob("*/*.py"))
SLICE = topology.find("1x2")
MARK = re.compile(r"# finding: (\w+) ([\w-]+)$")


def expected_findings(path):
    """Returns [(line, level, code)] of the marks of a program."""
    lines = enumerate(path.read_text().splitlines(), 1)
    return [(number, *found.groups()) for number, line in lines if (found := MARK.search(line))]


def load(path):
    spec = importlib.util.spec_from_file_location(f"corpus_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_findings(path):
    is_old = "tf.contrib" in path.read_text()
    with tf1.old_names() if is_old else contextlib.nullcontext():
        program = load(path)
        mode = getattr(program, "MODE", "train")
        estimator = make_estimator(program.model_fn)
        step = graph_builder.build_once(CheckedMode(estimator, rows, mode, SLICE))
        findings = lint.apply_rules(step.program, mode, 8)
    assert sizes.measure(step.graph, step.program).flops
    found = [(f.where.rpartition(":"), f.level, f.code) for f in findings]
    assert {place[0] for place, *_ in found} <= {str(path.relative_to(CORPUS.parents[3]))}
    lines = sorted({(int(place[2]), level, code) for place, level, code in found})
    assert lines == sorted(expected_findings(path)), [f.message for f in findings]


def test_corpus_has_correct_programs_and_mistakes():
    kinds = {path.parent.name: expected_findings(path) for path in PROGRAMS}
    assert set(kinds) == {"correct", "mistakes"}
    for path in PROGRAMS:
        levels = {level for _, level, _ in expected_findings(path)}
        if path.parent.name == "correct":
            assert "error" not in levels, path
        else:
            assert levels, path
