"""Turns a raw data set into TFRecord shards and a dataset.json, on local disk or gs://.

python prepare_data.py --dataset=digits --data_dir=data/digits
python prepare_data.py --dataset=fashion_mnist --source=folder/of/idx.gz --data_dir=data/fashion
"""

import sys

from absl import flags

from input_fns import DataError, convert
from models.registry import did_you_mean
from training import program

FLAGS = flags.FlagValues()

flags.DEFINE_string("dataset", None, "Data set to prepare.", flag_values=FLAGS)
flags.DEFINE_string("source", "", "Folder with the raw files; digits need none.", flag_values=FLAGS)
flags.DEFINE_string("data_dir", None, "Folder for the shards, local or gs://.", flag_values=FLAGS)
flags.DEFINE_integer(
    "shards", 0, "Shards of each split; 0 chooses from the bytes.", lower_bound=0, flag_values=FLAGS
)
flags.DEFINE_boolean("overwrite", False, "Replace what is in data_dir.", flag_values=FLAGS)
flags.mark_flags_as_required(["dataset", "data_dir"], flag_values=FLAGS)


@flags.validator("dataset", flag_values=FLAGS)
def _check_dataset(name):
    if name is not None and name not in convert.SOURCES:
        raise flags.ValidationError(f"'{name}' is unknown.{did_you_mean(name, convert.SOURCES)}")
    return True


def main():
    """Prepares `--dataset`, unless `--data_dir` holds it already."""
    # TensorFlow's import takes seconds; the flags have been checked by now.
    from input_fns import dataset
    from input_fns.convert import writer
    from training import files

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
    program.start(sys.argv, __doc__, FLAGS)
    program.run(main)
