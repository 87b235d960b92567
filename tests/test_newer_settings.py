"""Newer ImageNet settings and attacks: class lists, and tiny trees run end to end."""

import json
import sys

import numpy as np
import pytest
import torch
from click.testing import CliRunner

import testbed
import tiny
from shared_data import shared_data
from stored_results import completed
from test_imagenet_settings import ENTRIES, REGISTRY, WNIDS, Draws, Reader, evaluated, picture
from testbed.commands.database import main as db


def group_numbers(folder, group, model="reader"):
    """{number: value} that db.py prints for a group."""
    arguments = ["--db", str(folder / "results.db"), "--format", "json", "--print-group", model, group]
    shown = CliRunner().invoke(db, arguments)
    assert shown.exit_code == 0, shown.output
    return {row["metric"]: row["value"] for row in json.loads(shown.output)}


def top1(found, name):
    return found[name]["top1"].value, found[name]["top1"].n


# ---- declarations ----------------------------------------------------------------------------------------


def test_class_lists_are_the_published_ones():
    """Counts: 16 superclasses of 285 classes; 151 names for 176; 113 for 125; 164 for 464; 61; 15."""
    laion = ENTRIES["laion-c.mosaic.3"].metrics_fn.groups
    assert (len(laion), sum(map(len, laion))) == (16, 285)
    pug = ENTRIES["pug-imagenet"].metrics_fn.groups
    assert (len(pug), len({c for group in pug for c in group})) == (151, 176)
    diffusion = ENTRIES["imagenet-d-diffusion.texture"].metrics_fn.groups
    objectnet = ENTRIES["objectnet-1.0"].class_sublist
    assert (len(diffusion), {c for group in diffusion for c in group}) == (113, set(objectnet))
    domainnet = ENTRIES["imagenet-domainnet.sketch"]
    assert len(domainnet.metrics_fn.groups) == 164
    assert len(dict(domainnet.dataset.classes)) == 181
    classes = [c for group in domainnet.metrics_fn.groups for c in group]
    assert len(classes) == len(set(classes)) == 464
    assert len(ENTRIES["si-score.size"].dataset.classes) == 61
    assert len(ENTRIES["hard-imagenet-15"].class_sublist) == 15


def test_superclasses_and_names_are_those_of_the_facts():
    facts = json.loads((shared_data().parent / "facts" / "class-lists.json").read_text())
    for name, setting in (("laion_c_superclasses", "laion-c.mosaic.1"), ("pug_imagenet", "pug-imagenet")):
        entry = ENTRIES[setting]
        groups = {folder: list(entry.metrics_fn.groups[number]) for folder, number in entry.dataset.classes}
        assert groups == facts[name]


@pytest.mark.parametrize(
    ("group", "members"),
    [("imagenet-p", 10), ("imagenet-es", 64), ("laion-c", 30), ("imagenet-domainnet", 6), ("pgd_as-published", 4)],
)
def test_groups(group, members):
    assert len(REGISTRY.expand_eval_settings([group])) == members


def test_attacks_are_declared_at_the_compared_radii():
    """RobustBench: ImageNet linf 4/255, CIFAR-10 linf 8/255 and l2 0.5."""
    radii = {
        "apgd-ce.linf.eps4": 4 / 255,
        "apgd-dlr.linf.eps4": 4 / 255,
        "autoattack.linf.eps4": 4 / 255,
        "cifar10.apgd-dlr.linf.eps8": 8 / 255,
        "cifar10.autoattack.l2.eps0.5": 0.5,
    }
    assert {name: ENTRIES[name].adversarial_attack["eps"] for name in radii} == radii
    for name in radii:
        images = torch.full((2, 3, 8, 8), 0.5)
        if "autoattack" not in name:  # wrong already, so that nothing is to be done
            attacked = ENTRIES[name].perturbation_fn_gpu(
                images, lambda x: torch.eye(3)[:2], torch.tensor([2, 2]), Draws()
            )
            assert torch.equal(attacked, images)


@pytest.mark.parametrize("name", ["pgd.l2.eps0.5", "pgd.linf.eps2"])
def test_published_conventions_are_declared_and_recorded(name):
    plain, published = ENTRIES[name].adversarial_attack, ENTRIES[f"{name}_as-published"].adversarial_attack
    assert published == {**plain, "labels": "predicted", "clip": False}
    assert ("eps_is_for_side" in plain) == ("l2" in name)
    images = torch.zeros((2, 3, 16, 16))
    weight = torch.randn(2, 3 * 16 * 16, generator=torch.Generator().manual_seed(1))
    attacked = ENTRIES[f"{name}_as-published"].perturbation_fn_gpu(
        images, lambda x: x.flatten(1) @ weight.T, torch.tensor([-1, -1]), Draws()
    )
    assert attacked.min() < 0  # black pixels become blacker than black
    child = REGISTRY.runnable(f"{name}_as-published_10percent")
    assert child.adversarial_attack == published


