"""The brief of the ImageNet Testbed, line by line: one test for each row of docs/briefs/imagenet-testbed.md."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from local_server import Server
from shared_data import shared_data
from testbed.commands.database import main as db_main
from testbed.commands.evaluate import main as eval_main
from testbed.engine.pools import InlinePool
from testbed.entries.registry import Registry, default_folder, load_registry
from testbed.store.find import find_one
from testbed.store.measuring import outputs_of
from testbed.store.opening import open_store

ROOT = Path(__file__).parents[2]
# Read before the fixture that clears the environment.
ORIGINAL = os.environ.get("TESTBED_ORIGINAL", "")
PUBLISHED = "imagenet-testbed-results"
# The names that the ImageNet Testbed's files import from.
ADDRESSES = ("registry", "models", "eval_settings", "mldb")

# The two files of the brief, with a network that needs no weights in place of ResNet-50, and another name.
MODEL = """
from registry import registry
from models.model_base import Model, StandardTransform, StandardNormalization


def net():
    import torch

    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten(), torch.nn.Linear(48, 2))


registry.add_model(
    Model(
        name = '{name}',
        transform = StandardTransform(img_resize_size=10, img_crop_size=8),
        normalization = StandardNormalization(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225]),
        classifier_loader = lambda: net(),
        eval_batch_size = 256,
        arch = 'resnet50',{more}
    )
)
"""
SETTING = """
from registry import registry
from eval_settings.eval_setting_base import EvalSetting, StandardDataset, accuracy_topk

registry.add_eval_setting(
    EvalSetting(
        name = '{name}',
        dataset = StandardDataset(path={path!r}),
        size = 6,{more}
    )
)
"""
PICTURES = [f"{kind}/{i}.png" for kind in ("cat", "dog") for i in range(3)]


@pytest.fixture
def folder(tmp_path, monkeypatch, image_folder):
    """A working directory, six pictures in two class folders, and a registry folder `mine` for files of the brief."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("testbed.engine.run.ProcessPool", _inline)
    image_folder(PICTURES, "pictures", size=12)
    for part in ("models", "eval_settings"):
        (tmp_path / "mine" / part).mkdir(parents=True)
    return tmp_path


def _inline(devices, options, threads):
    return InlinePool("cpu", options, load_registry(options.registry))


def write(folder, model="my_model", setting="my_setting", model_more="", setting_more="", head=""):
    path = str(folder / "pictures")
    (folder / "mine/models/new_model.py").write_text(head + MODEL.format(name=model, more=model_more))
    text = head + SETTING.format(name=setting, path=path, more=setting_more)
    (folder / "mine/eval_settings/new_eval_setting.py").write_text(text)


def typed(main, *words, fails=False):
    """What a command prints, on both streams."""
    result = CliRunner().invoke(main, [str(w) for w in words], catch_exceptions=False)
    assert (result.exit_code != 0) == fails, result.output
    return result.output


def run_mine(*more, fails=False, model="my_model", setting="my_setting"):
    words = ("--gpus", "cpu", "--models", model, "--eval-settings", setting, "--registry", "mine", *more)
    return typed(eval_main, *words, fails=fails)


def script(path, *words, cwd, **environment):
    done = subprocess.run(
        [sys.executable, str(path), *map(str, words)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environment},
    )
    return done.stdout + done.stderr, done.returncode


def stored(model="my_model", setting="my_setting"):
    return find_one(open_store(), model, setting)


# ---- running evaluations ---------------------------------------------------------------------------------


def test_the_example_command_plans_its_four_pairs(folder):
    settings = ("val", "imagenetv2-matched-frequency")
    words = ("--gpus", 0, 1, "--models", "resnet50", "densenet121", "--eval-settings", *settings, "--dry-run")
    told = typed(eval_main, *words)
    assert all(m in told and s in told for m in ("resnet50", "densenet121") for s in settings)
    assert "4 pairs" in told


@pytest.mark.parametrize(
    ("flag", "name"), [("--list-models-registry", "resnet50"), ("--list-eval-settings-registry", "val")]
)
def test_lists_of_the_registry_have_the_names_of_the_brief(flag, name):
    assert re.search(rf"^{name} ", typed(db_main, flag), re.MULTILINE)


# ---- viewing results -------------------------------------------------------------------------------------


