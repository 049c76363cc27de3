"""Run configuration, resolved from flags by `engine.cli.resolve_flags`, and the training state."""

from __future__ import annotations

import dataclasses
from typing import Any

from engine.checkpoints.model_dir_lock import ModelDirLock
from engine.distribute.tf_config import Task
from engine.hooks.eval_schedule import EvalSchedule
from engine.hooks.progress import Clock, StepCounter
from input_fns.core import data_service, first_examples
from input_fns.core.predictions import Examples, PredictionWriter
from input_fns.dataset_info import DatasetInfo
from input_fns.pipeline import Pipeline
from models.model import Model


@dataclasses.dataclass(frozen=True)
class TrainSettings:
    """Settings of training."""

    split: str  # name of the split
    batch_size: int  # global batch size
    steps: int  # global step at which training ends; 0 if unset or unused
    accumulate_steps: int  # number of micro-batches per step, for gradient accumulation
    iterations_per_loop: int  # maximum number of steps of one session.run
    save_checkpoints_steps: int  # steps between checkpoints
    keep_checkpoint_max: int  # number of checkpoints to keep; 0: all
    warm_start_from: str | None  # checkpoint that a new training starts from, or None
    warm_start_include: str  # regular expression of the variables that a warm start restores
    summary_steps: int  # steps between TensorBoard summaries
    profile_steps: int  # number of steps to profile
    data_service: tuple[str, ...] = ()  # addresses of the workers that produce the batches
    oversample: float | None = None  # exponent of `class_sampling`; None: classes as in the split
    skipped_records: int = 0  # number of unreadable records that were left out of the split


@dataclasses.dataclass(frozen=True)
class EvalSettings:
    """Settings of evaluation."""

    splits: tuple[str, ...]  # names of the splits. The first selects the best checkpoint.
    own_split: str  # the split whose evaluations are named "eval"; see `results.evaluation_name`
    schedule: EvalSchedule  # which checkpoints are evaluated
    max_examples: int  # number of first examples of each split to evaluate; 0: all
    batch_size: int  # global batch size
    best_metric: str  # name of the metric that selects the best checkpoint, or ""
    best_direction: str  # "min" or "max" if lower or higher is better; "" without a metric
    early_stop_evals: int  # patience of early stopping, in evaluations; 0: no early stopping
    timeout_secs: int  # how long continuous_eval waits for a checkpoint

    @property
    def split(self) -> str:
        """The first split, which prediction and export read."""
        return self.splits[0]

    def num_examples(self, data: DatasetInfo, split: str) -> int:
        """Returns the number of examples of a split that are evaluated."""
        size = data.split(split).num_examples
        return min(size, self.max_examples or size)

    def is_partial(self, data: DatasetInfo, split: str) -> bool:
        """Whether examples of a split are not evaluated."""
        return self.num_examples(data, split) < data.split(split).num_examples


@dataclasses.dataclass(frozen=True)
class PredictSettings:
    """Settings of prediction."""

    batch_size: int  # global batch size
    # Path of the file with the predictions, or of a folder if there are several files; "": in
    # model_dir.
    output: str
    examples: Examples
    writer: PredictionWriter | None  # writes the predictions; None if the mode is not predict


@dataclasses.dataclass(frozen=True)
class ExportSettings:
    """Settings of an export."""

    dir: str  # folder of SavedModels, or ""
    top_k: int  # number of most probable classes that the signatures return; 0: none
    check: bool  # whether to compare the SavedModel with the predictions of the Estimator