def test_parameters_of_an_attack_are_recorded_with_the_result(tmp_path):
    _, store = tiny.run(tmp_path, ["tiny_a"], ["tiny.attack", "tiny"])
    attacked, plain = (completed(store, "tiny_a", s).provenance for s in ("tiny.attack", "tiny"))
    assert attacked.other["adversarial_attack"] == {"eps": 1}
    assert "adversarial_attack" not in plain.other


# ---- tiny trees ------------------------------------------------------------------------------------------


def test_flip_rates_and_mfr_of_imagenet_p(tmp_path):
    kinds = [name.removeprefix("imagenet-p.") for name in REGISTRY.expand_eval_settings(["imagenet-p"])]
    for kind in kinds:
        for frame, (first, second) in enumerate([(1, 2), (1, 3), (4, 3), (1, 3)], start=1):
            picture(tmp_path / "imagenet-p" / kind / WNIDS[0] / "clip" / f"{frame:03d}.jpg", first, second)
    found = evaluated(tmp_path, "imagenet-p")
    assert found["imagenet-p.brightness"]["flip_rate"].value == pytest.approx(200 / 3)
    assert found["imagenet-p.shot_noise"]["flip_rate"].value == pytest.approx(100 / 3)
    assert "mfr" not in group_numbers(tmp_path, "imagenet-p")

    class Contrary(torch.nn.Module):
        """Answers with the second choice: 2, 3, 3, 3."""

        def forward(self, images):
            seen = Reader()(images)
            return torch.where(seen == 10, 5, torch.where(seen == 5, 10, seen))

    place = str(tmp_path / "results.db")
    contrary = testbed.Model("contrary", None, Contrary, 16)
    testbed.evaluate(contrary, ["imagenet-p"], data_root=str(tmp_path), db=place, gpus=["cpu"], quiet=True)
    assert CliRunner().invoke(db, ["--db", place, "--rename-model", "contrary", "alexnet"]).exit_code == 0
    assert group_numbers(tmp_path, "imagenet-p", "alexnet")["mfr"] == pytest.approx(100)
    own = group_numbers(tmp_path, "imagenet-p")
    assert own["mean_flip_rate"] == pytest.approx((8 * 200 + 2 * 100) / 30)
    assert own["mfr"] == pytest.approx((8 * 200 + 2 * 100 / 3) / 10)  # twice AlexNet's, or a third for noise


def test_pictures_that_were_made(tmp_path):
    folder = tmp_path / "laion-c" / "mosaic" / "intensity_level_2"
    bird, dog = (ENTRIES["laion-c.mosaic.2"].metrics_fn.groups[n] for n in (14, 15))
    picture(folder / "bird" / "a.png", bird[0], bird[1])
    picture(folder / "dog" / "b.png", bird[0], dog[0])
    picture(tmp_path / "ImageNet-D" / "texture" / "bicycle" / "a.png", 671)
    picture(tmp_path / "ImageNet-D" / "texture" / "bench" / "a.png", 0, 703)  # among all 1000 classes
    picture(tmp_path / "si-score" / "area" / "koala" / "1.jpg", 105)
    picture(tmp_path / "si-score" / "area" / "zebra" / "2.jpg", 105)
    pug = tmp_path / "pug-imagenet"
    picture(pug / "City" / "1.png", 841)
    picture(pug / "City" / "2.png", 270)
    picture(pug / "City" / "3.png", 5)
    (pug / "labels_pug_imagenet.csv").write_text(
        "world_name,character_label,filename\nCity,Shirt,City/1.png\nCity,Wolf,City/2.png\nCity,Fox,City/3.png\n"
    )
    names = ["laion-c.mosaic.2", "imagenet-d-diffusion.texture", "si-score.size", "pug-imagenet"]
    found = evaluated(tmp_path, *names)
    assert [top1(found, name) for name in names] == [(50, 2), (50, 2), (50, 2), (pytest.approx(200 / 3), 3)]
    assert group_numbers(tmp_path, "laion-c")["mean_top1"] == 50


def test_laion_c_compares_mean_probabilities(tmp_path):
    """Two of a small superclass's classes at 5 beat one of a large one's at 10? Not by the sum, but by the mean."""
    groups = ENTRIES["laion-c.mosaic.1"].metrics_fn.groups
    ball = next(i for i, name in enumerate(dict(ENTRIES["laion-c.mosaic.1"].dataset.classes)) if name == "ball")
    logits = np.full((1, 1000), -20.0, dtype=np.float32)
    logits[0, list(groups[ball])] = 2.0  # every ball a little
    logits[0, groups[15][0]] = 4.0  # one of 100 or so dogs rather more
    found = ENTRIES["laion-c.mosaic.1"].metrics_fn(logits, np.array([ball]))
    assert np.exp(4) / len(groups[15]) < np.exp(2)
    assert found["top1"].value == 100


