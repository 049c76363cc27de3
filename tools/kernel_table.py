"""Writes tpu/graph/tpu_kernels.json.gz: the operations with TPU kernels, and their dtypes.

Run it in a separate environment with tensorflow-tpu (needs no TPU):

python -m venv /tmp/tpu-wheel
/tmp/tpu-wheel/bin/pip install --no-deps tensorflow-tpu==2.16.1
/tmp/tpu-wheel/bin/pip install 'keras<3.4' 'ml-dtypes~=0.3.1' 'numpy<2' 'setuptools<81' absl-py \
  astunparse flatbuffers gast google-pasta grpcio h5py opt-einsum packaging 'protobuf<5' requests \
  six termcolor typing-extensions wrapt
/tmp/tpu-wheel/bin/python tools/kernel_table.py

2.16.1 is the first version of that wheel on PyPI, one minor version after the last with Estimator.
The table contains every operation that 2.15.1 compiles on a CPU.
"""

import gzip
import json
import pathlib

import tensorflow as tf
from tensorflow.python.framework import kernels

DEVICE = "XLA_TPU_JIT"
PATH = pathlib.Path(__file__).parents[1] / "tpu" / "graph" / "tpu_kernels.json.gz"


def main():
    """Writes the table."""
    try:  # the first compilation registers the kernels, then fails without a TPU
        tf.function(lambda x: x + 1, jit_compile=True)(tf.constant(1.0))
    except (tf.errors.OpError, RuntimeError) as error:
        print(f"as expected without a TPU: {str(error).splitlines()[0]}")
    table = {}
    for kernel in kernels.get_all_registered_kernels().kernel:
        if kernel.device_type == DEVICE:
            types = table.setdefault(kernel.op, {})
            for constraint in kernel.constraint:
                allowed = types.setdefault(constraint.name, set())
                for number in constraint.allowed_values.list.type:
                    allowed.add(tf.as_dtype(number).name)
    sorted_table = {
        op: {name: sorted(allowed) for name, allowed in sorted(types.items())}
        for op, types in sorted(table.items())
    }
    provenance = f"kernels registered for {DEVICE} in tensorflow-tpu {tf.__version__}"
    content = json.dumps({"provenance": provenance, "kernels": sorted_table}, indent=0)
    with gzip.GzipFile(PATH, "wb", mtime=0) as file:
        file.write(content.encode())
    print(f"{PATH}: {len(table)} operations, {PATH.stat().st_size} bytes; {provenance}")


if __name__ == "__main__":
    main()
