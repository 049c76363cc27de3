"""Feature names and token ids shared by input pipelines and models."""

# Feature of a training batch, int32 [batch, 2]: a random seed per example, for dropout.
DROPOUT_SEED = "dropout_seed"
# Feature of an evaluation batch, float32 [batch]: example weight, 0 for padded examples.
EXAMPLE_WEIGHT = "weight"
# Token ids: padding and end of sentence.
PAD, EOS = 0, 1

# Negatives of a training row of ratings (He et al. 2017, arXiv:1708.05031).
NUM_NEGATIVES = 4

# What is predicted for each example: one class, any number of classes, probabilities of classes, or
# numbers.
TARGETS = ("classification", "multilabel", "soft_labels", "regression")

# Tasks of a data set of WordPiece text, for BERT.
WORDPIECE_TASKS = (
    "classification",
    "regression",
    "token_classification",
    "squad",
    "pretraining",
)
# Where a text with too many tokens loses them. "middle" keeps a quarter of the row from its start,
# and the rest from its end (Sun et al. 2019, arXiv:1905.05583, section 5.1).
TRUNCATE = ("end", "middle", "windows")
WINDOWS = TRUNCATE[2]  # no truncation: a text is several rows
JOINS = ("mean", "max", "vote")  # of the predictions of the windows of a text
DOCUMENT_INDEX = "document_index"  # feature of a window: the number of its text in the split
MAX_CONTEXT = "is_max_context"  # feature: 1 for a token that has more context than in other windows
SENTENCEPIECE = ".model"  # ending of a vocabulary of SentencePiece; others are a vocab.txt
# SentencePiece model types.
SUBWORDS = ("unigram", "bpe")

# The token between the documents of a language model, and its text in files.
END_OF_TEXT = "<|endoftext|>"
# Tokens of a language model: byte-level BPE, as of GPT-2, or characters.
TOKENIZERS = ("bpe", "characters")

# Tasks of a data set of annotated images.
ANNOTATION_TASKS = ("detection", "segmentation", "instance_segmentation")
INSTANCES = ANNOTATION_TASKS[2]  # boxes, and the pixels of each object
# Value of a mask where a pixel has no class: it counts neither in the loss nor in metrics.
IGNORED_CLASS = 255
# Reason in dataset.json of boxes and polygons that reached out of their image.
CLIPPED = "clipped to the image"

# Tasks of a data set with embedding tables.
TABLE_TASKS = ("ratings", "clicks")
