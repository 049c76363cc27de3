"""tf.contrib.predictor: calls a SavedModel as a Python function."""

from __future__ import annotations

import tensorflow as tf

__all__ = ["from_saved_model"]


class _Predictor:
    """A function from {input: array} to {output: array}.

    Attributes:
      graph: the tf.Graph of the model.
      session: the tf.Session that holds its variables.
      feed_tensors: {input: tensor}.
      fetch_tensors: {output: tensor}.
    """

    def __init__(self, graph, session, feed_tensors, fetch_tensors):
        self.graph = graph
        self.session = session
        self.feed_tensors = feed_tensors
        self.fetch_tensors = fetch_tensors

    def __call__(self, input_dict):
        unknown = sorted(set(input_dict) - set(self.feed_tensors))
        if unknown:
            raise ValueError(f"unknown inputs {unknown}; the model has {sorted(self.feed_tensors)}")
        feeds = {self.feed_tensors[name]: value for name, value in input_dict.items()}
        return self.session.run(self.fetch_tensors, feeds)


def from_saved_model(
    export_dir,
    signature_def_key=None,
    signature_def=None,
    input_names=None,
    output_names=None,
    tags=None,
    graph=None,
    config=None,
):
    """Loads a SavedModel.

    Args:
      export_dir: its folder.
      signature_def_key: name of a signature; default "serving_default".
      signature_def: the signature, instead of its name.
      input_names: {input: tensor name}, with `output_names` instead of a signature.
      output_names: {output: tensor name}.
      tags: comma-separated tags of the graph; default "serve".
      graph: tf.Graph to load into; default a new one.
      config: tf.ConfigProto of the session.
    """
    v1 = tf.compat.v1
    graph = graph or tf.Graph()
    with graph.as_default():
        session = v1.Session(config=config)
        loaded = v1.saved_model.loader.load(session, (tags or "serve").split(","), export_dir)
    if input_names is None or output_names is None:
        signature = signature_def or loaded.signature_def[signature_def_key or "serving_default"]
        input_names = {name: tensor.name for name, tensor in signature.inputs.items()}
        output_names = {name: tensor.name for name, tensor in signature.outputs.items()}
    inputs, outputs = (
        {name: graph.get_tensor_by_name(tensor) for name, tensor in names.items()}
        for names in (input_names, output_names)
    )
    return _Predictor(graph, session, inputs, outputs)
