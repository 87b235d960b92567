"""Explanations as eval settings: what is run, what is stored, and that only images and classes matter to it."""

import csv
import json
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from stored_results import completed, results, stored_outputs
from testbed import EvalSetting, Model, StandardTransform, evaluate
from testbed.engine.run import run_evaluations
from testbed.entries.registry import load_registry
from testbed.errors import DataError, EntryError, TestbedError
from testbed.explain.clusters import Clusters, clusters_for, confusion_clusters, read_clusters
from testbed.explain.manifest import ExplanationManifest, read_explanations, read_heatmap
from testbed.explain.settings import explanation_setting, setting_of
from testbed.options import RunOptions
from testbed.store.names import eval_setting_names
from testbed.store.opening import open_store
from tiny import script

GRADCAM = "explanations:gradcam,step=1@digits"


def run(folder, settings, model="digits_cnn", limit=12, **more):
    """What eval.py does, inside this process; returns results as {(setting, metric): row} and the store."""
    registry = load_registry()
    store = open_store(str(folder / "results.db"), create=True)
    options = RunOptions(cache_folder=str(folder / "cache"), limit=limit, workers=1, **more)
    report = run_evaluations(registry, store, [model], settings, options, devices=["cpu"], inline=True, quiet=True)
    if report.failed:
        raise TestbedError(report.failed[0].error)
    found = results(store, variant=options.variant)
    return {(r.eval_setting, r.metric): r for r in found}, store


def extras(store, setting, model="digits_cnn", variant="limit=12"):
    return stored_outputs(store, completed(store, model, setting, variant)).extras


@pytest.fixture(scope="module")
def explained(tmp_path_factory):
    return run(tmp_path_factory.mktemp("explained"), [GRADCAM])


# ---- through the engine ----------------------------------------------------------------------------------


def test_controls_are_run_with_every_explainer(explained):
    results, _ = explained
    controls = [f"explanations:{c},step=1@digits" for c in ("random", "centre")]
    assert {setting for setting, _ in results} == {GRADCAM, *controls}
    shown = {"cauc", "cdrop", "cauc_per_area", "deletion_auc", "insertion_auc", "n_valid", "n_invalid"}
    assert shown <= {metric for setting, metric in results if setting == GRADCAM}


def test_rows_per_image_and_class_are_stored_beside_the_logits(explained):
    results, store = explained
    rows = extras(store, GRADCAM)
    exists = rows["positive"][:, :, 0] >= 0
    assert rows["positive"].shape == (12, 5, 1)
    assert rows["contrast"].shape == (12, 5, 4)
    assert exists.any(axis=1).all()
    valid = exists & (rows["invalid"] == 0)
    assert results[GRADCAM, "cauc"].value == pytest.approx(rows["cauc"][valid].mean())
    assert results[GRADCAM, "cauc"].n == valid.sum() == results[GRADCAM, "n_valid"].value
    assert results[GRADCAM, "n_invalid"].value == (exists & ~valid).sum()
    assert np.isnan(rows["cauc"][~valid]).all()


def test_likely_classes_are_explained_against_the_others(explained):
    _, store = explained
    stored = stored_outputs(store, completed(store, "digits_cnn", GRADCAM, "limit=12"))
    rows = (stored.extras[name] for name in ("positive", "contrast"))
    for logits, positive, contrast in zip(stored.logits, *rows, strict=True):
        classes = positive[positive[:, 0] >= 0, 0]
        assert classes[0] == logits.argmax()
        for row, c in enumerate(classes):
            assert set(contrast[row][contrast[row] >= 0]) == set(classes) - {c}


def test_probe_and_its_parameters_are_recorded(explained):
    _, store = explained
    told = completed(store, "digits_cnn", GRADCAM, "limit=12").provenance.other["probe"]
    assert "explainer='gradcam'" in told and "max_points=32" in told


