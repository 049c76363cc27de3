"""Serves a SavedModel with NVIDIA Triton on loopback, and sends it one request over HTTP.

    python tools/triton_once.py SAVED_MODEL REQUESTS.npz ANSWERS.npz SITE_PACKAGES

Runs in a separate environment with nvidia-pytriton (docs/serving.md); TensorFlow is imported from
SITE_PACKAGES. Triton has no TensorFlow backend any more, so its Python backend calls TensorFlow.
"""

from __future__ import annotations

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

SIGNATURE = "serving_default"
HTTP_PORT, GRPC_PORT = 18000, 18001


def main(saved_model: str, requests: str, answers: str, site_packages: str) -> None:
    """Writes the outputs for a batch of inputs; both files hold `{name: array [batch, ...]}`."""
    sys.path.append(site_packages)
    import numpy as np
    import tensorflow as tf
    from pytriton.client import ModelClient
    from pytriton.decorators import batch
    from pytriton.model_config import ModelConfig, Tensor
    from pytriton.triton import Triton, TritonConfig

    serve = tf.saved_model.load(saved_model).signatures[SIGNATURE]
    _, inputs = serve.structured_input_signature
    outputs = serve.structured_outputs

    def tensors(specs):
        return [
            Tensor(
                name=name,
                dtype=bytes if spec.dtype == tf.string else spec.dtype.as_numpy_dtype,
                shape=tuple(spec.shape[1:]) or (1,),
            )
            for name, spec in specs.items()
        ]

    @batch
    def infer(**arrays):
        answer = serve(**{name: tf.constant(array) for name, array in arrays.items()})
        # Triton has no scalars in a batch.
        return {
            name: tensor.numpy().reshape(len(tensor), *(outputs[name].shape[1:] or [1]))
            for name, tensor in answer.items()
        }

    config = TritonConfig(
        http_address="127.0.0.1",
        grpc_address="127.0.0.1",
        http_port=HTTP_PORT,
        grpc_port=GRPC_PORT,
        allow_metrics=False,
        log_verbose=0,
    )
    with np.load(requests) as file:
        arrays = dict(file)
    with Triton(config=config) as triton:
        size = len(next(iter(arrays.values())))
        triton.bind(
            model_name="model",
            infer_func=infer,
            inputs=tensors(inputs),
            outputs=tensors(outputs),
            config=ModelConfig(max_batch_size=size),
        )
        triton.run()
        with ModelClient(f"http://127.0.0.1:{HTTP_PORT}", "model") as client:
            answer = client.infer_batch(**arrays)
    np.savez(
        answers,
        **{name: array.reshape(size, *outputs[name].shape[1:]) for name, array in answer.items()},
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