@dataclasses.dataclass(frozen=True)
class RunSettings:
    """Settings of a run."""

    mode: str  # value of --mode
    model: Model
    params: dict[str, Any]  # all hyperparameters
    pipeline: Pipeline  # input pipeline of the data set
    splits: tuple[str, ...]  # names of the splits that the run reads
    model_dir: str  # folder of checkpoints and results
    # The checkpoint that training resumes from or that other modes use, or None.
    checkpoint: str | None
    start_step: int  # global step of `checkpoint`; 0 without one
    use_tpu: bool  # whether the Estimator runs on a TPU, emulated or not
    task: Task  # task of this process in a cluster
    seed: int  # seed of the order of the examples; random without --seed
    graph_seed: int | None  # value of --seed, the random seed of the graph, or None
    flagfile: str  # the flags that differ from their defaults, as flags.cfg holds them
    train: TrainSettings  # settings of training
    evaluation: EvalSettings  # settings of evaluation
    prediction: PredictSettings  # settings of prediction
    export: ExportSettings  # settings of exports

    @property
    def dataset(self) -> DatasetInfo:
        """Metadata of the data set."""
        return self.pipeline.data

    @property
    def signatures(self) -> list[str]:
        """Names of the signatures of an export, besides that of TensorFlow Serving's Classify."""
        known = {"", *self.model.other_predictions}
        receivers = self.pipeline.receivers().items()
        return [name for name, receiver in receivers if receiver.predictions in known]

    @property
    def is_training(self) -> bool:
        """Whether this run trains."""
        return self.mode in ("train", "train_and_eval")

    @property
    def is_trained(self) -> bool:
        """Whether training has already reached its last step."""
        return self.is_training and self.start_step >= self.train.steps

    def train_input_fn(self, seed: int, start_step: int):
        """Returns the input_fn of a training; see `Pipeline.train_input_fn`."""
        input_fn = self.local_train_input_fn(seed, start_step)
        addresses = self.train.data_service
        return data_service.distribute(input_fn, addresses) if addresses else input_fn

    def local_train_input_fn(self, seed: int, start_step: int = 0):
        """Returns `train_input_fn` without a data service."""
        oversample = self.train.oversample
        more = {} if oversample is None else {"oversample": oversample}
        return self.pipeline.train_input_fn(self.train.split, seed, start_step, **more)

    def eval_input_fn(self, split: str):
        """Returns the input_fn of an evaluation."""
        input_fn = self.pipeline.eval_input_fn(split)
        if not self.evaluation.is_partial(self.dataset, split):
            return input_fn
        return first_examples.of_evaluation(input_fn, self.evaluation.max_examples)

    def host_input_fn(self, split: str):
        """Returns the input_fn of the predictions that host metrics need, with `host_examples`."""
        pipeline, count = self.pipeline, self.evaluation.max_examples
        is_partial = self.evaluation.is_partial(self.dataset, split)
        if pipeline.host_input_fn(split) is not None:
            return pipeline.host_input_fn(split, *[count] * is_partial)
        input_fn = pipeline.predict_input_fn(split)
        return first_examples.of_prediction(input_fn, count) if is_partial else input_fn

    def host_examples(self, split: str, batch_size: int):
        """Yields the NumPy `(features, labels)` batches that are evaluated, without padding."""
        pipeline, count = self.pipeline, self.evaluation.max_examples
        if not self.evaluation.is_partial(self.dataset, split):
            return pipeline.host_examples(split, batch_size)
        if pipeline.host_input_fn(split) is not None:
            return pipeline.host_examples(split, batch_size, count)
        return first_examples.of_batches(pipeline.host_examples(split, batch_size), count)

    def predict_input_fn(self):
        """Returns the input_fn of --mode=predict."""
        return self.prediction.examples.input_fn

    def run_config(self) -> dict[str, Any]:
        """Returns the arguments that every RunConfig gets."""
        return {
            "model_dir": self.model_dir,
            "tf_random_seed": self.graph_seed,
            "keep_checkpoint_max": self.train.keep_checkpoint_max,
            # The hooks of `engine.train.trainer` save checkpoints, write summaries and log.
            "save_checkpoints_steps": None,
            "save_checkpoints_secs": None,
            "save_summary_steps": None,
            "log_step_count_steps": None,
        }


@dataclasses.dataclass
class TrainingState:
    """State that changes while a run trains."""

    started: float  # time.monotonic() at the start of the process
    clock: Clock  # seconds of training, without evaluations
    counter: StepCounter  # counts global steps
    lock: ModelDirLock  # locks model_dir until the run ends
