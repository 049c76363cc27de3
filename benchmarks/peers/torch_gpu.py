"""Training steps of well-known networks in PyTorch on a GPU; `gpu_speed` runs this.

    python -m benchmarks.peers.torch_gpu NETWORK BATCH_SIZE

Networks of torchvision and transformers with random weights and random data on the GPU, in the
precision that PyTorch advises: autocast to bfloat16, `torch.compile`, TF32 for what stays float32,
channels last, fused or foreach optimizers. Prints "ready" after the compilation, and then, for each
line of the input, the seconds of a step.
"""

from __future__ import annotations

import sys

import torch

from benchmarks.peers import timed_steps

_DEVICE = "cuda"


class _Images(torch.nn.Module):
    """A classifier of torchvision, from uint8 images to the loss."""

    def __init__(self, network, label_smoothing):
        super().__init__()
        self.network = network.to(memory_format=torch.channels_last)
        self.loss = torch.nn.CrossEntropyLoss(label_smoothing=label_smoothing)

    def forward(self, images, labels):
        pixels = (images.to(torch.bfloat16) - 120) * 0.017
        return self.loss(self.network(pixels).float(), labels)


def _images(batch_size):
    images = torch.randint(0, 256, (batch_size, 3, 224, 224), dtype=torch.uint8, device=_DEVICE)
    labels = torch.randint(0, 1000, (batch_size,), device=_DEVICE)
    return images.to(memory_format=torch.channels_last), labels


def resnet50(batch_size):
    """ResNet-50 v1.5 of torchvision, momentum."""
    import torchvision

    model = _Images(torchvision.models.resnet50(), 0.0)
    options = {"momentum": 0.9, "nesterov": True, "weight_decay": 1e-4, "fused": True}
    optimizer = torch.optim.SGD(model.parameters(), 0.1, **options)
    return model, optimizer, _images(batch_size), False


def efficientnet_b0(batch_size):
    """EfficientNet-B0 of torchvision, RMSProp, moving averages of the weights."""
    import torchvision

    model = _Images(torchvision.models.efficientnet_b0(), 0.1)
    options = {"alpha": 0.9, "eps": 1e-3, "momentum": 0.9, "weight_decay": 1e-5, "foreach": True}
    optimizer = torch.optim.RMSprop(model.parameters(), 0.01, **options)
    return model, optimizer, _images(batch_size), True


class _Pretraining(torch.nn.Module):
    """BERT of transformers with both losses; logits of the masked tokens only."""

    def __init__(self):
        super().__init__()
        import transformers

        self.bert = transformers.BertForPreTraining(transformers.BertConfig())

    def forward(self, tokens, positions, masked, is_next):
        hidden, pooled = self.bert.bert(tokens)[:2]
        width = hidden.shape[-1]
        hidden = hidden.gather(1, positions[..., None].expand(-1, -1, width))
        logits, pair = self.bert.cls(hidden, pooled)
        loss = torch.nn.functional.cross_entropy
        return loss(logits.float().flatten(0, 1), masked.flatten()) + loss(pair.float(), is_next)


def bert_base(batch_size):
    """BERT-base of transformers, rows of 128 tokens, 20 of which are predicted."""
    model = _Pretraining()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, weight_decay=0.01, fused=True)
    tokens = torch.randint(0, 30522, (batch_size, 128), device=_DEVICE)
    positions = torch.randint(0, 128, (batch_size, 20), device=_DEVICE)
    masked = torch.randint(0, 30522, (batch_size, 20), device=_DEVICE)
    is_next = torch.randint(0, 2, (batch_size,), device=_DEVICE)
    return model, optimizer, (tokens, positions, masked, is_next), False


class _LanguageModel(torch.nn.Module):
    """GPT-2 of transformers, from tokens to the loss."""

    def __init__(self):
        super().__init__()
        import transformers

        self.gpt2 = transformers.GPT2LMHeadModel(transformers.GPT2Config(use_cache=False))

    def forward(self, tokens):
        return self.gpt2(tokens, labels=tokens).loss


def gpt2(batch_size):
    """GPT-2 of 124 million parameters of transformers, rows of 1,024 tokens."""
    model = _LanguageModel()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, weight_decay=0.01, fused=True)
    tokens = torch.randint(0, 50257, (batch_size, 1024), device=_DEVICE)
    return model, optimizer, (tokens,), False


NETWORKS = {build.__name__: build for build in (resnet50, efficientnet_b0, bert_base, gpt2)}


def main(name, batch_size):
    """Compiles, and then times steps whenever a line says so."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(1)
    with torch.device(_DEVICE):
        model, optimizer, batch, has_averages = NETWORKS[name](int(batch_size))
    compiled, weights = torch.compile(model), list(model.parameters())
    averages = [weight.detach().clone() for weight in weights] if has_averages else None

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(_DEVICE, torch.bfloat16):
            loss = compiled(*batch)
        loss.backward()
        if name == "bert_base":
            torch.nn.utils.clip_grad_norm_(weights, 1.0, foreach=True)
        optimizer.step()
        if averages:
            with torch.no_grad():
                torch._foreach_lerp_(averages, weights, 1e-4)
        return loss

    for _ in range(5):
        loss = step()
    description = f"PyTorch {torch.__version__}, loss {loss.item():.3f}"
    timed_steps.serve(description, step, torch.cuda.synchronize, torch.cuda.empty_cache)


if __name__ == "__main__":
    main(*sys.argv[1:])
