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
        ("v5e-1", 1, 1, 16),
        ("v5e-8", 1, 8, 16),
        ("v5e-16", 4, 4, 16),  # hosts of a slice with several have 4 chips
        ("v5p-8", 1, 4, 95),  # Cloud counts TensorCores, two per chip
        ("v5p-16", 2, 4, 95),
        ("v5p-12288", 1536, 4, 95),
        ("v6e-8", 1, 8, 32),
        ("v6e-256", 64, 4, 32),
        ("1x2", 1, 2, 0),
        ("4x8", 4, 8, 0),
    ],
)
def test_hosts_cores_and_memory(name, num_hosts, cores_per_host, hbm_gib):
    found = topology.find(name)
    assert found == topology.Topology(name, num_hosts, cores_per_host, hbm_gib)
    assert found.num_cores == num_hosts * cores_per_host


def test_all_names_are_found():
    assert len(topology.names()) == 51
    assert all(topology.find(name).name == name for name in topology.names())


@pytest.mark.parametrize("name", ["v3", "8", "0x8", "tpu-v3-8", "v7-8", "v10-8", ""])
def test_unknown_name_lists_valid_names(name):
    with pytest.raises(ValueError, match=r"unknown TPU slice .* Valid: v2-8, v2-32, .* v6e-256"):
        topology.find(name)


@pytest.mark.parametrize("name", ["v5e-3", "v5litepod-3"])
def test_unknown_size_lists_the_sizes_of_the_generation(name):
    with pytest.raises(ValueError, match=r"Valid: v5e-1, v5e-4, .* v5e-256$"):
        topology.find(name)


@pytest.mark.parametrize("name", ["v5litepod-16", "v5lite-podslice-16", "v5e-16"])
def test_names_of_cloud_tpu_and_gke_are_aliases(name):
    found = topology.find(name)
    assert (found.name, found.cloud_name) == ("v5e-16", "v5litepod-16")


@pytest.mark.parametrize(
    ("name", "has_infeed"), [("v4-8", True), ("1x2", True), ("v5e-8", False), ("v6e-8", False)]
)
def test_tpuestimators_own_runtime_needs_infeed(name, has_infeed):
    assert topology.find(name).has_infeed == has_infeed
