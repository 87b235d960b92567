"""What is written in the place of a name, a range, a setting or a manifest is understood or answered in one line."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import testbed
import tiny
from faults.bounds import no_longer_than, no_more_than
from faults.fuzzing import fuzz_settings
from testbed.entries.registry import Registry
from testbed.errors import TestbedError


@pytest.fixture(scope="module")
def registry():
    registry = Registry()
    registry.load_folder(tiny.REGISTRY)
    return registry


@pytest.fixture(autouse=True)
def bounded(tmp_path, monkeypatch):
    import torch  # noqa: F401  # before the bound: its libraries alone are mapped to gigabytes

    monkeypatch.chdir(tmp_path)
    with no_longer_than(600), no_more_than(3.0):
        yield


def answered(action):
    """What the action gives, or None where it ends in one line. Any other error is the test's failure."""
    line = "?"
    try:
        return action()
    except TestbedError as error:
        line = str(error)
    assert line and line.isprintable()
    return None


# ---- strings ---------------------------------------------------------------------------------------------

numbers = st.one_of(
    st.integers(0, 250).map(str),
    st.integers(0, 10**40).map(str),
    st.text("0123456789-+.e_ ٣²", max_size=6),
)
ranges = st.lists(st.tuples(numbers, numbers).map("-".join), min_size=1, max_size=4).map(",".join)
bases = st.sampled_from(["tiny", "tiny-even", "tiny.noise", "tiny-some", "tiny-folder", "tiny*", "", "rows:0-9@tiny"])
rows = st.builds("rows:{}@{}".format, st.one_of(ranges, st.text(max_size=10)), bases)


@fuzz_settings(500)
@given(text=rows)
def test_rows_are_a_part_of_the_setting_or_one_line(registry, text):
    names = answered(lambda: registry.expand_eval_settings([text]))
    for name in names or ():
        setting = answered(lambda name=name: registry.runnable(name))
        if setting is None:
            continue
        chosen = setting.idx_subsample_list
        assert chosen and min(chosen) >= 0
        base = registry.runnable(name.split("@", 1)[1])
        if base.size is not None and base.class_sublist is None:
            assert max(chosen) < 200 and len(chosen) <= base.size


# Without the signs by which a path would lead out of the folder of the test and into the whole disk.
words = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="/~."), max_size=12)
globs = st.text("tiny*?[]!.-_ab^\\", max_size=12)


@fuzz_settings(500)
@given(text=st.one_of(globs, words))
def test_glob_gives_names_of_the_registry_or_one_line(registry, text):
    for expand, shelf in (
        (registry.expand_models, registry.models),
        (registry.expand_eval_settings, registry.eval_settings),
    ):
        names = answered(lambda expand=expand: expand([text]))
        assert names is None or set(names) <= set(shelf.entries)


kinds = st.sampled_from(["folder", "manifest", "array", "autoeval", "rows", "explanations", "rows:0-5@folder"])
options = st.sampled_from(
    ["masks", "cells", "keep", "seed", "step", "delta", "max_points", "mass", "most", "mode", "x"]
)
values = st.one_of(numbers, st.sampled_from(["nan", "inf", "-1", "1e400", "true", "paper", ""]))
explained = st.builds(
    lambda explainer, given, over: f"explanations:{','.join([explainer, *(f'{k}={v}' for k, v in given)])}@{over}",
    st.sampled_from(["rise", "gradcam", "occlusion", "centre", "lime", "nobody"]),
    st.lists(st.tuples(options, values), max_size=3),
    st.sampled_from(["tiny", "none.csv", "nobody", "rows:0-5@tiny"]),
)


@pytest.mark.filterwarnings("ignore")
@fuzz_settings(500)
@given(text=st.one_of(st.builds("{}:{}".format, kinds, words), explained))
def test_setting_string_is_a_setting_that_opens_or_one_line(registry, text):
    for name in answered(lambda: registry.expand_eval_settings([text])) or ():
        setting = answered(lambda name=name: registry.runnable(name))
        if setting is not None:
            answered(lambda setting=setting: setting.dataset.open([]))


# ---- manifests that are run ------------------------------------------------------------------------------

PICTURES = ("a/0.png", "a/1.png", "b/0.png", "b/1.png", "torn.png", "fifo.png", "none.png")
cells = st.one_of(
    st.sampled_from(["0", "1", "2", "cat", "dog", "n01440764", "", "0;1", "3.7", "-5", "nan", "999"]), words
)
lines = st.lists(st.tuples(st.sampled_from(PICTURES), cells), min_size=1, max_size=6)
heads = st.sampled_from(
    [("image", "label"), ("image", "label", "more"), ("image",), ("file", "label"), ("image", "Label")]
)


@st.composite
def manifests(draw):
    """A CSV file: nearly always well-formed, sometimes with bytes that no program would write."""
    head = draw(heads)
    file = io.StringIO()
    writer = csv.writer(file)
    writer.writerow(head)
    for line in draw(lines):
        writer.writerow([*line, *("x" for _ in head)][: len(head)])
    content = file.getvalue().encode()
    if draw(st.integers(0, 9)) == 0:
        place = draw(st.integers(0, len(content)))
        content = content[:place] + draw(st.binary(max_size=6)) + content[place:]
    return content


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    import os

    import numpy as np
    from PIL import Image

    folder = tmp_path_factory.mktemp("pictures")
    rng = np.random.default_rng(0)
    for name in PICTURES[:5]:
        (folder / name).parent.mkdir(exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (9, 9, 3), dtype=np.uint8)).save(folder / name)
    (folder / "torn.png").write_bytes((folder / "torn.png").read_bytes()[:60])
    os.mkfifo(folder / "fifo.png")
    return folder


@settings(fuzz_settings(40), suppress_health_check=[HealthCheck.too_slow])
@given(content=manifests(), skip=st.booleans())
def test_manifest_is_run_to_its_end_or_answered_in_one_line(pictures, content, skip):
    path = pictures / "list.csv"
    path.write_bytes(content)
    outputs = answered(
        lambda: testbed.predict(
            "tiny_pictures", f"manifest:{path}", registry=[str(tiny.REGISTRY)], skip_bad_images=skip, workers=1
        )
    )
    if outputs is None:
        return
    # The well-formed lines, read by another reader of the same format.
    listed = [row["image"] for row in csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline=""))]
    readable = [image for image in listed if image != "torn.png"]
    assert list(outputs.ids) == readable and (skip or readable == listed)
    assert outputs.logits.shape == (len(readable), 3)
    assert outputs.targets.max(initial=-1) < 3