@pytest.mark.parametrize("explainer", ["gradcam", "random", "rise,masks=10", "cwox-gradcam"])
def test_batches_and_chunks_change_nothing(tmp_path, explainer):
    setting = f"explanations:{explainer},step=1,whole_points=3@digits.gaussian_noise.3"
    _, whole = run(tmp_path / "whole", [setting], limit=6)
    _, parts = run(tmp_path / "parts", [setting], limit=6, batch_size=2, chunk_size=4)
    one, other = (extras(store, setting, variant="limit=6") for store in (whole, parts))
    assert set(one) == set(other)
    for name in one:
        assert np.allclose(one[name], other[name], atol=1e-5, equal_nan=True), name


def test_image_set_of_another_setting_keeps_its_corruption(tmp_path):
    """The logits of the explained images are those of the setting they are taken from."""
    noisy = "digits.gaussian_noise.3"
    _, store = run(tmp_path, [noisy, f"explanations:centre,step=1@{noisy}"], limit=6)
    one, other = (
        stored_outputs(store, completed(store, "digits_cnn", name, "limit=6")).logits
        for name in (noisy, f"explanations:centre,step=1@{noisy}")
    )
    assert np.allclose(one, other, atol=1e-5)


def test_image_set_of_another_setting_keeps_its_classes_and_images():
    some = EvalSetting("some", ExplanationManifest("maps.csv"), class_sublist=(3, 5), idx_subsample_list=(0, 2))
    direct = explanation_setting("x", "centre", over="some").over(some)
    assert (direct.class_sublist, direct.idx_subsample_list) == ((3, 5), (0, 2))


def test_images_are_run_again_not_derived(explained):
    _, store = explained
    evaluation = completed(store, "digits_cnn", GRADCAM, "limit=12")
    assert evaluation.logits_path
    assert "digits" not in eval_setting_names(store)  # the parent itself was not needed


def test_curves_are_kept_on_request(tmp_path):
    setting = "explanations:gradcam,step=1,curves=true@digits"
    _, store = run(tmp_path, [setting], limit=3)
    rows = extras(store, setting, variant="limit=3")
    there = rows["curve_deleted"] >= 0
    assert rows["picture"].dtype == np.uint8
    assert rows["heatmap"].shape[:2] == (3, 5)
    assert np.isfinite(rows["curve_positive"][there]).all()
    assert np.isnan(rows["curve_positive"][~there]).all()
    score = rows["curve_positive"] * (1 - rows["curve_contrast"])
    assert score[0, 0, 0] > 0


def test_network_without_layers_fails_by_itself(tmp_path):
    with pytest.raises(TestbedError, match="no layer has an output laid out like the picture"):
        run(tmp_path, [GRADCAM], model="digits_linear", limit=3)


def test_registered_settings_have_both_image_sets_and_controls():
    registry = load_registry()
    names = registry.expand_eval_settings(["contrastive"])
    explainers = ["gradcam", "cwox-gradcam", "rise", "inputgrad", "random", "centre"]
    assert names == [f"contrastive-{e}" for e in explainers]
    assert registry.runnable("contrastive-rise").dataset == registry.runnable("imagenet-samples").dataset
    assert registry.runnable("contrastive-rise.val").dataset == registry.runnable("val").dataset
    assert registry.eval_setting("contrastive-rise.val").controls == (
        "contrastive-random.val",
        "contrastive-centre.val",
    )
    assert registry.eval_setting("contrastive-random").controls == ()


def test_print_eval_shows_means_intervals_and_counts(explained):
    _, store = explained
    result = script("db.py", "--db", store.folder / "results.db", "--print-eval", "digits_cnn", GRADCAM)
    assert result.returncode == 0, result.stderr
    for word in ("cauc", "cdrop", "95 % interval", "n_valid", "n_invalid", "probe", "gradcam"):
        assert word in result.stdout