@pytest.fixture
def served(folder, monkeypatch):
    """The registered download of the published results, with its checksum, from a server on this machine."""
    content = shared_data("testbed", "robustness_top1s.csv").read_bytes()
    server = Server()
    server.files["robustness_top1s.csv"] = content
    entry = json.loads((default_folder() / "metadata/downloads.json").read_text())[PUBLISHED]
    entry["files"][0]["url"] = server.url("robustness_top1s.csv")
    (folder / "mine/metadata").mkdir()
    (folder / "mine/metadata/downloads.json").write_text(json.dumps({PUBLISHED: entry}))
    monkeypatch.setenv("TESTBED_REGISTRY", str(folder / "mine"))
    yield server
    server.close()


def test_published_results_are_downloaded_imported_and_printed(served):
    told = typed(db_main, "--download", PUBLISHED)
    (command,) = re.findall(r"`python db\.py (.*)`", told)
    assert command.startswith("--import-csv data/imagenet-testbed/robustness_top1s.csv --source imagenet-testbed")
    typed(db_main, *command.split())
    # 6619 of 18514 images: resnet50 in robustness_top1s.csv
    told = typed(db_main, "--print-eval", "resnet50", "objectnet-1.0-beta")
    assert f"{100 * 6619 / 18514:.2f}" in told
    assert "already there" in typed(db_main, "--download", PUBLISHED)


def test_the_registered_address_and_checksum_are_those_of_the_published_file():
    entry = json.loads((default_folder() / "metadata/downloads.json").read_text())[PUBLISHED]["files"][0]
    assert "modestyachts/imagenet-testbed/0170eec658d664289d9f61de8f90f967f49abca0/" in entry["url"]
    content = shared_data("testbed", "robustness_top1s.csv").read_bytes()
    assert entry["checksum"] == f"sha256:{hashlib.sha256(content).hexdigest()}"
    assert entry["size"] == len(content)


def test_print_eval_without_published_results_says_how_to_get_them(folder):
    for _ in range(2):  # without a database, and with one that has no such result
        told = typed(db_main, "--print-eval", "resnet50", "objectnet-1.0-beta", fails=True)
        assert f"`python db.py --download {PUBLISHED}`" in told and len(told.splitlines()) == 1
        open_store(create=True)


def test_figures_of_the_paper_without_published_results_say_the_command(tmp_path):
    (tmp_path / "results").mkdir()
    told, code = script(ROOT / "plotting/paper.py", cwd=tmp_path)
    assert code == 1 and f"`python db.py --download {PUBLISHED}`" in told and len(told.splitlines()) == 1


@pytest.fixture
def clone(tmp_path):
    """A copy of the project, which a test may write into; its results hold a small published table."""
    project = tmp_path / "clone"
    project.mkdir()
    for name in ("src", "registry"):
        (project / name).symlink_to(ROOT / name)
    for name in ("eval.py", "db.py", "autoeval.py"):
        (project / name).write_text((ROOT / name).read_text())
    (project / "src").unlink()
    import shutil

    for name in ("src", "plotting"):
        shutil.copytree(ROOT / name, project / name, ignore=shutil.ignore_patterns("__pycache__"))
    (project / "results").mkdir()
    table = project / "table.csv"
    table.write_text("model,val,imagenet-sketch\n" + "".join(f"m{i},{50 + i},{20 + i}\n" for i in range(4)))
    told, code = script(
        project / "db.py", "--import-csv", table, "--source", "there", cwd=project, PYTHONPATH=str(project / "src")
    )
    assert code == 0, told
    return project


def test_the_grid_is_drawn_from_the_plotting_folder(clone):
    told, code = script("grid.py", cwd=clone / "plotting", PYTHONPATH=str(clone / "src"))
    assert code == 0, told
    assert (clone / "results/figures/grid.png").is_file() and not (clone / "plotting/results").exists()


