"""The programs that `tpu_peers` compares: steps of ours, and of other programs for the same job."""

from __future__ import annotations

import dataclasses
import sys

from absl import flags

from benchmarks.subprocesses import run_module
from tpu.connect import topology

flags.DEFINE_string(
    "official_python", "", "Python with tf-models-official (peers/official_step.py)."
)
flags.DEFINE_string("flax_python", "", "Python with Flax (peers/flax_resnet.py).")
flags.DEFINE_string("flax_checkout", "", "Checkout of google/flax.")
flags.DEFINE_string("tpu_checkout", "", "Checkout of tensorflow/tpu.")
flags.DEFINE_string("bert_checkout", "", "Checkout of google-research/bert.")
flags.DEFINE_string("connorjl_checkout", "", "Checkout of ConnorJL/GPT2.")
flags.DEFINE_string("compare_gan_checkout", "", "Checkout of google/compare_gan.")
flags.DEFINE_string("algoperf_checkout", "", "Checkout of mlcommons/algorithmic-efficiency.")


@dataclasses.dataclass(frozen=True)
class Ours:
    """A training step of run_tpu.py.

    Attributes:
      arguments: its flags.
    """

    arguments: tuple[str, ...]

    def write(self, path: str, slice_name: str, batch_per_core: int) -> None:
        """Writes the HLO of a core."""
        batch_size = batch_per_core * topology.find(slice_name).num_cores
        batch = f"--train_batch_size={batch_size}"
        run_module("our_step", path, slice_name, "train", *self.arguments, batch)


@dataclasses.dataclass(frozen=True)
class Peer:
    """A training step of another program.

    Attributes:
      module: name in benchmarks/peers.
      arguments: after the path and the batch per core. A word in braces is a flag, such as
        "{tpu_checkout}", or the "{slice}".
      python: the flag of its interpreter; "": this one.
    """

    module: str
    arguments: tuple[str, ...] = ()
    python: str = ""

    @property
    def is_available(self) -> bool:
        """Whether the flags that it needs are given."""
        given = flags.FLAGS.flag_values_dict()
        needed = [word.strip("{}") for word in (*self.arguments, self.python) if word[:1] == "{"]
        return all(given[name] for name in needed if name != "slice")

    def write(self, path: str, slice_name: str, batch_per_core: int) -> None:
        """Writes the HLO of a core."""
        values = {**flags.FLAGS.flag_values_dict(), "slice": slice_name}
        arguments = [argument.format(**values) for argument in self.arguments]
        python = self.python.format(**values) or sys.executable
        run_module(f"peers.{self.module}", path, batch_per_core, *arguments, python=python)


@dataclasses.dataclass(frozen=True)
class Step:
    """Programs for one job.

    Attributes:
      batch_per_core: examples of one step of one core.
      programs: `{name: Ours or Peer}`, ours first.
    """

    batch_per_core: int
    programs: dict[str, Ours | Peer]

    @property
    def available(self) -> dict[str, Ours | Peer]:
        """The programs whose flags are given."""
        return {
            name: program
            for name, program in self.programs.items()
            if isinstance(program, Ours) or program.is_available
        }


def _official(*arguments):
    return Peer("official_step", arguments, "{official_python}")


def _bert(length):
    """Returns the programs of BERT-base."""

    def ours(precision):
        return Ours(
            (
                "--model=bert_base_pretraining",
                f"--precision={precision}",
                "--synthetic_task=pretraining",
                f"--synthetic_text={length}x30522",
                "--train_steps=1000000",
                "--params=optimizer=bert_adamw,weight_decay=0.01,epsilon=1e-6,clip_norm=1",
            )
        )

    return {
        "ours, bfloat16": ours("bfloat16"),
        "tf-models-official, bfloat16": _official("bert", "bfloat16", str(length)),
        "ours, float32": ours("float32"),
        "tf-models-official, float32": _official("bert", "float32", str(length)),
        "google-research/bert, float32": Peer(
            "google_bert", ("{slice}", "{bert_checkout}", str(length))
        ),
    }


