"""Large variables of checkpoints are read in blocks, with their checksums."""

import tracemalloc

import numpy as np
import pytest
import tensorflow as tf

from engine.checkpoints import bundle, verify, writer


@pytest.fixture
def in_blocks(monkeypatch):
    """All but tiny variables are large, and blocks are small."""
    monkeypatch.setattr(verify, "_MAX_BYTES", 64)
    monkeypatch.setattr(bundle, "BLOCK_BYTES", 2**16)


def save(folder, **values):
    path = str(folder / "model.ckpt-1")
    writer.write(path, {**values, "global_step": np.int64(1)})
    return path


def data(path):
    return f"{path}.data-00000-of-00001"


def table(rows=70_001):
    return np.random.default_rng(0).normal(size=(rows, 3)).astype(np.float32)


def test_blocks_hold_the_values(tmp_path):
    path = save(tmp_path, t=table(), other=np.ones([2], np.float64))
    found = {
        name: np.concatenate(list(bundle.blocks(*rest))) for name, *rest in bundle.entries(path)
    }
    assert found.keys() == {"t", "other", "global_step"}
    np.testing.assert_array_equal(found["t"].reshape(-1, 3), table())


def test_a_sound_checkpoint_has_no_problem(tmp_path, in_blocks):
    assert verify.find_problem(save(tmp_path, t=table())) is None


@pytest.mark.parametrize("byte", [0, 500_000, 840_011])
def test_a_changed_byte_is_found(tmp_path, in_blocks, byte):
    path = save(tmp_path, t=table())
    with open(data(path), "r+b") as file:
        file.seek(-1 - byte, 2)  # global_step is first
        old = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([old[0] ^ 1]))
    assert "has a wrong checksum at byte" in verify.find_problem(path)


def test_a_short_file_is_found(tmp_path, in_blocks):
    path = save(tmp_path, t=table())
    with open(data(path), "r+b") as file:
        file.truncate(300_000)
    assert "ends" in verify.find_problem(path)


def test_nan_is_found(tmp_path, in_blocks):
    values = table()
    values[60_000, 1] = np.nan
    path = save(tmp_path, t=values)
    assert verify.find_problem(path) == "t is not finite"
    assert verify.find_problem(path, is_trained=False) is None


def test_partitions_are_read_under_the_name_of_the_variable(tmp_path, in_blocks, session):
    with session.graph.as_default():
        partitioner = tf.compat.v1.fixed_size_partitioner(3)
        tf.compat.v1.get_variable("a/t", [100, 3], partitioner=partitioner)
        tf.compat.v1.train.create_global_step()
        session.run(tf.compat.v1.global_variables_initializer())
        path = tf.compat.v1.train.Saver().save(session, str(tmp_path / "model.ckpt"), 1)
    names = [name for name, _, _ in bundle.entries(path)]
    assert sorted(names) == ["a/t"] * 3 + ["global_step"]
    assert verify.find_problem(path) is None
    with open(data(path), "r+b") as file:
        file.seek(500)
        file.write(b"\x01")
    assert "has a wrong checksum at byte" in verify.find_problem(path)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_variable(tmp_path, in_blocks):
    path = save(tmp_path, t=np.zeros([2**22], np.float32))  # 16 MiB
    tracemalloc.start()
    try:
        assert verify.find_problem(path) is None
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2**22


@pytest.mark.parametrize("content", [b"", b"\0" * 100])
def test_an_invalid_index_is_an_error(tmp_path, content):
    (tmp_path / "model.ckpt-1.index").write_bytes(content)
    with pytest.raises(ValueError, match="is not an index of a checkpoint"):
        bundle.entries(str(tmp_path / "model.ckpt-1"))