def test_declaring_settings_imports_no_torch():
    code = (
        "import sys; from testbed.entries.registry import load_registry; r = load_registry(); "
        "r.eval_setting('explanations:rise,masks=3@val'); "
        "print([m for m in ('torch', 'scipy', 'matplotlib', 'captum') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.strip().endswith("[]"), result.stdout + result.stderr


# ---- the string ------------------------------------------------------------------------------------------


def test_string_tells_explainer_options_and_images():
    setting = setting_of("x", "rise,masks=9,delta=0.3,max_points=0,curves=yes,substrate=blur@folder:my/pictures@home")
    assert setting.images_from == "folder:my/pictures@home"
    probe = setting.probe
    assert (probe.explainer, dict(probe.options)["masks"], probe.substrate, probe.curves) == ("rise", 9, "blur", True)
    assert (probe.recipe.delta, probe.recipe.max_points) == (0.3, None)
    random = "explanations:random,delta=0.3,max_points=0,curves=yes,substrate=blur@folder:my/pictures@home"
    assert setting.controls[0] == random


def test_manifest_may_lie_in_a_folder_with_an_at():
    setting = setting_of("x", "/data@home/maps.csv")
    assert setting.dataset == ExplanationManifest("/data@home/maps.csv")
    assert setting.resize == "whole"
    assert setting.probe.recipe.max_points is None
    assert setting.controls == tuple(
        f"explanations:{c},max_points=32@/data@home/maps.csv" for c in ("random", "centre")
    )
    assert setting_of("x", "delta=0.3@maps.csv").probe.recipe.delta == 0.3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gradcm@val", "no explainer 'gradcm'; did you mean gradcam"),
        ("val", "expected explanations:MANIFEST.csv or explanations:EXPLAINER@SETTING"),
        ("rise,masks=x@val", "explainer 'rise': masks: expected a int, got 'x'"),
        ("rise,detla=1@val", "explainer 'rise' has no option 'detla'"),
        ("detla=1@m.csv", "no option 'detla'; there are step, delta"),
        ("rise,step=0@val", "explanations: expected step of at least 1, got 0"),
        ("rise,curves=maybe@val", "curves: expected true or false, got 'maybe'"),
        ("rise,contrast=all@val", "expected contrast likely or cluster, got 'all'"),
        ("rise,mass=2@val", "expected most >= 1 and mass from 0 to 1"),
        ("rise,whole_points=1@val", "expected whole_points of at least 2, or 0, got 1"),
    ],
)
def test_wrong_strings_are_answered(text, message):
    with pytest.raises(EntryError, match=message):
        setting_of("x", text)


def test_probe_needs_maps_from_somewhere():
    with pytest.raises(EntryError, match="needs an explainer, or a manifest"):
        explanation_setting("x", "", over="val")


# ---- manifests -------------------------------------------------------------------------------------------

SIZE = 80


def four_quarters():
    """A classifier of 80 x 80 pictures: class 0 to 3 is how bright each quarter is."""
    import torch

    class Quarters(torch.nn.Module):
        def forward(self, x):
            return 8 * torch.nn.functional.adaptive_avg_pool2d(x.mean(1, keepdim=True), 2).flatten(1)

    return Quarters()


def quarters_model():
    return Model("quarters", StandardTransform(100, SIZE), four_quarters, eval_batch_size=4)


