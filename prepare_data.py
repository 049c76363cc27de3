"""Converts a raw data set to TFRecord shards and a dataset.json, on local disk or gs://.

python prepare_data.py --dataset=digits --data_dir=data/digits
python prepare_data.py --dataset=cifar10 --source=folder/of/the/archive --data_dir=data/cifar10
python prepare_data.py --dataset=image_folder --source=photos --data_dir=gs://bucket/photos
python prepare_data.py --dataset=coco --source=folder/of/annotations/and/images --data_dir=data/coco
python prepare_data.py --dataset=audio_folder --source=keywords --data_dir=data/keywords
python prepare_data.py --dataset=parallel_text --source=texts --languages=en,de --data_dir=data/mt
python prepare_data.py --dataset=houses:read --source=raw --name=houses --data_dir=data/houses
python prepare_data.py --mode=inspect --data_dir=data/cifar10
"""

import sys

from common.names import counted
from engine.cli import startup, tensorflow_import

if __name__ == "__main__":
    # Before TensorFlow is imported, which takes seconds: a wrong flag fails at once.
    startup.start(sys.argv, __doc__, "input_fns.convert.flags")
    from input_fns.convert import flags

    startup.check(flags.check_files)
    tensorflow_import.import_tensorflow()

if __name__ != "__mp_main__":  # worker processes of a converter do not need these
    import os

    import tensorflow as tf

    from common import files, locks, names
    from input_fns import DataError, anomalies, convert, dataset_info
    from input_fns.convert import beam_runner, provenance, runners, writer
    from input_fns.convert.flags import FLAGS, options_from_flags
    from input_fns.core import inspection
    from models import registry


def main():
    """Runs `--mode`."""
    startup.require_parsed(FLAGS)
    {"convert": _convert, "inspect": _inspect}[FLAGS.mode]()


def _convert():
    data_dir = FLAGS.data_dir
    options = options_from_flags()
    prepared_with = provenance.from_options(options, FLAGS.shards)
    if _is_ready(prepared_with):
        locks.remove_dead(data_dir)
        return
    runner = _runner()
    files.require_writable("data_dir", data_dir)
    function = None
    if convert.is_custom(FLAGS.dataset):
        function = registry.attribute("dataset", FLAGS.dataset)
    is_new = not tf.io.gfile.exists(data_dir)
    try:
        with runner:
            raw = convert.read(options, print, function, runner)
            written = _write(raw, prepared_with, runner)
    finally:
        if is_new:
            files.remove_if_empty(data_dir)
    if written:
        _print_written(*written)


def _write(raw, prepared_with, runner):
    """Returns the data set and warnings; None if another process has just prepared it."""
    data_dir = FLAGS.data_dir
    lock = _lock(data_dir)
    try:
        if _is_ready(prepared_with):  # by another process
            return None

        def before_commit(complete):
            lock.check()
            warnings.extend(anomalies.require_none(complete, raw.files))

        warnings = []
        written = writer.write(
            raw, data_dir, FLAGS.shards, print, prepared_with, before_commit, runner
        )
    finally:
        lock.release()
    return written, warnings


def _print(*lines):
    """Prints lines in which names come from files."""
    print(*(names.shown(str(line)) for line in lines), sep="\n")


def _print_written(written, warnings):
    for name, split in written.splits.items():
        for broken, reason in split.broken[:10]:
            _print(f"{name}: skipped {broken}: {reason}")
        if split.broken:
            _print(f"{name}: {len(split.broken)} skipped, listed in {dataset_info.FILE_NAME}")
    for line in (*written.left_out.lines(), *(f"warning: {line}" for line in warnings)):
        _print(line)
    _print(f"{written.data_dir}: {_describe(written)}")


def _runner():
    if FLAGS.runner == "process":
        return runners.of(FLAGS.workers)
    runner = beam_runner.Beam(FLAGS.beam_options, FLAGS.data_dir)
    runner.require_visible(data_dir=FLAGS.data_dir, source=FLAGS.source)
    return runner


def _lock(data_dir):
    """Creates data_dir and locks it."""
    while True:
        tf.io.gfile.makedirs(data_dir)
        try:
            return locks.acquire(data_dir, "data_dir", "prepare_data.py")
        except locks.LockedError:
            if tf.io.gfile.isdir(data_dir):
                raise
            # Another process, which wrote nothing, has just removed the folder.


def _is_ready(prepared_with):
    """Whether data_dir has the data set; raises DataError if it has another one."""
    data_dir, name = FLAGS.data_dir, FLAGS.name or FLAGS.dataset
    if not dataset_info.exists(data_dir):
        return False
    if FLAGS.overwrite:
        if dataset_info.read(data_dir).name != name:
            raise DataError(
                f"{data_dir} holds '{dataset_info.read(data_dir).name}'; choose another folder"
            )
        return False
    ready = dataset_info.load(data_dir, name)
    _check_same(ready, prepared_with)
    print(f"{data_dir} is ready: {_describe(ready)}")
    return True


def _check_same(ready, prepared_with):
    other = ready.prepared_with and provenance.differences(ready.prepared_with, prepared_with)
    if other:
        raise DataError(
            f"{ready.data_dir} was prepared with other options: {'; '.join(other)}. Replace it "
            "with --overwrite, or choose another --data_dir"
        )


def _describe(data):
    splits = ", ".join(
        f"{name} {counted(split.num_examples, 'example')}"
        f"{'' if split.has_labels else ' without labels'} in {counted(len(split.shards), 'shard')}"
        for name, split in data.splits.items()
    )
    return f"{data.name}, {'; '.join(filter(None, [data.kind.describe(data), splits]))}"


def _inspect():
    data = dataset_info.read(FLAGS.data_dir)
    try:
        is_valid = _print_inspection(data)
    except (tf.errors.NotFoundError, FileNotFoundError):
        _require_current(data)
        raise
    if not is_valid:
        _require_current(data)
        sys.exit(1)


def _require_current(data):
    """Raises DataError if another process has replaced the data set: its old shards are gone."""
    if dataset_info.read(data.data_dir) != data:
        raise DataError(f"{data.data_dir} was replaced while it was inspected. Inspect it again")


def _print_inspection(data):
    """Returns whether nothing is wrong but what a warning says."""
    data_dir = data.data_dir
    if FLAGS.contact_sheet:
        files.require_writable("contact_sheet", os.path.dirname(FLAGS.contact_sheet) or ".")
    problems = list(inspection.file_problems(data, data.splits))
    _print(f"{data_dir}: {_describe(data)}")
    for name, value in data.properties.items():
        _print(f"{name} = {value}")
    for name, feature in data.features.items():
        label = ", label" if name in data.labels else ""
        _print(f"{name}: {inspection.describe_feature(feature)}{label}")
    for name in data.splits:
        report = inspection.inspect(data, name)
        problems += report.problems
        _print(*report.lines)
    for line in data.left_out.lines():
        _print(line)
    found = [] if problems else anomalies.find(data)
    for anomaly in found:
        _print(anomaly)
    sheet = None if problems else data.kind.contact_sheet(data)
    if sheet:
        what, content = sheet
        path = FLAGS.contact_sheet or os.path.join(data_dir, "contact_sheet.png")
        with files.atomic_write(path, "wb") as file:
            file.write(content)
        _print(f"{what}: {path}")
    if problems:
        _print(*(f"problem: {problem}" for problem in problems))
    elif not found:
        print("no problem found")
    return not problems and not any(anomaly.is_error for anomaly in found)


if __name__ == "__main__":
    startup.run(main)