def test_scripts_find_the_projects_results_and_data_from_anywhere(clone, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    path = str(clone / "src")
    told, code = script(clone / "db.py", "--list-models-db", cwd=elsewhere, PYTHONPATH=path)
    assert code == 0 and "m3" in told
    (clone / "data/val/n01440764").mkdir(parents=True)
    told, _ = script(
        *(clone / "eval.py", "--models", "resnet50", "--eval-settings", "val", "--dry-run"),
        cwd=elsewhere,
        PYTHONPATH=path,
    )
    assert str(clone / "data/val") in told
    told, _ = script(clone / "autoeval.py", "--list", cwd=elsewhere, PYTHONPATH=path)
    assert "there is no results database" not in told
    # A folder `results` of the working directory goes first, as it always did.
    (elsewhere / "results").mkdir()
    told, code = script(clone / "db.py", "--list-models-db", cwd=elsewhere, PYTHONPATH=path)
    assert code == 1 and "there is no results database results/results.db yet" in told


def test_scripts_of_the_brief_have_an_answer_in_the_guide_to_figures():
    guide = (ROOT / "docs/plotting.md").read_text()
    for name, ours in (("paper_plots.sh", "plotting/paper.py"), ("paper_appendix_grid.py", "plotting/grid.py")):
        (line,) = [line for line in guide.splitlines() if name in line]
        assert ours in line


def test_lists_of_the_database_have_published_models_that_cannot_be_run(served):
    typed(db_main, "--import-csv", shared_data("testbed", "robustness_top1s.csv"), "--source", "imagenet-testbed")
    assert "resnet50_augmix" in typed(db_main, "--list-models-db")
    assert "objectnet-1.0-beta" in typed(db_main, "--list-eval-settings-db")


# ---- adding models ---------------------------------------------------------------------------------------


def test_the_model_of_the_brief_runs_with_its_own_import_lines(folder):
    write(folder)
    assert "my_model" in run_mine()
    assert stored().n_images == 6


def test_a_name_that_is_registered_is_left_out_and_told(folder):
    write(folder, model="resnet50")
    told = typed(db_main, "--list-models-registry", "--registry", "mine", "--filter", "resnet50")
    assert "'resnet50' left out, since the name is registered" in told
    assert load_registry(("mine",)).model("resnet50").tags  # ours has tags, that of the brief has none


def test_the_import_lines_work_there_and_nowhere_else(folder, monkeypatch):
    theirs = type(sys)("models")
    monkeypatch.setitem(sys.modules, "models", theirs)
    write(folder, head=f"import sys\nassert not {set(ADDRESSES) - {'models'}!r} & set(sys.modules)\n")
    named = lambda: {name for name in sys.modules if name.split(".")[0] in ADDRESSES}  # noqa: E731
    before = named()  # a folder of tests may have such a name
    registry = load_registry(("mine",))
    assert not registry.broken and "my_model" in registry.models.entries
    assert sys.modules["models"] is theirs
    assert named() == before
    with pytest.raises(ModuleNotFoundError):
        __import__("mldb")


IMPORTS = {
    "from": "from models.model_base import Model, StandardTransform\nfrom mldb.utils import load_model_state_dict\n",
    "module": "import models.model_base\nModel = models.model_base.Model\n",
    "as": "import models.model_base as base\nModel = base.Model\n",
    "from package": "from models import model_base\nModel = model_base.Model\nfrom mldb import s3_utils\n",
    "helper file": "from models.helper import Model\n",
    "helper package": "from models import lpf\nModel = lpf.Model\n",
    "all": "from models.model_base import *\nfrom eval_settings.image_utils import *\nassert callable(fog)\n",
    "lists": "from eval_settings.eval_setting_subsample import idx_subsample_list_50k_10percent, class_sublist_1_8\n"
    "assert len(idx_subsample_list_50k_10percent) == 5000 and len(class_sublist_1_8) == 125\n"
    "from models.model_base import Model\n",
    "attack": "from eval_settings.pgd_attack import pgd_style_attack\nfrom models.model_base import Model\n",
}


@pytest.mark.parametrize("form", IMPORTS)
def test_every_form_of_import_line_resolves(folder, form):
    models = folder / "mine/models"
    (models / "helper.py").write_text("from models.model_base import Model\n")
    (models / "lpf").mkdir()
    (models / "lpf/__init__.py").write_text("from .inner import *\n")
    (models / "lpf/inner.py").write_text("import torch\nfrom .other import Model\n")
    (models / "lpf/other.py").write_text("from models.model_base import Model\n")
    (models / "model_base.py").write_text("raise SystemExit('the helper of the original is not run')\n")
    lines = f"from registry import registry\n{IMPORTS[form]}"
    entry = "registry.add_model(Model('x', None, lambda: None, 4, 'some-arch', None, None, 2))\n"
    (models / "plugin.py").write_text(lines + entry)
    registry = Registry()
    registry.load_folder(folder / "mine")
    assert registry.broken == {}
    model = registry.model("x")
    assert (model.eval_batch_size, model.arch, model.adversarial_batch_size) == (4, "some-arch", 2)


def test_an_import_inside_a_loader_works_when_it_is_called(folder):
    write(folder)
    path = folder / "mine/models/new_model.py"
    (folder / "mine/models/later.py").write_text("from models.model_base import Model\nWORD = 5\n")
    late = "    import torch\n    from models import later\n    from mldb.utils import load_model_state_dict\n"
    path.write_text(path.read_text().replace("    import torch\n", late + "    assert later.WORD == 5\n"))
    run_mine()


def test_a_package_that_is_not_installed_is_named_and_other_files_load(folder):
    write(folder)
    (folder / "mine/models/a_clip.py").write_text("import not_there_at_all\nfrom registry import registry\n")
    told = run_mine()
    assert "a_clip.py was not loaded: it needs the package not_there_at_all, which is not installed (line 1)" in told


def test_weights_of_that_name_are_taken_from_the_weights_folder(folder, monkeypatch):
    import torch

    write(folder, model="my/model")
    path = folder / "mine/models/new_model.py"
    loading = "def load():\n    network = net()\n    load_model_state_dict(network, 'my/model')\n    return network\n"
    text = (
        path.read_text()
        .replace("lambda: net()", "load")
        .replace("\nregistry.add_model", f"\n{loading}\n\nregistry.add_model")
    )
    path.write_text("from mldb.utils import load_model_state_dict\n" + text)
    told = run_mine(model="my/model", fails=True)
    assert "put my_model.pth into results/weights or the folder TESTBED_WEIGHTS names" in told
    network = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten(), torch.nn.Linear(48, 2))
    torch.nn.init.zeros_(network[2].weight)
    network[2].bias.data = torch.tensor([3.0, 7.0])
    (folder / "weights").mkdir()
    torch.save({"state_dict": network.state_dict()}, folder / "weights/my_model.pth")
    monkeypatch.setenv("TESTBED_WEIGHTS", str(folder / "weights"))
    run_mine(model="my/model")
    outputs = outputs_of(open_store(), load_registry(("mine",)), stored("my/model"))
    assert np.array(outputs.logits).tolist() == [[3.0, 7.0]] * 6


