"""The ImageNet settings: all published names, what they take from one another, and tiny trees run end to end."""

import hashlib
import json
import re
import subprocess
import sys
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from PIL import Image

import testbed
from shared_data import shared_data
from stored_results import results
from testbed.commands.database import main as db
from testbed.data.labels import imagenet_wnids
from testbed.entries.registry import load_registry
from testbed.store.opening import open_store

REGISTRY = load_registry()
ENTRIES = REGISTRY.eval_settings.entries
PUBLISHED = {name for name, entry in ENTRIES.items() if "imagenet-testbed" in entry.tags}


# ---- names, lists, sizes ---------------------------------------------------------------------------------


def test_every_registry_file_loads():
    assert not REGISTRY.broken


def test_all_published_names_are_there_and_no_other_is_called_published():
    names = json.loads(shared_data("testbed", "names.json").read_text())["eval_settings"]
    assert set(names) == PUBLISHED


def test_counts_of_published_settings():
    children = {name for name in PUBLISHED if name.endswith("_10percent")}
    assert len(PUBLISHED) == 402
    assert len(children) == 189
    kinds = Counter(name.split("_")[-1] for name in PUBLISHED - children if name.startswith("imagenet-c."))
    assert {kind: kinds[kind] for kind in ("on-disk", "in-memory")} == {"on-disk": 95, "in-memory": 90}
    assert "imagenet-c.glass_blur.3_in-memory" in ENTRIES  # beyond the published ones


def test_children_and_twins_are_read_from_their_parents_logits():
    for name in PUBLISHED:
        entry = ENTRIES[name]
        if name.endswith("_10percent"):
            assert entry.logits_from == entry.parent_eval_setting == name.removesuffix("_10percent")
            assert entry.size == 5000
        elif name.startswith("val-on-") or name == "val_subsampled_class_1_8":
            assert entry.logits_from == "val"
            assert entry.size == 50 * len(entry.class_sublist)
        assert REGISTRY.runnable(name).dataset is not None


def test_index_list_is_the_published_one():
    """sha256 of the comma-joined list in eval_setting_subsample.py of imagenet-testbed."""
    indices = ENTRIES["pgd.linf.eps2_10percent"].idx_subsample_list
    joined = ",".join(map(str, indices)).encode()
    assert hashlib.sha256(joined).hexdigest() == "a7156713573a2b933ab48f0301d5880148cb14933e3beffa751add24ddb13b4e"
    assert len(set(indices)) == 4799
    assert Counter(i // 50 for i in indices) == dict.fromkeys(range(1000), 5)


@pytest.mark.parametrize(
    ("name", "classes", "ascending"),
    [
        ("imagenet-a", 200, True),
        ("imagenet-r", 200, True),
        ("val-on-imagenet-a-classes", 200, True),
        ("val_subsampled_class_1_8", 125, True),
        ("imagenetv2-matched-frequency-format-val_subsampled_class_1_8", 125, True),
        ("openimages_test_ilsvrc_subset", 420, True),
        ("objectnet-1.0-beta", 125, False),
        ("val-on-objectnet-classes", 125, False),
        ("imagenet-vid-robust", 288, True),
        ("ytbb-robust", 231, True),
        ("imagenet-o", 200, True),
    ],
)
def test_class_lists(name, classes, ascending):
    sublist = ENTRIES[name].class_sublist
    assert len(set(sublist)) == len(sublist) == classes
    assert max(sublist) < 1000
    assert (list(sublist) == sorted(sublist)) is ascending


def test_groups_of_video_and_object_classes():
    objectnet = ENTRIES["objectnet-1.0-beta"]
    assert Counter(len(g) for g in objectnet.metrics_fn.groups) == {1: 104, 2: 6, 3: 3}
    assert len(objectnet.dataset.classes) == 113
    assert len(ENTRIES["imagenet-vid-robust"].metrics_fn.groups) == 30
    groups = ENTRIES["ytbb-robust"].metrics_fn.groups
    assert (len(groups), sum(1 for g in groups if g)) == (24, 19)
    nine = ENTRIES["imagenet-9.original"].metrics_fn.groups
    assert (len(nine), sum(map(len, nine))) == (9, 370)


def test_vid_frames_are_the_published_ones():
    frames = ENTRIES["imagenet-vid-robust"].metrics_fn.frames([])
    folder = shared_data("testbed", "metadata", "imagenet-vid-robust_metadata")
    labels = json.loads((folder / "labels.json").read_text())
    near = json.loads((folder / "pmsets.json").read_text())
    assert {f"val/{frame}": list(known) for frame, known in frames.labels.items()} == labels
    assert {f"val/{a}": sorted(f"val/{f}" for f in n) for a, n in frames.neighbours.items()} == {
        a: sorted(n) for a, n in near.items()
    }


@pytest.mark.parametrize(
    ("group", "members"),
    [
        *(("imagenet-c", 190), ("imagenet-c-on-disk", 95), ("imagenet-c-on-disk-224", 95), ("pgd", 4), ("ood", 6)),
        *(("imagenet-c-bar", 100), ("imagenet-3dcc", 60), ("natural-shifts", 9), ("cifar10-c", 95)),
        ("imagenet-samples-c", 95),
    ],
)
def test_groups(group, members):
    assert len(REGISTRY.expand_eval_settings([group])) == members


def test_stored_224_pixel_images_can_be_had_without_a_second_resize():
    model = testbed.Model("m", testbed.StandardTransform(256, 224), lambda: None, 1)
    plain, whole = (ENTRIES[f"imagenet-c.fog.3_on-disk{kind}"].transforms_for(model)[1] for kind in ("", "-224"))
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (224, 224, 3), dtype=np.uint8))
    assert whole(image) is image
    assert plain(image).tobytes() != image.tobytes()


