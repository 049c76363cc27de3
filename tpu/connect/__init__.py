"""TPU connection: address, environment checks, topology, flags."""
