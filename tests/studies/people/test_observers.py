"""People and networks by their decisions: taken in, measured like models, compared, written out again."""

import csv

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score

import tiny
from shared_data import shared_data
from stored_results import completed, results
from testbed.entries.registry import Registry, default_folder
from testbed.errors import StoreError, TestbedError
from testbed.metrics.categories16 import NAMES
from testbed.metrics.shape_bias import CueConflict
from testbed.store.names import model_tags
from testbed.studies.people import observers

HEADER = ("subj", "session", "trial", "rt", "object_response", "category", "condition", "imagename")


@pytest.fixture
def registry():
    """The settings of model-vs-human, and nothing else."""
    found = Registry()
    found.load_file(default_folder() / "eval_settings" / "model_vs_human.py")
    assert not found.broken
    return found


def write_people(folder, answers, images, conditions=None):
    """One file per observer; answers by observer, images as (category, name)."""
    folder.mkdir(parents=True, exist_ok=True)
    for observer, given in answers.items():
        rows = [
            (observer, 1, i + 1, "NaN", answer, category, (conditions or ["0"] * len(images))[i], name)
            for i, (answer, (category, name)) in enumerate(zip(given, images, strict=True))
        ]
        with (folder / f"cue-conflict_{observer}_session_1.csv").open("w", newline="") as file:
            csv.writer(file).writerows([HEADER, *rows])
    return folder


STIMULI = [(shape, f"{shape}1-{texture}1.png") for shape in NAMES[:6] for texture in NAMES[:6]]


def people(tmp_path, seed=0):
    rng = np.random.default_rng(seed)

    def answer(shape, right):
        return shape if rng.random() < right else NAMES[rng.integers(0, 6)]

    given = {
        name: [answer(shape, right) for shape, _ in STIMULI]
        for name, right in (("subject-01", 0.8), ("subject-02", 0.7), ("net", 0.2))
    }
    given["subject-01"][0] = "na"
    return write_people(tmp_path / "people", given, STIMULI), given


def test_observers_are_measured_and_queried_like_models(tmp_path, store, registry):
    folder, given = people(tmp_path)
    taken = observers.import_decisions(store, registry, folder, "cue-conflict")
    assert [one.name for one in taken] == ["net@decisions", "subject-01", "subject-02"]
    rows = {r.metric: r.value for r in results(store, ["subject-01"], ["cue-conflict"])}
    shapes = [s for s, _ in STIMULI]
    conflict = [i for i, (s, name) in enumerate(STIMULI) if f"-{s}" not in name]
    assert rows["shape_correct"] == sum(given["subject-01"][i] == shapes[i] for i in conflict)
    assert rows["accuracy16"] == pytest.approx(
        100 * np.mean([a == s for a, s in zip(given["subject-01"], shapes, strict=True)])
    )
    assert model_tags(store)["subject-01"] == ["observer", "human"]
    assert completed(store, "net@decisions", "cue-conflict").n_images == len(STIMULI)


def test_stored_answers_can_be_measured_again(tmp_path, store, registry):
    from testbed.store.write import recompute_metrics

    observers.import_decisions(store, registry, people(tmp_path)[0], "cue-conflict")
    before = results(store)
    assert recompute_metrics(store, registry) == (3, [])
    assert results(store) == before


def test_second_import_needs_override_and_source_renames_networks(tmp_path, store, registry):
    folder, _ = people(tmp_path)
    observers.import_decisions(store, registry, folder, "cue-conflict")
    with pytest.raises(StoreError, match="stored already: repeat with --override"):
        observers.import_decisions(store, registry, folder, "cue-conflict")
    taken = observers.import_decisions(store, registry, folder, "cue-conflict", source="paper", override=True)
    assert taken[0].name == "net@paper"


def test_setting_without_categories_is_refused(tmp_path, store):
    registry = Registry()
    registry.load_folder(tiny.REGISTRY)
    with pytest.raises(TestbedError, match="'tiny' is not measured by decisions among the 16 categories"):
        observers.import_decisions(store, registry, people(tmp_path)[0], "tiny")


