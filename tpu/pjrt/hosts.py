"""Several hosts: the same TPUEstimator program runs on each, with the devices of that host.

One process feeds all hosts of a TPU v2 to v4. Here there is one per host: it calls the input_fn of
its host only. host_call runs on host 0, with the values of all cores. Only host 0 writes
checkpoints, graphs, summaries and exports; the others restore the same checkpoint, and get the
variables of host 0 at the start and at the end of each session.run. All stop after the same one, as
soon as a hook of any host requests it.

Not covered: files that a program writes itself, and a session.run on host 0 only.
"""

from __future__ import annotations

import inspect

import tensorflow as tf
from tensorflow.python.summary.writer import writer
from tensorflow.python.training import monitored_session, saver
from tensorflow_estimator.python.estimator import estimator
from tensorflow_estimator.python.estimator.tpu import tpu_estimator

from tpu.pjrt.client import PJRTError
from tpu.pjrt.devices import LostDevicesError

_INPUTS = (
    "generate_per_core_enqueue_ops_fn_for_host",
    "generate_per_host_enqueue_ops_fn_for_host",
    "generate_per_host_v2_enqueue_ops_fn_for_host",
)
_WRITERS = (tf.estimator.CheckpointSaverHook, tf.estimator.SummarySaverHook)


def replacements(devices) -> list:
    """Returns the functions to patch, as (owner, name, replacement).

    Args:
      devices: a `client.Devices` of several processes.
    """
    host, session = devices.process_id, monitored_session.MonitoredSession
    stop_hook = tpu_estimator._TPUStopAtStepHook
    found = [
        *((tpu_estimator, n, _of_host(host, getattr(tpu_estimator, n))) for n in _INPUTS),
        (tpu_estimator, "generate_broadcast_enqueue_ops_fn", _refuse_broadcast),
        (stop_hook, "__init__", _without_seconds(stop_hook.__init__)),
        (session, "__init__", _with_hooks(devices, session.__init__)),
    ]
    if host:
        found += [
            (tpu_estimator._OutfeedHostCall, "create_tpu_hostcall", lambda self: {}),
            (estimator.Estimator, "_export_all_saved_models", _skip_export),
            (saver.Saver, "save", _skip_save),
            (writer, "EventFileWriter", _NoEventFileWriter),
        ]
    return found


def _of_host(host, real_generate):
    """Feeds the cores of one host, in the call for host 0, which TPUEstimator makes first."""
    signature, last = inspect.signature(real_generate), []

    def generate(*args, **kwargs):
        arguments = signature.bind(*args, **kwargs).arguments
        if arguments["host_id"]:
            captured, others = last[0][1], len(last[0]) - 2
            return list, captured, *[None] * others
        arguments.update(
            {name: host for name in ("host_id", "invocation_index") if name in arguments}
        )
        last[:] = [real_generate(**arguments)]
        return last[0]

    return generate


def _refuse_broadcast(*args, **kwargs):
    del args, kwargs
    raise NotImplementedError(
        "several hosts of PJRT devices do not share batches: InputPipelineConfig.BROADCAST and "
        "SLICED. Use PER_HOST_V2"
    )


def _without_seconds(real_init):
    def init(self, iterations_per_loop_counter, *args, **kwargs):
        if iterations_per_loop_counter.unit == "seconds":
            raise NotImplementedError(
                "several hosts of PJRT devices make the same number of steps in each session.run: "
                "iterations_per_loop cannot be a time. Set a number of steps"
            )
        real_init(self, iterations_per_loop_counter, *args, **kwargs)

    return init


def _with_hooks(devices, real_init):
    """Lets training stop on all hosts together, and write on host 0 only."""

    def init(self, session_creator=None, hooks=None, *args, **kwargs):
        hooks = list(hooks or ())
        if tf.compat.v1.get_collection(tpu_estimator._TPU_TRAIN_OP):
            if devices.process_id:
                hooks = [hook for hook in hooks if not isinstance(hook, _WRITERS)]
            hooks.append(_StopTogetherHook(devices))
        real_init(self, session_creator, hooks, *args, **kwargs)

    return init


class _StopTogetherHook(tf.estimator.SessionRunHook):
    """Requests a stop if a hook of any host has requested one; must be the last hook."""

    def __init__(self, devices):
        self._devices = devices

    def after_run(self, run_context, run_values):
        del run_values
        try:
            if self._devices.agree_to_stop(run_context.stop_requested):
                run_context.request_stop()
        except PJRTError as error:
            raise LostDevicesError(f"{error}. Checkpoints are kept") from None


def _skip_export(self, export_dir_base, *args, **kwargs):
    del self, args, kwargs
    return tf.compat.as_bytes(export_dir_base)


def _skip_save(self, sess, save_path, global_step=None, *args, **kwargs):
    del self, sess, global_step, args, kwargs
    return save_path


class _NoEventFileWriter:
    """An EventFileWriter that writes nothing."""

    def __init__(self, logdir, *args, **kwargs):
        del args, kwargs
        self._logdir = logdir

    def get_logdir(self):
        return self._logdir

    def add_event(self, event):
        pass

    reopen = flush = close = lambda self: None
