"""Turns a raw data set into TFRecord shards and a dataset.json, on local disk or gs://.

python prepare_data.py --dataset=digits --data_dir=data/digits
python prepare_data.py --dataset=fashion_mnist --source=folder/of/idx.gz --data_dir=data/fashion
"""

import sys

from training import program

if __name__ == "__main__":
    # Before the seconds of TensorFlow's import: a typo is answered at once.
    program.start(sys.argv, __doc__, "training.data_flags")

from input_fns import DataError, convert, dataset
from input_fns.convert import writer
from training import files
from training.data_flags import FLAGS


def main():
    """Prepares `--dataset`, unless `--data_dir` holds it already."""
    data_dir = FLAGS.data_dir
    if dataset.exists(data_dir) and not FLAGS.overwrite:
        ready = dataset.load(data_dir, FLAGS.dataset)
        print(f"{data_dir} is ready: {_describe(ready)}")
        return
    if dataset.exists(data_dir) and dataset.read(data_dir).name != FLAGS.dataset:
        raise DataError(f"{data_dir} holds '{dataset.read(data_dir).name}'; choose another folder")
    files.require_writable("data_dir", data_dir)
    raw = convert.read(FLAGS.dataset, FLAGS.source)
    written = writer.write(raw, data_dir, FLAGS.shards, progress=print)
    print(f"{data_dir}: {_describe(written)}")


def _describe(data):
    splits = ", ".join(
        f"{name} {split.num_examples} examples in {len(split.shards)} shard(s)"
        for name, split in data.splits.items()
    )
    return f"{data.name}, {data.num_classes} classes; {splits}"


if __name__ == "__main__":
    program.run(main)