def test_comparison_is_kappa_with_each_person_averaged(tmp_path, store, registry):
    folder, given = people(tmp_path)
    observers.import_decisions(store, registry, folder, "cue-conflict")
    found = observers.compare_with_people([observers.panel(store, registry, "cue-conflict")], resamples=50)
    right = {n: [a == s for a, (s, _) in zip(answers, STIMULI, strict=True)] for n, answers in given.items()}
    among = cohen_kappa_score(right["subject-01"], right["subject-02"])
    model = np.mean([cohen_kappa_score(right["net"], right[p]) for p in ("subject-01", "subject-02")])
    assert [one.model for one in found] == [None, "net@decisions"]
    assert found[0].consistency.error.value == pytest.approx(among, abs=1e-9)
    assert found[1].consistency.error.value == pytest.approx(model, abs=1e-9)
    assert found[1].accuracy == pytest.approx(100 * np.mean(right["net"]))


def test_only_kept_conditions_of_a_set_count(tmp_path, store, registry):
    images, conditions = [], []
    for i in range(40):
        condition = "c50" if i % 2 else "c100"
        images.append(("dog", f"{i:04d}_cop_s01_{condition}_dog_10_n02113799_{i}.png"))
        conditions.append(condition)
    given = {"subject-01": ["dog"] * 40, "subject-02": ["dog", "cat"] * 20}
    folder = write_people(tmp_path / "contrast", given, images, conditions)
    observers.import_decisions(store, registry, folder, "contrast-16")
    panel = observers.panel(store, registry, "contrast-16")
    assert panel.conditions == ["c50"]
    assert panel.correct[0].shape == (2, 20)
    every = observers.panel(store, registry, "contrast-16", every_condition=True)
    assert every.conditions == ["c50", "c100"]
    rows = {r.metric: r.value for r in results(store, ["subject-02"], ["contrast-16"])}
    assert rows == {"accuracy16": 0.0, "accuracy16.c100": 100.0, "accuracy16.c50": 0.0}


def test_without_people_the_comparison_says_how_to_get_some(tmp_path, store, registry):
    folder = write_people(tmp_path / "nets", {"net": ["cat"] * len(STIMULI)}, STIMULI)
    observers.import_decisions(store, registry, folder, "cue-conflict")
    with pytest.raises(StoreError, match=r"no observer matches 'subject-\*'.*--import-decisions"):
        observers.compare_with_people([observers.panel(store, registry, "cue-conflict")])


def test_decisions_of_a_model_are_written_in_the_published_format(tmp_path, image_folder, registry):
    """A classifier is run on small stimuli; what is exported comes in again with the same numbers."""
    from testbed import EvalSetting, StandardDataset
    from testbed.engine.run import run_evaluations
    from testbed.options import RunOptions
    from testbed.store.opening import open_store

    registry.load_folder(tiny.REGISTRY)
    root = image_folder([f"{shape}/{name}" for shape, name in STIMULI], size=8)
    setting = EvalSetting(name="small", dataset=StandardDataset(path=root), metrics_fn=CueConflict(), resize="whole")
    registry.eval_settings.add(setting, "test")
    store = open_store(str(tmp_path / "r.db"), create=True)
    run_evaluations(registry, store, ["tiny_wide"], ["small"], RunOptions(cache_gb=0), ["cpu"], inline=True, quiet=True)
    (path,) = observers.export_decisions(store, registry, "small", tmp_path / "out")
    assert path.name == "small_tiny_wide_session-1.csv"
    first = path.read_text().splitlines()[1].split(",")
    assert first[:4] == ["tiny_wide", "1", "1", "NaN"]
    assert first[5:] == ["airplane", "NaN", "airplane1-airplane1.png"]
    observers.import_decisions(store, registry, tmp_path / "out", "small")
    names = ("shape_correct", "texture_correct", "neither", "accuracy16", "shape_bias.bear")
    table = {(r.model, r.metric): r.value for r in results(store)}
    for name in names:
        assert table["tiny_wide", name] == table["tiny_wide@decisions", name]


def test_published_decisions_give_the_published_integers(store, registry):
    observers.import_decisions(store, registry, shared_data("cue-conflict-decisions"), "cue-conflict")
    table = {(r.model, r.metric): r.value for r in results(store)}
    for name, expected in {"resnet50@decisions": (162, 572, 466), "subject-01": (829, 33, 338)}.items():
        assert tuple(table[name, m] for m in ("shape_correct", "texture_correct", "neither")) == expected