class Draws:
    """Random numbers for a batch of two, as attacks ask for them."""

    generator = torch.Generator().manual_seed(0)

    def normal(self, shape):
        return torch.randn(2, *shape, generator=self.generator)

    def uniform(self, low, high, shape):
        return low + (high - low) * torch.rand(2, *shape, generator=self.generator)


@pytest.mark.parametrize("side", [16, 32])
@pytest.mark.parametrize(
    ("name", "order", "radius"),
    [("pgd.l2.eps0.5", 2, 0.5), ("pgd.linf.eps2", torch.inf, 2 / 255), ("pgd.l2.eps0.1", 2, 0.1)],
)
def test_attack_reaches_the_published_radius_which_grows_with_the_side_only_in_l2(name, order, radius, side):
    images = torch.full((2, 3, side, side), 0.5)
    weight = torch.randn(2, 3 * side * side, generator=torch.Generator().manual_seed(1))

    def model(x):  # right by so wide a margin that no attack succeeds
        return x.flatten(1) @ weight.T + 1000 * torch.eye(2)

    attacked = ENTRIES[name].perturbation_fn_gpu(images, model, torch.tensor([0, 1]), Draws())
    change = (attacked - images).flatten(1).norm(order, dim=1)
    expected = radius * (side / 224 if order == 2 else 1)
    torch.testing.assert_close(change, torch.full((2,), expected), rtol=1e-3, atol=1e-6)
    assert ENTRIES[name].adversarial_attack["steps"] == 100


def test_loading_the_registry_imports_nothing_heavy():
    code = "import sys; from testbed.entries.registry import load_registry; load_registry(); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "scipy", "PIL", "pandas", "sklearn", "timm"} & set(loaded)


# ---- tiny trees ------------------------------------------------------------------------------------------

WNIDS = imagenet_wnids()