def test_a_loader_without_a_network_says_which_file_to_put_where(folder, monkeypatch):
    import torch
    from torchvision.models import resnet18

    write(folder, model_more="")
    path = folder / "mine/models/new_model.py"
    path.write_text(path.read_text().replace("lambda: net()", "lambda: resnet18(pretrained=True)"))
    path.write_text("from torchvision.models import resnet18\n" + path.read_text())
    monkeypatch.setenv("TORCH_HOME", str(folder / "torch"))
    monkeypatch.setattr("torch.hub.urlopen", _no_network)
    told = run_mine(fails=True)
    assert "put resnet18-f37072fd.pth into results/weights" in told  # the name that torchvision's address ends in
    # A file of that name in the weights folder is taken before the network is asked.
    (folder / "results/weights").mkdir(parents=True)
    state = resnet18(weights=None).state_dict()
    torch.save(state, folder / "results/weights/resnet18-f37072fd.pth")
    assert "its name promises the sha256 f37072fd..." in run_mine(fails=True)


def _no_network(*_, **__):
    from urllib.error import URLError

    raise URLError("no network here")


@pytest.mark.parametrize("place", ["registry/new_model.py", "src/models/new_model.py", "src/eval_settings/new.py"])
def test_a_file_that_is_not_read_is_answered_with_where_it_belongs(tmp_path, monkeypatch, place):
    from testbed.entries import plugin_files

    (tmp_path / place).parent.mkdir(parents=True)
    (tmp_path / "registry/models").mkdir(parents=True, exist_ok=True)
    (tmp_path / place).write_text(MODEL.format(name="my_model", more=""))
    monkeypatch.setattr(plugin_files, "default_folder", lambda: tmp_path / "registry")
    registry = Registry()
    registry.load_folder(tmp_path / "registry")
    (told,) = registry.problems()
    right = "eval_settings" if "eval_settings" in place else "models"
    assert told.startswith(str(tmp_path / place)) and str(tmp_path / "registry" / right) in told
    with pytest.raises(Exception, match="could not be loaded: files are not read there"):
        registry.model("my_model")


@pytest.mark.parametrize(("given", "meant"), [("mine/models", "mine"), (".", "src")])
def test_a_folder_beside_the_meant_one_is_answered_with_it(folder, given, meant):
    (folder / "src/models").mkdir(parents=True)
    told = typed(db_main, "--list-models-registry", "--registry", given, fails=True)
    assert told.endswith(f"expected a folder with models/ or eval_settings/; take {folder / meant}\n")


def test_a_published_model_that_cannot_be_had_says_why(folder):
    told = typed(eval_main, "--models", "resnet50_augmix", "--eval-settings", "val", "--gpus", "cpu", fails=True)
    assert "model 'resnet50_augmix' of the ImageNet Testbed cannot be had: the authors' own file" in told
    assert "did you mean" not in told


