"""Digests of functions: the same in every process and place, other ones where the code or its values are."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest
from testbed.classify import smoothed

import tiny
from testbed import StandardTransform
from testbed.entries.code_digest import digest_of
from testbed.entries.registry import load_module
from testbed.metrics.accuracy import accuracy_topk
from testbed.perturb.corruptions import corruption

SOURCE = '''
import functools
from dataclasses import dataclass

import numpy as np

SCALE = 2
TABLE = {"a": 1, "b": [1, 2]}
WORDS = {"x", "y", "z"}
_seen = {}


def helper(x):
    return x * SCALE


def outer(strength):
    def inner(image):
        return image * strength
    return inner


@functools.cache
def kept(x):
    return helper(x)


@dataclass(frozen=True)
class Blur:
    radius: int = 3

    def __call__(self, image):
        return helper(image) + self.radius


def f(image, amount=1):
    """Says nothing."""
    # Nor does this.
    _seen[1] = image
    return helper(image) + TABLE["a"] + len(WORDS) + amount


first, second = (lambda image: image + 1), (lambda image: image + 2)
noisy = outer(0.5)
blur = Blur(3)
part = functools.partial(f, amount=3)
'''


def loaded(folder, source=SOURCE, name="entry.py"):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(source)
    return load_module(path)


NAMES = ("f", "kept", "first", "second", "noisy", "blur", "part")


def digests(module):
    return {name: digest_of(getattr(module, name)) for name in NAMES}


def changed(tmp_path, old, new):
    assert SOURCE.count(old) == 1
    before, after = digests(loaded(tmp_path / "a")), digests(loaded(tmp_path / "b", SOURCE.replace(old, new)))
    return {name for name in NAMES if before[name] != after[name]}


def test_it_does_not_depend_on_where_the_file_lies(tmp_path):
    assert digests(loaded(tmp_path / "a")) == digests(loaded(tmp_path / "b" / "c", name="other.py"))
    assert len(set(digests(loaded(tmp_path / "d")).values())) == len(NAMES)


def test_it_is_the_same_in_every_process(tmp_path):
    loaded(tmp_path)
    code = (
        "import sys; from testbed.entries.registry import load_module; "
        "from testbed.entries.code_digest import digest_of; m = load_module(sys.argv[1]); "
        f"print([digest_of(getattr(m, n)) for n in {NAMES}])"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "entry.py")],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(told) == 1
    assert told == {f"{list(digests(load_module(tmp_path / 'entry.py')).values())}\n"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("# Nor does this.", "# A comment."),
        ('"""Says nothing."""', '"""Something else."""'),
        ("def helper(x):", "\n\n\ndef helper(\n    x,\n):"),
        ("def f(image, amount=1):", "def f(image: np.ndarray, amount: int = 1) -> None:"),
        ('{"x", "y", "z"}', '{"x","y","z"}'),
    ],
)
def test_what_does_not_compute_does_not_count(tmp_path, old, new):
    assert changed(tmp_path, old, new) == set()


@pytest.mark.parametrize(
    ("old", "new", "names"),
    [
        ("SCALE = 2", "SCALE = 3", {"f", "kept", "blur", "part"}),  # a constant of a helper
        ("return x * SCALE", "return x / SCALE", {"f", "kept", "blur", "part"}),  # a helper
        ('{"a": 1,', '{"a": 2,', {"f", "part"}),
        ('"z"}', '"w"}', {"f", "part"}),
        ("amount=1):", "amount=2):", {"f", "part"}),  # a default
        ("outer(0.5)", "outer(0.6)", {"noisy"}),  # a value that is closed over
        ("return image * strength", "return image + strength", {"noisy"}),
        ("Blur(3)", "Blur(4)", {"blur"}),  # a field
        ("+ self.radius", "- self.radius", {"blur"}),  # a method
        ("f, amount=3", "f, amount=4", {"part"}),
        ("image + 1)", "image + 3)", {"first"}),  # one of two lambdas in a line
        ("image + 2)", "image + 3)", {"second"}),
    ],
)
def test_what_computes_counts_and_nothing_else(tmp_path, old, new, names):
    assert changed(tmp_path, old, new) == names


def test_what_a_function_remembers_of_its_calls_does_not_count(tmp_path):
    one, other = loaded(tmp_path / "a"), loaded(tmp_path / "b")
    other.f(1)
    other.kept(2)
    assert digests(one) == digests(other)


def test_helpers_in_other_files_of_the_user_count(tmp_path):
    source = (
        "from pathlib import Path\nfrom testbed import registry\n"
        'helper = registry.load_module(Path(__file__).parent / "_helper.py")\n\n\n'
        "def f(x):\n    return helper.twice(x)\n"
    )

    def digest(place, factor):
        loaded(tmp_path / place, f"def twice(x):\n    return x * {factor}\n", "_helper.py")
        return digest_of(loaded(tmp_path / place, source).f)

    assert digest("a", 2) == digest("b", 2) != digest("c", 3)


def test_code_of_the_testbed_counts_by_its_name_and_values():
    assert digest_of(accuracy_topk) == digest_of(functools.partial(accuracy_topk).func)
    assert digest_of(corruption("fog", 3)) == digest_of(corruption("fog", 3)) != digest_of(corruption("fog", 4))
    assert digest_of(corruption("fog", 3)) != digest_of(corruption("frost", 3))
    assert (
        digest_of(smoothed(0.1, votes=20)) == digest_of(smoothed(0.1, votes=20)) != digest_of(smoothed(0.2, votes=20))
    )
    assert (
        digest_of(StandardTransform(8, 8)) == digest_of(StandardTransform(8, 8)) != digest_of(StandardTransform(9, 8))
    )


def test_code_of_packages_counts_with_the_version(monkeypatch):
    from testbed.entries import code_digest

    def digest(version):
        code_digest._version.cache_clear()
        monkeypatch.setattr(code_digest, "version", lambda package: version)
        monkeypatch.setattr(code_digest, "_known", {})
        return digest_of(np.linalg.norm)

    assert digest("1.0") == digest("1.0") != digest("2.0")
    code_digest._version.cache_clear()


@dataclass
class Odd:
    """What entries may hold: arrays, addresses, itself."""

    array: np.ndarray
    thing: object = None

    def __call__(self, image):
        return image


def test_odd_values_have_digests_too():
    one, other, same = Odd(np.arange(3)), Odd(np.arange(4)), Odd(np.arange(3))
    one.thing, same.thing = object(), object()  # told by their type: an address is nothing to go by
    assert digest_of(one) == digest_of(same) != digest_of(other)
    round_about = Odd(np.zeros(1))
    round_about.thing = [round_about]
    assert len(digest_of(round_about)) == 16
    assert len(digest_of(eval("lambda image: image + 1"))) == 16  # no source at all


def test_every_function_of_the_registries_has_a_digest():
    from testbed.engine.function_changes import functions_of
    from testbed.entries.registry import load_registry

    registry = load_registry([str(tiny.REGISTRY)])
    model = registry.models.entries["tiny_smoothed"]
    for name, setting in list(registry.eval_settings.entries.items())[::25]:
        kinds = functions_of(registry, model, name)
        assert {"metrics_fn", "model classify"} <= set(kinds)
        assert ("perturbation_fn_cpu" in kinds) == (registry.runnable(name).perturbation_fn_cpu is not None), setting
