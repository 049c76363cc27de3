"""Peak memory of training Fashion-MNIST for growing numbers of epochs.

    python -m benchmarks.memory --source=folder/of/idx.gz [--epochs=2,8,32]

Each row is a child process that trains and evaluates after every epoch.
"""

from __future__ import annotations

import tempfile

from absl import app, flags

from benchmarks.subprocesses import prepare_data, run_cpu

flags.DEFINE_string("source", None, "Folder with the original IDX files.", required=True)
flags.DEFINE_list("epochs", ["2", "8", "32"], "Epochs of each run.")


def main(_):
    """Prints a row per number of epochs."""
    with tempfile.TemporaryDirectory() as folder:
        data_dir = f"--data_dir={folder}/data"
        prepare_data("--dataset=fashion_mnist", f"--source={flags.FLAGS.source}", data_dir)
        recipe = "--flagfile=configs/mnist_mlp.cfg", "--dataset=fashion_mnist", data_dir
        for epochs in flags.FLAGS.epochs:
            peak = run_cpu(*recipe, f"--train_epochs={epochs}")["peak"]
            print(f"{epochs:>4} epochs: peak {peak:,.0f} MiB", flush=True)


if __name__ == "__main__":
    app.run(main)
