"""A small SentencePiece model with the special symbols of ALBERT's."""

from __future__ import annotations

import functools
import io

TEXTS = [f"the café cost {i},{i:03d} in 1999, says {word}." for i in range(300) for word in "ab"]


@functools.cache
def model(special: str = "[CLS],[SEP],[MASK]") -> bytes:
    """Returns a model that is trained on TEXTS."""
    import sentencepiece

    file = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS),
        model_writer=file,
        vocab_size=60,
        pad_id=0,
        unk_id=1,
        bos_id=-1,
        eos_id=-1,
        control_symbols=special,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return file.getvalue()
