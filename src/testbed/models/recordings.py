"""The arrays that `eval.py --record` stores beside the logits of any setting: penultimate features, rotation logits.

A probe is declared by a setting, a recording is asked for by a run. Label-free estimation reads both.
"""

from __future__ import annotations

from pathlib import Path

import torch

from testbed.models.classifier import Classifier, LoadedModel
from testbed.models.features import FeatureWatch
from testbed.models.rotation import RotationHead, head_path, read_head, turned
from testbed.options import RunOptions, stored_model_name


class Recordings:
    """Calls the classifier and returns its logits with the arrays that the run asks for."""

    def __init__(self, loaded: LoadedModel, options: RunOptions) -> None:
        network, entry = loaded.network, loaded.entry
        self._watch = FeatureWatch(network, entry.name, entry.feature_layer) if options.arrays else None
        self._head: RotationHead | None = None
        if "rotation" in options.arrays:
            path = head_path(Path(options.results_folder), stored_model_name(loaded.entry.name, options.checkpoint))
            head = read_head(path, loaded.entry.name, loaded.weights_sha256, options.checkpoint)
            self._head = head.to(loaded.device)

    def classify(self, classifier: Classifier, images: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        if self._watch is None:
            return classifier(images), {}
        with self._watch.watching():
            logits = classifier(images)
            features = self._watch.features(len(images))
            recorded = {"features": features}
            if self._head is not None:
                views = [features]
                # Three further forward passes; the upright view is the one just seen.
                for quarters in (1, 2, 3):
                    classifier(turned(images, quarters))
                    views.append(self._watch.features(len(images)))
                recorded["rotation"] = torch.stack([self._head(view) for view in views], dim=1)
        return logits, recorded
