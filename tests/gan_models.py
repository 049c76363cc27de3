"""GANs with faults, for negative controls."""

import dataclasses

from models.generation import sngan

# One optimizer updates both networks at once, each by its own loss, instead of in turns.
ONE_OPTIMIZER = dataclasses.replace(sngan.MODEL, name="one_optimizer", train_step=None)
