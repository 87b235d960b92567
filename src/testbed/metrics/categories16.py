"""The 16 categories of Geirhos et al.: their ImageNet classes, the forced choice among them, and its accuracy.

207 of the 1000 classes belong to a category, as in 16-class-ImageNet (2018), texture-vs-shape (2019) and model-vs-human
(2021). Their authors left out classes with ambiguous names, such as the jay, the kite and 9 dogs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from testbed.metrics.estimate import ACCURACY, Estimate, MetricKind, share
from testbed.metrics.labels import OWN
from testbed.metrics.softmax import COLUMNS_AT_ONCE, blocks, log_sum_exp

Categories = Mapping[str, Sequence[int]]

# Eight of the nine: the Chihuahua, 151, lies outside the range below.
_DOGS_LEFT_OUT = (192, 204, 227, 242, 251, 258, 260, 264)

# In alphabetical order: of equal scores the first name wins, as in texture-vs-shape. Indices are classifier outputs.
SIXTEEN: dict[str, tuple[int, ...]] = {
    "airplane": (404,),
    "bear": (294, 295, 296, 297),
    "bicycle": (444, 671),
    "bird": (
        *(8, *range(10, 17), 18, 19, 20, 22, 23, 24, *range(80, 84), *range(87, 97), 98, 99, 100),
        *(*range(127, 134), *range(135, 146)),
    ),
    "boat": (472, 554, 625, 814, 914),
    "bottle": (440, 720, 737, 898, 899, 901, 907),
    "car": (436, 511, 817),
    "cat": (281, 282, 283, 284, 285, 286),
    "chair": (423, 559, 765, 857),
    "clock": (409, 530, 892),
    "dog": tuple(i for i in range(152, 269) if i not in _DOGS_LEFT_OUT),
    "elephant": (385, 386),
    "keyboard": (508, 878),
    "knife": (499,),
    "oven": (766,),
    "truck": (555, 569, 656, 675, 717, 734, 864, 867),
}
NAMES = tuple(SIXTEEN)
NO_ANSWER = -1  # decision of a person who pressed no key, "na" in the published files


# ---- the decision ----------------------------------------------------------------------------------------


# The score of a category from the logits of its classes. All probabilities of a picture have the same denominator, so
# it can be left out; the decision is the same, and small probabilities do not underflow to 0.
RULES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "mean": lambda columns: log_sum_exp(columns) - np.log(columns.shape[1]),
    "sum": log_sum_exp,
    "max": lambda columns: columns.max(axis=1),
    "mean of logits": lambda columns: columns.mean(axis=1),  # no published rule but a common mistake, for diagnoses
}
# Published rules for a category's probability. The authors recommend the mean, since large categories (109 dogs) would
# otherwise win by their size; the numbers in the paper of 2019 were made with the maximum.
AGGREGATIONS = ("mean", "sum", "max")


def aggregations_for(logits: np.ndarray) -> tuple[str, ...]:
    """All of them; the first alone for 16 columns, which are answers already, with nothing to aggregate."""
    return AGGREGATIONS[:1] if logits.shape[1] == len(SIXTEEN) else AGGREGATIONS


def decide(logits: np.ndarray, aggregation: str = "mean", categories: Categories = SIXTEEN) -> np.ndarray:
    """The decision for each picture, as a place in NAMES; of equal scores the first name wins.

    Logits with 16 columns are scores of the categories themselves: answers of people, or a 16-way classifier. A row of
    NaN is a missing answer.
    """
    return decisions(logits, (aggregation,), categories)[aggregation]


def decisions(
    logits: np.ndarray, aggregations: Sequence[str] = AGGREGATIONS, categories: Categories = SIXTEEN
) -> dict[str, np.ndarray]:
    """Aggregation -> decisions, from logits that are read once."""
    for aggregation in aggregations:
        if aggregation not in RULES:
            raise ValueError(f"expected an aggregation among {', '.join(AGGREGATIONS)}, got {aggregation!r}")
    width = logits.shape[1]
    if width == len(categories):
        answers = np.asarray(logits)
        missing = np.isnan(answers).all(axis=1)
        given = np.where(missing, NO_ANSWER, np.nan_to_num(answers, nan=-np.inf).argmax(axis=1))
        return dict.fromkeys(aggregations, given)
    highest = max(max(indices) for indices in categories.values())
    if width <= highest or (categories is SIXTEEN and width != 1000):
        raise ValueError(
            f"expected logits of ImageNet's 1000 classes or of {len(categories)} categories, got {width} columns"
        )
    decided = {aggregation: np.empty(len(logits), dtype=np.int64) for aggregation in aggregations}
    for rows, block in blocks(logits, COLUMNS_AT_ONCE):
        columns = [np.asarray(block[:, list(indices)], dtype=np.float64) for indices in categories.values()]
        for aggregation, chosen in decided.items():
            scores = [RULES[aggregation](part) for part in columns]
            chosen[rows] = np.stack(scores, axis=1).argmax(axis=1)
    return decided


# ---- what file names say ---------------------------------------------------------------------------------

# 0001_cop_dnn_c50_cat_10_n02124075_10976.png: trial, experiment, observer, condition, category, ..., picture
_TRIAL = re.compile(r"\d+_[^_]+_[^_]+_(?P<condition>[^_]+)_(?P<category>[a-z]+)_\d+_(?P<picture>.+)")
_CUES = re.compile(r"(?P<shape>[a-z]+)\d+-(?P<texture>[a-z]+)\d+\.png")
_ONLY_CONDITION = "0"  # the condition of sets that have only one


@dataclass(frozen=True)
class Picture:
    """A stimulus, from its file name. Equal ids are equal pictures, whichever observer saw them."""

    id: str
    category: str
    condition: str


@lru_cache(maxsize=65536)
def picture(path: str) -> Picture:
    """The stimulus at a path: the file is named after its trial, or its folder after its category."""
    folder, _, name = path.rpartition("/")
    trial = _TRIAL.fullmatch(name)
    if trial is not None and trial["category"] in SIXTEEN:
        # ImageNet pictures end in <wnid>_<number>, all others in one word.
        fields = trial["picture"].split("_")
        id_ = "_".join(fields[-2:]) if fields[-2:][0].startswith("n0") else fields[-1]
        return Picture(id_, trial["category"], same_condition(trial["condition"]))
    category = folder.rpartition("/")[2]
    if category not in SIXTEEN:
        raise ValueError(
            f"expected a picture in a folder of one of the 16 categories, or named after its trial as in "
            f"model-vs-human, got {path}"
        )
    return Picture(name, category, _ONLY_CONDITION)


def without_picture(image_paths: Sequence[str]) -> list[str]:
    """The categories that no picture is of; pictures that cannot be read as one do not count."""
    there = {picture(str(path)).category for path in image_paths if _is_stimulus(str(path))}
    return [name for name in NAMES if name not in there]


def _is_stimulus(path: str) -> bool:
    try:
        picture(path)
    except ValueError:
        return False
    return True


def is_cue_conflict(path: str) -> bool:
    """Whether a path is that of a cue-conflict stimulus whose folder, or trial, is of the category of its shape."""
    try:
        stimulus = picture(path)
        texture(stimulus.id)
    except ValueError:
        return False
    cues = _CUES.fullmatch(stimulus.id)
    return cues is not None and cues["shape"] == stimulus.category


def texture(picture_id: str) -> str:
    """The texture category of a cue-conflict stimulus: the second word of cat7-elephant1.png."""
    cues = _CUES.fullmatch(picture_id)
    if cues is None or cues["shape"] not in SIXTEEN or cues["texture"] not in SIXTEEN:
        raise ValueError(f"expected a cue-conflict stimulus named like cat7-elephant1.png, got {picture_id}")
    return cues["texture"]


def same_condition(text: str) -> str:
    """One spelling per condition: published files mix 0.10 and 0.1, True and true, and NaN is an only condition."""
    text = text.strip().lower()
    try:
        value = float(text)
    except ValueError:
        return text or _ONLY_CONDITION
    return _ONLY_CONDITION if np.isnan(value) else f"{value:g}"


def places(categories: Iterable[str]) -> np.ndarray:
    """Categories as places in NAMES."""
    place = {name: i for i, name in enumerate(NAMES)}
    return np.array([place[c] for c in categories], dtype=np.int64)


# ---- accuracy --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Accuracy16:
    """metrics_fn: accuracy among the 16 categories, over the conditions that count and in each condition.

    model-vs-human leaves out the undistorted condition, and those in which people are right in less than a fifth of the
    trials. `conditions` are the ones that count; if empty, all do.
    """

    conditions: tuple[str, ...] = ()
    targets_are = OWN
    names = "pictures in folders of the 16 categories, or named after their trials"

    def misnamed(self, image_paths: Sequence[str]) -> list[str]:
        """The paths that tell no category."""
        return [path for path in image_paths if not _is_stimulus(path)]

    def absent(self, image_paths: Sequence[str]) -> list[str]:
        """The categories without a picture."""
        return without_picture(image_paths)

    def __post_init__(self) -> None:
        object.__setattr__(self, "conditions", tuple(same_condition(c) for c in self.conditions))

    def __call__(self, logits: np.ndarray, image_paths: Sequence[str]) -> dict[str, Estimate]:
        truth, condition = _asked(image_paths)
        by_aggregation = decisions(logits, aggregations_for(logits))
        correct = by_aggregation[AGGREGATIONS[0]] == truth
        result = self._counted(correct, condition)
        names = dict.fromkeys(condition.tolist())
        if len(names) > 1:
            result |= {f"accuracy16.{c}": share_or_none(correct[condition == c]) for c in names}
        return result | other_aggregations(lambda d: self._counted(d == truth, condition), by_aggregation)

    def decided(
        self, logits: np.ndarray, image_paths: Sequence[str], aggregation: str = AGGREGATIONS[0]
    ) -> dict[str, Estimate]:
        """The accuracy over the conditions that count, with one aggregation."""
        truth, condition = _asked(image_paths)
        return self._counted(decide(logits, aggregation) == truth, condition)

    def outcomes(self, logits: np.ndarray, image_paths: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """(number of the condition, whether the category was named) of each picture."""
        truth, condition = _asked(image_paths)
        return np.unique(condition, return_inverse=True)[1], decide(logits) == truth

    def _counted(self, correct: np.ndarray, condition: np.ndarray) -> dict[str, Estimate]:
        kept = np.array([not self.conditions or c in self.conditions for c in condition.tolist()], dtype=bool)
        return {"accuracy16": share_or_none(correct[kept])}


def _asked(image_paths: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """The category (as a place in NAMES) and the condition of each picture."""
    pictures = [picture(str(path)) for path in image_paths]
    return places(p.category for p in pictures), np.array([p.condition for p in pictures])


def other_aggregations(
    measure: Callable[[np.ndarray], dict[str, Estimate]], by_aggregation: Mapping[str, np.ndarray]
) -> dict[str, Estimate]:
    """The metrics of the decisions by sum and by max, as NAME_sum and NAME_max; empty without such decisions."""
    return {
        f"{name}_{aggregation}": value
        for aggregation in AGGREGATIONS[1:]
        if aggregation in by_aggregation
        for name, value in measure(by_aggregation[aggregation]).items()
    }


def share_or_none(hits: np.ndarray, kind: MetricKind = ACCURACY) -> Estimate:
    """The share of hits in percent; NaN if there are no trials."""
    return share(int(hits.sum()), len(hits), kind) if len(hits) else Estimate(float("nan"), n=0, kind=kind)
