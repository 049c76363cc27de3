"""`MODEL_CARD.json` of a SavedModel: model, hyperparameters, metrics, signatures, versions."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import os
import platform

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from common import files
from engine.checkpoints import find
from engine.hooks import results

FILE_NAME = "MODEL_CARD.json"
_METHODS = {"tensorflow/serving/predict": "predict", "tensorflow/serving/classify": "classify"}


def write(path: str, settings, checkpoint: str, report) -> dict:
    """Writes the card of a SavedModel; returns it.

    Args:
      path: path of the SavedModel.
      settings: `RunSettings`.
      checkpoint: path of the exported checkpoint.
      report: the `export_check.Report`.
    """
    step = find.read_step(checkpoint)
    card = {
        "model": settings.model.name,
        "params": settings.params,
        "data_set": {
            "name": settings.dataset.name,
            "classes": list(settings.dataset.all_class_names),
            "examples": {
                name: split.num_examples for name, split in settings.dataset.splits.items()
            },
        },
        "checkpoint": {"path": checkpoint, "step": step},
        "metrics": results.read_evaluation(settings, settings.evaluation.split, checkpoint),
        "metrics_of_other_splits": {
            split: results.read_evaluation(settings, split, checkpoint)
            for split in settings.evaluation.splits[1:]
        },
        "export_check": dataclasses.asdict(report),
        "versions": {
            "python": platform.python_version(),
            "tensorflow": tf.__version__,
            "tensorflow-estimator": importlib.metadata.version("tensorflow-estimator"),
        },
        **_content(path),
    }
    with files.atomic_write(os.path.join(path, FILE_NAME)) as file:
        json.dump(card, file, indent=1, default=results.to_json)
        file.write("\n")
    return card


def describe(card: dict) -> str:
    """Returns one line with size, number of variables and signatures."""
    signatures = ", ".join(next(iter(card["graphs"].values()))["signatures"])
    nodes = " + ".join(f"{graph['nodes']:,}" for graph in card["graphs"].values())
    return (
        f"{card['bytes'] / 2**20:.1f} MiB, {card['variables']:,} numbers in variables, {nodes} "
        f"nodes; signatures {signatures}"
    )


def read(path: str) -> saved_model_pb2.SavedModel:
    """Returns the SavedModel proto at `path`."""
    with tf.io.gfile.GFile(os.path.join(path, "saved_model.pb"), "rb") as file:
        return saved_model_pb2.SavedModel.FromString(file.read())


def signature_names(path: str) -> list[str]:
    """Returns the names of the signatures that the SavedModel at `path` serves."""
    return list(read(path).meta_graphs[0].signature_def)


def _content(path):
    """Returns size, number of values in variables, and signatures per graph (by tags)."""
    graphs = {}
    for meta_graph in read(path).meta_graphs:
        graphs[",".join(meta_graph.meta_info_def.tags)] = {
            "nodes": len(meta_graph.graph_def.node)
            + sum(len(function.node_def) for function in meta_graph.graph_def.library.function),
            "signatures": {
                name: {
                    "method": _METHODS[signature.method_name],
                    "inputs": _tensors(signature.inputs),
                    "outputs": _tensors(signature.outputs),
                }
                for name, signature in sorted(meta_graph.signature_def.items())
            },
        }
    variables = tf.train.list_variables(os.path.join(path, "variables", "variables"))
    return {
        "bytes": sum(
            tf.io.gfile.stat(os.path.join(folder, name)).length
            for folder, _, names in tf.io.gfile.walk(path)
            for name in names
        ),
        "variables": sum(int(np.prod(shape)) for _, shape in variables),
        "graphs": graphs,
    }


def _tensors(tensors):
    """Returns `{name: {"dtype", "shape"}}`; None is a dynamic dimension."""
    return {
        name: {
            "dtype": tf.dtypes.as_dtype(info.dtype).name,
            "shape": [None if dim.size < 0 else dim.size for dim in info.tensor_shape.dim],
        }
        for name, info in sorted(tensors.items())
    }
