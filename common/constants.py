"""Names and numbers that input pipelines and models agree on."""

# Feature of a training batch, int32 [batch, 2]: seeds of the random numbers that a model draws.
DROPOUT_SEED = "dropout_seed"
# Feature of an evaluation batch, float32 [batch]: 1 for an example, 0 for padding.
EXAMPLE_WEIGHT = "weight"
# Token ids: padding, and the end of a sentence.
PAD, EOS = 0, 1
