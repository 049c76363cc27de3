"""Which family of networks a checkpoint of text is of, by the names of its variables.

Names are those of the released checkpoints: google-research/bert, albert, electra and mobilebert,
openai/gpt-2, google-research/text-to-text-transfer-transformer, zihangdai/xlnet, the TensorFlow
classes of Hugging Face transformers, and Keras' `tf.train.Checkpoint`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import tensorflow as tf

from models.model import ModelError

_CONVERT = "python -m tools.bert_checkpoint from_hugging_face converts its model.safetensors"
_NONE = "No model of this package has its layers"


class Family(NamedTuple):
    """A family of networks.

    Attributes:
      name: as in messages.
      telling: regular expression of the start of a variable's name that only this family has.
      advice: how to use such a checkpoint.
    """

    name: str
    telling: str
    advice: str


# The first family with a telling name counts: ALBERT and MobileBERT have those of BERT, too.
FAMILIES = {
    "keras": Family(
        "Keras (object-based names)",
        r".*/\.ATTRIBUTES/VARIABLE_VALUE$|_CHECKPOINTABLE_OBJECT_GRAPH$",
        "Its names do not say which layer is which. Use a checkpoint of the paper's code, or "
        "convert a model.safetensors with python -m tools.bert_checkpoint",
    ),
    "roberta": Family(
        "RoBERTa of Hugging Face",
        r"(tf_)?roberta\w*/",
        "Its tokens are byte-level BPE, which no encoder of this package reads",
    ),
    "hugging_face": Family(
        "Hugging Face transformers",
        r"tf_\w+/|(\w+/)?(bert|albert|electra|transformer)/(\w+/)*(layer|h)_\._\d+/",
        _CONVERT,
    ),
    "mobilebert": Family(
        "MobileBERT", r"bert/encoder/layer_\d+/(bottleneck|ffn_layer_\d+)/", _NONE
    ),
    "albert": Family(
        "ALBERT",
        r"bert/encoder/(transformer/group_\d+|embedding_hidden_mapping_in)/",
        "Use --params=size=albert_base_v2, or another size of ALBERT, and a model of BERT, such as "
        "--model=bert_classifier",
    ),
    "electra": Family(
        "ELECTRA",
        r"electra/(embeddings|encoder)/",
        "Use --params=size=electra_small, electra_base or electra_large, and a model of BERT, such "
        "as --model=bert_classifier",
    ),
    "bert": Family(
        "BERT",
        r"bert/(embeddings|encoder/layer_\d+)/",
        "Use --params=size=base, or another size of BERT, and a model of BERT, such as "
        "--model=bert_classifier",
    ),
    "xlnet": Family(
        "XLNet", r"model/transformer/(word_embedding|layer_\d+/rel_attn|r_w_bias)", _NONE
    ),
    "gpt": Family("GPT-2", r"model/(wte|wpe|h\d+/attn/)", "Use --model=gpt"),
    "t5": Family("T5", r"(encoder|decoder)/(block|layer)_\d{3}/|shared/embedding$", _NONE),
    "transformer": Family(
        "a Transformer of this package",
        r"(encoder|decoder)/layer_\d+/(self_attention|ffn)/",
        "Use --model=transformer",
    ),
}


def find(names) -> Family | None:
    """Returns the family of a checkpoint with these variables, or None."""
    names = list(names)
    for family in FAMILIES.values():
        if any(map(re.compile(family.telling).match, names)):
            return family
    return None


def check(checkpoint: str, wanted: str) -> None:
    """Raises `ModelError` if a checkpoint is of another family.

    Args:
      checkpoint: path, local or gs://.
      wanted: key of `FAMILIES`, of the model.
    """
    found = find(name for name, _ in tf.train.list_variables(checkpoint))
    if found and found != FAMILIES[wanted]:
        raise ModelError(
            f"{checkpoint} is a checkpoint of {found.name}, but this model is "
            f"{FAMILIES[wanted].name}. {found.advice}"
        )
