"""What pip installs: a wheel that carries registry and figures, and works in an empty folder without a clone."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

import testbed

ROOT = Path(__file__).parents[1]
BUILT_FROM = ("src", "registry", "plotting", "pyproject.toml", "setup.py", "requirements.txt", "README.md", "LICENSE")
BUILT_FROM += ("MANIFEST.in",)
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from a copy, since a build writes into its source tree; offline, by the setuptools that is here."""
    if tuple(map(int, version("setuptools").split(".")[:2])) < (70, 1):
        pytest.skip("setuptools 70.1 or later builds wheels by itself")
    copy = tmp_path_factory.mktemp("source")
    for name in BUILT_FROM:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copy(ROOT / name, copy)
    target = tmp_path_factory.mktemp("wheel")
    pip("wheel", str(copy), "--no-build-isolation", "--wheel-dir", str(target))
    (file,) = target.glob("robustness_testbed-*.whl")
    return file


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """A folder with the wheel in it. On PYTHONPATH it goes before an editable install of the clone."""
    folder = tmp_path_factory.mktemp("installed")
    pip("install", str(wheel), "--target", str(folder))
    return folder


@pytest.fixture
def run(installed, tmp_path):
    """A function that runs `testbed` in an empty folder, as installed, and returns what it printed."""
    folder = tmp_path / "empty"
    folder.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(installed), "COLUMNS": "100"}

    def call(*words, fails=False, timeout=120):
        script = [sys.executable, str(installed / "bin" / "testbed"), *map(str, words)]
        done = subprocess.run(script, cwd=folder, env=environment, capture_output=True, text=True, timeout=timeout)
        assert (done.returncode != 0) == fails, done.stdout + done.stderr
        return done.stderr if fails else done.stdout

    call.folder = folder
    return call


def pip(*words):
    command = [sys.executable, "-m", "pip", *words, "--no-deps", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def files(folder):
    return {p.relative_to(folder) for p in folder.rglob("*") if p.is_file() and "__pycache__" not in p.parts}


# ---- what is in it -------------------------------------------------------------------------------------------


def test_the_wheel_has_every_file_of_the_package_the_registry_and_the_figures(wheel):
    expected = {Path("testbed", name) for name in files(ROOT / "src" / "testbed")}
    expected |= {Path("testbed/_registry", name) for name in files(ROOT / "registry")}
    expected |= {Path("testbed/_plotting", name) for name in files(ROOT / "plotting")}
    with zipfile.ZipFile(wheel) as archive:
        inside = {Path(name) for name in archive.namelist() if ".dist-info/" not in name}
    assert inside == expected
    assert Path("testbed/_registry/weights/digits/digits_cnn.safetensors") in inside


def test_the_wheel_needs_what_requirements_txt_lists(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = archive.read(name).decode()
    needed = set(re.findall(r"^Requires-Dist: (\S+)$", metadata, re.MULTILINE))
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    assert needed == {line for line in lines if re.match(r"[a-z]", line)}
    assert "torch>=2.2" in needed


def test_the_extra_all_has_every_other_extra():
    extras = PYPROJECT["project"]["optional-dependencies"]
    (every,) = extras["all"]
    assert every == f"robustness-testbed[{','.join(sorted(set(extras) - {'all'}))}]"


def test_the_version_is_the_same_everywhere():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert PYPROJECT["project"]["version"] == testbed.__version__
    assert f"\nversion: {testbed.__version__}\n" in citation


def test_no_module_of_the_figures_has_the_name_of_one_of_python():
    """Python 3.14 has a built-in module `_types`, which would be imported in the place of a file of that name."""
    names = {path.stem for path in (ROOT / "plotting").glob("*.py")}
    assert not names & {*sys.stdlib_module_names, "_types"}


# ---- what it does where there is no clone ----------------------------------------------------------------


def test_a_run_a_query_a_figure_and_the_explorer_in_an_empty_folder(run, image_folder):
    pictures = image_folder([f"{label}/picture.png" for label in range(10)], size=32)
    settings = ("digits", "digits.contrast.3", f"folder:{pictures}")
    run("eval", "--models", "digits_linear", "digits_mlp", "--eval-settings", *settings, "--limit", 10)
    assert (run.folder / "results" / "results.db").is_file()
    for setting in settings:
        rows = json.loads(run("db", "show", "digits_mlp", setting, "--format", "json"))
        assert (rows[0]["metric"], rows[0]["n"]) == ("top1", 10)
    run("plot", "scatter", "--x", "digits", "--y", "digits.contrast.3", "--out", "figure.png")
    assert (run.folder / "figure.png").read_bytes()[1:4] == b"PNG"
    assert "2 models, 3 settings" in run("explorer")
    assert "digits_mlp" in (run.folder / "results" / "explorer.html").read_text(encoding="utf-8")


def test_entries_of_the_working_directory_are_read_and_no_others_of_its_kind(run):
    models = run.folder / "registry" / "models"
    models.mkdir(parents=True)
    (models / "mine.py").write_text(
        "from testbed import Model, StandardNormalization, StandardTransform, registry\n"
        "registry.add_model(Model(name='mine', transform=StandardTransform(img_resize_size=8, img_crop_size=8),\n"
        "    normalization=StandardNormalization(mean=[0.5] * 3, std=[0.5] * 3), classifier_loader=lambda: None,\n"
        "    eval_batch_size=8))\n"
    )
    listed = run("db", "--list-models-registry", "--filter", "mine")
    assert "mine" in listed
    (run.folder / "src" / "testbed").mkdir(parents=True)  # a clone, whose registry the package carries already
    assert "no model matches 'mine'" in run("db", "--list-models-registry", "--filter", "mine", fails=True)


def test_the_environment_tells_where_everything_is(run, installed):
    told = {row["what"]: row["value"] for row in json.loads(run("db", "environment", "--format", "json"))}
    assert told["testbed"] == f"{testbed.__version__} (installed)"
    assert told["registry folder"] == str(installed.resolve() / "testbed" / "_registry")
    assert told["results folder"] == str(run.folder.resolve() / "results")
    assert told["stored"] == "nothing yet"


def test_mistakes_are_answered_in_the_words_of_the_command(run):
    assert "did you mean scatter?" in run("plot", "scater", fails=True)
    nothing = run("db", "show", "resnet50", "val", fails=True)
    assert nothing.startswith("Error: there is no results database") and "run testbed eval first" in nothing
    assert "`testbed db --list-models-registry`" in run(
        "eval", "--models", "qqqq", "--eval-settings", "digits", fails=True
    )


@pytest.mark.long
def test_pictures_of_a_folder_with_a_timm_model_and_own_weights(run, image_folder):
    import timm
    import torch

    pictures = image_folder([f"{label}/{i}.png" for label in ("n01440764", "n01443537") for i in range(2)], size=64)
    torch.manual_seed(0)
    network = timm.create_model("test_vit.r160_in1k", pretrained=False)
    torch.save(network.state_dict(), run.folder / "mine.pth")
    model = ("--models", "timm:test_vit.r160_in1k", "--checkpoint", "mine.pth")
    assert "top1" in run("eval", *model, "--eval-settings", f"folder:{pictures}")


@pytest.mark.long
def test_the_demo_runs_in_an_empty_folder(run):
    told = run("demo", timeout=600)
    assert "$ testbed autoeval" in told and ".gaussian_noise.1-5" in told
    for name in ("demo.db", "explorer.html", "label-free.csv", "figures/digits.png", "figures/digits.pdf"):
        assert (run.folder / "results" / name).is_file(), name
