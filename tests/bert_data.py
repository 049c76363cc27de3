"""Small prepared data sets of WordPiece text, written in the real formats."""

from __future__ import annotations

import numpy as np

from input_fns import convert
from input_fns.convert import writer
from input_fns.convert.options import Options
from input_fns.text import wordpiece

_WORDS = ["the", "a", "film", "plot", "was", "is", "good", "great", "bad", "dull", "very", "not"]
VOCAB = "".join(f"{piece}\n" for piece in [*wordpiece.SPECIAL, *_WORDS, "##s", ".", "!"]).encode()
# A tiny BERT without dropout, in flags of both wrappers.
TINY = (
    "--params=num_layers=1,hidden_size=16,num_heads=2,ffn_size=24,max_positions=32",
    "--params=dropout=0,attention_dropout=0,initializer_range=0.3,optimizer=bert_adamw",
)


def sentences(count: int, seed: int) -> list[tuple[str, int]]:
    """Returns (text, label): 3 to 14 words, of which one decides the label."""
    random = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        label = int(random.integers(2))
        words = random.choice(["the", "a", "film", "plots", "was", "is"], random.integers(2, 13))
        opinion = random.choice([["bad", "dull"], ["good", "great"]][label])
        place = random.integers(0, len(words) + 1)
        found.append((" ".join([*words[:place], opinion, *words[place:], "."]), label))
    return found


def prepare_sst2(folder, max_length: int = 24) -> str:
    """Writes the files of SST-2, 96 and 41 sentences, and prepares them; returns data_dir."""
    source = folder / "source"
    source.mkdir()
    for name, count, seed in (("train", 96, 1), ("dev", 41, 2)):
        rows = "".join(f"{text}\t{label}\n" for text, label in sentences(count, seed))
        (source / f"{name}.tsv").write_text(f"sentence\tlabel\n{rows}")
    return _prepare("sst2", folder, source, max_length=max_length)


def prepare_sst2_test(folder, sst2: str) -> str:
    """Prepares the sentences of dev as a test.tsv without labels, for a model of `sst2`."""
    source = folder / "source"
    source.mkdir()
    rows = "".join(f"{i}\t{text}\n" for i, (text, _) in enumerate(sentences(41, 2)))
    (source / "test.tsv").write_text(f"index\tsentence\n{rows}")
    return _write(folder, Options("sst2", source=str(source), vocabulary=sst2, max_length=24))


def prepare_tags(folder, max_length: int = 24, **options) -> str:
    """Writes sentences in which opinions are entities, and prepares rows; returns data_dir."""
    source = folder / "source"
    source.mkdir()
    opinions = {"bad", "dull", "good", "great"}
    for name, count, seed in (("train", 48, 5), ("dev", 17, 6)):
        texts = [text.split() for text, _ in sentences(count, seed)]
        lines = [[f"{w} {'B-OPINION' if w in opinions else 'O'}" for w in text] for text in texts]
        (source / f"{name}.txt").write_text("\n\n".join("\n".join(words) for words in lines))
    return _prepare("token_files", folder, source, max_length=max_length, **options)


def prepare_pretraining(folder) -> str:
    """Writes documents of sentences and prepares rows of 24 tokens; returns data_dir."""
    source = folder / "source"
    source.mkdir()
    for name, documents, seed in (("train", 24, 3), ("dev", 8, 4)):
        texts = [text for text, _ in sentences(documents * 6, seed)]
        parts = ["\n".join(texts[i : i + 6]) for i in range(0, len(texts), 6)]
        (source / f"{name}.txt").write_text("\n\n".join(parts))
    options = {"max_length": 24, "max_predictions_per_seq": 4, "dupe_factor": 2}
    return _prepare("pretraining_text", folder, source, **options)


def _prepare(dataset, folder, source, **options):
    vocabulary = folder / "vocab.txt"
    vocabulary.write_bytes(VOCAB)
    return _write(
        folder, Options(dataset, source=str(source), vocabulary=str(vocabulary), **options)
    )


def _write(folder, options):
    data_dir = str(folder / "prepared")
    writer.write(convert.read(options), data_dir)
    return data_dir
