"""Flags of the sources of ratings and click logs. Imports nothing: `--help` waits for it."""


def define(flag) -> None:
    """Defines the flags; `flag` is `convert.flags.define`."""
    for name, description in (
        ("user", "users"),
        ("item", "items"),
        ("rating", "ratings"),
        ("time", "times; without one, interactions are in the order of the file"),
    ):
        flag(f"{name}_column", f"Column of the {description}; default: the usual names.")
    flag(
        "min_frequency",
        "Rows of the split 'train' that a value of a category needs for a row of its table; others "
        "share the hashed rows.",
        lower_bound=1,
    )
    flag(
        "hash_rows",
        "Most rows of the table of a category for the values that are not in its vocabulary.",
        lower_bound=1,
        upper_bound=2**20,
    )
    flag(
        "max_rows",
        "Most rows of the table of a category, with the hashed rows and that of missing values.",
        lower_bound=3,
        upper_bound=2**31 - 1,
    )
