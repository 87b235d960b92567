"""A CLIP model as a classifier. Its text features are computed once per model and prompts, and cached on disk."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from safetensors.torch import load, save
from torch import nn
from torch.nn.functional import normalize

from testbed.data.user_cache import keep, user_cache
from testbed.models.weights import state_sha256
from testbed.models.zero_shot import Prompts

_SENTENCES_AT_ONCE = 512


class ZeroShotClassifier(nn.Module):
    """Normalised images -> logits over the prompts' classes: scale * cosine (+ bias, for SigLIP)."""

    def __init__(self, clip: Any, tokenizer: Callable[[list[str]], torch.Tensor], prompts: Prompts, average: str):
        super().__init__()
        self.clip = clip
        self._tokenizer = tokenizer
        self._prompts = prompts
        self._average = average
        self._heads: torch.Tensor | None = None
        words = json.dumps([prompts.names, prompts.templates, average])
        digest = hashlib.sha256(words.encode()).digest()
        # A buffer is part of the state, so the recorded checksum differs for the same weights with other prompts.
        self.register_buffer("prompts_sha256", torch.tensor(list(digest), dtype=torch.uint8))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        heads = self._text_heads(images.device)
        features = self.clip.encode_image(images, normalize=True)
        logits = self.clip.logit_scale.exp() * torch.einsum("nd,tcd->tnc", features, heads.to(features.dtype))
        bias = getattr(self.clip, "logit_bias", None)
        if bias is not None:
            logits = logits + bias
        if len(logits) == 1:
            return logits[0]
        # The logarithm of a mean of probabilities: its softmax is that mean.
        return logits.float().log_softmax(dim=-1).logsumexp(dim=0) - math.log(len(logits))

    @torch.compiler.disable
    def _text_heads(self, device: torch.device) -> torch.Tensor:
        """The text features, computed at the first batch, when the model is on its device, or read from the cache."""
        if self._heads is None:
            path = user_cache("text-features") / f"{state_sha256(self)}.safetensors"
            try:
                self._heads = load(path.read_bytes())["heads"]
            except Exception:  # absent or damaged: computed again
                # Without mixed precision: the cache serves runs with and without --amp.
                with torch.no_grad(), torch.autocast(device.type, enabled=False):
                    heads = text_heads(self.clip, self._tokenizer, self._prompts, self._average, device)
                self._heads = heads.float().cpu()
                keep(path, save({"heads": self._heads.contiguous()}))
        self._heads = self._heads.to(device)
        return self._heads


def text_heads(
    clip: Any, tokenizer: Callable[[list[str]], torch.Tensor], prompts: Prompts, average: str, device: torch.device
) -> torch.Tensor:
    """Text features of shape (1, classes, dimensions), or (templates, classes, dimensions) for "probabilities"."""
    n = len(prompts.templates)
    step = max(1, _SENTENCES_AT_ONCE // n)
    parts = []
    for start in range(0, len(prompts.names), step):
        names: Sequence[str] = prompts.names[start : start + step]
        tokens = tokenizer([sentence for name in names for sentence in prompts.sentences(name)])
        raw = clip.encode_text(tokens.to(device), normalize=False).reshape(len(names), n, -1)
        if average == "raw-embeddings":
            parts.append(normalize(raw.mean(dim=1), dim=-1)[None])
        elif average == "probabilities":
            parts.append(normalize(raw, dim=-1).transpose(0, 1))
        else:
            mean = normalize(raw, dim=-1).mean(dim=1)
            parts.append((normalize(mean, dim=-1) if average == "embeddings" else mean)[None])
    return torch.cat(parts, dim=1)