def _gpt2(size, *params):
    """Returns a step of a GPT-2 with rows of 1,024 tokens."""
    params = ",".join((f"size={size}", *params))
    return Ours(
        (
            "--model=gpt",
            "--precision=bfloat16",
            "--synthetic_task=language_model",
            "--synthetic_text=1024x50257",
            "--train_steps=1000000",
            f"--params={params}",
        )
    )


def _dcgan(precision):
    """Returns a step of the DCGAN of google/compare_gan for images of 64x64."""
    return Ours(
        (
            "--model=dcgan",
            f"--precision={precision}",
            "--image_size=64x64",
            "--synthetic_classes=10",
            "--train_steps=100000",
            "--params=kernel_size=5,batch_norm_cross_replica=true",
            "--params=optimizer=adam,learning_rate=0.0002,beta1=0.5,beta2=0.999",
        )
    )


def _efficientnet(size, image_size):
    """Returns the programs of an EfficientNet."""
    return {
        "ours": Ours(
            (
                "--flagfile=configs/imagenet_efficientnet_b0.cfg",
                f"--model=efficientnet_{size}",
                f"--image_size={image_size}x{image_size}",
                "--synthetic_classes=1000",
            )
        ),
        "tensorflow/tpu": Peer("tensorflow_tpu_efficientnet", ("{slice}", "{tpu_checkout}", size)),
        "Keras": Peer("keras_step", (f"efficientnet_{size}",)),
    }


