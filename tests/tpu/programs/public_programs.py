"""Public TPUEstimator programs: their arguments for tiny data, and the calls that they make."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable

from tests.tpu.programs import public_data

MODELS = "tpu/models"


@dataclasses.dataclass(frozen=True)
class Case:
    """A program and the calls that it makes on a TPUEstimator.

    Attributes:
      name: name of the test case.
      path: path of the program in TPU_PROGRAMS; its first folder is the checkout.
      write_data: writes the data into a folder.
      arguments: arguments, separated by spaces; DATA is the folder of the data, OUT that of the
        outputs.
      runs: runs of the program in order: `{calls on emulated cores: additional arguments}`.
      is_tf1: True if it is written for TensorFlow 1.x.
      python_path: folders in TPU_PROGRAMS that it needs in PYTHONPATH, separated by spaces.
      packages: modules of third parties that it imports.
      topology: slice; one with fewer cores builds faster.
      check_steps: steps that `check` executes, for a program that waits for a checkpoint.
    """

    name: str
    path: str
    write_data: Callable
    arguments: str
    runs: dict[str, str]
    is_tf1: bool = False
    python_path: str = ""
    packages: tuple[str, ...] = ()
    topology: str = "v2-8"
    check_steps: int = 0

    def __str__(self):
        return self.name


def as_json(fields):
    """Returns JSON without spaces."""
    return json.dumps(fields, separators=(",", ":"))


def electra_parameters(**changes):
    """Returns the flag of ELECTRA that changes its parameters."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    parameters = {
        "use_tpu": True,
        "tpu_name": "my-tpu",
        "num_tpu_cores": 8,
        "max_seq_length": 32,
        "train_batch_size": 16,
        "eval_batch_size": 16,
        "num_train_steps": 4,
        "num_warmup_steps": 2,
        "iterations_per_loop": 2,
        "num_eval_steps": 2,
        "save_checkpoints_steps": 4,
        "vocab_size": len(public_data.VOCAB),
        "model_hparam_overrides": {**sizes, "intermediate_size": 64, "embedding_size": 16},
        **changes,
    }
    return f"--hparams={as_json(parameters)}"


UNET_PARAMETERS = {
    "input_image_size": [16, 16, 16],
    "train_batch_size": 8,
    "eval_batch_size": 8,
    "train_steps": 4,
    "eval_steps": 1,
    "num_base_filters": 4,
    "depth": 2,
    "use_bfloat16": False,
    "train_item_count": 32,
    "eval_item_count": 8,
}
BERT_FLAGS = "--use_tpu --tpu_name=my-tpu --do_train --output_dir=OUT"
PRETRAINING_FLAGS = f"""{BERT_FLAGS} --do_eval --input_file=DATA/pretraining.tfrecord
    --train_batch_size=16 --eval_batch_size=16 --max_seq_length=32 --max_predictions_per_seq=5
    --num_train_steps=4 --num_warmup_steps=2 --iterations_per_loop=2 --max_eval_steps=2"""

