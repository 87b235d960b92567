"""The published table (338 models x 213 settings) as arrays."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

from shared_data import shared_data

# Standard models that torchvision has and timm has not, as of timm 1.0.30.
TORCHVISION_ONLY = {
    *("alexnet", "googlenet/inceptionv1", "mnasnet0_5", "mnasnet1_0", "mobilenet_v2"),
    *("shufflenet_v2_x0_5", "shufflenet_v2_x1_0", "squeezenet1_0", "squeezenet1_1"),
}


class Published:
    """Columns of robustness_top1s.csv in file order, missing cells as NaN."""

    def __init__(self) -> None:
        with shared_data("testbed", "robustness_top1s.csv").open(newline="") as file:
            self.rows = list(csv.DictReader(file))
        with shared_data("testbed", "model_types.csv").open(newline="") as file:
            types = {row["model"]: row["type"] for row in csv.DictReader(file)}
        self.models = [row["model"] for row in self.rows]
        left_out = ("aws", "batch64", "subsample")
        # The models of the published line.
        self.standard = np.array(
            [types.get(m) == "STANDARD" and not any(word in m for word in left_out) for m in self.models]
        )

    def obtainable(self) -> np.ndarray:
        names = json.loads(shared_data("testbed", "names.json").read_text())
        return np.array([m in names["timm_weights"] or m in TORCHVISION_ONLY for m in self.models])

    def column(self, name: str) -> np.ndarray:
        return np.array([float(row[name]) if row[name] else np.nan for row in self.rows])

    def of(self, name: str, *models: str) -> np.ndarray:
        return self.column(name)[[self.models.index(model) for model in models]]


@pytest.fixture(scope="session")
def published() -> Published:
    return Published()
