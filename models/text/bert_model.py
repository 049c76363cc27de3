"""Makes a `Model` of an encoder and a head."""

from __future__ import annotations

from models.model import Model
from models.text import bert, bert_embeddings, bert_files, encoders


def model(task, inference, **more):
    """Returns the Model `bert_<task>`; each has the predictions "embeddings".

    Args:
      task: name of the head.
      inference: see `models.model.Model`.
      **more: other arguments of `Model`; `dataset_properties` adds to those of the encoder, and
        `default_params` and `check_params` to those of the embeddings.
    """
    head_params = more.pop("default_params", bert.default_params)
    check_head = more.pop("check_params", encoders.check_params)

    def check_params(params):
        check_head(params)
        bert_embeddings.check_params(params)

    return Model(
        name=f"bert_{task}",
        inference=inference,
        default_params=lambda: {**head_params(), **bert_embeddings.default_params()},
        check_params=check_params,
        presets={"size": encoders.SIZES},
        warm_start_scope="bert/(embeddings|encoder)/.*|electra/.*",
        check_warm_start=bert_files.check_warm_start,
        layer_variables=encoders.layer_variables,
        dataset_properties=(*more.pop("dataset_properties", ()), "vocab_size", "max_length"),
        padded_properties=("vocab_size",),
        other_predictions={"embeddings": bert_embeddings.PREDICTIONS},
        **{"features": bert.FEATURES, **more},
    )
