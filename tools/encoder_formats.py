"""Files and names of BERT, ALBERT and ELECTRA in their papers' code and in `transformers`."""

from __future__ import annotations

import dataclasses
import re

_GELU_TANH = ("gelu_new", "gelu", "gelu_pytorch_tanh", "gelu_python")
_GELU = ("gelu", "gelu_python")
# Variables of heads whose names in transformers follow no rule.
_HEADS = {
    "cls/squad/output_weights": "qa_outputs.weight",
    "cls/squad/output_bias": "qa_outputs.bias",
    "output_weights": "classifier.weight",
    "output_bias": "classifier.bias",
}
_PRETRAINING = {
    "cls/predictions/output_bias": "cls.predictions.bias",
    "cls/seq_relationship/output_weights": "cls.seq_relationship.weight",
    "cls/seq_relationship/output_bias": "cls.seq_relationship.bias",
}
_ALBERT_LAYER = "encoder/albert_layer_groups/0/albert_layers/0"


@dataclasses.dataclass(frozen=True)
class Format:
    """How a family is stored.

    Attributes:
      family: key of `models.text.encoders.FAMILIES`; model_type and prefix in transformers.
      title: start of the names of its classes in transformers.
      checkpoint, config: names of files as the paper's code has them.
      pieces: name of a vocabulary of SentencePiece as the paper's code has it.
      activations: values of hidden_act in transformers, the first one for what is written.
      config_fields: fields that both configurations have besides the sizes, and their only value.
      heads: `{variable: name in transformers}` of heads.
      renamed: pairs of a regular expression and its replacement in names of variables.
      has_classifier: whether the head of transformers for classes of texts is one dense layer.
    """

    family: str
    title: str
    checkpoint: str
    config: str
    pieces: str = "30k-clean.model"
    activations: tuple[str, ...] = _GELU_TANH
    config_fields: dict = dataclasses.field(default_factory=dict)
    heads: dict[str, str] = dataclasses.field(default_factory=lambda: dict(_HEADS))
    renamed: tuple[tuple[str, str], ...] = ()
    has_classifier: bool = True

    def name_of(self, variable: str) -> str:
        """Returns the name of a variable in transformers, without the prefix of the encoder."""
        if variable in self.heads:
            return self.heads[variable]
        name = re.sub("^(bert|electra)/", "", variable)
        for pattern, replacement in self.renamed:
            name = re.sub(pattern, replacement, name)
        name = re.sub(r"/layer_(\d+)/", r"/layer/\1/", name)
        if name.endswith("_embeddings"):
            name += "/weight"
        name = re.sub("/(kernel|gamma)$", "/weight", name)
        return re.sub("/beta$", "/bias", name).replace("/", ".")


FORMATS = {
    "bert": Format(
        "bert",
        "Bert",
        "bert_model.ckpt",
        "bert_config.json",
        heads={**_PRETRAINING, **_HEADS},
    ),
    "albert": Format(
        "albert",
        "Albert",
        "model.ckpt-best",
        "albert_config.json",
        config_fields={"num_hidden_groups": 1, "inner_group_num": 1},
        renamed=(
            ("encoder/transformer/group_0/inner_group_0", _ALBERT_LAYER),
            ("attention_1/self/", "attention/"),
            ("attention_1/output/", "attention/"),
            ("/LayerNorm_1/", "/full_layer_layer_norm/"),
            (f"{_ALBERT_LAYER}/LayerNorm/", f"{_ALBERT_LAYER}/attention/LayerNorm/"),
            ("ffn_1/intermediate/dense", "ffn"),
            ("ffn_1/intermediate/output/dense", "ffn_output"),
            ("pooler/dense", "pooler"),
        ),
    ),
    "electra": Format(
        "electra",
        "Electra",
        "electra_model.ckpt",
        "electra_config.json",
        activations=_GELU,
        has_classifier=False,
    ),
}


def architecture(form: Format, variables, found) -> str:
    """Returns the class of `transformers` that has these variables.

    Args:
      form: of the family.
      variables: names.
      found: see `bert_checkpoint`; the model says what output_weights is of.
    """
    is_token = found.get("model", "").endswith("token_classifier")
    if "cls/predictions/output_bias" in variables:
        has_pairs = "cls/seq_relationship/output_bias" in variables
        task = "ForPreTraining" if has_pairs else "ForMaskedLM"
    elif "cls/squad/output_weights" in variables:
        task = "ForQuestionAnswering"
    elif "output_weights" in variables and (is_token or form.has_classifier):
        task = f"For{'Token' if is_token else 'Sequence'}Classification"
    else:
        task = "Model"
    return form.title + task
