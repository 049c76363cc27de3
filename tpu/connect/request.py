"""What a program asks of a TPU. Imports no TensorFlow, so that flags can be checked without."""

from __future__ import annotations

import dataclasses


class TPUError(ValueError):
    """There is no TPU here that the program could use as it was told to."""


@dataclasses.dataclass(frozen=True)
class Request:
    """What a program wants from a TPU.

    Attributes:
      tpu: see `address.find`.
      zone, project: of a named TPU; "" asks the machine's metadata.
      topology: name of the slice, or "" for what is found.
      use_tpu: "true", "false", or "auto": only if one is named or in this machine.
      mode: of the program: train, eval, train_and_eval, continuous_eval, predict or export.
      paths: `{flag: path}` that the TPU's hosts must see.
      batch_sizes: `{flag: global batch size}` that the mode uses.
      accumulate_steps: parts into which a core's training batch is cut.
      on_one_host: whether the mode evaluates or predicts, which TPUEstimator does on one host only.
    """

    tpu: str
    zone: str
    project: str
    topology: str
    use_tpu: str
    mode: str
    paths: dict[str, str]
    batch_sizes: dict[str, int]
    accumulate_steps: int = 1
    on_one_host: bool = False
