"""Modeled TPU step time of ours and of other programs, by the TPU compiler with full effort.

    python -m benchmarks.tpu_peers [--steps=resnet,transformer] [--topologies=v2-8,v3-8]
        [--flax_python=flax/bin/python] [--official_python=official/bin/python]
        [--tpu_checkout=DIR] [--flax_checkout=DIR] [--bert_checkout=DIR]
        [--connorjl_checkout=DIR] [--compare_gan_checkout=DIR]
        [--algoperf_checkout=DIR] [--parts] [--largest]

One core's training step (`tpu_programs`), in bfloat16 unless a precision is named. A program whose
Python or checkout is not given is left out; `peers/official_step` and `peers/flax_resnet` say how:

    resnet       ResNet-50 v1 of `tf.keras.applications`, 128 images of 224x224, momentum; in Flax
    resnet_v1.5  configs/imagenet_resnet50.cfg without label smoothing and `resnet_main.py` of
                 tensorflow/tpu, 128 images
    mobilenet_v2 MobileNet v2 of `tf.keras.applications`, 128 images of 224x224, momentum
    efficientnet_b0  configs/imagenet_efficientnet_b0.cfg, `main.py` of tensorflow/tpu's
                 EfficientNet, and that of `tf.keras.applications` without EMA and weight decay; 128
                 images of 224x224, RMSProp
    efficientnet_b4  the same with EfficientNet-B4, 32 images of 380x380
    transformer  configs/wmt14_base.cfg, Keras layers, tf-models-official and the WMT example of
                 Flax, 32 rows of 128 tokens, Adam. Only ours, the Keras layers and Flax know packed
                 rows.
    bert_128     pre-training of BERT-base, 32 rows of 128 tokens: `run_pretraining.py` of
                 google-research/bert and tf-models-official; 15 % of the tokens are predicted
    bert_512     the same with 8 rows of 512 tokens
    gpt2         GPT-2 of 124 million parameters, `FlaxGPT2LMHeadModel` with the step of
                 `run_clm_flax.py` and the model_fn of ConnorJL/GPT2, 8 rows of 1,024 tokens, AdamW
    gpt2_medium, gpt2_large, gpt2_xl  355, 774 and 1,558 million parameters, recompute=true and
                 logits_positions=128; XL with Adafactor. Only ours.
    dcgan        DCGAN with `example_configs/dcgan_celeba64.gin` of google/compare_gan and the same
                 network: 64 images of 64x64 for a step of the discriminator, 64 for the generator
    conformer    configs/librispeech_conformer_v3-8.cfg and the Conformer of MLCommons' workload
                 librispeech_conformer at its sizes, which has no relative positions: 32 recordings
                 of 16 s
    retinanet    configs/coco_retinanet_r50_v3-8.cfg and the same network of tf-models-official, 8
                 images of 640x640. Our step assigns boxes to anchors, tf-models-official does it on
                 the host and has no gradient clipping.
    mask_rcnn    configs/coco_mask_rcnn_r50_1024_v3-8.cfg and the Mask R-CNN of
                 tf-models-official, which has four convolutions in the box head: 4 images of
                 1024x1024. Our step assigns boxes to anchors and crops masks, other programs do it
                 on the host.
    mask_rcnn_frozen  the same without training batch norm and the layers up to the first stage, and
                 the model_fn of tensorflow/tpu's Mask R-CNN, which freezes them
    deeplab      configs/cityscapes_deeplab_v3-8.cfg and the DeepLabV3+ of tf-models-official, which
                 has a 1x1 convolution more in the head and dilates the last stage by 2, 4 and 8: 2
                 images of 769x769, float32
    unet         a U-Net on a MobileNet v2 and that of qubvel/segmentation_models, 8 images of
                 512x512, Adam
    neumf        NeuMF for MovieLens 20M, 4,096 rows of a positive and four negative items, float32,
                 Adam, and that of tf-models-official
    dlrm         configs/criteo_dlrm_v3-32.cfg with all tables as TPU embeddings and the layers of
                 tf-models-official, 4,096 rows, float32: the dense part, from the embeddings to
                 their gradients

--parts compiles the products (with the convolutions) and the optimizer of our step alone, too: what
no program for the same job does without. --largest searches instead the largest batch per core that
compiles, within 7 %, with quick effort: 5 to 15 minutes per program.

The compiler's estimate for one core excludes all-reduces, infeed, gathers, scatters and random
bits; the last column is the time of the instructions without an estimate, by their bytes. Needs
libtpu (docs/check.md), no TPU. ResNet, Transformer and BERT take 10 minutes each; RetinaNet 10
minutes and 8 GiB of memory.
"""

from __future__ import annotations

import tempfile

from absl import app, flags

from benchmarks import hlo_parts, hlo_table
from benchmarks.tpu_programs import STEPS
from tpu.connect import topology

flags.DEFINE_list("steps", ["resnet", "transformer"], "Networks.")
flags.register_validator(
    "steps", lambda steps: set(steps) <= set(STEPS), f"must be of {', '.join(STEPS)}"
)
flags.DEFINE_list("topologies", ["v2-8", "v3-8"], "Slices to compile for.")
flags.DEFINE_bool("parts", False, "Whether to compile parts of our step alone, too.")
flags.DEFINE_bool("largest", False, "Whether to search the largest batch per core instead.")

PARTS = {
    "forward products": (hlo_parts.is_forward_product, 0, 1),
    "gradient products, half": (hlo_parts.is_gradient_product, 0, 2),
    "gradient products, other half": (hlo_parts.is_gradient_product, 1, 2),
    "optimizer": (hlo_parts.is_update, 0, 1),
}


def main(_):
    """Prints a row per step, generation and program."""
    given = flags.FLAGS
    print(hlo_table.LARGEST_HEADER if given.largest else hlo_table.HEADER)
    with tempfile.TemporaryDirectory() as folder:
        for step in given.steps:
            for name in given.topologies:
                (_search if given.largest else _compare)(step, topology.find(name), folder)


def _compare(step, found, folder):
    """Prints the time and memory of the programs of a step."""
    paths = {}
    for name, program in STEPS[step].available.items():
        paths[name] = f"{folder}/{len(paths)}"
        program.write(paths[name], found.name, STEPS[step].batch_per_core)
    if flags.FLAGS.parts:
        ours = next(iter(paths.values()))
        for part, (is_part, first, stride) in PARTS.items():
            paths[f"{part} of ours"] = f"{ours}_{part}"
            hlo_parts.extract(ours, is_part, f"{ours}_{part}", first, stride)
    hlo_table.print_rows(step, found, paths)


def _search(step, found, folder):
    """Prints the largest batch of the programs of a step."""
    for name, program in STEPS[step].available.items():
        first = STEPS[step].batch_per_core
        size, memory = hlo_table.largest_batch(program.write, first, found, folder)
        print(
            f"| {step}, {name} | {found.generation} | {size} | {memory / 2**30:.1f} GiB |",
            flush=True,
        )


if __name__ == "__main__":
    app.run(main)
