"""Options of a converter: the flags of prepare_data.py that say what to read, and how."""

from __future__ import annotations

import dataclasses

from common.constants import TRUNCATE


@dataclasses.dataclass(frozen=True)
class Options:
    """Values of the flags of prepare_data.py with these names."""

    dataset: str
    name: str = ""
    source: str = ""
    skip: tuple[str, ...] = ()
    split_files: tuple[str, ...] = ()
    encoding: str = ""
    delimiter: str = ""
    pixel_range: tuple[float, float] | None = None
    image_size: tuple[int, int] | None = None
    channels: int = 3
    class_names: tuple[str, ...] = ()
    csv: str = ""
    image_column: str = ""
    audio_column: str = ""
    user_column: str = ""
    item_column: str = ""
    rating_column: str = ""
    time_column: str = ""
    label_columns: tuple[str, ...] = ()
    group_column: str = ""
    split_column: str = ""
    languages: tuple[str, ...] = ()
    vocabulary: str = ""
    vocab_size: int = 8192
    subwords: str = "unigram"
    max_length: int = 128
    task: str = "classification"
    columns: tuple[str, ...] = ()
    text_columns: tuple[str, ...] = ()
    lower_case: bool = True
    truncate: str = TRUNCATE[0]
    max_predictions_per_seq: int = 0
    masked_lm_prob: float = 0.15
    whole_word_mask: bool = False
    dupe_factor: int = 10
    short_seq_prob: float = 0.1
    doc_stride: int = 128
    max_query_length: int = 64
    annotations: tuple[str, ...] = ()
    image_folder: str = ""
    audio_folder: str = ""
    xml_folder: str = ""
    mask_folder: str = ""
    image_suffix: str = ""
    mask_suffix: str = ""
    mask_values: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    max_boxes: int = 0
    box_origin: int = 1
    min_frequency: int = 10
    hash_rows: int = 100
    max_rows: int = 2**22
    sample_rate: int = 16000
    max_seconds: float = 16.0
    test_speaker: str = ""
    validation_fraction: float | None = None
    test_fraction: float | None = None
    seed: int = 0
