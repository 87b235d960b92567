from __future__ import annotations

import importlib.metadata
import json
import os
import re
import subprocess
import sys

import pytest

from testbed import EvalSetting, Model
from testbed.entries import registry
from testbed.entries.registry import Registry, load_registry
from testbed.errors import EntryError, UnknownName, near_names

HEAD = """from __future__ import annotations

from testbed import ArrayDataset, EvalSetting, Model

from testbed.entries import registry

DATA = ArrayDataset(path="somewhere")


def model(name, *tags):
    registry.add_model(Model(name=name, transform=None, classifier_loader=dict, eval_batch_size=1, tags=tags))


def setting(name, *tags, **more):
    registry.add_eval_setting(EvalSetting(name=name, dataset=DATA, tags=tags, **more))


"""
HEAD_LINES = HEAD.count("\n")


def write(folder, path, body):
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(HEAD + body)
    return file


def loaded(folder):
    entries = Registry()
    entries.load_folder(folder)
    return entries


@pytest.fixture
def folder(tmp_path):
    """Three models, five settings, groups of both."""
    write(
        tmp_path,
        "models/nets.py",
        "for size in ('18', '50'):\n    model(f'resnet{size}', 'cnn', 'resnet')\nmodel('vit', 'transformer')\n"
        "registry.add_group('big', ['resnet50', 'vit'], kind='models')\n",
    )
    write(
        tmp_path,
        "eval_settings/val.py",
        "setting('val', 'clean')\nsetting('noise.1', 'corruption')\nsetting('noise.2', 'corruption')\n"
        "setting('blur.1', 'corruption')\nsetting('v2')\n"
        "registry.add_group('noise', ['noise.*'])\n"
        "registry.add_group('shifts', ['noise', 'v2', 'noise.1', 'corruption'])\n",
    )
    return tmp_path


# ---- finding ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tokens", "names"),
    [
        (["val"], ["val"]),
        (["v2", "val", "v2"], ["v2", "val"]),
        (["noise.*"], ["noise.1", "noise.2"]),
        (["*.1"], ["noise.1", "blur.1"]),
        (["noise.[2-9]", "v?"], ["noise.2", "v2"]),
        (["corruption"], ["noise.1", "noise.2", "blur.1"]),
        (["noise"], ["noise.1", "noise.2"]),
        (["shifts"], ["noise.1", "noise.2", "v2", "blur.1"]),
        (["all"], ["val", "noise.1", "noise.2", "blur.1", "v2"]),
    ],
)
def test_names_globs_groups_and_tags_expand_in_declared_order(folder, tokens, names):
    assert loaded(folder).expand_eval_settings(tokens) == names


@pytest.mark.parametrize(
    ("tokens", "names"),
    [
        (["big"], ["resnet50", "vit"]),
        (["resnet", "vit"], ["resnet18", "resnet50", "vit"]),
        (["all"], ["resnet18", "resnet50", "vit"]),
        (["vit", "hub:owner/repository:net", "vit"], ["vit", "hub:owner/repository:net"]),
    ],
)
def test_models_expand_alike(folder, tokens, names):
    assert loaded(folder).expand_models(tokens) == names


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("resnet5", "no model, group or tag 'resnet5'; did you mean resnet50, resnet, resnet18?"),
        ("VIT", "no model, group or tag 'VIT'; did you mean vit?"),
        ("transfomer", "no model, group or tag 'transfomer'; did you mean transformer?"),
        ("zzz*", "no model, group or tag 'zzz*'; `python db.py --list-models-registry` lists them"),
    ],
)
def test_unknown_name_is_answered_with_near_ones(folder, name, answer):
    with pytest.raises(UnknownName) as error:
        loaded(folder).expand_models([name])
    assert str(error.value) == answer


def test_unknown_setting_points_to_the_list_of_settings(folder):
    with pytest.raises(UnknownName, match=r"'qqq'; `python db.* --list-eval-settings-registry` lists them$"):
        loaded(folder).eval_setting("qqq")


@pytest.mark.parametrize(
    ("name", "known", "answer"),
    [
        ("renset50", ["resnet50", "vgg16"], "; did you mean resnet50?"),
        ("ResNet50", ["resnet50"], "; did you mean resnet50?"),
        ("real", ["imagenet-c-real", "val"], "; did you mean imagenet-c-real?"),
        ("qqq", ["resnet50"], ""),
    ],
)
def test_near_names(name, known, answer):
    assert near_names(name, known) == answer


