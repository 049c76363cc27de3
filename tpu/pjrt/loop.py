"""A loop of steps on the devices, as functions that TensorFlow calls with NumPy arrays."""

from __future__ import annotations

import functools

import numpy as np

from tpu.pjrt.client import PJRTError
from tpu.pjrt.device_step import DeviceStep


def _keep_error(method):
    """Keeps an exception, of which TensorFlow passes on only the text.

    A ValueError would become an InvalidArgumentError, as of broken data.
    """

    @functools.wraps(method)
    def call(self, *args):
        try:
            return method(self, *args)
        except Exception as error:
            self._cores.error = self._cores.error or error
            raise RuntimeError(str(error)) from error

    return call


class Loop:
    """The steps of one graph.

    The variables stay on the devices between two loops if the host has not changed them. TensorFlow
    then still has the very arrays that were read or assigned last: an assignment brings another
    array, and so does an update in place, since this object refers to the array, too.
    """

    def __init__(self, cores, step: DeviceStep):
        """Compiles the step for the devices of `PJRTCores`.

        Raises:
          PJRTError: it cannot be compiled, or does not fit.
        """
        self._cores, self._devices, self._step = cores, cores.devices, step
        try:
            self._program_id = self._devices.load(step.program)
        except PJRTError as error:
            if not step.dynamic_shape:
                raise
            raise PJRTError(
                f"The shape of {step.dynamic_shape} depends on data, which JAX "
                f"{self._devices.jax_version} may not support. Use static shapes, or try a newer "
                f"JAX. {error}"
            ) from None
        self._known = None  # the arrays of the variables that are on the devices

    @_keep_error
    def begin(self, number, *inputs):
        """Starts a loop.

        Args:
          number: of the first step, int64 `[]`.
          *inputs: the value of each argument on each core, carried values, variables.

        Returns:
          `number`.
        """
        step, cores = self._step, self._devices.num_local
        inputs = [np.asarray(value) for value in inputs]
        num_arguments = step.program.num_arguments * cores
        arguments = [inputs[i : i + cores] for i in range(0, num_arguments, cores)]
        carried = inputs[num_arguments : num_arguments + len(step.device_values)]
        variables = inputs[num_arguments + len(carried) :]
        is_resident = self._cores.resident is self and self._known is not None
        known = self._known if is_resident else [None] * len(variables)
        self._known, self._cores.resident = None, self
        changed = [None if _is_same(*pair) else pair[0] for pair in zip(variables, known)]
        self._devices.begin(self._program_id, arguments, [*carried, *changed], int(number))
        self._started = variables
        return number

    @_keep_error
    def submit(self, number, *inputs):
        """Starts a step with the infeed of each core, then values that all cores read.

        Returns:
          The number of the next step.
        """
        step, cores = self._step, self._devices.num_local
        inputs = [np.asarray(value) for value in inputs]
        num_fed = len(step.infeed)
        batch = [[inputs[core * num_fed + i] for core in range(cores)] for i in range(num_fed)]
        common = inputs[cores * num_fed :]
        if step.is_random:
            common.append(np.asarray(number))
        self._devices.submit([*batch, *([value] * cores for value in common)])
        return number + 1

    @_keep_error
    def collect(self):
        """Returns the outfeed of the next step: all tensors of core 0, then of core 1, ..."""
        results = self._devices.collect()
        return [
            array for core in range(self._devices.num_outfeed) for array in _column(results, core)
        ]

    @_keep_error
    def finish(self):
        """Waits for all steps.

        Returns:
          A number, the carried values of core 0, and the variables that the steps have changed.
        """
        carried = len(self._step.device_values)
        updated = self._step.updated
        values = self._devices.finish([*range(carried), *(carried + i for i in updated)])
        known = list(self._started)
        for i, value in zip(updated, values[carried:]):
            known[i] = value
        self._known = known
        return [np.int64(0), *values]


def _column(results, core):
    return [of_cores[core] for of_cores in results]


def _is_same(value, known):
    """Returns True if two arrays are one in memory."""
    if known is None:
        return False
    return value.ctypes.data == known.ctypes.data and value.shape == known.shape
