"""The names of all models of a package, without importing it.

Importing timm takes seconds, and its names cannot be read from its source, since some files compute them. So each
version of a package is asked once, in another process, and the answer is kept in the user's cache folder. The answers
of some versions are part of this project, in `listed/`; `python tools/list_model_names.py` writes those of the
installed versions.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from testbed.data.user_cache import keep, user_cache
from testbed.errors import UnknownName

SHIPPED = Path(__file__).with_name("listed")
# Kind of model string -> the name of its package for pip.
LISTED = {"timm": "timm", "torchvision": "torchvision", "open_clip": "open_clip_torch"}


def model_names(kind: str) -> list[str]:
    """What may follow `kind:`: every `name.tag` of timm, every `name/weights` of torchvision and open_clip."""
    package = LISTED[kind]
    if importlib.util.find_spec(kind) is None:
        raise UnknownName(f"'{kind}:' needs the package {package}: pip install {package}")
    if kind in sys.modules:  # already imported, so asking it costs nothing
        return ask_package(kind)
    try:
        file = f"{kind}-{version(package)}.json"
    except PackageNotFoundError:  # a bare source tree on the path
        return _ask_in_another_process(kind)
    kept = user_cache("model-names") / file
    for path in (SHIPPED / file, kept):
        try:
            return [str(name) for name in json.loads(path.read_text(encoding="utf-8"))]
        except (OSError, ValueError):
            continue
    names = _ask_in_another_process(kind)
    keep(kept, json.dumps(names).encode())
    return names


def ask_package(kind: str) -> list[str]:
    """The names as the package itself lists them. This imports the package."""
    if kind == "timm":
        import timm

        return list(timm.list_models(pretrained=True, include_tags=True))
    if kind == "open_clip":
        import open_clip

        return [f"{name}/{tag}" for name, tag in open_clip.list_pretrained()]
    from torchvision.models import get_model_weights, list_models

    return [
        f"{name}/{weights.name}"
        for name in list_models()  # also segmentation, detection (with a /), video and quantized models
        if "/" not in name and not name.startswith("quantized_")
        for weights in get_model_weights(name)
        if "ImageClassification" in repr(weights.transforms)
    ]


def _ask_in_another_process(kind: str) -> list[str]:
    """`ask_package` in a child process, so that this process stays without the package and its import time."""
    code = (
        f"import json; from testbed.models.strings.names import ask_package; print(json.dumps(ask_package({kind!r})))"
    )
    print(f"reading the names of {kind}'s models, once per version of it", file=sys.stderr)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise UnknownName(f"the models of {kind} cannot be listed: {reason}")
    return [str(name) for name in json.loads(done.stdout.strip().splitlines()[-1])]