# ---- loading ---------------------------------------------------------------------------------------------


def test_files_load_in_name_order_and_helpers_are_skipped(tmp_path):
    write(tmp_path, "models/b.py", "model('from-b')\n")
    write(tmp_path, "models/a.py", "model('from-a')\n")
    write(tmp_path, "models/_helper.py", "raise RuntimeError('not a plug-in')\n")
    (tmp_path / "models" / "notes.txt").write_text("no Python")
    entries = loaded(tmp_path)
    assert list(entries.models.entries) == ["from-a", "from-b"]
    assert entries.broken == {}


def test_helper_is_loaded_by_path(tmp_path):
    write(tmp_path, "models/_names.py", "NAMES = ['x', 'y']\n")
    write(
        tmp_path,
        "models/nets.py",
        "from pathlib import Path\n"
        "for name in registry.load_module(Path(__file__).with_name('_names.py')).NAMES:\n    model(name)\n",
    )
    assert list(loaded(tmp_path).models.entries) == ["x", "y"]


def test_files_of_one_name_in_both_folders_are_two_modules(tmp_path):
    write(tmp_path, "models/digits.py", "WORD = 'models'\nmodel('m')\n")
    write(tmp_path, "eval_settings/digits.py", "assert 'WORD' not in globals()\nsetting('s')\n")
    entries = loaded(tmp_path)
    assert (list(entries.models.entries), list(entries.eval_settings.entries)) == (["m"], ["s"])


def test_plugin_may_define_dataclasses(tmp_path):
    write(
        tmp_path,
        "models/nets.py",
        "from dataclasses import dataclass\n\n\n@dataclass(frozen=True)\nclass Half:\n    factor: float = 0.5\n\n\n"
        "registry.add_model(Model(name=repr(Half()), transform=None, classifier_loader=dict, eval_batch_size=1))\n",
    )
    assert list(loaded(tmp_path).models.entries) == ["Half(factor=0.5)"]


def test_entries_may_be_registered_from_a_helper_function_and_name_its_line(folder):
    origin = loaded(folder).models.origins["vit"]
    assert origin == f"{folder / 'models' / 'nets.py'}:{HEAD[: HEAD.index('registry.add_model')].count(chr(10)) + 1}"


BREAKAGES = [
    ("model('half')\n1 / 0\n", "ZeroDivisionError: division by zero (line {2})"),
    (
        "model('half')\nimport not_there_at_all\n",
        "it needs the package not_there_at_all, which is not installed (line {2})",
    ),
    ("model('half')\ndef broken(:\n", "SyntaxError: invalid syntax (line {2})"),
    ("model('half')\n\nmodel('')\n", "model: name must be a non-empty string, got '' (line {add})"),
    (
        "model('half')\nregistry.add_group('g', [], kind='nets')\n",
        "group 'g': kind must be models or eval_settings, got 'nets' (line {2})",
    ),
    (
        "model('half')\nregistry.add_group('half', [], kind='models')\n",
        "group 'half': the name is taken (line {2})",
    ),
]


@pytest.mark.parametrize(("body", "error"), BREAKAGES)
def test_broken_file_is_named_with_error_and_line_and_takes_nothing_down(folder, body, error):
    path = write(folder, "models/broken.py", body)
    entries = loaded(folder)
    add_line = HEAD[: HEAD.index("registry.add_model")].count("\n") + 1
    expected = error.replace("{2}", str(HEAD_LINES + 2)).replace("{add}", str(add_line))
    assert entries.broken == {path: expected}
    assert list(entries.models.entries) == ["resnet18", "resnet50", "vit"]  # 'half' is gone again
    assert entries.model("vit").name == "vit"
    with pytest.raises(UnknownName) as asked:
        entries.model("half")
    assert str(asked.value) == f"model 'half' is in {path}, which could not be loaded: {expected}"


def test_nothing_of_a_broken_file_stays_and_its_names_are_free(tmp_path):
    write(
        tmp_path,
        "models/a.py",
        "model('m', 'tag')\nsetting('s')\nregistry.add_group('g', ['m'], kind='models')\nraise ValueError('late')\n",
    )
    write(tmp_path, "models/b.py", "model('m')\n")
    entries = loaded(tmp_path)
    assert entries.models.origins["m"].startswith(str(tmp_path / "models" / "b.py"))
    assert (entries.eval_settings.entries, entries.models.groups, entries.models.tagged("tag")) == ({}, {}, [])