MNIST = Case(
    "mnist",
    f"{MODELS}/official/mnist/mnist_tpu.py",
    public_data.mnist,
    """--tpu=my-tpu --data_dir=DATA --model_dir=OUT --batch_size=64 --train_steps=4 --iterations=2
    --eval_steps=1 --learning_rate=0.01""",
    runs={"1 train, 1 evaluate, 1 predict": ""},
)
RESNET = Case(
    "resnet",
    f"{MODELS}/official/resnet/resnet_main.py",
    public_data.imagenet,
    """--tpu=my-tpu --data_dir=DATA --model_dir=OUT --export_dir=OUT/export --train_batch_size=16
    --eval_batch_size=16 --train_steps=4 --steps_per_eval=4 --iterations_per_loop=2
    --num_train_images=64 --num_eval_images=32 --num_label_classes=10 --image_size=64
    --resnet_depth=18 --precision=float32 --num_parallel_calls=2""",
    runs={"1 train, 1 evaluate, 1 export": ""},
    python_path=MODELS,
    packages=("yaml",),
)
INCEPTION_V3 = Case(
    "inception_v3",
    f"{MODELS}/experimental/inception/inception_v3.py",
    public_data.imagenet,
    """--tpu=my-tpu --data_dir=DATA --model_dir=OUT --export_dir=OUT/export --train_batch_size=16
    --eval_batch_size=16 --train_steps=4 --train_steps_per_eval=4 --iterations=2
    --eval_total_size=32 --width=107 --height=107 --num_classes=11 --num_parallel_calls=2
    --skip_host_call=false""",
    runs={"1 train, 1 evaluate, 1 export": ""},
    is_tf1=True,
    python_path=MODELS,
    packages=("tf_slim",),
)
UNET_3D = Case(
    "unet3d",
    f"{MODELS}/official/unet3d/unet_main.py",
    public_data.volumes,
    f"""--tpu=my-tpu --model_dir=OUT --num_cores=8 --iterations_per_loop=2
    --training_file_pattern=DATA/train-* --eval_file_pattern=DATA/eval-* --min_eval_interval=0
    --eval_timeout=5 --params_override={as_json(UNET_PARAMETERS)}""",
    runs={"1 train": "--mode=train", "1 evaluate": "--mode=eval"},
    python_path=MODELS,
    packages=("yaml",),
)
EMBEDDING = Case(
    "embedding",
    f"{MODELS}/experimental/embedding/model.py",
    public_data.categories,
    """--tpu=my-tpu --model_dir=OUT --train_dataset_path=DATA/train_*
    --eval_dataset_path=DATA/eval_*""",
    runs={"5 train, 5 evaluate": ""},
)
BERT_PRETRAINING = Case(
    "bert_pretraining",
    "bert/run_pretraining.py",
    public_data.masked_pairs,
    f"{PRETRAINING_FLAGS} --bert_config_file=DATA/bert_config.json",
    runs={"1 train, 1 evaluate": ""},
    is_tf1=True,
)
ROBERTA_ZH = dataclasses.replace(
    BERT_PRETRAINING, name="roberta_zh", path="roberta_zh/run_pretraining.py"
)
BERT_ON_ONE_CORE = dataclasses.replace(
    BERT_PRETRAINING,
    name="bert_on_one_core",
    arguments=f"{BERT_PRETRAINING.arguments} --num_tpu_cores=1",
    topology="1x1",
)
BERT_CLASSIFIER = Case(
    "bert_classifier",
    "bert/run_classifier.py",
    public_data.mrpc,
    f"""{BERT_FLAGS} --do_eval --do_predict --task_name=MRPC --data_dir=DATA
    --vocab_file=DATA/vocab.txt --bert_config_file=DATA/bert_config.json --max_seq_length=32
    --train_batch_size=16 --eval_batch_size=8 --predict_batch_size=8 --num_train_epochs=2
    --iterations_per_loop=2""",
    runs={"1 train, 1 evaluate, 1 predict": ""},
    is_tf1=True,
)
BERT_SQUAD = Case(
    "bert_squad",
    "bert/run_squad.py",
    public_data.squad,
    f"""{BERT_FLAGS} --do_predict --train_file=DATA/train-v1.1.json
    --predict_file=DATA/dev-v1.1.json --vocab_file=DATA/vocab.txt
    --bert_config_file=DATA/bert_config.json --max_seq_length=64 --max_query_length=16
    --doc_stride=16 --train_batch_size=16 --predict_batch_size=8 --num_train_epochs=2
    --iterations_per_loop=2""",
    runs={"1 train, 1 predict": ""},
    is_tf1=True,
)
ALBERT_PRETRAINING = Case(
    "albert_pretraining",
    "albert/run_pretraining.py",
    public_data.masked_pairs,
    f"{PRETRAINING_FLAGS} --albert_config_file=DATA/albert_config.json",
    runs={"1 train, 1 evaluate": ""},
    is_tf1=True,
    python_path=".",
    check_steps=4,
)
ELECTRA_PRETRAINING = Case(
    "electra_pretraining",
    "electra/run_pretraining.py",
    public_data.unmasked_pairs,
    "--data-dir=DATA --model-name=tiny",
    runs={
        "1 train": electra_parameters(do_train=True, do_eval=False),
        "1 evaluate": electra_parameters(do_train=False, do_eval=True),
    },
    is_tf1=True,
)
SIMCLR = Case(
    "simclr",
    "simclr/run.py",
    public_data.cifar10,
    """--mode=train_then_eval --train_mode=pretrain --tpu_name=my-tpu --dataset=cifar10
    --data_dir=DATA --model_dir=OUT --eval_split=test --train_batch_size=16 --eval_batch_size=16
    --train_steps=2 --checkpoint_steps=2 --train_summary_steps=2 --image_size=32
    --resnet_depth=18 --use_blur=False --warmup_epochs=1""",
    runs={"1 train, 1 evaluate": ""},
    packages=("tensorflow_datasets", "tensorflow_hub"),
    topology="1x2",
    check_steps=2,
)
MESH = Case(
    "mesh",
    "mesh/examples/toy_model_tpu.py",
    public_data.nothing,
    """--tpu=my-tpu --model_dir=OUT --batch_size=8 --io_size=16 --hidden_size=8 --train_steps=4
    --iterations=2 --steps_per_checkpoint=4 --mesh_shape=all:8 --layout=hidden_odd:all""",
    runs={"1 train, 1 evaluate": ""},
    is_tf1=True,
    python_path="mesh",
    packages=("gin",),
)
TENSOR2TENSOR = Case(
    "tensor2tensor",
    "tensor2tensor/tensor2tensor/bin/t2t_trainer.py",
    public_data.reversed_digits,
    """--use_tpu --cloud_tpu_name=my-tpu --tpu_num_shards=2 --data_dir=DATA --output_dir=OUT
    --problem=algorithmic_reverse_binary40 --model=transformer --hparams_set=transformer_tiny
    --hparams=batch_size=8,max_length=16 --train_steps=4 --eval_steps=1 --iterations_per_loop=2
    --schedule=train""",
    runs={"1 train": ""},
    is_tf1=True,
    python_path="tensor2tensor mesh",
    packages=("gym", "sympy", "tensorflow_datasets", "tensorflow_gan", "tensorflow_probability"),
    topology="1x2",
)
GPT2 = Case(
    "gpt2",
    "GPT2/main.py",
    public_data.tokens,
    "--tpu=my-tpu --model=tiny.json",
    runs={"1 train, 1 evaluate": ""},
    is_tf1=True,
    topology="1x2",
    check_steps=4,
)
TEMPLATES = tuple(
    Case(
        f"template_{name}",
        f"cloudml-samples/tpu/templates/tpu_{name}_estimator/trainer.py",
        public_data.nothing,
        "--use-tpu --model-dir=OUT --train-batch-size=16 --max-steps=4",
        runs={"1 train": ""},
        is_tf1=True,
    )
    for name in ("film", "lstm", "grl", "cnn")
)
SHAKESPEARE = Case(
    "shakespeare",
    "tpu/tools/colab/shakespeare_with_tpuestimator.ipynb",
    public_data.text,
    "",
    runs={"1 train": ""},  # it predicts with use_tpu=False
    is_tf1=True,
)
# Regular expressions of sizes and paths in the cells of the notebook: their replacements.
SHAKESPEARE_REPLACEMENTS = {
    "^bucket = ''": "bucket = 'any'",
    "^MODEL_DIR = .*": "MODEL_DIR = 'OUT'",
    "/content/": "DATA/",
    r"^EMBEDDING_DIM = \d+": "EMBEDDING_DIM = 32",
    r"(?<=_batch_size=)\d+": "16",
    r"(?<=max_steps=)\d+": "4",
    r"(?<=iterations_per_loop=)\d+": "2",
    r"(?<='seq_len': )\d{3}": "20",
    r"(?<=predict_len = )\d+": "40",
}
CASES = (
    *(MNIST, RESNET, INCEPTION_V3, UNET_3D, EMBEDDING, BERT_PRETRAINING, BERT_CLASSIFIER),
    *(BERT_SQUAD, ROBERTA_ZH, ALBERT_PRETRAINING, ELECTRA_PRETRAINING, SIMCLR, SHAKESPEARE),
    *(MESH, TENSOR2TENSOR, GPT2, *TEMPLATES),
)