def test_imagenets_classes_elsewhere(tmp_path):
    picture(tmp_path / "imagenet-hard" / "409+530" / "1.jpg", 530)
    picture(tmp_path / "imagenet-hard" / "7" / "2.jpg", 8, 7)
    for folder, first in (("telephone", 487), ("cell_phone", 528), ("zigzag", 0), ("zebra", 339)):
        picture(tmp_path / "domainnet" / "sketch" / folder / "a.png", first)
    picture(tmp_path / "ImageNet-ES" / "es-test" / "auto_exposure" / "l5" / "param_3" / WNIDS[9] / "a.JPEG", 9)
    for c, first in ((379, 379), (416, 0), (5, 5)):
        picture(tmp_path / "val" / WNIDS[c] / f"ILSVRC2012_val_{c:08d}.JPEG", first, c)
    names = ["imagenet-hard", "imagenet-domainnet.sketch", "imagenet-es.auto_exposure.l5.3", "hard-imagenet-15"]
    found = evaluated(tmp_path, *names)
    assert [top1(found, name) for name in names] == [(50, 2), (pytest.approx(200 / 3), 3), (100, 1), (100, 2)]
    assert found["hard-imagenet-15"]["top1_full1000"].value == 50


def test_imagenet_e_by_edit(tmp_path):
    root = tmp_path / "ImageNet-E"
    for folder, ending, seen in (("ori", "JPEG", 3), ("full", "JPEG", 3), ("inver", "png", 4)):
        picture(root / folder / f"ILSVRC2012_val_00000007.{ending}", seen)
    (root / "labels.txt").write_text("ILSVRC2012_val_00000007.JPEG\t3\n")
    found = evaluated(tmp_path, "imagenet-e")["imagenet-e"]
    assert {name: row.value for name, row in found.items()} == {
        "top1": 50,
        "top1.ori": 100,
        "top1.full": 100,
        "top1.inver": 0,
    }


def test_spurious_features_are_held_against_validation_images_of_the_class(tmp_path):
    for number, (c, first, second) in enumerate([(17, 17, 0), (17, 0, 17), (3, 3, 0)]):
        picture(tmp_path / "val" / WNIDS[c] / f"ILSVRC2012_val_{number:08d}.JPEG", first, second)
    folder = tmp_path / "spurious_imagenet" / "images" / "class_idx_17_comp_2"
    picture(folder / "a.jpg", 17, 5)
    picture(folder / "b.jpg", 4, 5)
    found = evaluated(tmp_path, "spurious-imagenet")
    assert found["spurious-imagenet"]["taken_for_class"].value == 50
    assert top1(found, "val") == (pytest.approx(200 / 3), 3)
    # Two pictures of the class with probability high and middle, two others with high and low: 2.5 of 4 pairs right.
    numbers = group_numbers(tmp_path, "spurious-score")
    assert numbers["spurious_auroc"] == pytest.approx(100 * (0.5 + 1 + 0 + 1) / 4, abs=1)


def test_watermark_is_that_of_the_authors_and_the_gaps_are_printed(tmp_path):
    theirs = pytest.importorskip("imagenet_w", reason="pip install imagenet-w")
    image = torch.rand(3, 64, 64, generator=torch.Generator().manual_seed(0)).mul(255).round().div(255)
    ours = ENTRIES["imagenet-w"].perturbation_fn_cpu(image)
    assert torch.equal(ours, theirs.AddWatermark(64)(image))
    assert not torch.equal(ours, image)
    for c in (478, 5):
        picture(tmp_path / "val" / WNIDS[c] / f"ILSVRC2012_val_{c:08d}.JPEG", c, side=32)
    found = evaluated(tmp_path, "imagenet-w")
    assert found["imagenet-w.clean"]["top1_carton"].value == 100
    assert set(group_numbers(tmp_path, "imagenet-w-gaps")) == {"in_w_gap", "carton_gap", "p_carton_gap"}


def test_a_missing_watermark_package_is_one_line(monkeypatch):
    module = sys.modules["testbed.perturb.watermark"]
    module._writer.cache_clear()
    monkeypatch.setitem(sys.modules, "imagenet_w", None)
    with pytest.raises(testbed.TestbedError, match="pip install imagenet-w"):
        module.watermark(torch.zeros(3, 8, 8))
