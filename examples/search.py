"""Searches hyperparameters with Optuna; each trial is a training by the Python call.

    pip install optuna
    PYTHONPATH=. python examples/search.py --data_dir=data/digits --folder=runs/search --trials=20

A trial is one training, in FOLDER/trial_N, and its value the accuracy on the validation split,
which is held out of `train`. The trials are kept in FOLDER/trials.db: the same command continues
with as many more. `make report MODEL_DIR="FOLDER/trial_0 FOLDER/trial_1"` compares trials.
"""

import argparse
import os

import optuna

import estimator_models as em


def main(data_dir, folder, trials, steps):
    """Runs the search, and prints the best trial."""
    os.makedirs(folder, exist_ok=True)
    study = optuna.create_study(
        storage=f"sqlite:///{os.path.join(folder, 'trials.db')}",
        study_name="search",
        load_if_exists=True,
        direction="maximize",
    )
    study.optimize(lambda trial: accuracy_of(trial, data_dir, folder, steps), n_trials=trials)
    best = study.best_trial
    print(f"best: trial {best.number}, accuracy {best.value:.4f}, {best.params}")


def accuracy_of(trial, data_dir, folder, steps):
    """Trains with hyperparameters that the search chooses; returns the accuracy."""
    params = {
        "learning_rate": trial.suggest_float("learning_rate", 1e-4, 1e-1, log=True),
        "optimizer": trial.suggest_categorical("optimizer", ["momentum", "adamw"]),
        "weight_decay": trial.suggest_float("weight_decay", 1e-6, 1e-2, log=True),
    }
    trained = em.train(
        model="convnet",
        dataset="digits",
        data_dir=data_dir,
        model_dir=os.path.join(folder, f"trial_{trial.number}"),
        train_steps=steps,
        eval_split="validation",
        params={**params, "schedule": "cosine"},
        seed=1,
    )
    return trained.metrics["validation"]["accuracy"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data_dir", required=True)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--steps", type=int, default=200)
    main(**vars(parser.parse_args()))
