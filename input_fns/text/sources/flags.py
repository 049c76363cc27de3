"""Flags of the sources of text. Imports no TensorFlow: `--help` waits for it."""

from common.constants import SUBWORDS, TRUNCATE


def define(flag) -> None:
    """Defines the flags; `flag` is `convert.flags.define`."""
    flag("text_columns", "Columns of text_files: of the text, or of two texts.")
    flag("languages", "File extensions of parallel_text, such as en,de.")
    flag(
        "vocabulary",
        "Existing vocabulary (vocab.txt of BERT, .model of SentencePiece for parallel_text, "
        "characters of speech_manifest), or the folder of a prepared data set, local or gs://; "
        "default: new.",
    )
    flag(
        "lower_case",
        "Lower-case text for BERT and remove its accents (do_lower_case of uncased models); "
        "lower-case the texts of speech_manifest.",
    )
    flag(
        "truncate",
        "Where texts of BERT with too many tokens lose them; middle keeps a quarter of the row "
        "from the start of the text, and the rest from its end.",
        one_of=TRUNCATE,
    )
    flag(
        "vocab_size",
        "Size of the vocabulary to learn, of parallel_text for both languages; a multiple of 128. "
        "A small text may give fewer tokens for BERT.",
        lower_bound=512,
        upper_bound=2**20,
    )
    flag("subwords", "SentencePiece model type.", one_of=SUBWORDS)
    flag(
        "max_length",
        "Tokens per row; 384 for squad, which has windows of longer texts. Other texts for BERT "
        "are truncated. Longer sentences of parallel_text are skipped in 'train' and in splits "
        "held out of it; in other splits they are an error.",
        lower_bound=8,
        upper_bound=2**16,
    )
    flag(
        "doc_stride",
        "Tokens from the start of a window of a context to that of the next.",
        lower_bound=1,
        upper_bound=2**16,
    )
    flag(
        "max_query_length",
        "Tokens of a question; longer ones are truncated.",
        lower_bound=1,
        upper_bound=2**16,
    )
    flag(
        "max_predictions_per_seq",
        "Most masked tokens of a row of pretraining_text; 0: masked_lm_prob times max_length.",
        lower_bound=0,
    )
    flag("masked_lm_prob", "Fraction of the tokens to mask.", lower_bound=0.0, upper_bound=1.0)
    flag("whole_word_mask", "Mask all tokens of a word together.")
    flag(
        "dupe_factor",
        "How often each training document is cut into pairs, with other masks each time.",
        lower_bound=1,
    )
    flag(
        "short_seq_prob",
        "Probability that a document is cut into shorter pairs.",
        lower_bound=0.0,
        upper_bound=1.0,
    )