def test_an_equivalent_of_a_published_model_is_named(folder):
    told = typed(eval_main, "--models", "vit_small_patch16_224", "--eval-settings", "val", fails=True)
    (name,) = re.findall(r"with other weights is (\S+)", told)
    assert load_registry().model(name).name == name


def test_all_published_models_are_registered_or_have_a_reason():
    from testbed.entries.plugin_files import why_unavailable

    names = json.loads(shared_data("testbed", "names.json").read_text())["models"]
    registered = load_registry(parts=("models",)).models.entries
    published = [name for family in names.values() for name in family]
    assert len(published) == 401
    assert [name for name in published if name not in registered and not why_unavailable(name)] == []
    assert sum(name not in registered for name in published) == 294


def test_a_transform_that_normalises_is_refused_at_the_first_picture(folder):
    write(folder)
    path = folder / "mine/models/new_model.py"
    chain = (
        "transforms.Compose([transforms.Resize(8), transforms.ToTensor(), transforms.Normalize([0.5] * 3, [0.5] * 3)])"
    )
    text = re.sub(r"StandardTransform\(img.*?\)", chain, path.read_text())
    path.write_text("from torchvision import transforms\n" + text)
    told = run_mine(fails=True)
    assert "transform of model 'my_model': expected pixels from 0 to 1, got -" in told
    assert "normalization=StandardNormalization(mean, std)" in told
    path.write_text(path.read_text().replace(", transforms.Normalize([0.5] * 3, [0.5] * 3)", ""))
    run_mine()  # a plain Compose that ends in ToTensor


def test_classify_replaces_the_forward_pass(folder):
    more = "\n        classify = lambda images, model, class_sublist, adversarial_attack: model(images) * 0 + 1,"
    write(folder, model_more=more)
    run_mine()
    assert (np.array(outputs_of(open_store(), load_registry(("mine",)), stored()).logits) == 1).all()


def test_add_model_and_db_without_a_value_work_as_in_the_brief(folder):
    write(folder)
    assert "my_model is in the database" in typed(db_main, "--add-model", "my_model", "--registry", "mine")
    run_mine("--db")
    assert stored().n_images == 6
    told = typed(db_main, "--add-model", "model", fails=True)
    assert "nothing need be added: eval.py stores what it runs" in told and len(told.splitlines()) == 1


# ---- adding settings -------------------------------------------------------------------------------------


def test_the_setting_of_the_brief_runs_with_its_own_import_lines(folder):
    write(folder)
    run_mine()
    assert stored().eval_setting == "my_setting"


def test_perturbations_of_the_brief_are_applied(folder):
    dark = (
        "\n        perturbation_fn_cpu = lambda image: image * 0,"
        "\n        perturbation_fn_gpu = lambda images, model: images + 0.25,"
    )
    write(folder, setting_more=dark)
    path = folder / "mine/models/new_model.py"
    mean = "\n        classify = lambda images, model: images.mean((2, 3))[:, :2],"
    text = MODEL.format(name="my_model", more=mean).replace("normalization = ", "normalization = None and ")
    path.write_text(text)
    run_mine()
    logits = np.array(outputs_of(open_store(), load_registry(("mine",)), stored()).logits)
    assert np.allclose(logits, 0.25)


def test_a_metrics_function_gets_tensors_and_returns_plain_numbers(folder):
    metric = """

def metric(logits, targets, image_paths, py_model):
    import torch

    assert isinstance(logits, torch.Tensor) and isinstance(targets, torch.Tensor)
    right = (logits.argmax(dim=1) == targets).float().mean().item()
    cats = sum(path.split('/')[0] == 'cat' for path in image_paths)
    return {'right': right, 'cats': cats, 'merge_op': 'max', 'of_my_model': float(py_model.name == 'my_model'),
            **accuracy_topk(logits, targets, topk=(1, 2))}

"""
    write(folder, setting_more="\n        metrics_fn = metric,")
    path = folder / "mine/eval_settings/new_eval_setting.py"
    path.write_text(path.read_text().replace("\nregistry.add", f"{metric}\nregistry.add", 1))
    run_mine()
    rows = typed(db_main, "--print-eval", "my_model", "my_setting", "--format", "json")
    numbers = {row["metric"]: row["value"] for row in json.loads(rows)}
    assert set(numbers) == {"right", "cats", "of_my_model", "top1", "top2"}
    assert (numbers["cats"], numbers["of_my_model"], numbers["top2"]) == (3, 1, 100)
    assert numbers["top1"] == pytest.approx(100 * numbers["right"])