def test_unknown_name_tells_that_files_are_broken(folder):
    write(folder, "models/broken.py", "1 / 0\n")
    with pytest.raises(UnknownName, match=r"\(1 registry file\(s\) could not be loaded\)$"):
        loaded(folder).model("elsewhere")


def test_plugin_that_calls_exit_is_broken_like_any_other(tmp_path):
    file = write(tmp_path, "models/exits.py", "import sys\nsys.exit('no GPU here')\n")
    write(tmp_path, "models/works.py", "model('works')\n")
    entries = loaded(tmp_path)
    assert entries.broken == {file: f"SystemExit: no GPU here (line {HEAD_LINES + 2})"}
    assert list(entries.models.entries) == ["works"]


def test_duplicate_is_refused_with_both_origins(tmp_path):
    first = tmp_path / "models" / "a.py"
    second = tmp_path / "models" / "b.py"
    first.parent.mkdir()
    line = "registry.add_model(Model(name='twice', transform=None, classifier_loader=dict, eval_batch_size=1))\n"
    first.write_text("from testbed import Model, registry\n" + line)
    second.write_text("from testbed import Model, registry\n\n\n" + line)
    entries = loaded(tmp_path)
    assert entries.broken == {second: f"model 'twice' is declared twice: at {first}:2 and at {second}:4 (line 4)"}
    assert entries.models.origins == {"twice": f"{first}:2"}


def test_metadata_is_read_beside_the_plugin_folders(tmp_path):
    (tmp_path / "metadata").mkdir()
    (tmp_path / "metadata" / "classes.json").write_text(json.dumps([4, 2]))
    write(tmp_path, "eval_settings/s.py", "setting('s', class_sublist=registry.metadata(__file__, 'classes.json'))\n")
    write(tmp_path, "eval_settings/t.py", "setting('t', class_sublist=registry.metadata(__file__, 'none.json'))\n")
    entries = loaded(tmp_path)
    assert entries.eval_setting("s").class_sublist == (4, 2)
    (error,) = entries.broken.values()
    assert "FileNotFoundError" in error and "none.json" in error


@pytest.mark.parametrize("word", ["add_model", "add_eval_setting"])
def test_entries_are_added_only_while_a_registry_loads(word):
    with pytest.raises(EntryError, match="entries are added by files in a registry folder; from Python, pass"):
        getattr(registry, word)(None)


def test_derived_setting_is_runnable_on_its_parents_data(tmp_path):
    write(
        tmp_path,
        "eval_settings/s.py",
        "setting('val')\n"
        "registry.add_eval_setting(EvalSetting(name='sub', logits_from='val', class_sublist=[1]))\n"
        "registry.add_eval_setting(EvalSetting(name='subsub', logits_from='sub', idx_subsample_list=[0]))\n"
        "registry.add_eval_setting(EvalSetting(name='lost', logits_from='vall'))\n",
    )
    entries = loaded(tmp_path)
    assert entries.runnable("val") is entries.eval_setting("val")
    assert entries.runnable("subsub").dataset == entries.eval_setting("val").dataset
    with pytest.raises(UnknownName, match="'vall'; did you mean val"):
        entries.runnable("lost")


# ---- which folders ---------------------------------------------------------------------------------------


def test_folders_of_variable_and_option_come_after_the_default(tmp_path, monkeypatch):
    names = ("default", "one", "two", "three")
    for name in names:
        write(tmp_path, f"{name}/models/{name}.py", f"model('{name}')\n")
    monkeypatch.setattr(registry, "default_folder", lambda: tmp_path / "default")
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [])
    monkeypatch.setenv("TESTBED_REGISTRY", os.pathsep.join([str(tmp_path / "one"), "", str(tmp_path / "two")]))
    entries = load_registry([str(tmp_path / "three"), str(tmp_path / "one")])
    assert tuple(entries.models.entries) == names  # 'one' is named twice and loaded once


def test_missing_registry_folder_stops_at_once(tmp_path):
    with pytest.raises(UnknownName, match=r"registry folder .*nowhere does not exist"):
        load_registry([str(tmp_path / "nowhere")])


def test_the_project_has_a_registry_of_its_own():
    assert (registry.default_folder() / "models").is_dir()


