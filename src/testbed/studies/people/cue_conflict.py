"""Shape bias of any torch model in one call: CueConflictEvaluator(model, processor, path).evaluate().

It runs the same code as `eval.py --eval-settings cue-conflict`, but needs no registry entry and no database.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from testbed.data.folders import StandardDataset
from testbed.data.transforms import StandardTransform
from testbed.engine.devices import usable_device
from testbed.entries.eval_setting import EvalSetting
from testbed.entries.model import Model
from testbed.errors import DataError, EntryError
from testbed.metrics.categories16 import AGGREGATIONS, decide
from testbed.metrics.estimate import Estimate
from testbed.metrics.shape_bias import CueConflict, cue_metrics, cues
from testbed.models.modes import modes_kept
from testbed.models.processors import read_processor
from testbed.store.outputs import Outputs

_SETTING = "cue-conflict"


@dataclass(frozen=True)
class AsItIs:
    """A processor that cannot be taken apart. It may normalise: nothing is done to the pictures after it."""

    processor: Callable[[Any], Any]
    any_range: ClassVar = True

    def __call__(self, image: Any) -> Any:
        return self.processor(image)

    def __repr__(self) -> str:
        return repr(self.processor)


class CueConflictEvaluator:
    """Measures the shape bias of a torch module, or of a function from a batch to logits of ImageNet's 1000 classes.

    `processor` is the model's torchvision transform or Hugging Face image processor. Its mean, std and input size are
    used, but not its resize and crop: the stimuli are 224 x 224 and shown whole, as in texture-vs-shape and
    model-vs-human. `resize=256, crop=224` shows them as ImageNet photographs are usually shown, for comparison.

    A processor that cannot be read as data (any other function from a PIL image to a tensor) is called
    unchanged, and `preprocessing` in the results says so.
    """

    def __init__(
        self,
        model: Any,
        processor: Any,
        cue_conflict_path: str | os.PathLike[str],
        device: Any = "cpu",
        batch_size: int = 32,
        num_workers: int = 2,
        aggregation: str = "mean",
        *,
        resize: int | None = None,
        crop: int | None = None,
    ) -> None:
        if not callable(model):
            raise EntryError(f"CueConflictEvaluator: expected a torch module as model, got {type(model).__name__}")
        if aggregation not in AGGREGATIONS:
            raise EntryError(
                f"CueConflictEvaluator: aggregation must be {', '.join(AGGREGATIONS)}, got {aggregation!r}"
            )
        preprocessing = read_processor(processor)
        if preprocessing is None and not callable(processor):
            raise EntryError(
                "CueConflictEvaluator: expected a torchvision transform or a Hugging Face image processor, "
                f"got {type(processor).__name__}"
            )
        if (resize is None) != (crop is None):
            raise EntryError(f"CueConflictEvaluator: give both resize and crop or neither, got {resize!r} and {crop!r}")
        if resize is not None and preprocessing is None:
            raise EntryError(
                "CueConflictEvaluator: resize and crop need a torchvision transform or a Hugging Face image processor; "
                f"a {type(processor).__name__} is called as it is"
            )
        self.aggregation = aggregation
        self._device = usable_device(device)
        self._workers = max(1, num_workers)
        self._network = model
        transform: Any = AsItIs(processor) if preprocessing is None else preprocessing.transform
        if resize is not None:
            transform = StandardTransform(resize, crop, transform.interpolation)
        self._model = Model(
            name=type(model).__name__,
            transform=transform,
            normalization=None if preprocessing is None else preprocessing.normalization,
            classifier_loader=lambda: model,
            eval_batch_size=batch_size,
        )
        self._setting = EvalSetting(
            name=_SETTING,
            dataset=StandardDataset(path=cue_conflict_path),
            metrics_fn=CueConflict(),
            resize="whole" if preprocessing is not None and resize is None else None,
        )

    def evaluate(self, verbose: bool = True) -> dict[str, Any]:
        """The results: shares as fractions (NaN without any decision), counts as whole numbers.

        Keys: shape_bias, shape_bias_interval, shape_correct, texture_correct, both_correct (always 0),
        neither_correct, total_evaluated, shape_bias_by_category, non_conflict_accuracy, accuracy, aggregation,
        preprocessing.
        """
        with modes_kept([self._network]):
            outputs = self._outputs()
        shapes, textures = cues(list(outputs.ids))
        metrics = cue_metrics(decide(outputs.logits, self.aggregation), shapes, textures)
        results = self._results(metrics)
        if verbose:
            print(report(results))
        return results

    def _outputs(self) -> Outputs:
        from testbed.engine.batch_norm import load_model
        from testbed.engine.checks import absent_categories, unusable_names
        from testbed.engine.predict import predict_all
        from testbed.options import RunOptions

        assert self._setting.dataset is not None
        ids = self._setting.dataset.open([]).ids
        unusable = unusable_names(self._setting.metrics_fn, ids)
        if unusable:
            raise DataError(f"{self._setting.dataset.describe()}: {unusable}")
        doubts = absent_categories(self._setting.metrics_fn, ids)
        if len(ids) != CueConflict.published:
            doubts.insert(0, f"expected {CueConflict.published} images, found {len(ids)}")
        if doubts:
            warnings.warn(f"{self._setting.dataset.describe()}: {'; '.join(doubts)}", stacklevel=3)
        options = RunOptions(cache_gb=0, workers=self._workers)
        return predict_all(load_model(self._model, self._device, options), self._setting, options)

    def _results(self, metrics: dict[str, Estimate]) -> dict[str, Any]:
        bias = metrics["shape_bias"]
        transform = self._setting.transforms_for(self._model)[1]
        return {
            "shape_bias": bias.value / 100,
            "shape_bias_interval": tuple(math.nan if e is None else e / 100 for e in (bias.ci_low, bias.ci_high)),
            "shape_correct": int(metrics["shape_correct"].value),
            "texture_correct": int(metrics["texture_correct"].value),
            "both_correct": 0,  # only stimuli with two different categories are counted
            "neither_correct": int(metrics["neither"].value),
            "total_evaluated": metrics["neither"].n,
            "shape_bias_by_category": {
                name.removeprefix("shape_bias."): value.value / 100
                for name, value in metrics.items()
                if name.startswith("shape_bias.")
            },
            "non_conflict_accuracy": metrics["non_conflict_accuracy"].value / 100,
            "accuracy": metrics["accuracy16"].value / 100,
            "aggregation": self.aggregation,
            "preprocessing": f"{transform!r} then {self._model.normalization!r}",
        }


def report(results: dict[str, Any]) -> str:
    """The main results as lines of text."""
    lines = {
        "Shape correct": results["shape_correct"],
        "Texture correct": results["texture_correct"],
        "Both correct": results["both_correct"],
        "Neither correct": results["neither_correct"],
        "Total evaluated": results["total_evaluated"],
    }
    low, high = results["shape_bias_interval"]
    return "\n".join(
        [
            *(f"{label:<18}{count:>6}" for label, count in lines.items()),
            f"{'Shape bias':<18}{results['shape_bias']:>6.2%} [{low:.2%}, {high:.2%}]",
        ]
    )
