"""Questions and a vocabulary for tests of SQuAD."""

from __future__ import annotations

import json
import string

# Words of the vocabulary are one token; letters, digits and punctuation make all others.
WORDS = ("the", "is", "of", "in", "who", "what", "paris", "france", "capital", "king", "louis")
VOCAB = "".join(
    f"{piece}\n"
    for piece in (
        *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
        *WORDS,
        *(f"{prefix}{c}" for prefix in ("", "##") for c in string.ascii_lowercase + string.digits),
        *string.punctuation,
        *("é", "中", "文"),
    )
).encode()
PARIS = "Paris is the capital of France. In 1643 Louis XIV, the king, was 4 years old."
CAFE = "Café 中文 😀 (the Café) is in Paris."


def question(name, text="What is the capital?", *answers, **fields):
    """Returns an entry of "qas"; `answers` are `(text, start)`."""
    found = [{"text": answer, "answer_start": start} for answer, start in answers]
    return {"id": name, "question": text, "answers": found, **fields}


def content(*paragraphs, version="1.1"):
    """Returns SQuAD JSON of one article from `(context, [question, ...])`."""
    found = [{"context": context, "qas": questions} for context, questions in paragraphs]
    return json.dumps({"version": version, "data": [{"title": "Title", "paragraphs": found}]})


def paris_questions(version="1.1"):
    """Returns `content` about `PARIS` and `CAFE`; version 2.0 has a question without an answer."""
    questions = [
        question("capital", "What is the capital of France?", ("Paris", 0), ("Paris is", 0)),
        question("year", "In what year?", ("1643", 35)),
        question("king", "Who is the king?", ("Louis XIV", 40)),
    ]
    if version != "1.1":
        questions.append(question("queen", "Who is the queen?", is_impossible=True))
    return content(
        (PARIS, questions),
        (CAFE, [question("café", "What is 中文?", ("Café", 14))]),
        version=version,
    )


def write(folder, vocab=VOCAB, **splits):
    """Writes vocab.txt and `{split}-v1.1.json` of `content`; returns the folder."""
    folder.mkdir(exist_ok=True)
    (folder / "vocab.txt").write_bytes(vocab)
    for name, text in splits.items():
        (folder / f"{name}-v1.1.json").write_text(text)
    return folder
