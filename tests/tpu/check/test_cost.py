"""Step time of an optimized program: cycles, bytes, and sums over the cores."""

import json

import pytest
from tensorflow.compiler.xla import xla_data_pb2
from tensorflow.compiler.xla.service import hlo_pb2

from tpu.check import cost, hlo_traffic, links
from tpu.connect import topology

V3 = topology.find("v3-8")
V3_MEMORY, V3_CLOCK = 450e9, 940e6


def shape(*dimensions, dtype=xla_data_pb2.F32, memory_space=0):
    """Returns a shape in tiles of 8 x 128."""
    found = xla_data_pb2.ShapeProto(element_type=dtype, dimensions=dimensions)
    found.layout.minor_to_major.extend(reversed(range(len(dimensions))))
    found.layout.tiles.add().dimensions.extend([8, 128])
    found.layout.memory_space = memory_space
    return found


class Program:
    """A HloModuleProto, built instruction by instruction."""

    def __init__(self):
        self.module = hlo_pb2.HloModuleProto(entry_computation_id=1)
        self.entry = self.module.computations.add(id=1)

    def add(self, opcode, of, *operands, into=None, cycles=None, **fields):
        """Adds an instruction; returns its id."""
        number = 1 + sum(len(c.instructions) for c in self.module.computations)
        added = (into or self.entry).instructions.add(
            id=number, name=f"i{number}", opcode=opcode, shape=of, operand_ids=operands, **fields
        )
        if cycles is not None:
            config = {"window_config": {"estimated_cycles": str(cycles)}}
            added.backend_config = json.dumps(config).encode()
        (into or self.entry).root_id = number
        return number

    def time(self, slice_=V3, flops=0):
        """Returns the `StepTime`."""
        proto = hlo_pb2.HloProto(hlo_module=self.module)
        return cost.estimate_step_time(proto.SerializeToString(), slice_, flops, str)


@pytest.fixture
def program():
    return Program()


def test_cycles_are_time_by_the_clock(program):
    x = program.add("parameter", shape(8, 128))
    program.add("fusion", shape(8, 128), x, cycles=940_000)
    found = program.time(flops=61.5e9)
    assert found.seconds == pytest.approx(1e-3)
    assert found.expected_seconds == pytest.approx(1.4e-3)
    assert found.share_of_peak == pytest.approx(1.0)


def test_without_cycles_it_is_the_time_of_the_bytes_with_their_padding(program):
    x = program.add("parameter", shape(1001, 100))
    program.add("copy", shape(1001, 100), x)
    found = program.time()
    assert found.moved_seconds == pytest.approx(2 * 1008 * 128 * 4 / V3_MEMORY)
    assert found.copy_seconds == found.seconds == found.moved_seconds


@pytest.mark.parametrize("cycles", [2**62, 10**12])
def test_an_overflow_of_the_compiler_is_no_estimate(program, cycles):
    x = program.add("parameter", shape(8, 128))
    program.add("fusion", shape(8, 128), x, cycles=cycles, called_computation_ids=[2])
    fused = program.module.computations.add(id=2)
    program.add("parameter", shape(8, 128), into=fused)
    assert 0 < program.time().seconds < 1e-6


def test_the_memory_of_a_core_is_free(program):
    x = program.add("parameter", shape(1000, 128, memory_space=1))
    program.add("copy", shape(1000, 128, memory_space=1), x)
    assert program.time().seconds == 0


def test_a_gather_reads_rows_and_a_fusion_parts(program):
    table = program.add("parameter", shape(10**6, 128))
    index = program.add("parameter", shape(8, 128, dtype=xla_data_pb2.S32), parameter_number=1)
    rows = shape(1024, 128)
    program.add("gather", rows, table, index)
    moved = 2 * 1024 * 128 * 4 + 8 * 128 * 4
    assert program.time().moved_seconds == pytest.approx(moved / V3_MEMORY)

    fused = program.module.computations.add(id=2)
    inside = program.add("parameter", shape(10**6, 128), into=fused)
    program.add("dynamic-slice", rows, inside, into=fused)
    program.add("fusion", rows, table, called_computation_ids=[2])
    moved += 2 * 1024 * 128 * 4
    assert program.time().moved_seconds == pytest.approx(moved / V3_MEMORY)


def test_an_update_in_place_moves_the_update(program):
    table = program.add("parameter", shape(10**6, 128))
    update = program.add("parameter", shape(16, 128), parameter_number=1)
    program.add("dynamic-update-slice", shape(10**6, 128), table, update)
    assert program.time().moved_seconds == pytest.approx(3 * 16 * 128 * 4 / V3_MEMORY)


def test_all_reduces_take_the_time_of_the_links(program):
    gradient = program.add("parameter", shape(10**6))
    program.add("all-reduce", shape(10**6), gradient)
    for name in ("v3-8", "v3-512", "v4-32", "v5e-16"):
        slice_ = topology.find(name)
        found = program.time(slice_).all_reduce_seconds
        assert found == pytest.approx(links.all_reduce_seconds(4e6, slice_))
        assert found > 0
    assert program.time(topology.find("v5e-1")).all_reduce_seconds == 0


@pytest.mark.parametrize(
    ("name", "chips", "links_in_use"), [("v3-8", 4, 2), ("v3-128", 64, 2), ("v3-2048", 1024, 4)]
)
def test_an_all_reduce_uses_the_links_of_both_dimensions(monkeypatch, name, chips, links_in_use):
    """Each chip sends all but its part twice; only a pod has links around its edges."""
    monkeypatch.setattr(links, "HOP", 0)
    time = links.all_reduce_seconds(1e8, topology.find(name))
    assert time == pytest.approx(2 * 1e8 * (chips - 1) / chips / (links_in_use * 656e9 / 8))


def test_a_prefetch_beside_other_instructions_is_free():
    module = hlo_pb2.HloModuleProto()
    instruction = hlo_pb2.HloInstructionProto(opcode="copy-start", shape=shape(999, 128))
    assert hlo_traffic.Traffic(module).num_bytes(instruction) == 0
