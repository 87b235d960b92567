"""The 17 sets of model-vs-human: 16 categories, forced choice, compared with people; cue-conflict measures shape bias.

Stimuli are 224 x 224 and shown whole: unchanged for a model of that input size, resized for others. This is how
texture-vs-shape and model-vs-human made their numbers. Resize(256) and CenterCrop(224), the usual preparation of
ImageNet classifiers, gives other ones: about 0.8 points more shape bias for ResNet-50 (docs/shape-bias.md). The setting
cue-conflict-256-224 is there to compare.
"""

from testbed import EvalSetting, StandardDataset, registry
from testbed.metrics.categories16 import Accuracy16
from testbed.metrics.shape_bias import CueConflict

_STIMULI = "github.com/rgeirhos/texture-vs-shape, folder stimuli (CC-BY-4.0)"
_RELEASE = "github.com/bethgelab/model-vs-human/releases/download/v0.1/{}.tar.gz"

for _set in registry.metadata(__file__, "model_vs_human.json"):
    _folder = _set["folder"]
    _in_categories = _set["setting"] in ("cue-conflict", "edge", "silhouette")
    registry.add_eval_setting(
        EvalSetting(
            name=_set["setting"],
            dataset=StandardDataset(
                name=_folder,
                # As unpacked from the release, or as cloned from the authors' repository.
                also=(
                    f"model-vs-human/{_folder}",
                    f"datasets/{_folder}",
                    *(f"{place}{other}" for other in _set["also"] for place in ("", "texture-vs-shape/stimuli/")),
                ),
                # The other sets lie in <set>/dnn/session-1; category and condition are in the file names.
                labels="sorted" if _in_categories else "none",
                source=_STIMULI if _in_categories else _RELEASE.format(_folder),
            ),
            size=_set["images"],
            metrics_fn=CueConflict() if _set["setting"] == "cue-conflict" else Accuracy16(_set["conditions"]),
            resize="whole",
            tags=["model-vs-human", "16-class"],
        )
    )

registry.add_eval_setting(
    EvalSetting(
        name="cue-conflict-256-224",
        images_from="cue-conflict",
        size=1280,
        metrics_fn=CueConflict(),
        resize="256/224",
        tags=["16-class"],
    )
)