@pytest.fixture
def manifest(tmp_path):
    """Two pictures, heatmaps in all three kinds of files."""
    rng = np.random.default_rng(0)
    for name in ("one", "two"):
        Image.fromarray(rng.integers(100, 256, (60, 120, 3), dtype=np.uint8)).save(tmp_path / f"{name}.png")
    maps = {c: rng.random((SIZE, SIZE)) for c in range(4)}
    np.save(tmp_path / "m0.npy", maps[0])
    np.savez(tmp_path / "all.npz", **{str(c): m for c, m in maps.items()})
    Image.fromarray((maps[2] * 255).astype(np.uint8)).save(tmp_path / "m2.png")
    np.save(tmp_path / "flat.npy", np.ones((7, 7)))
    lines = [
        ("one.png", "m0.npy", "0", "1"),
        ("one.png", "all.npz", "1", "2 3"),
        ("two.png", "m2.png", "2", ""),
        ("one.png", "all.npz", "0 1", "2"),
        ("two.png", "flat.npy", "3", "0;1"),
    ]
    with (tmp_path / "maps.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("image", "heatmap", "class", "contrast"), *lines])
    return tmp_path / "maps.csv"


def registered(setting):
    """The setting of a string, without its controls."""
    made = setting_of(setting, setting.partition(":")[2])
    return EvalSetting(**{f: getattr(made, f) for f in ("name", "dataset", "resize", "probe", "metrics_fn", "tags")})


def test_manifest_is_measured_as_the_single_interface_measures(tmp_path, manifest):
    import torch

    from testbed.explain import CausalMetric, Explanation

    setting = registered(f"explanations:{manifest}")
    db = str(tmp_path / "r.db")
    table = evaluate(quarters_model(), setting, db=db, quiet=True, gpus=["cpu"])
    rows = extras(open_store(db), setting.name, "quarters", "")
    assert rows["positive"].tolist() == [[[0, -1], [1, -1], [0, 1]], [[2, -1], [3, -1], [-1, -1]]]
    assert rows["invalid"].tolist() == [[0, 0, 0], [0, 4, 0]]
    assert dict(zip(table["metric"], table["value"], strict=True))["n_invalid"] == 1
    with Image.open(manifest.parent / "one.png") as picture:
        squeezed = picture.convert("RGB").resize((SIZE, SIZE), Image.Resampling.BILINEAR)
    image = torch.from_numpy(np.array(squeezed)).permute(2, 0, 1)[None] / 255
    metric = CausalMetric(four_quarters(), ["CAUC", "CDROP"], step=16, batch_size=8)
    maps = np.load(manifest.parent / "all.npz")
    for row, (target, heatmap) in enumerate(
        [([[0], [1]], maps["0"]), ([[1], [2, 3]], maps["1"]), ([[0, 1], [2]], maps["0"])]
    ):
        found, _ = metric.single_run(image, Explanation(target, heatmap / heatmap.max()))
        assert rows["cauc"][0, row] == pytest.approx(found["CAUC"].item(), abs=1e-7)
        assert rows["cdrop"][0, row] == pytest.approx(found["CDROP"].item(), abs=1e-7)


def test_explainer_may_take_the_manifests_classes(tmp_path, manifest):
    setting = registered(f"explanations:inputgrad,step=1@{manifest}")
    db = str(tmp_path / "r.db")
    evaluate(quarters_model(), setting, db=db, quiet=True, gpus=["cpu"])
    rows = extras(open_store(db), setting.name, "quarters", "")
    assert rows["positive"][1].tolist() == [[2, -1], [3, -1], [-1, -1]]


def test_other_heatmaps_are_other_data(manifest):
    first = ExplanationManifest(str(manifest)).open([]).fingerprint
    assert ExplanationManifest(str(manifest)).open([]).fingerprint == first
    np.save(manifest.parent / "m0.npy", np.eye(SIZE))
    assert ExplanationManifest(str(manifest)).open([]).fingerprint != first


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("image,class\n", "lists nothing"),
        ("image,heatmap\na.png,b.npy\n", "expected the columns image, heatmap, class, contrast; there is no class"),
        ("image,class,contrast\na.png,cello,\n", "line 2: expected class indices separated by spaces, got 'cello'"),
        ("image,class,contrast\na.png,,3\n", "line 2: expected a class, got none"),
        ("image,heatmap,class,contrast\na.png,b.npy\n", "line 2: expected 4 cells, got fewer"),
    ],
)
def test_wrong_manifests_are_answered(tmp_path, lines, message):
    (tmp_path / "m.csv").write_text(lines)
    with pytest.raises(DataError, match=message):
        read_explanations(tmp_path / "m.csv")


def test_missing_files_are_named(tmp_path, manifest):
    with pytest.raises(DataError, match=r"manifest .* cannot be read: No such file"):
        read_explanations(tmp_path / "none.csv")
    (tmp_path / "m2.png").unlink()
    with pytest.raises(DataError, match=r"lists the heatmap .*m2\.png, but there is no such file"):
        ExplanationManifest(str(manifest)).open([])
    (tmp_path / "one.png").unlink()
    with pytest.raises(DataError, match=r"lists one\.png, but there is no such file"):
        ExplanationManifest(str(manifest)).open([])


