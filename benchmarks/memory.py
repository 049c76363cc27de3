"""Peak memory of training Fashion-MNIST for growing numbers of epochs.

    python -m benchmarks.memory --source=folder/of/idx.gz [--epochs=2,8,32]

Each row is a child process that trains and evaluates after every epoch.
"""

from __future__ import annotations

import tempfile

from absl import app, flags

from benchmarks.subprocesses import run_python

flags.DEFINE_string("source", None, "Folder with the original IDX files.", required=True)
flags.DEFINE_list("epochs", ["2", "8", "32"], "Epochs of each run.")

PREPARE = """
import runpy, sys
source, folder = sys.argv[1:]
sys.argv = ["", "--dataset=fashion_mnist", f"--source={source}", f"--data_dir={folder}/data"]
runpy.run_path("prepare_data.py", run_name="__main__")
print("null")
"""

TRAIN = """
import json, resource, runpy, sys
folder, epochs = sys.argv[1:]
sys.argv = ["", "--flagfile=configs/mnist_mlp.cfg", "--dataset=fashion_mnist"]
sys.argv += [f"--data_dir={folder}/data", f"--model_dir={folder}/model-{epochs}"]
sys.argv += [f"--train_epochs={epochs}"]
runpy.run_path("run_cpu.py", run_name="__main__")
print(json.dumps(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024))
"""


def main(_):
    """Prints a row per number of epochs."""
    with tempfile.TemporaryDirectory() as folder:
        run_python(PREPARE, flags.FLAGS.source, folder)
        for epochs in flags.FLAGS.epochs:
            peak = run_python(TRAIN, folder, epochs)
            print(f"{epochs:>4} epochs: peak {peak:,.0f} MiB", flush=True)


if __name__ == "__main__":
    app.run(main)