def test_accuracy_topk_counts_in_percent():
    """Against scikit-learn's top_k_accuracy_score."""
    import torch
    from sklearn.metrics import top_k_accuracy_score

    from testbed.foreign.imagenet_testbed import accuracy_topk

    logits = torch.randn(200, 12, generator=torch.Generator().manual_seed(0))
    targets = torch.arange(200) % 12
    expected = {
        f"top{k}": 100 * top_k_accuracy_score(targets.numpy(), logits.numpy(), k=k, labels=range(12)) for k in (1, 5)
    }
    assert accuracy_topk(logits, targets, topk=(1, 5)) == pytest.approx(expected)
    assert accuracy_topk(logits, targets) == pytest.approx(expected)


def test_a_class_sublist_selects_columns_and_leaves_images_alone(folder):
    """As in the original: targets are places among the sorted folders, here columns 1 and 0 of the model's two."""
    write(folder, setting_more="\n        class_sublist = [1, 0],")
    run_mine()
    mine = outputs_of(open_store(), load_registry(("mine",)), stored())
    typed(
        eval_main, "--models", "my_model", "--eval-settings", "folder:pictures", "--registry", "mine", "--gpus", "cpu"
    )
    whole = outputs_of(open_store(), load_registry(("mine",)), stored(setting="folder:pictures"))
    assert np.array(mine.targets).tolist() == [0, 0, 0, 1, 1, 1]
    assert np.array_equal(np.array(mine.logits), np.array(whole.logits)[:, [1, 0]])


def test_a_flat_folder_names_its_remedy(folder, image_folder):
    from testbed import StandardDataset
    from testbed.errors import DataError

    flat = image_folder(["a.png", "b.png"], "flat")
    with pytest.raises(DataError, match=r"expected one folder per class, got 2 pictures without any: .*manifest:FILE"):
        StandardDataset(path=flat).open([])


def test_a_flat_folder_is_measured_by_a_metrics_function_with_image_paths(folder, image_folder):
    image_folder([f"{i}.png" for i in range(6)], "pictures2", size=12)
    metric = "\n        metrics_fn = lambda logits, targets, image_paths: {'named': float(len(set(image_paths)))},"
    write(folder, setting_more=metric)
    path = folder / "mine/eval_settings/new_eval_setting.py"
    path.write_text(path.read_text().replace("/pictures'", "/pictures2'"))
    assert "6.00" in run_mine()


def test_add_eval_setting_works_as_in_the_brief(folder):
    write(folder)
    assert "my_setting is in the database" in typed(db_main, "--add-eval-setting", "my_setting", "--registry", "mine")
    told = typed(db_main, "--add-eval-setting", "eval-setting", fails=True)
    assert "nothing need be added: eval.py stores what it runs" in told


# ---- attacks ---------------------------------------------------------------------------------------------


def test_an_attack_that_nobody_carries_out_is_told_and_stored(folder):
    write(folder, setting_more="\n        adversarial_attack = {'eps': 0.1, 'norm': float('inf')},")
    told = run_mine()
    assert "adversarial_attack is declared without a perturbation function that carries it out" in told
    assert "images are clean" in stored().warning


def test_a_classify_that_takes_the_attack_switches_the_settings_own_off_and_this_is_told(folder):
    attack = (
        "\n        adversarial_attack = {'eps': 0.1},\n        perturbation_fn_gpu = lambda images, model: 1 - images,"
    )
    more = "\n        classify = lambda images, model, adversarial_attack: model(images),"
    write(folder, model_more=more, setting_more=attack)
    assert "the setting's own attack is switched off" in run_mine("--dry-run")
    run_mine()
    assert "if the function ignores the argument, images are clean" in stored().warning


@pytest.mark.parametrize("order", [("clean", "attacked"), ("attacked", "clean")])
def test_equal_accuracy_with_and_without_an_attack_is_told(folder, order):
    names = "\nfor name, attack in (('clean', None), ('attacked', {'eps': 0.1})):\n    registry.add_eval_setting"
    write(folder, setting="X", setting_more="\n        adversarial_attack = attack, perturbation_fn_gpu = P[name],")
    path = folder / "mine/eval_settings/new_eval_setting.py"
    text = path.read_text().replace("name = 'X'", "name = name").replace("\nregistry.add_eval_setting", names)
    path.write_text("P = {'clean': None, 'attacked': lambda images, model: images}\n" + text)
    right = "\n        classify = lambda images, model: model(images) * 0 + images.new_tensor([1.0, 0.0]),"
    (folder / "mine/models/new_model.py").write_text(MODEL.format(name="my_model", more=right))
    assert "did not happen" not in run_mine(setting=order[0])
    told = run_mine(setting=order[1])
    assert f"top1 is the same as on {order[0]}, with and without an attack" in told
    assert "probably did not happen" in stored(setting=order[1]).warning