class FakePoint:
    """What importlib.metadata gives for one line of a package's entry points."""

    def __init__(self, value, offered):
        self.value = value
        self._offered = offered

    def load(self):
        if isinstance(self._offered, BaseException):
            raise self._offered
        return self._offered


def test_installed_packages_offer_entries(tmp_path, monkeypatch):
    def add():
        registry.add_model(Model(name="plugged", transform=None, classifier_loader=dict, eval_batch_size=1))

    points = [
        FakePoint("broken_package:add", ImportError("no such thing")),
        FakePoint("exiting_package:add", SystemExit(3)),
        FakePoint("package:add", add),
    ]
    asked = []

    def entry_points(group):
        asked.append(group)
        return points

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    monkeypatch.setattr(registry, "default_folder", lambda: tmp_path)
    entries = load_registry()
    assert asked == ["testbed.registry"]
    assert list(entries.models.entries) == ["plugged"]
    assert {str(p): e for p, e in entries.broken.items()} == {
        "broken_package:add": "ImportError: no such thing",
        "exiting_package:add": "SystemExit: 3",
    }


def test_loading_imports_no_torch(tmp_path):
    """The demand on every command that computes nothing; the project's own registry is loaded with it."""
    write(tmp_path, "models/more.py", "model('one-more')\n")
    code = (
        "import sys; from testbed.entries.registry import load_registry; entries = load_registry()\n"
        "assert 'one-more' in entries.models.entries and len(entries.models.entries) > 1\n"
        "print(*(m for m in ('torch', 'torchvision', 'timm', 'pandas', 'matplotlib') if m in sys.modules))"
    )
    environment = {**os.environ, "TESTBED_REGISTRY": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert (done.stdout.strip(), done.stderr, done.returncode) == ("", "", 0)


def test_setting_made_on_the_spot_can_be_put_on_the_shelf(folder):
    entries = loaded(folder)
    entries.eval_settings.add(EvalSetting(name="here", logits_from="val"), "notebook")
    assert entries.expand_eval_settings(["her?"]) == ["here"]
    with pytest.raises(EntryError, match="'here' is declared twice: at notebook and at again"):
        entries.eval_settings.add(EvalSetting(name="here", logits_from="val"), "again")


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ({"a": ["b"], "b": ["a"]}, "group 'a' holds itself: a > b > a"),
        ({"a": ["no-such-setting"]}, "group 'a' names 'no-such-setting', but there is no such eval setting"),
    ],
)
def test_group_that_cannot_be_expanded_is_refused_in_words(groups, words):
    registry = Registry()
    registry.eval_settings.groups = {name: tuple(members) for name, members in groups.items()}
    with pytest.raises(EntryError, match=re.escape(words)):
        registry.expand_eval_settings(["a"])


def test_group_may_have_an_aggregate_which_goes_with_its_file(folder):
    write(folder, "eval_settings/whole.py", "registry.add_group('whole', ['val'], aggregate=lambda stored: {'n': 1})\n")
    write(folder, "eval_settings/wrong.py", "registry.add_group('part', ['val'], aggregate=3)\n")
    late = "registry.add_group('late', ['val'], aggregate=dict)\nraise ValueError('late')\n"
    write(folder, "eval_settings/late.py", late)
    entries = loaded(folder)
    assert entries.eval_settings.aggregates["whole"](None) == {"n": 1}
    assert set(entries.eval_settings.aggregates) == {"whole"}
    broken = {path.name: error for path, error in entries.broken.items()}
    assert broken["wrong.py"].startswith(
        "group 'part': aggregate must be a function, and the group one of eval settings"
    )
    assert "late.py" in broken


def test_entries_that_are_kept_are_loaded_again_when_a_file_has_changed(tmp_path, monkeypatch):
    folder = write(tmp_path, "models/m.py", 'model("before")').parents[1]
    monkeypatch.setattr(registry, "default_folder", lambda: folder)
    monkeypatch.setattr(registry, "_kept", {})
    registry.keep_default_entries()
    write(tmp_path, "models/__pycache__/m.pyc", "")  # as Python writes it when it loads a file
    entries = load_registry()
    kept = entries.models.entries["before"]
    entries.models.entries.clear()  # of a copy
    assert load_registry().models.entries == {"before": kept}
    assert load_registry().models.entries["before"] is kept
    write(tmp_path, "models/m.py", 'model("afterwards")')
    assert list(load_registry().models.entries) == ["afterwards"]
