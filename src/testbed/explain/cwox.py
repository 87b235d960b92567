"""Contrastive whole-output explanation in two stages (Xie et al., UAI 2023, "CWOX-2s") over Grad-CAM.

Stage 1 contrasts each confusion cluster of an image's classes with the other clusters. Stage 2 contrasts each class
with the others of its cluster, and shows it only where the cluster's own map is high.
"""

from __future__ import annotations

import torch
from torch import nn

from testbed.explain.clusters import Clusters
from testbed.explain.grad_cam import grad_cam
from testbed.explain.layers import finer_layer
from testbed.explain.scores import Score


def cwox_grad_cam(
    model: nn.Module,
    images: torch.Tensor,
    score: Score,
    clusters: Clusters | None = None,
    layer: str | None = None,
    class_layer: str | None = None,
    percentile: float = 50.0,
) -> torch.Tensor:
    """Maps (B, J, H, W). Cluster maps come from the last spatial layer, class maps from the next finer one.

    Without clusters all classes of an image count as one cluster, and only stage 2 has an effect.
    """
    partitions = [(clusters or Clusters()).partition([c for (c, *_) in row]) for row in score.groups]
    # For ResNet-50 the published layers are layer4 and layer3.5.relu. The published Grad-CAM has no ReLU, so that the
    # maps are subtracted with their signs.
    cluster_maps = grad_cam(model, images, score.regrouped(partitions), layer, signed=True)
    class_maps = grad_cam(model, images, score, class_layer or finer_layer(model, images), signed=True)
    maps = torch.zeros_like(class_maps)
    for i, partition in enumerate(partitions):
        stage_one = one_versus_rest(cluster_maps[i, : len(partition)])
        place = {row[0]: j for j, row in enumerate(score.groups[i])}
        for cluster, cluster_map in zip(partition, stage_one, strict=True):
            members = [place[c] for c in cluster]
            if len(members) == 1:  # nothing to contrast it with inside the cluster
                maps[i, members[0]] = cluster_map
                continue
            # A percentile of the map's values, as in the published code; its docstring says a share of their range.
            limit = torch.quantile(cluster_map.flatten().double(), percentile / 100)
            inside = one_versus_rest(class_maps[i, members])
            maps[i, members] = torch.where(cluster_map.double() > limit, inside, torch.zeros_like(inside))
    return maps


def one_versus_rest(maps: torch.Tensor) -> torch.Tensor:
    """Each map times k minus the sum of the k other maps, clipped at 0; a single map is only clipped."""
    others = len(maps) - 1
    return (others * maps - (maps.sum(dim=0) - maps)).relu() if others else maps.relu()
