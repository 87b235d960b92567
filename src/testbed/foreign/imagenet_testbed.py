"""The words that plug-in files of the ImageNet Testbed (Taori et al. 2020) import, in its meaning, made of ours.

Where the meaning differs from ours the difference is bridged here: a metrics function gets tensors, a class_sublist
selects columns and leaves images and labels alone, a perturbation draws its numbers from the global generators.
docs/briefs/imagenet-testbed.md has the whole list.
"""

from __future__ import annotations

import inspect
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.data.folders import StandardDataset
from testbed.data.transforms import StandardTransform
from testbed.entries import eval_setting, model, registry
from testbed.errors import EntryError
from testbed.metrics import accuracy
from testbed.perturb.colour import greyscale
from testbed.perturb.corruptions import CORRUPTIONS, corruption

if TYPE_CHECKING:
    import numpy as np
    import torch

# The order in which positional arguments come there.
_MODEL = ("name", "transform", "classifier_loader", "eval_batch_size", "arch", "normalization", "classify")
_SETTING = ("name", "dataset", "size", "perturbation_fn_cpu", "perturbation_fn_gpu", "metrics_fn", "adversarial_attack")
_SIDE = 224  # of the pictures for which radii of l2 attacks are given


# ---- models.model_base -----------------------------------------------------------------------------------


def make_model(*values: Any, **named: Any) -> model.Model:
    return model.Model(**dict(zip((*_MODEL, "adversarial_batch_size"), values, strict=False)), **named)


# ---- eval_settings.eval_setting_base ---------------------------------------------------------------------


def make_setting(*values: Any, **named: Any) -> eval_setting.EvalSetting:
    order = (*_SETTING, "class_sublist", "idx_subsample_list", "parent_eval_setting", "transform")
    given = {**dict(zip(order, values, strict=False)), **named}
    metric = given.pop("metrics_fn", None)
    if metric not in (None, accuracy_topk):
        given["metrics_fn"] = TensorMetric(metric)
    if given.get("perturbation_fn_cpu") is not None:
        given["perturbation_fn_cpu"] = SeededPerturbation(given["perturbation_fn_cpu"])
    if given.get("class_sublist") is not None:
        given["keeps_labels"] = True
        if isinstance(given.get("dataset"), StandardDataset):
            given["dataset"] = replace(given["dataset"], labels="sorted")
    return eval_setting.EvalSetting(**given)


def make_dataset(name: str | None = None, path: str | None = None) -> StandardDataset:
    """A folder, or a dataset by its published name, which is looked for where the registered setting looks for it."""
    if name is None or path is not None:
        return StandardDataset(name=name, path=path, labels="if-any")
    settings = registry.being_loaded().eval_settings.entries
    for setting in (settings.get(name), settings.get(f"{name}_on-disk")):
        known = setting.dataset if setting is not None else None
        if isinstance(known, StandardDataset):
            return StandardDataset(name=known.name, also=known.also, source=known.source)
    return StandardDataset(name=name)


def accuracy_topk(logits: Any, targets: Any, topk: Sequence[int] = (1, 5)) -> dict[str, float]:
    """{'top1': ..., 'top5': ...} in percent, as plain numbers."""
    import numpy as np

    rank = accuracy.target_rank(np.asarray(logits), np.asarray(targets))
    return {f"top{k}": 100.0 * float((rank < k).mean()) for k in topk}


@dataclass(frozen=True)
class TensorMetric:
    """A metrics function that takes tensors, and the model as `py_model`. Text among its numbers is left out."""

    function: Callable[..., Mapping[str, Any]]

    @property
    def __signature__(self) -> inspect.Signature:
        if not callable(self.function):
            raise EntryError(f"metrics_fn must be a function, got {self.function!r}")
        parameters = inspect.signature(self.function).parameters.values()
        return inspect.Signature([p.replace(name="model") if p.name == "py_model" else p for p in parameters])

    def __call__(self, **given: Any) -> dict[str, Any]:
        import numpy as np
        import torch

        for name in ("logits", "targets"):
            if name in given:
                given[name] = torch.from_numpy(np.array(given[name]))
        if "model" in given and "model" not in inspect.signature(self.function).parameters:
            given["py_model"] = given.pop("model")
        numbers = self.function(**given)
        if not isinstance(numbers, Mapping):
            return numbers  # refused with what was expected, where metrics are checked
        return {name: value for name, value in numbers.items() if not isinstance(value, str)}


@dataclass(frozen=True)
class SeededPerturbation:
    """A perturbation of one picture that draws from the global generators: they are seeded by the picture's own."""

    function: Callable[[Any], Any]

    def __call__(self, image: torch.Tensor, rng: np.random.Generator) -> Any:
        import random

        import numpy as np
        import torch

        torch.default_generator.manual_seed(int(rng.integers(2**62)))
        np.random.seed(int(rng.integers(2**32)))
        random.seed(int(rng.integers(2**62)))
        return self.function(image)