def test_the_attack_of_the_original_moves_pictures_within_its_radius():
    import torch

    from testbed.foreign.imagenet_testbed import pgd_style_attack

    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 8 * 8, 4))
    images = torch.rand(5, 3, 8, 8)
    parameters = {"eps": 2 / 255, "norm": np.inf, "num_steps": 10, "step_size": 0.001, "targeted": False}
    moved = pgd_style_attack(parameters, images, network)
    assert 0 < (moved - images).abs().max() <= 2 / 255 + 1e-6
    own = network(images).argmax(1)
    loss = torch.nn.functional.cross_entropy
    assert loss(network(moved), own) > loss(network(images), own)


# ---- downloading testbed data ----------------------------------------------------------------------------


def test_save_logits_after_limited_runs_writes_these_and_says_so(folder):
    write(folder)
    run_mine("--limit", 4)
    told = typed(db_main, "--save-logits", "my_setting", "logits_dir", "--registry", "mine")
    assert told == "wrote 1 file(s) of limit=4 and manifest.json to logits_dir\n"
    assert np.load(folder / "logits_dir/my_model.npz")["logits"].shape == (4, 2)


# ---- the original's own files ----------------------------------------------------------------------------

# Written for this test, with the import lines, arguments and habits of the original's files: a table of models and a
# loop over it, a helper package, a loader that takes stored weights; corruptions by name and severity, with `gpu=True`
# in a batch, a child on a list of images, and a twin whose metric maps labels to places in class_sublist.
THEIR_MODELS = """
from torchvision import transforms
from PIL import Image

from registry import registry
from models.model_base import Model, StandardTransform, StandardNormalization
from mldb.utils import load_model_state_dict
from models import layers


table = {
'one/a': {'arch': 'tiny', 'eval_batch_size': 4, 'input_space': 'RGB', 'mean': [0.5] * 3, 'std': [0.5] * 3},
'one/b': {'arch': 'tiny', 'eval_batch_size': 4, 'input_space': 'BGR', 'mean': [0.5] * 3, 'std': [0.5] * 3,
          'adversarial_batch_size': 2},
}


def loader_of(name, d):
    def loader():
        network = getattr(layers, d['arch'])()
        load_model_state_dict(network, name)
        return network
    return loader


for name, d in table.items():
    registry.add_model(
        Model(
            name = name,
            arch = d['arch'],
            transform = StandardTransform(10, 8),
            normalization = StandardNormalization(d['mean'], d['std'], d['input_space']),
            classifier_loader = loader_of(name, d),
            eval_batch_size = d['eval_batch_size'],
            adversarial_batch_size = d['adversarial_batch_size'] if 'adversarial_batch_size' in d else None,
        )
    )

registry.add_model(
    Model(
        name = 'untrained',
        transform = transforms.Compose([transforms.Resize((8, 8), interpolation=Image.BICUBIC), transforms.ToTensor()]),
        classifier_loader = lambda: layers.tiny(),
        eval_batch_size = 4,
        classify = lambda model, images: model(images, twice=True),
    )
)
"""
THEIR_LAYERS = """
import torch.nn as nn


class Tiny(nn.Module):
    def __init__(self):
        super(Tiny, self).__init__()
        self.linear = nn.Linear(3, 2)

    def forward(self, x, twice=False):
        return (2 if twice else 1) * self.linear(x.mean((2, 3)))


def tiny():
    return Tiny()
"""
THEIR_SETTINGS = """
import torch

from registry import registry
from eval_settings.eval_setting_base import EvalSetting, StandardDataset, accuracy_topk
from eval_settings.image_utils import *
from eval_settings.image_utils import corruption_dict

pictures = {path!r}
places = [0, 0, 4]


def foggy(image):
    return corruption_dict['fog'](image, 2)

def batch_of(kind, severity):
    def corrupt(images, model):
        for i in range(images.size(0)):
            images[i] = corruption_dict[kind](images[i], severity, gpu=True)
        return images
    return corrupt


for name, more in (('fog', dict(perturbation_fn_cpu=foggy)), ('blur', dict(perturbation_fn_gpu=batch_of('snow', 0)))):
    registry.add_eval_setting(EvalSetting(name=name, dataset=StandardDataset(path=pictures), size=6, **more))
    registry.add_eval_setting(
        EvalSetting(
            name = name + '_part',
            dataset = StandardDataset(path=pictures),
            size = 3,
            idx_subsample_list = places,
            parent_eval_setting = name,
            **more
        )
    )

class_sublist = [1]
of_these = [range(x * 3, (x + 1) * 3) for x in class_sublist]
of_these = sorted([item for sublist in of_these for item in sublist])

def crop_image(image, border=2):
    return image.crop((border, border, image.width - border, image.height - border))

def accuracy_among_these(logits, targets):
    targets = torch.tensor([class_sublist.index(x) for x in targets])
    return accuracy_topk(logits, targets, topk=(1,))

registry.add_eval_setting(
    EvalSetting(
        name = 'twin',
        dataset = StandardDataset(path=pictures),
        size = 3,
        class_sublist = class_sublist,
        idx_subsample_list = of_these,
        metrics_fn = accuracy_among_these,
        transform = crop_image,
    )
)
"""