class Reader(torch.nn.Module):
    """A classifier whose first and second choice stand in the colour of the picture."""

    def forward(self, images):
        red, green, blue = (255 * images[:, :, 3, 3]).round().long().T
        logits = torch.zeros(len(images), 1000)
        rows = torch.arange(len(images))
        logits[rows, (blue + 256 * (green // 4)) % 1000] = 5  # corrupted colours may name no class
        logits[rows, (red + 256 * (green % 4)) % 1000] = 10
        return logits


def picture(path, first, second=0, side=8):
    """A picture that Reader takes for class `first`, and then for `second`."""
    colour = (first % 256, first // 256 + 4 * (second // 256), second % 256)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (side, side), colour).save(path, format="PNG")


def evaluated(folder, *settings):
    """{setting: {metric: row}} of Reader on data below `folder`."""
    table = testbed.evaluate(
        testbed.Model("reader", None, Reader, 16),
        list(settings),
        data_root=str(folder),
        db=str(folder / "results.db"),
        gpus=["cpu"],
        quiet=True,
    )
    found = {}
    for row in table.to_dict("records"):
        found.setdefault(row["eval_setting"], {})[row["metric"]] = SimpleNamespace(**row)
    return found


@pytest.mark.parametrize("name", ["imagenet-a", "imagenet-r"])
def test_subset_is_scored_among_its_classes_and_among_all(name, tmp_path):
    inside = ENTRIES[name].class_sublist[:3]
    outside = 0  # in neither list
    for place, (first, second) in enumerate([(inside[0], 0), (outside, inside[1]), (inside[0], inside[2])]):
        picture(tmp_path / name / WNIDS[inside[place]] / "a.png", first, second)
    found = evaluated(tmp_path, name, f"{name}.full1000")
    assert found[name]["top1"].value == pytest.approx(200 / 3)
    assert found[name]["top1_full1000"].value == pytest.approx(100 / 3)
    assert found[f"{name}.full1000"]["top1"].value == pytest.approx(100 / 3)
    assert found[name]["top5"].value == pytest.approx(100)


def test_twins_take_the_validation_images_of_their_classes(tmp_path):
    a, both = ENTRIES["imagenet-a"].class_sublist, 6  # class 6 is in A and in R
    assert both in a
    for c, first in ((0, 0), (6, 6), (13, 0), (409, 530), (444, 671)):
        picture(tmp_path / "val" / WNIDS[c] / "ILSVRC2012_val_00000001.JPEG", first, c)
    twins = ["imagenet-a", "imagenet-r", "objectnet", "vid-robust", "ytbb-robust", "openimages"]
    found = evaluated(tmp_path, "val", *(f"val-on-{t}-classes" for t in twins))
    top1 = {name: (metrics["top1"].value, metrics["top1"].n) for name, metrics in found.items()}
    assert top1["val"] == (40, 5)
    assert top1["val-on-imagenet-a-classes"] == (100, 2)  # 13 is right once class 0 is out
    assert found["val-on-imagenet-a-classes"]["top1_full1000"].value == 50
    assert top1["val-on-imagenet-r-classes"] == (100, 2)
    assert top1["val-on-objectnet-classes"] == (100, 2)  # both clocks are alarm clocks, both bicycles one
    assert top1["val-on-vid-robust-classes"] == (100, 2)  # 13 is a bird, the bicycle again
    assert top1["val-on-ytbb-robust-classes"] == (100, 2)
    assert top1["val-on-openimages-classes"] == (pytest.approx(200 / 3), 3)


def test_objectnet_runs_only_mapped_folders_without_their_frame(tmp_path):
    root = tmp_path / "objectnet-1.0-beta"
    picture(root / "alarm_clock" / "a.png", 530)
    picture(root / "alarm_clock" / "b.png", 954)
    picture(root / "chair" / "a.png", 0, 765)  # class 0 is none of the 125
    picture(root / "squeegee" / "a.png", 409)
    found = evaluated(tmp_path, "objectnet-1.0-beta")["objectnet-1.0-beta"]["top1"]
    assert (found.value, found.n) == (pytest.approx(200 / 3), 3)


def test_vid_frames_count_against_their_own_labels(tmp_path):
    metric = ENTRIES["imagenet-vid-robust"].metrics_fn
    sublist = ENTRIES["imagenet-vid-robust"].class_sublist
    frames = metric.frames([])
    chosen = [anchor for anchor, near in frames.neighbours.items() if near][:3]
    for number, anchor in enumerate(chosen):
        for frame in (anchor, *frames.neighbours[anchor]):
            group = frames.labels[frame][0]
            wrong = (number == 1 and frame != anchor) or (number == 2 and frame == anchor)
            column = metric.groups[(group + 1) % 30 if wrong else group][0]
            picture(tmp_path / "imagenet-vid-robust" / "val" / frame, sublist[column])
    found = evaluated(tmp_path, "imagenet-vid-robust")["imagenet-vid-robust"]
    assert found["pm0"].value == pytest.approx(200 / 3)
    assert found["pm10"].value == pytest.approx(100 / 3)
    assert found["pm10"].n == 3


def test_ytbb_layout_tells_labels_and_anchors(tmp_path):
    root = tmp_path / "ytbb-robust"
    picture(root / "1+19" / "clip_a" / "0.jpg", 151)  # a dog
    picture(root / "1+19" / "clip_a" / "-3.jpg", 7)  # a bird
    picture(root / "19" / "clip_b" / "0.jpg", 152)
    picture(root / "19" / "clip_b" / "2.jpg", 7)
    found = evaluated(tmp_path, "ytbb-robust")["ytbb-robust"]
    assert (found["pm0"].value, found["pm10"].value, found["pm0"].n) == (100, 50, 2)


def test_tenth_of_a_corrupted_set_is_read_from_the_whole_one(tmp_path):
    for i in range(60):
        picture(tmp_path / "val" / WNIDS[i // 50] / f"ILSVRC2012_val_{i:08d}.JPEG", i // 50)
    name = "imagenet-c.gaussian_noise.1_in-memory"
    found = evaluated(tmp_path, name, f"{name}_10percent")
    assert found[f"{name}_10percent"]["top1"].n == 5  # 36 45 15 36 45: drawn with replacement
    store = open_store(str(tmp_path / "results.db"))
    whole = testbed.logits("reader", name, db=str(tmp_path / "results.db"))
    tenth = testbed.logits("reader", f"{name}_10percent", db=str(tmp_path / "results.db"))
    np.testing.assert_array_equal(tenth, whole[[36, 45, 15, 36, 45]])
    assert {r.eval_setting for r in results(store)} == {name, f"{name}_10percent"}


def test_real_labels_accept_any_of_several(tmp_path):
    pytest.importorskip("timm")
    real = ENTRIES["imagenet-real"].metrics_fn.labels()
    assert (len(real), sum(1 for labels in real if labels)) == (50_000, 46_837)
    several = next(i for i, labels in enumerate(real) if len(labels) > 1)
    none = next(i for i, labels in enumerate(real) if not labels)
    picture(tmp_path / "val" / WNIDS[0] / f"ILSVRC2012_val_{several + 1:08d}.JPEG", real[several][1])
    picture(tmp_path / "val" / WNIDS[0] / f"ILSVRC2012_val_{none + 1:08d}.JPEG", 0)
    found = evaluated(tmp_path, "imagenet-real")["imagenet-real"]["top1"]
    assert (found.value, found.n) == (100, 1)


def test_unknown_classes_are_run_with_val_and_told_apart_by_the_group(tmp_path):
    for c in range(4):
        picture(tmp_path / "val" / WNIDS[c] / "ILSVRC2012_val_00000001.JPEG", c, c)
        picture(tmp_path / "textures" / f"{c}.png", c, c + 1)
    found = evaluated(tmp_path, "textures")
    assert "msp_mean" in found["textures"]
    shown = CliRunner().invoke(db, ["--db", str(tmp_path / "results.db"), "--print-group", "reader", "ood"])
    assert shown.exit_code == 0, shown.output
    assert "1 of 6 settings" in shown.output
    assert "textures.msp.auroc" in shown.output


def test_print_group_names_near_groups_and_what_is_missing(tmp_path):
    picture(tmp_path / "imagenet-samples" / WNIDS[0] / "a.png", 0)
    evaluated(tmp_path, "imagenet-samples", "imagenet-samples.brightness.*")
    arguments = ["--db", str(tmp_path / "results.db"), "--print-group", "reader"]
    shown = CliRunner().invoke(db, [*arguments, "imagenet-samples-c"]).output
    assert "5 of 95 settings" in shown
    assert "ce.brightness" in shown
    assert not re.search(r"^(relative_)?mce +[0-9]", shown, re.MULTILINE)
    assert "did you mean" in CliRunner().invoke(db, [*arguments, "imagenet-sample-c"]).output
    assert "none of the 4" in CliRunner().invoke(db, [*arguments, "pgd"]).output


def test_published_cifar_arrays_hold_the_severities_one_after_another(tmp_path):
    setting = ENTRIES["cifar10-c.fog.3_on-disk"]
    assert setting.dataset.rows == (20_000, 30_000)
    assert setting.dataset.describe() == "array CIFAR-10-C/fog.npy[20000:30000]"
    with pytest.raises(testbed.TestbedError, match=r"zenodo\.org/records/2535967"):
        setting.dataset.open([tmp_path])
