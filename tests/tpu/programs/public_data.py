"""Writes tiny data in the formats that the programs of test_public_programs.py read.

Each function writes the files of one kind into an empty folder.
"""

import json
import re

import numpy as np
import tensorflow as tf

SENTENCES = [
    "The rain had stopped before the first light of the morning.",
    "A man who walked along the road found a cup near the tree.",
    "Nobody heard the cart when it passed over the old bridge at noon.",
    "The captain bought a red coat and a white horse in the town.",
    "She wrote a long letter about the sea and the ships in the harbor.",
    "Two boys ran after the dog that took the bread from the table.",
    "In winter the river froze and the children played upon the ice.",
    "The doctor came late because the snow had covered the road.",
]
_LENGTH, _MAX_PREDICTIONS = 32, 5  # of an example for BERT's pre-training


def _words(text):
    return re.findall(r"\w+|[^\w\s]", text.lower())


def _vocab():
    words = sorted({word for sentence in SENTENCES for word in _words(sentence)})
    characters = "abcdefghijklmnopqrstuvwxyz0123456789?"
    pieces = [*characters, *(f"##{character}" for character in characters)]
    return list(dict.fromkeys(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words, *pieces]))


VOCAB = _vocab()
# Sizes of the models.
BERT_CONFIG = {
    "attention_probs_dropout_prob": 0.0,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.0,
    "hidden_size": 32,
    "initializer_range": 0.02,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
    "type_vocab_size": 2,
    "vocab_size": len(VOCAB),
}
ALBERT_CONFIG = {
    **BERT_CONFIG,
    "embedding_size": 16,
    "num_hidden_groups": 1,
    "inner_group_num": 1,
    "net_structure_type": 0,
    "gap_size": 0,
    "num_memory_blocks": 0,
    "down_scale_factor": 1,
}


def mnist(folder):
    """MNIST as TFRecords: raw pixels, label."""
    random = np.random.RandomState(0)
    for split, size in (("train", 128), ("validation", 64), ("test", 16)):
        labels = random.randint(0, 10, size)
        images = random.randint(0, 256, [size, 28, 28]).astype(np.uint8)
        _write(
            folder / f"{split}.tfrecords",
            [_example(image_raw=x.tobytes(), label=y) for x, y in zip(images, labels)],
        )


def imagenet(folder):
    """ImageNet as TFRecord shards: JPEG images of 64 x 64 pixels, labels from 1."""
    random = np.random.RandomState(0)
    for split, num_shards in (("train", 4), ("validation", 2)):
        for shard in range(num_shards):
            records = []
            for label in random.randint(1, 11, size=16):
                blocks = random.randint(0, 256, [4, 4, 3]).astype(np.uint8)
                features = {
                    "image/encoded": _jpeg(np.kron(blocks, np.ones([16, 16, 1], np.uint8))),
                    "image/class/label": label,
                }
                records.append(_example(**features))
            _write(folder / f"{split}-{shard:05d}-of-{num_shards:05d}", records)


def volumes(folder):
    """Computed tomography of 16 x 16 x 16 voxels with 3 classes, in compressed TFRecords."""
    random = np.random.RandomState(0)
    options = tf.io.TFRecordOptions(compression_type="GZIP")
    for split in ("train", "eval"):
        for shard in range(2):
            records = []
            for _ in range(8):
                image = random.uniform(size=[16, 16, 16, 1]).astype(np.float32)
                label = np.eye(3, dtype=np.float32)[random.randint(0, 3, [16, 16, 16])]
                features = {"image/ct_image": image.tobytes(), "image/label": label.tobytes()}
                records.append(_example(**features))
            _write(folder / f"{split}-{shard}.tfrecord", records, options)


def categories(folder):
    """Categorical features, the last of 1 to 3 values."""
    random = np.random.RandomState(0)
    for split in ("train", "eval"):
        records = [
            _example(feature_1=3, feature_2=4, feature_3=[5] * random.randint(1, 4), label=i % 2)
            for i in range(64)  # the batch of a core
        ]
        _write(folder / f"{split}_0", records)


