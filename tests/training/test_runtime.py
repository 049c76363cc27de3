"""What the machine can do."""

import pytest

from training import runtime


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("fpu avx2 avx512f avx512_bf16", True),
        ("fpu avx2 avx512f amx_bf16 amx_tile", True),
        ("asimd bf16 i8mm", True),
        ("fpu avx2 avx512f", False),
    ],
)
def test_bfloat16_is_an_instruction_of_the_cpu(tmp_path, flags, expected):
    cpu_info = tmp_path / "cpuinfo"
    cpu_info.write_text(f"processor : 0\nflags : {flags}\n")
    assert runtime.computes_bfloat16(str(cpu_info)) is expected


def test_where_nobody_can_tell_it_is_taken_for_granted(tmp_path):
    assert runtime.computes_bfloat16(str(tmp_path / "none"))