_MASK_RCNN = (
    "--flagfile=configs/coco_mask_rcnn_r50_1024_v3-8.cfg",
    "--synthetic_task=instance_segmentation",
    "--synthetic_classes=80",
)
_MOBILENET = (
    "--model=mobilenet",
    "--precision=bfloat16",
    "--image_size=224x224",
    "--synthetic_classes=1000",
    "--train_steps=100000",
    "--params=optimizer=momentum,momentum=0.9,nesterov=true,learning_rate=0.1",
)
_UNET = (
    "--model=unet",
    "--precision=bfloat16",
    "--image_size=512x512",
    "--synthetic_task=segmentation",
    "--synthetic_classes=11",
    "--train_steps=100000",
    "--params=backbone=mobilenet_v2,depth=5,width=16,optimizer=adam,learning_rate=0.001",
)
_NEUMF = (
    "--model=neumf",
    "--synthetic_task=ratings",
    "--synthetic_tables=138493,26744",
    "--train_steps=100000",
    "--params=gmf_size=64,mlp_size=128,hidden_units=[256,128,64],num_negatives=4",
    "--params=optimizer=adam,learning_rate=0.001",
)
_RESNET = (
    "--flagfile=configs/imagenet_resnet50.cfg",
    "--image_size=224x224",
    "--synthetic_classes=1000",
    "--params=label_smoothing=0",
)
_ADAMW = ("optimizer=adamw", "weight_decay=0.01")
_LESS_MEMORY = ("recompute=true", "logits_positions=128")
STEPS = {
    "resnet": Step(
        128,
        {
            "ours": Ours((*_RESNET, "--params=stride_in_1x1=true,weight_decay=0")),
            "Keras": Peer("keras_step", ("resnet",)),
            "Flax": Peer("flax_resnet", python="{flax_python}"),
        },
    ),
    "resnet_v1.5": Step(
        128,
        {
            "ours": Ours(_RESNET),
            "tensorflow/tpu": Peer("tensorflow_tpu_resnet", ("{slice}", "{tpu_checkout}")),
        },
    ),
    "mobilenet_v2": Step(
        128, {"ours": Ours(_MOBILENET), "Keras": Peer("keras_step", ("mobilenet_v2",))}
    ),
    "efficientnet_b0": Step(128, _efficientnet("b0", 224)),
    "efficientnet_b4": Step(32, _efficientnet("b4", 380)),
    "transformer": Step(
        32,
        {
            "ours": Ours(("--flagfile=configs/wmt14_base.cfg", "--synthetic_text=128x32768")),
            "Keras": Peer("keras_step", ("transformer",)),
            "tf-models-official": _official("transformer", "bfloat16"),
            "Flax": Peer("flax_transformer", ("{flax_checkout}",), "{flax_python}"),
        },
    ),
    "bert_128": Step(32, _bert(128)),
    "bert_512": Step(8, _bert(512)),
    "gpt2": Step(
        8,
        {
            "ours": _gpt2("small", *_ADAMW),
            "transformers in Flax": Peer("flax_gpt2", ("1024",), "{flax_python}"),
            "ConnorJL/GPT2": Peer("connorjl_gpt2", ("{slice}", "{connorjl_checkout}", "1024")),
        },
    ),
    "gpt2_medium": Step(4, {"ours": _gpt2("medium", *_ADAMW, *_LESS_MEMORY)}),
    "gpt2_large": Step(2, {"ours": _gpt2("large", *_ADAMW, *_LESS_MEMORY)}),
    "gpt2_xl": Step(1, {"ours": _gpt2("xl", "optimizer=adafactor", *_LESS_MEMORY)}),
    "dcgan": Step(
        64,
        {
            "ours, bfloat16": _dcgan("bfloat16"),
            "ours, float32": _dcgan("float32"),
            "google/compare_gan, float32": Peer(
                "compare_gan", ("{slice}", "{compare_gan_checkout}", "64")
            ),
        },
    ),
    "conformer": Step(
        32,
        {
            "ours": Ours(
                (
                    "--flagfile=configs/librispeech_conformer_v3-8.cfg",
                    "--synthetic_audio=16000,256000,29,400",
                )
            ),
            "MLCommons in JAX, float32": Peer(
                "mlcommons_conformer", ("{algoperf_checkout}",), "{flax_python}"
            ),
        },
    ),
    "retinanet": Step(
        8,
        {
            "ours": Ours(
                (
                    "--flagfile=configs/coco_retinanet_r50_v3-8.cfg",
                    "--synthetic_task=detection",
                    "--synthetic_classes=80",
                )
            ),
            "tf-models-official": _official("retinanet", "bfloat16"),
        },
    ),
    "mask_rcnn": Step(
        4, {"ours": Ours(_MASK_RCNN), "tf-models-official": _official("mask_rcnn", "bfloat16")}
    ),
    "mask_rcnn_frozen": Step(
        4,
        {
            "ours": Ours((*_MASK_RCNN, "--params=trainable=(?!stem/|stage_1/|.*norm).*")),
            "tensorflow/tpu": Peer("tensorflow_tpu_mask_rcnn", ("{slice}", "{tpu_checkout}")),
        },
    ),
    "deeplab": Step(
        2,
        {
            "ours": Ours(
                (
                    "--flagfile=configs/cityscapes_deeplab_v3-8.cfg",
                    "--synthetic_task=segmentation",
                    "--synthetic_classes=19",
                    "--precision=float32",
                )
            ),
            # In bfloat16 its gradient of ReLU has two dtypes, which the TPU compiler rejects.
            "tf-models-official": _official("deeplab", "float32"),
        },
    ),
    "unet": Step(
        8,
        {
            "ours": Ours(_UNET),
            "segmentation_models": Peer("keras_step", ("unet",), "{official_python}"),
        },
    ),
    "neumf": Step(
        4096, {"ours": Ours(_NEUMF), "tf-models-official": _official("neumf", "float32")}
    ),
    "dlrm": Step(
        4096,
        {
            "ours": Ours(
                (
                    "--flagfile=configs/criteo_dlrm_v3-32.cfg",
                    "--params=tpu_embedding_rows=1",
                    "--synthetic_task=clicks",
                    f"--synthetic_tables={','.join(['100000'] * 26)}",
                )
            ),
            "tf-models-official": _official("dlrm", "float32"),
        },
    ),
}