def test_pickled_heatmaps_are_never_loaded(tmp_path):
    np.save(tmp_path / "cello.npy", {486: np.ones((4, 4))}, allow_pickle=True)
    with pytest.raises(DataError, match=r"convert_heatmaps .*cello\.npy makes an \.npz"):
        read_heatmap(tmp_path / "cello.npy", (486,))
    np.savez(tmp_path / "two.npz", **{"1": np.ones((4, 4)), "2": np.ones((4, 4))})
    with pytest.raises(DataError, match="expected an array named 486, got 1, 2"):
        read_heatmap(tmp_path / "two.npz", (486,))
    np.save(tmp_path / "deep.npy", np.ones((4, 4, 3)))
    with pytest.raises(DataError, match=r"expected one number per pixel, got an array of shape \(4, 4, 3\)"):
        read_heatmap(tmp_path / "deep.npy", (1,))
    with pytest.raises(DataError, match=r"expected \.npy, \.npz or \.png"):
        read_heatmap(tmp_path / "map.tiff", (1,))


# ---- clusters --------------------------------------------------------------------------------------------


def test_labels_that_occur_together_make_a_cluster():
    lists = [[1, 2], [2, 1], [1, 2, 3], [7, 8], [8, 7], [5], [9, 1]]
    assert confusion_clusters(lists, cut=0.6) == [[1, 2], [7, 8]]
    assert confusion_clusters(lists, cut=0.95) == [[1, 2, 3, 9], [7, 8]]
    assert confusion_clusters([[1], [2]]) == []


def test_clusters_part_the_classes_of_an_image():
    clusters = Clusters.of([[486, 889], [402, 420, 546]])
    assert clusters.partition([486, 402, 889, 5, 546]) == [[486, 889], [402, 546], [5]]
    assert Clusters().partition([3, 1]) == [[3, 1]]
    with pytest.raises(DataError, match="class 1 is in two clusters"):
        Clusters.of([[1, 2], [1]])


def test_clusters_come_from_a_file_or_a_folder_of_models(tmp_path, monkeypatch):
    (tmp_path / "resnet50.json").write_text("[[1, 2], [3]]")
    assert clusters_for("resnet50", str(tmp_path)).numbers == {1: 0, 2: 0, 3: 1}
    assert clusters_for("other", None) is None
    monkeypatch.setenv("TESTBED_CLUSTERS", str(tmp_path / "resnet50.json"))
    assert clusters_for("other").numbers == {1: 0, 2: 0, 3: 1}
    (tmp_path / "wrong.json").write_text('{"a": 1}')
    with pytest.raises(DataError, match=r"expected a JSON file \[\[class, \.\.\.\], \.\.\.\]"):
        read_clusters(tmp_path / "wrong.json")


def test_clusters_of_a_models_own_logits_are_held_against_each_other(tmp_path):
    from click.testing import CliRunner

    from testbed.explain.clusters import main

    _, store = run(tmp_path, ["digits"], model="digits_cnn_tenth", limit=200)
    out = tmp_path / "clusters.json"
    db = str(store.folder / "results.db")
    words = ["digits_cnn_tenth", "digits", "--db", db, "--variant", "limit=200", "--out", str(out)]
    told = CliRunner().invoke(main, words)
    assert told.exit_code == 0, told.output
    clusters = Clusters.of(json.loads(out.read_text()))
    setting = f"explanations:cwox-gradcam,contrast=cluster,clusters={out},mass=0.99999,step=1@digits"
    run(tmp_path, [setting], model="digits_cnn_tenth", limit=12)
    rows = extras(store, setting, "digits_cnn_tenth")
    measured = rows["positive"][:, :, 0] >= 0
    assert measured.any()
    for i, j in zip(*np.nonzero(measured), strict=True):
        mates = rows["contrast"][i, j][rows["contrast"][i, j] >= 0]
        numbers = {clusters.numbers[int(c)] for c in (rows["positive"][i, j, 0], *mates)}
        assert len(mates) and len(numbers) == 1
    with pytest.raises(TestbedError, match="contrast=cluster: expected clusters=FILE"):
        run(tmp_path, ["explanations:centre,contrast=cluster,step=1@digits"], limit=3)
