"""TPU slices by name."""

import pytest

from tpu.connect import topology


@pytest.mark.parametrize(
    ("name", "num_hosts", "cores_per_host", "hbm_gib"),
    [
        ("v2-8", 1, 8, 8),
        ("v2-512", 64, 8, 8),
        ("v3-8", 1, 8, 16),
        ("v3-32", 4, 8, 16),
        ("v3-2048", 256, 8, 16),
        ("v4-8", 1, 4, 32),
        ("v4-32", 4, 4, 32),
        ("v4-512", 64, 4, 32),
        ("1x2", 1, 2, 0),
        ("4x8", 4, 8, 0),
    ],
)
def test_hosts_cores_and_memory(name, num_hosts, cores_per_host, hbm_gib):
    found = topology.find(name)
    assert found == topology.Topology(name, num_hosts, cores_per_host, hbm_gib)
    assert found.num_cores == num_hosts * cores_per_host


def test_all_names_are_found():
    assert len(topology.names()) == 23
    assert all(topology.find(name).name == name for name in topology.names())


@pytest.mark.parametrize("name", ["v3-7", "v3", "8", "0x8", "tpu-v3-8", ""])
def test_unknown_name_lists_valid_names(name):
    with pytest.raises(ValueError, match=r"unknown TPU slice .* Valid: v2-8, v2-32, .* v4-4096"):
        topology.find(name)


@pytest.mark.parametrize("name", ["v5litepod-8", "v5p-8", "v6e-1", "v10-8"])
def test_generations_without_infeed_are_unsupported(name):
    with pytest.raises(ValueError, match="PJRT"):
        topology.find(name)
