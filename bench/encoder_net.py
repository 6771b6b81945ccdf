"""A transformer encoder of BERT's build with random weights: 29 million numbers, 112 MiB; nothing to download."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from torch import nn

WORDS, WIDTH, LAYERS, HEADS, LENGTH = 30_000, 384, 10, 12, 64
LABELS = ("no", "yes")


class Layer(nn.Module):  # type: ignore[misc]
    """Attention and two linear maps, each with a residual and a norm after it."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.norm_attention, self.norm_output = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x: Any, mask: Any) -> Any:
        """Return the next (rows, tokens, width)."""
        rows, length, _ = x.shape
        parts = [f(x).view(rows, length, HEADS, -1).transpose(1, 2) for f in (self.query, self.key, self.value)]
        said = nn.functional.scaled_dot_product_attention(*parts, attn_mask=mask)
        x = self.norm_attention(x + self.out(said.transpose(1, 2).reshape(rows, length, WIDTH)))
        return self.norm_output(x + self.narrow(nn.functional.gelu(self.wide(x))))


class Trunk(nn.Module):  # type: ignore[misc]
    """Words and places to vectors, through the layers."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))

    def forward(self, ids: Any, mask: Any) -> Any:
        """Return (rows, tokens, width)."""
        x = self.norm(self.words(ids) + self.places.weight[: ids.shape[1]])
        for layer in self.layers:
            x = layer(x, mask)
        return x


class Classifier(nn.Module):  # type: ignore[misc]
    """The trunk and a head on its first token."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = Trunk()
        self.head = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, len(LABELS)))

    def forward(self, input_ids: Any, attention_mask: Any) -> Any:
        """Return logits."""
        return self.head(self.trunk(input_ids, attention_mask.bool()[:, None, None, :])[:, 0])


def encoder() -> Any:
    """Return the module without memory for its weights."""
    with torch.device("meta"):
        return Classifier()


def write_tokenizer(folder: Path) -> None:
    """Write a tokenizer that knows the words w0, w1, ..."""
    words = {"[PAD]": 0, "[UNK]": 1} | {f"w{number}": number + 2 for number in range(WORDS - 2)}
    tokenizer = Tokenizer(WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))


def random_state(seed: int) -> dict[str, Any]:
    """Return weights drawn by `seed`."""
    torch.manual_seed(seed)
    return dict(Classifier().state_dict())


def tuned(base: dict[str, Any], seed: int) -> dict[str, Any]:
    """Return the base with its last layer and its head changed, as a fine-tuned model that keeps the rest has them."""
    torch.manual_seed(seed)
    parts = (f"trunk.layers.{LAYERS - 1}.", "head.")
    return {name: each + 0.01 * torch.randn_like(each) if name.startswith(parts) else each for name, each in base.items()}


def write(path: Path, tensors: dict[str, Any]) -> Path:
    """Write a safetensors file that names its labels."""
    save_file(tensors, path, metadata={"labels": json.dumps(LABELS)})
    return path