def masked_pairs(folder):
    """Examples of BERT's and ALBERT's pre-training, with their configurations."""
    (folder / "bert_config.json").write_text(json.dumps(BERT_CONFIG))
    (folder / "albert_config.json").write_text(json.dumps(ALBERT_CONFIG))
    random = np.random.RandomState(0)
    records = []
    for pair in _pairs(random, 64):
        length = sum(pair["input_mask"])
        is_word = [token != VOCAB.index("[SEP]") for token in pair["input_ids"][1:length]]
        positions = sorted(random.choice(np.flatnonzero(is_word) + 1, 4, replace=False))
        ids = np.array(pair["input_ids"])
        targets = ids[positions].tolist()
        ids[positions] = VOCAB.index("[MASK]")
        features = {
            **pair,
            "input_ids": ids,
            "masked_lm_positions": _pad(positions, _MAX_PREDICTIONS),
            "masked_lm_ids": _pad(targets, _MAX_PREDICTIONS),
            "masked_lm_weights": _pad([1.0] * len(targets), _MAX_PREDICTIONS, 0.0),
            "next_sentence_labels": random.randint(2),
            "token_boundary": pair["input_mask"],
        }
        records.append(_example(**features))
    _write(folder / "pretraining.tfrecord", records)


def unmasked_pairs(folder):
    """Examples of ELECTRA's pre-training: it masks them while it trains."""
    _write_vocab(folder)
    records = [_example(**pair) for pair in _pairs(np.random.RandomState(0), 64)]
    for shard in range(2):
        name = f"pretrain_data.tfrecord-{shard}-of-2"
        _write(folder / "pretrain_tfrecords" / name, records[shard::2])


def mrpc(folder):
    """Paraphrases: the MRPC task of GLUE."""
    _write_vocab(folder)
    (folder / "bert_config.json").write_text(json.dumps(BERT_CONFIG))
    for split, size in (("train", 32), ("dev", 20), ("test", 20)):
        lines = ["Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"]
        for i in range(size):
            pair = SENTENCES[i % 8], SENTENCES[(i + i % 2) % 8]
            lines.append("\t".join([str((i + 1) % 2), str(i), str(i), *pair]))
        (folder / f"{split}.tsv").write_text("\n".join(lines) + "\n")


def squad(folder):
    """Questions and answers: SQuAD 1.1."""
    _write_vocab(folder)
    (folder / "bert_config.json").write_text(json.dumps(BERT_CONFIG))
    for split, size in (("train", 32), ("dev", 20)):
        paragraphs = []
        for i in range(size):
            context = f"{SENTENCES[i % 8]} {SENTENCES[(i + 3) % 8]}"
            answer = context.split()[3]
            question = {
                "id": f"{split}{i}",
                "question": f"Which word follows {context.split()[2]} ?",
                "answers": [{"text": answer, "answer_start": context.index(f" {answer}") + 1}],
            }
            paragraphs.append({"context": context, "qas": [question]})
        fields = {"version": "1.1", "data": [{"title": "T", "paragraphs": paragraphs}]}
        (folder / f"{split}-v1.1.json").write_text(json.dumps(fields))


def cifar10(folder):
    """CIFAR-10 as tensorflow_datasets prepares it."""
    import tensorflow_datasets as tfds

    class Cifar10(tfds.core.GeneratorBasedBuilder, skip_registration=True):
        VERSION = tfds.core.Version("3.0.2")
        code_path = None  # checksums are missing

        def _info(self):
            features = {
                "id": tfds.features.Text(),
                "image": tfds.features.Image(shape=(32, 32, 3)),
                "label": tfds.features.ClassLabel(num_classes=10),
            }
            return tfds.core.DatasetInfo(
                builder=self,
                features=tfds.features.FeaturesDict(features),
                supervised_keys=("image", "label"),
            )

        def _split_generators(self, dl_manager):
            del dl_manager
            return {"train": self._generate_examples(64), "test": self._generate_examples(32)}

        def _generate_examples(self, size):
            random = np.random.RandomState(size)
            for i in range(size):
                image = random.randint(0, 256, [32, 32, 3]).astype(np.uint8)
                yield i, {"id": f"{i}", "image": image, "label": i % 10}

    Cifar10(data_dir=folder).download_and_prepare()


