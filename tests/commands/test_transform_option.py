"""`eval.py --transform`, and what is told of a network that says nothing of its input."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import nn

import tiny
from guides import run_command
from models.hf_folders import save_model
from stored_results import completed
from testbed.store.opening import open_store


class Mean(nn.Module):
    """The mean of each channel as three logits."""

    def forward(self, images):
        return images.mean(dim=(2, 3))


@pytest.fixture
def run(tmp_path, image_folder, monkeypatch):
    image_folder([f"{label}/{i}.png" for label in "abc" for i in range(2)], root="data/three", size=40)
    monkeypatch.setenv("TESTBED_REGISTRY", str(tiny.REGISTRY))
    monkeypatch.setattr(torch.hub, "load", lambda *_, **__: Mean())
    return lambda words: run_command(f"python eval.py --gpus cpu {words}", tmp_path, monkeypatch)


HUB = "--models hub:owner/repository:net --eval-settings folder:data/three"
ASSUMED = "hub:owner/repository:net: torch.hub does not say what pictures it takes; assumed is resize=256,crop=224"


def test_what_is_assumed_of_a_hub_network_is_told_before_the_run_and_recorded(run, tmp_path):
    output, exit_code = run(HUB)
    assert exit_code == 0 and output.index(ASSUMED) < output.index("top1")
    provenance = completed(open_store(), "hub:owner/repository:net", "folder:data/three").provenance
    assert "assumed is resize=256,crop=224" in provenance.other["input_note"]
    assert ASSUMED not in run(HUB)[0], "a stored result is told once"


def test_network_of_a_repository_that_is_known_is_not_doubted(run):
    output, _ = run("--models hub:chenyaofo/pytorch-cifar-models:cifar10_resnet20 --eval-settings folder:data/three")
    assert "assumed" not in output


def test_results_under_another_transform_stand_beside_the_default_ones(run, tmp_path):
    words = "crop=20,resize=24,mean=0.5,std=0.25"
    run(HUB)
    output, exit_code = run(f"{HUB} --transform {words}")
    assert exit_code == 0 and "assumed" not in output
    name = "hub:owner/repository:net@resize=24,crop=20,mean=0.5,std=0.25"
    told, plain = (completed(open_store(), n, "folder:data/three").provenance for n in (name, name.partition("@")[0]))
    assert told.model_transform == "StandardTransform(img_resize_size=24, img_crop_size=20, interpolation='bilinear')"
    assert "img_resize_size=256" in plain.model_transform
    output, _ = run(f"{HUB} --transform resize=24,crop=20,std=0.25,mean=0.5 --dry-run")
    assert "1 done" in output


def test_every_model_named_is_prepared_so(run):
    output, exit_code = run(
        "--models tiny_pictures --eval-settings folder:data/three --transform interpolation=bicubic"
    )
    assert exit_code == 0, output
    assert completed(open_store(), "tiny_pictures@interpolation=bicubic", "folder:data/three")


def test_words_that_are_not_understood_stop_the_run(run):
    output, exit_code = run(f"{HUB} --transform size=224")
    assert exit_code == 1
    assert "Error: transform 'size=224': expected resize=256 or 256x320 or none, crop=224, mean=" in output


PLAN = """
import sys
from testbed.commands.evaluate import main
main(["--models", sys.argv[1], "--eval-settings", "folder:data/three", "--dry-run"], standalone_mode=False)
print(sorted({"torch", "timm", "transformers", "tokenizers"} & set(sys.modules)))
"""


def test_a_model_of_transformers_is_planned_without_importing_it_again(run, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    save_model(tmp_path / "model", names=("a", "b", "c"))
    output, _ = run("--models hf:model --eval-settings folder:data/three --dry-run")
    assert "1 to run" in output
    done = subprocess.run(
        [sys.executable, "-c", PLAN, "hf:model"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "1 to run" in done.stdout and done.stdout.splitlines()[-1] == "[]"
