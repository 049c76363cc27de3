"""Checkpoints: find, verify, retain, recover, average and warm start.

Where to add what:
  checkpoint_files: names and files of a checkpoint in a folder.
  verify: verification rules: is a checkpoint readable and finite, and does it match the graph?
  best: retention of the best checkpoint (--best_metric), and when to stop early. The newest
    --keep_checkpoint_max checkpoints are retained by the Saver of the Estimator's RunConfig.
  metric_direction: whether the metric of --best_metric is minimized or maximized.
  recovery: repair of model_dir before training resumes, after a crash or a preemption.
  find: resolves --checkpoint=latest, best, average:N or a path; waits for new checkpoints.
  warm_start: initializes a new model from a checkpoint of another (--warm_start_from).
  averaging: mean of the newest N checkpoints.
  ema: exponential moving average of the weights (EMA), and which variables evaluation restores.
  trained_on: the data set that a model was trained on, compared with that of this run.
  model_dir_lock: locks that allow one training per model_dir.
  writer: writes a checkpoint without a graph.
"""