# ---- mldb.utils ------------------------------------------------------------------------------------------


def load_model_state_dict(network: Any, name: str) -> None:
    """Load the local weights file of that name into the network; the server that had it is gone."""
    from testbed.models.weights import with_weights

    with_weights(network, _file_name(name))


def load_model_checkpoint_raw(name: str) -> bytes:
    from testbed.models.weights import bytes_of

    return bytes_of(_file_name(name))


def load_model_checkpoint_bytes(name: str) -> io.BytesIO:
    return io.BytesIO(load_model_checkpoint_raw(name))


def _file_name(name: str) -> str:
    return name.replace("/", "_")


# ---- eval_settings.image_utils, .eval_setting_subsample, .pgd_attack -------------------------------------


def _corrupted(kind: str, image: torch.Tensor, severity: int, gpu: bool = False) -> torch.Tensor:
    """Severities count from 0 there. On a GPU the picture goes to the CPU and back."""
    import numpy as np
    import torch

    rng = np.random.default_rng(int(torch.randint(2**62, ())))
    return corruption(kind, severity + 1)(image.cpu(), rng).to(image.device)


def quantize_images(images: torch.Tensor) -> torch.Tensor:
    return images.mul(255).byte().float().div(255)


def pgd_style_attack(parameters: Mapping[str, Any], images: torch.Tensor, model: Any) -> torch.Tensor:
    """PGD as published: against the model's own prediction, and without bounds at 0 and 1."""
    import torch

    from testbed.perturb.attacks import projected_gradient_descent

    if parameters.get("targeted"):
        raise EntryError("pgd_style_attack: targeted attacks were never published and are not offered")
    norm = "l2" if parameters["norm"] == 2 else "linf"
    eps = parameters["eps"] * (images.shape[2] / _SIDE if norm == "l2" else 1)
    attack = projected_gradient_descent(
        norm, eps, parameters["step_size"], parameters["num_steps"], labels="predicted", clip=False
    )
    nobody = torch.full((len(images),), -1, device=images.device)
    return attack(images, model, nobody, GlobalRandom(len(images), images.device))


@dataclass(frozen=True)
class GlobalRandom:
    """Random numbers of a batch from torch's global generator, which the run seeds for every batch."""

    n: int
    device: Any

    def uniform(self, low: float, high: float, shape: Sequence[int]) -> torch.Tensor:
        import torch

        return torch.empty((self.n, *shape), device=self.device).uniform_(low, high)

    def normal(self, shape: Sequence[int]) -> torch.Tensor:
        import torch

        return torch.randn((self.n, *shape), device=self.device)


def _image_utils() -> dict[str, Any]:
    functions: dict[str, Any] = {kind: partial(_corrupted, kind) for kind in CORRUPTIONS}
    functions |= {"greyscale": greyscale, "quantize_images": quantize_images}
    # `import *` takes these names, and nothing else of this program.
    return {**functions, "corruption_dict": functions, "__all__": [*functions, "corruption_dict"]}


def _subsamples() -> dict[str, Any]:
    def listed(name: str) -> Any:
        return json.loads(Path(registry.default_folder() / "metadata" / name).read_text(encoding="utf-8"))

    return {
        "idx_subsample_list_50k_10percent": listed("imagenet_10percent.json"),
        "class_sublist_1_8": listed("imagenet_subsets.json")["class_1_8"],
    }


# Address -> what can be imported from there.
WORDS: dict[str, Callable[[], dict[str, Any]]] = {
    "registry": lambda: {"registry": registry},
    "models": dict,
    "models.model_base": lambda: {
        "Model": make_model,
        "StandardTransform": StandardTransform,
        "StandardNormalization": model.StandardNormalization,
    },
    "eval_settings": dict,
    "eval_settings.eval_setting_base": lambda: {
        "EvalSetting": make_setting,
        "StandardDataset": make_dataset,
        "accuracy_topk": accuracy_topk,
    },
    "eval_settings.image_utils": _image_utils,
    "eval_settings.eval_setting_subsample": _subsamples,
    "eval_settings.pgd_attack": lambda: {"pgd_style_attack": pgd_style_attack},
    "mldb": dict,
    "mldb.s3_utils": dict,
    "mldb.utils": lambda: {
        "load_model_state_dict": load_model_state_dict,
        "load_model_checkpoint_bytes": load_model_checkpoint_bytes,
        "load_model_checkpoint_raw": load_model_checkpoint_raw,
    },
}
