"""Command line of the wrappers: flags, run settings, modes. The top layer of `engine`."""
