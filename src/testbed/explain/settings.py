"""Eval settings that measure explanations: declared in a registry, or given as a string. Imports no torch.

explanations:MANIFEST.csv                       heatmaps from files
explanations:EXPLAINER[,KEY=VALUE...]@SETTING   an explainer over the images of any eval setting, such as
                                                rise,masks=200,max_points=0@folder:PICTURES
explanations:EXPLAINER[,KEY=VALUE...]@MANIFEST.csv   an explainer on the manifest's images and classes
explanations:KEY=VALUE[,KEY=VALUE...]@MANIFEST.csv   heatmaps from files, measured otherwise
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from testbed.entries.eval_setting import EvalSetting
from testbed.errors import EntryError
from testbed.explain.explainers import CONTROLS, EXPLAINERS, as_type_of, kind_of
from testbed.explain.manifest import ExplanationManifest
from testbed.explain.probe import ContrastiveProbe
from testbed.metrics.contrastive import Recipe, explanation_metrics

DEFAULT_MAX_POINTS = 32
_RECIPE = ("step", "delta", "tau_threshold", "smooth_len", "mode", "max_points")
_PROBE = ("contrast", "clusters", "mass", "most", "substrate", "whole_points", "curves", "batch_size")
_WORDS = re.compile(r"[a-z][a-z0-9_-]*(,[a-z_]+=[^,@]*)*|[a-z_]+=[^,@]*(,[a-z_]+=[^,@]*)*")


def explanation_setting(
    name: str,
    explainer: str,
    over: str,
    tags: Sequence[str] = (),
    controls: Sequence[str] = (),
    **options: Any,
) -> EvalSetting:
    """The setting that measures an explainer on the images of the eval setting `over`.

    options: those of the explainer, the recipe and the probe. max_points=0 takes every point of the curve, as the
    published program does.
    controls: names of settings that run along on the same images.
    """
    return EvalSetting(
        name=name,
        images_from=over,
        probe=make_probe(explainer, options),
        metrics_fn=explanation_metrics,
        tags=("explanations", *tags),
        controls=tuple(c for c in controls if c != name),
        version=2 if "rng" in _needs(explainer) else 1,  # random numbers are counted bits since version 2
    )


def _needs(explainer: str) -> Sequence[str]:
    """What an explainer of this package asks for."""
    return EXPLAINERS[explainer].needs if explainer in EXPLAINERS else ()


def make_probe(explainer: str, options: Mapping[str, Any], manifest: str = "") -> ContrastiveProbe:
    """The probe with these options, each passed on to the recipe, the probe or the explainer by its name."""
    # With a manifest every point of the curve is computed, as by the published program, and kept.
    recipe: dict[str, Any] = {"max_points": 0 if manifest else DEFAULT_MAX_POINTS}
    probe: dict[str, Any] = {"curves": bool(manifest)}
    explainer_options: dict[str, Any] = {}
    defaults = {f.name: f.default for f in (*fields(Recipe), *fields(ContrastiveProbe))} | {"max_points": 0}
    for key, value in options.items():
        if key in _RECIPE:
            recipe[key] = as_type_of(defaults[key], value, key)
        elif key in _PROBE:
            probe[key] = as_type_of(defaults[key], value, key)
        elif not explainer:
            raise EntryError(f"no option '{key}'; there are {', '.join((*_RECIPE, *_PROBE))}")
        else:
            explainer_options[key] = value
    recipe["max_points"] = recipe["max_points"] or None
    try:
        return ContrastiveProbe(explainer, tuple(explainer_options.items()), Recipe(**recipe), manifest, **probe)
    except ValueError as error:
        raise EntryError(f"explanations: {error}") from error


def setting_of(name: str, text: str) -> EvalSetting:
    """The setting that the string `explanations:TEXT` stands for; `name` is the whole string."""
    words, target = _parted(text)
    explainer, options = _parsed(words)
    shared = {k: v for k, v in options.items() if k in _RECIPE + _PROBE}
    # For the controls: noise is salient on half of the picture, so its whole curve would cost the most of all.
    if target.endswith(".csv"):
        shared.setdefault("max_points", str(DEFAULT_MAX_POINTS))
    controls = [_string(control, shared, target) for control in CONTROLS] if explainer not in CONTROLS else []
    if not target.endswith(".csv"):
        if not explainer:
            raise EntryError(f"'{name}': expected explanations:MANIFEST.csv or explanations:EXPLAINER@SETTING")
        return explanation_setting(name, explainer, target, controls=controls, **options)
    return EvalSetting(
        name=name,
        dataset=ExplanationManifest(target),
        resize="whole",  # heatmaps cover the whole picture, not the model's crop of it
        probe=make_probe(explainer, options, manifest=target),
        metrics_fn=explanation_metrics,
        tags=("explanations", "manifest"),
        controls=tuple(controls),
    )


def _parted(text: str) -> tuple[str, str]:
    """(explainer and options, target): the text before and after the first @.

    Where the first part cannot be an explainer with options, as in a path with an @, all of the text is the target.
    """
    words, at, target = text.partition("@")
    return (words, target) if at and target and _WORDS.fullmatch(words) else ("", text)


def _parsed(words: str) -> tuple[str, dict[str, str]]:
    """The explainer ("" if there is none) and its options."""
    parts = [part for part in words.split(",") if part]
    explainer = parts.pop(0) if parts and "=" not in parts[0] else ""
    if explainer:
        kind_of(explainer)
    return explainer, dict(part.split("=", 1) for part in parts)


def _string(explainer: str, options: Mapping[str, str], target: str) -> str:
    """The inverse of `setting_of`: the name of the setting of an explainer, options and target."""
    return f"explanations:{','.join([explainer, *(f'{k}={v}' for k, v in options.items())])}@{target}"
