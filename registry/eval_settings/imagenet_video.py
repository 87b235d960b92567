"""Video frames: ImageNet-VID-Robust and YTBB-Robust (Shankar et al. 2019), and the validation images of their classes.

ImageNet's classes are merged into those of the videos by the highest logit. pm0 is the accuracy on anchor frames, pm10
that on the worst frame within ten frames of the anchor, both in percent. As published, a VID frame is scored against
its own labels, a YTBB frame against those of its anchor.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from testbed import StandardDataset, registry
from testbed.metrics.class_groups import Merged
from testbed.metrics.sequences import FrameAccuracy, Frames, frame_name

imagenet = registry.load_module(Path(__file__).with_name("_imagenet.py"))

METADATA = registry.metadata(__file__, "video_groups.json")


def columns_of(groups: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
    """(the classes of all groups in ascending order, the groups as places in that list)."""
    classes = tuple(sorted(c for group in groups for c in group))
    place = {c: i for i, c in enumerate(classes)}
    return classes, tuple(tuple(place[c] for c in group) for group in groups)


# ---- ImageNet-VID-Robust ---------------------------------------------------------------------------------


@cache
def _vid_frames() -> Frames:
    """Labels and neighbours of the annotated frames. The file lists frames as runs (first, last)."""
    labels: dict[str, tuple[int, ...]] = {}
    neighbours: dict[str, list[str]] = {}
    for video, known in registry.metadata(__file__, "imagenet_vid_robust_frames.json").items():
        for words, runs in known["labels"].items():
            labels |= dict.fromkeys(_names(video, runs), tuple(int(word) for word in words.split()))
        for anchor, runs in known["anchors"].items():
            neighbours[f"{video}/{int(anchor):06d}.JPEG"] = _names(video, runs)
    return Frames(labels, neighbours)


def _names(video: str, runs: Sequence[Sequence[int]]) -> list[str]:
    return [f"{video}/{number:06d}.JPEG" for first, last in runs for number in range(first, last + 1)]


def vid_frames(image_paths: Sequence[str]) -> Frames:
    return _vid_frames()


VID_CLASSES, VID_GROUPS = columns_of(METADATA["imagenet_vid_robust"])

imagenet.add(
    "imagenet-vid-robust",
    imagenet.PUBLISHED,
    "video",
    dataset=StandardDataset(
        name="imagenet-vid-robust",
        labels="none",
        source="the 22,179 listed validation frames of ILSVRC2015 VID (image-net.org), as "
        "<video>/<frame>.JPEG; modestyachts.github.io/natural-perturbations-website",
    ),
    class_sublist=VID_CLASSES,
    metrics_fn=FrameAccuracy(VID_GROUPS, vid_frames),
    size=22_179,  # frames; 1109 of them are anchors, which is the n of pm0 and pm10
)
imagenet.add(
    "val-on-vid-robust-classes",
    imagenet.PUBLISHED,
    logits_from="val",
    class_sublist=VID_CLASSES,
    metrics_fn=Merged(
        VID_GROUPS,
        uniform=True,
        weights={"top1_vid_robust_balanced_class_weight": METADATA["imagenet_vid_robust_frame_labels"]},
    ),
    size=14_400,
)

# ---- YTBB-Robust -----------------------------------------------------------------------------------------


def ytbb_frames(image_paths: Sequence[str]) -> Frames:
    """Labels and neighbours, read from the paths: <labels joined by +>/<clip>/<offset from the anchor>.jpg."""
    labels: dict[str, tuple[int, ...]] = {}
    clips: dict[str, list[str]] = {}
    anchors: dict[str, str] = {}
    for path in image_paths:
        words, clip, name = str(path).split("/")[-3:]
        frame = frame_name(path)
        labels[frame] = tuple(int(word) for word in words.split("+"))
        if int(name.rpartition(".")[0]) == 0:
            anchors[clip] = frame
        else:
            clips.setdefault(clip, []).append(frame)
    return Frames(labels, {frame: clips.get(clip, []) for clip, frame in anchors.items()})


YTBB_CLASSES, YTBB_GROUPS = columns_of(METADATA["ytbb_robust"])

imagenet.add(
    "ytbb-robust",
    imagenet.PUBLISHED,
    *("video", "own-layout"),
    dataset=StandardDataset(
        name="ytbb-robust",
        labels="none",
        source="frames of YouTube-BoundingBoxes with the annotations of "
        "github.com/modestyachts/natural-perturbations-website, sorted by hand into "
        "<labels of the anchor joined by +>/<clip>/<offset from the anchor, -10 to 10>.jpg, frames that were not "
        "judged similar left out",
    ),
    class_sublist=YTBB_CLASSES,
    metrics_fn=FrameAccuracy(YTBB_GROUPS, ytbb_frames),
    # No size: 2030 anchors (the ImageNet Testbed's registry says 2530), and the neighbours that were judged similar.
)
imagenet.add(
    "val-on-ytbb-robust-classes",
    imagenet.PUBLISHED,
    logits_from="val",
    class_sublist=YTBB_CLASSES,
    metrics_fn=Merged(YTBB_GROUPS, uniform=True),
    size=11_550,
)
