"""The flags of prepare_data.py. Imports no TensorFlow."""

from absl import flags

from input_fns import convert
from models.registry import did_you_mean

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