def text(folder):
    """A text of 1,000 sentences."""
    sentences = np.random.RandomState(0).choice(SENTENCES, 1000)
    (folder / "shakespeare.txt").write_text("\n".join(sentences))
    (folder / "adc.json").write_text("{}")  # credentials of a Google account


def nothing(folder):
    """No data: the program makes its own."""


def reversed_digits(folder):
    """Binary digits and their reverse: a problem of Tensor2Tensor."""
    random = np.random.RandomState(0)
    for split, num_shards in (("train", 2), ("dev", 1)):
        for shard in range(num_shards):
            records = []
            for _ in range(32):
                digits = random.randint(2, 4, random.randint(3, 12)).tolist()
                records.append(_example(inputs=[*digits, 1], targets=[*digits[::-1], 1]))
            name = f"algorithmic_reverse_binary40-{split}-{shard:05d}-of-{num_shards:05d}"
            _write(folder / name, records)


def tokens(folder):
    """Token ids of web pages in 93 files, and a GPT-2 configuration in the parent folder."""
    random = np.random.RandomState(0)
    for number in range(93):
        records = [_example(hash=b"x", text=random.randint(0, 97, 40)) for _ in range(20)]
        _write(folder / f"openwebtext-newspaper_{number}.tfrecords", records)
    config = {
        "model": "GPT2",
        "input": "openwebtext",
        "opt_name": "adam",
        "scale_by_depth": True,
        "n_head": 2,
        "n_vocab": 50257,
        "n_embd": 16,
        "n_ctx": 16,
        "n_layer": 2,
        "lr": 0.001,
        "beta1": 0.9,
        "beta2": 0.98,
        "epsilon": 1e-9,
        "weight_decay": 0.01,
        "warmup_steps": 1,
        "train_steps": 4,
        "max_steps": 3,
        "eval_steps": 1,
        "iterations": 2,
        "train_batch_size": 4,
        "eval_batch_size": 4,
        "predict_batch_size": 1,
        "embed_dropout": 0.0,
        "attn_dropout": 0.0,
        "res_dropout": 0.0,
        "scale_by_in": True,
        "data_path": str(folder),
        "model_path": str(folder.parent / "out"),
    }
    (folder.parent / "tiny.json").write_text(json.dumps(config))


def _pairs(random, size):
    """Yields `size` pairs of sentences as `{feature: ints [_LENGTH]}`."""
    for _ in range(size):
        first, second = (
            [VOCAB.index(word) for word in _words(sentence)][:13]
            for sentence in random.choice(SENTENCES, 2)
        )
        separator = VOCAB.index("[SEP]")
        first, second = [VOCAB.index("[CLS]"), *first, separator], [*second, separator]
        yield {
            "input_ids": _pad(first + second, _LENGTH),
            "input_mask": _pad([1] * len(first + second), _LENGTH),
            "segment_ids": _pad([0] * len(first) + [1] * len(second), _LENGTH),
        }


def _pad(values, size, padding=0):
    return [*values, *[padding] * (size - len(values))]


def _write_vocab(folder):
    (folder / "vocab.txt").write_text("\n".join(VOCAB) + "\n")


def _jpeg(image):
    with tf.init_scope(), tf.Graph().as_default(), tf.compat.v1.Session() as session:
        return session.run(tf.io.encode_jpeg(image))


def _example(**features):
    """Returns a serialized tf.train.Example of bytes, numbers and lists of numbers."""
    return tf.train.Example(
        features=tf.train.Features(feature={k: _feature(v) for k, v in features.items()})
    ).SerializeToString()


def _feature(value):
    if isinstance(value, bytes):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
    values = np.atleast_1d(value)
    if values.dtype.kind == "f":
        return tf.train.Feature(float_list=tf.train.FloatList(value=values.tolist()))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values.tolist()))


def _write(path, records, options=None):
    path.parent.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(path), options) as writer:
        for record in records:
            writer.write(record)
