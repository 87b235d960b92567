"""Faithfulness of explanations: CAUC and CDROP of several explainers, with two controls.

`contrastive-gradcam` and the like use the sample photographs, `contrastive-gradcam.val` ImageNet's validation images,
and `explanations:gradcam@SETTING` those of any eval setting. The controls are run with every explainer: a number that
random noise reaches too says nothing. See docs/explanations.md.
"""

from testbed import registry
from testbed.explain.explainers import CAPTUM, CONTROLS
from testbed.explain.settings import explanation_setting

_OWN = ("gradcam", "cwox-gradcam", "rise", "inputgrad")

for _suffix, _over in (("", "imagenet-samples"), (".val", "val")):
    _controls = [f"contrastive-{control}{_suffix}" for control in CONTROLS]
    for _explainer in (*_OWN, *CAPTUM, *CONTROLS):
        registry.add_eval_setting(
            explanation_setting(
                f"contrastive-{_explainer}{_suffix}",
                _explainer,
                over=_over,
                tags=["captum"] if _explainer in CAPTUM else [],
                controls=[] if _explainer in CONTROLS else _controls,
            )
        )
    # captum is an optional package, so its explainers are a group of their own.
    registry.add_group(f"contrastive{_suffix}", [f"contrastive-{e}{_suffix}" for e in (*_OWN, *CONTROLS)])
    registry.add_group(f"contrastive-captum{_suffix}", [f"contrastive-{e}{_suffix}" for e in CAPTUM])