def test_files_in_the_shape_of_the_originals_load_and_run(folder, monkeypatch):
    import torch

    monkeypatch.setenv("TESTBED_WEIGHTS", str(folder / "weights"))
    mine = folder / "mine"
    (mine / "models/layers").mkdir()
    (mine / "models/layers/__init__.py").write_text("from .tiny import *\n")
    (mine / "models/layers/tiny.py").write_text(THEIR_LAYERS)
    (mine / "models/family.py").write_text(THEIR_MODELS)
    (mine / "eval_settings/several.py").write_text(THEIR_SETTINGS.replace("{path!r}", repr(str(folder / "pictures"))))
    for name, words in (("eval_setting_base", "eval_settings"), ("image_utils", "eval_settings")):
        (mine / words / f"{name}.py").write_text("import cv2, no_such_server\n")
    (folder / "weights").mkdir()
    state = {"linear.weight": torch.zeros(2, 3), "linear.bias": torch.tensor([-1.0, 1.0])}
    torch.save(state, folder / "weights/one_a.pth")

    registry = load_registry(("mine",))
    assert registry.broken == {}
    assert {"one/a", "one/b", "untrained"} <= set(registry.models.entries)
    settings = ("fog", "fog_part", "blur", "blur_part", "twin")
    assert set(settings) <= set(registry.eval_settings.entries)
    words = ("--registry", "mine", "--gpus", "cpu", "--models", "one/a", "untrained", "--eval-settings", *settings)
    typed(eval_main, *words)
    top1 = {setting: _top1("one/a", setting) for setting in settings}
    # The network always says the second of the two classes: three of six, one of the places 0, 0 and 4, all of a twin.
    assert top1["fog"] == top1["blur"] == 50
    assert top1["fog_part"] == top1["blur_part"] == pytest.approx(100 / 3)
    assert top1["twin"] == 100


def _top1(model, setting):
    rows = typed(db_main, "--print-eval", model, setting, "--format", "json", "--registry", "mine")
    return next(row["value"] for row in json.loads(rows) if row["metric"] == "top1")


def test_files_of_the_original_load_where_its_folder_is_given():
    """TESTBED_ORIGINAL names `src` of a checkout. Prints how many files and names load, and why others do not."""
    root = ORIGINAL and Path(ORIGINAL)
    if not root:
        pytest.skip("TESTBED_ORIGINAL names no folder: expected src/ of a checkout of modestyachts/imagenet-testbed")
    names = json.loads(shared_data("testbed", "names.json").read_text())
    registry = Registry()
    registry.load_folder(root)
    helpers = ("__init__", "model_base", "eval_setting_base", "eval_setting_subsample", "image_utils")
    for part, shelf in (("models", registry.models), ("eval_settings", registry.eval_settings)):
        files = [path for path in (root / part).glob("*.py") if path.stem not in helpers]
        known = names[part]
        known = [n for family in known.values() for n in family] if isinstance(known, dict) else known
        loaded = [path for path in files if path not in registry.broken]
        there = set(known) & set(shelf.entries)
        print(f"{part}: {len(loaded)} of {len(files)} files, {len(there)} of {len(known)} names")
        assert set(shelf.entries) <= set(known)
    for path, error in registry.broken.items():
        print(f"{path.name}: {error}")
        # What is not loaded lacks a package, or a part of one that later versions no longer have.
        assert "it needs the package" in error or "cannot import name" in error or "No module named" in error
    assert not {name for name in sys.modules if name.split(".")[0] in ADDRESSES}


def test_the_page_names_every_test_of_this_file_and_no_other():
    page = (ROOT / "docs/briefs/imagenet-testbed.md").read_text()
    tests = {name for name in globals() if name.startswith("test_")} - {
        "test_the_page_names_every_test_of_this_file_and_no_other"
    }
    assert set(re.findall(r"`(test_\w+)`", page)) == tests
