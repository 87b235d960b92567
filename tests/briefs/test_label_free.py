"""What one can do with the brief of the label-free baselines: one test for each row of docs/briefs/label-free.md."""

import csv
import hashlib
import io
import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import tiny
from briefs import cifar_data
from local_server import Server
from shared_data import PROJECT, shared_data
from testbed import ArrayDataset, StandardNormalization, StandardTransform
from testbed.commands import database
from testbed.data.cifar_files import files_at
from testbed.data.download import roots_below
from testbed.entries.registry import load_registry, registry_folders
from testbed.errors import DataError, TestbedError
from testbed.studies.labelfree.outputs import Source, outputs_from
from testbed.studies.labelfree.replication import OVERALL, Layout, read_published
from testbed.studies.labelfree.scores import METHODS

REGISTRY = load_registry()
NETWORKS = [f"{data}_{arch}" for data in ("cifar10", "cifar100") for arch in (
    "resnet20", "resnet32", "resnet44", "resnet56", "repvgg_a0", "repvgg_a1", "repvgg_a2"
)]  # fmt: skip
WORDS = ("--epochs", "4", "--gpus", "cpu", "cpu", "--models", "cifar10_resnet56", "cifar10_resnet20")
SKETCH = {"cifar10_resnet20", "cifar10_resnet56"}  # networks that are given weights here


# ---- methods ---------------------------------------------------------------------------------------------------


@pytest.fixture
def clean():
    """Logits, labels and features of a labelled source set, and of another set."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 10, 400)
    logits = rng.normal(size=(400, 10)) + 2 * np.eye(10)[labels]
    source = Source.of(outputs_from(logits, labels, features=rng.normal(size=(400, 6))))
    other = outputs_from(
        0.7 * logits[:300], features=1 + rng.normal(size=(300, 6)), rotation=rng.normal(size=(300, 4, 4))
    )
    return source, other


def softmax(logits):
    powers = np.exp(logits.astype(np.float64))
    return powers / powers.sum(axis=1, keepdims=True)


def score(name, clean):
    source, other = clean
    return METHODS[name].compute(other, source)


def test_rotation_is_the_share_of_turns_told_wrong(clean):
    turns = clean[1].extras["rotation"].argmax(axis=2)
    assert score("rotation", clean) == pytest.approx((turns != np.arange(4)).mean())


def test_confscore_is_the_mean_of_the_largest_probability(clean):
    assert score("confscore", clean) == pytest.approx(softmax(clean[1].logits).max(axis=1).mean())


def test_entropy_is_the_mean_entropy_in_nats(clean):
    from scipy.stats import entropy

    assert score("entropy", clean) == pytest.approx(entropy(softmax(clean[1].logits), axis=1).mean())


def test_atc_has_the_source_error_below_its_threshold(clean):
    """The equation of the brief for t, and the share of the other set below it."""
    from scipy.stats import entropy

    source, other = clean
    on_source, on_other = (-entropy(softmax(o.logits), axis=1) for o in (source.outputs, other))
    errors = int((source.outputs.logits.argmax(axis=1) != source.outputs.targets).sum())
    t = np.sort(on_source)[errors]  # as many lie below it as there are errors
    assert score("atc", clean) == pytest.approx((on_other < t).mean(), abs=1 / 300)


def test_fid_is_the_frechet_distance_of_features(clean):
    from scipy.linalg import sqrtm

    here, there = (o.extras["features"].astype(np.float64) for o in (clean[0].outputs, clean[1]))
    covariances = np.cov(here, rowvar=False), np.cov(there, rowvar=False)
    root = sqrtm(covariances[0] @ covariances[1]).real
    distance = ((here.mean(0) - there.mean(0)) ** 2).sum() + np.trace(covariances[0] + covariances[1] - 2 * root)
    assert score("fid", clean) == pytest.approx(distance, rel=1e-4)


# ---- data ------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    cifar_data.save_benchmark(tmp_path / "benchmark")
    return tmp_path / "benchmark"


def test_training_sets_are_numbered_files_with_common_labels(folder):
    names = REGISTRY.expand_eval_settings([f"autoeval:{folder}/train"])
    assert [name.rpartition("/")[2] for name in names] == [f"new_data_{i:03d}" for i in range(5)]
    for name in names:
        assert REGISTRY.eval_setting(name).dataset.open([]).targets.tolist() == [i % 10 for i in range(20)]


def test_validation_sets_are_folders_with_data_and_labels(tmp_path):
    """1 + 19 + 20 = 40 sets, as the brief counts them."""
    for group, count in (("cifar-10.1", 1), ("cifar-10.1-c", 19), ("cifar10-f-32", 20)):
        for number in range(count):
            cifar_data.save_set(tmp_path / group / f"set_{number:02d}", 10, 0.1, number)
    names = REGISTRY.expand_eval_settings([f"autoeval:{tmp_path}"])
    assert len(names) == 40
    groups = [REGISTRY.eval_setting(name).tags[-1] for name in names]
    assert [groups.count(g) for g in ("cifar-10.1", "cifar-10.1-c", "cifar10-f-32")] == [1, 19, 20]


def test_layout_is_found_at_any_depth_and_groups_are_named_after_their_sets(folder):
    deep = folder.parent / "a" / "b" / "c"
    deep.mkdir(parents=True)
    folder.rename(deep / "d")
    layout = Layout.of(folder.parent)
    assert layout.n_fit == 5
    assert [Path(word).name for word in layout.fit] == ["train_data"]
    assert [Path(word).name for word in layout.test] == ["cifar-10.1", "cifar-10.1-c", "cifar10-f-32"]


def test_folder_without_a_part_is_refused_in_one_line(tmp_path):
    cifar_data.save_set(tmp_path / "cifar-10.1", 10, 0.1, 0)
    with pytest.raises(DataError, match=r"holds no training sets new_data_000\.npy, \.\.\. with labels\.npy"):
        Layout.of(tmp_path)


def test_dataset_gives_pictures_and_labels_as_the_published_class_does(folder):
    place = folder / "val" / "cifar-10.1-c" / "fog"
    samples = ArrayDataset(path=place).open([])
    assert np.array_equal(np.asarray(samples.load(3)), np.load(place / "data.npy")[3])
    assert samples.targets.tolist() == np.load(place / "labels.npy").tolist()


def save_form(form, root):
    """CIFAR-10 in one of its forms, in a data root."""
    if form == "python":
        cifar_data.save_batches(root / "cifar-10-batches-py")
    elif form == "binary":
        cifar_data.save_binary(root / "cifar-10-batches-bin")
    elif form == "torchvision":
        cifar_data.save_batches(root / "cifar10" / "cifar-10-batches-py")
    else:
        (root / "cifar10").mkdir(parents=True)
        everything = cifar_data.batches()
        for part, names in (("test", ["test_batch"]), ("train", [n for n in everything if n != "test_batch"])):
            images, labels = (np.concatenate([everything[n][i] for n in names]) for i in (0, 1))
            np.savez(root / "cifar10" / f"cifar10_{part}.npz", images=images, labels=labels)


@pytest.mark.parametrize("form", ["python", "binary", "torchvision", "npz"])
def test_cifar10_is_read_as_it_is(tmp_path, form):
    save_form(form, tmp_path)
    everything = cifar_data.batches()
    test = REGISTRY.eval_setting("cifar10-test").dataset.open([tmp_path])
    assert np.array_equal(test.load.raw, everything["test_batch"][0])
    assert test.targets.tolist() == everything["test_batch"][1].tolist()
    train = REGISTRY.eval_setting("cifar10-train").dataset.open([tmp_path])
    assert np.array_equal(train.load.raw[-40:], everything["data_batch_5"][0])
    assert len(train) == 200


@pytest.mark.parametrize("form", ["python", "binary", "torchvision", "npz"])
def test_cifar10_is_found_at_any_depth(tmp_path, form):
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    save_form(form, deep)
    (tmp_path / "cifar10_test.npz").touch()  # not in a folder cifar10, so no place where it is looked for
    dataset = REGISTRY.eval_setting("cifar10-test").dataset
    assert len(dataset.open(roots_below(tmp_path, dataset))) == 40


def test_cifar10_is_read_by_string_too(tmp_path):
    cifar_data.save_batches(tmp_path / "cifar-10-batches-py")
    cifar_data.save_binary(tmp_path / "elsewhere")

    def read(text):
        return REGISTRY.eval_setting(f"array:{tmp_path}/{text}").dataset.open([])

    same = {
        read(text).fingerprint for text in ("", "cifar-10-batches-py", "elsewhere", "cifar-10-batches-py/test_batch")
    }
    assert same == {read("elsewhere/test_batch.bin").fingerprint}
    assert len(read("cifar-10-batches-py/train")) == len(read("elsewhere/train")) == 200
    assert len(read("cifar-10-batches-py/data_batch_2")) == 40
    # As torchvision reads it, but for its checksums.
    from torchvision.datasets import CIFAR10

    class Unchecked(CIFAR10):
        def _check_integrity(self):
            return True

        def _load_meta(self):
            self.classes = list("abcdefghij")

    theirs = Unchecked(tmp_path, train=True)
    assert np.array_equal(theirs.data, read("cifar-10-batches-py/train").load.raw)
    assert theirs.targets == read("cifar-10-batches-py/train").targets.tolist()


def test_published_file_of_the_test_images_is_read_byte_for_byte(tmp_path):
    """The sha256 of the published test_batch.bin begins with 8e2eb146ae340b09."""
    with np.load(shared_data("cifar10", "cifar10_test.npz")) as both:
        images, labels = both["images"], both["labels"]
    rows = np.concatenate([labels[:, None].astype(np.uint8), cifar_data.planes(images)], axis=1)
    assert hashlib.sha256(rows.tobytes()).hexdigest().startswith("8e2eb146ae340b09")
    (tmp_path / "test_batch.bin").write_bytes(rows.tobytes())
    samples = ArrayDataset(path=tmp_path / "test_batch.bin").open([])
    assert np.array_equal(samples.load.raw, images)
    assert samples.targets.tolist() == labels.tolist()


def test_cifar100_is_read_with_its_fine_labels(tmp_path):
    import pickle

    (tmp_path / "cifar-100-python").mkdir()
    (tmp_path / "cifar-100-binary").mkdir()
    images, fine = cifar_data.pictures(np.arange(50) % 10, 0.1, 0), np.arange(50) + 50
    for part in ("test", "train"):
        content = {b"data": cifar_data.planes(images), b"fine_labels": fine.tolist(), b"coarse_labels": [0] * 50}
        (tmp_path / "cifar-100-python" / part).write_bytes(pickle.dumps(content, protocol=2))
        rows = np.concatenate([np.zeros((50, 1)), fine[:, None], cifar_data.planes(images)], axis=1).astype(np.uint8)
        (tmp_path / "cifar-100-binary" / f"{part}.bin").write_bytes(rows.tobytes())
    for folder in ("cifar-100-python", "cifar-100-binary"):
        samples = ArrayDataset(path=tmp_path / folder).open([])
        assert samples.targets.tolist() == fine.tolist()
        assert np.array_equal(samples.load.raw, images)
    assert REGISTRY.eval_setting("cifar100-test").dataset.open([tmp_path]).targets.tolist() == fine.tolist()


class Harmful:
    def __reduce__(self):
        return print, ("run!",)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ({b"data": Harmful(), b"labels": []}, "it holds (__builtin__|builtins).print, which is not run"),
        ({b"labels": [1, 2]}, "data"),
        ({b"data": np.zeros((2, 3072)), b"labels": [1, 2]}, r"expected uint8 data \(2, 3072\)"),
        ([1, 2], "expected a dictionary, got list"),
        (None, "it is cut off or damaged"),
    ],
    ids=["code", "no data", "floats", "a list", "cut off"],
)
def test_batch_that_is_something_else_is_one_line_and_runs_nothing(tmp_path, content, told, capsys):
    import pickle

    path = tmp_path / "test_batch"
    path.write_bytes(pickle.dumps(content, protocol=2) if content else pickle.dumps(cifar_data.batches(), 2)[:-9])
    with pytest.raises(
        DataError, match=f"test_batch: expected a published file of CIFAR, whole and unchanged: .*{told}"
    ):
        ArrayDataset(path=path).open([])
    assert capsys.readouterr().out == ""


def test_binary_file_that_is_cut_off_is_one_line(tmp_path):
    cifar_data.save_binary(tmp_path / "cifar-10-batches-bin")
    path = tmp_path / "cifar-10-batches-bin" / "test_batch.bin"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match="a whole number of rows of 3,073 bytes"):
        ArrayDataset(path=tmp_path).open([])
    (tmp_path / "cifar-10-batches-bin" / "data_batch_3.bin").unlink()
    with pytest.raises(DataError, match="no train images of CIFAR: expected the files it was published with"):
        ArrayDataset(path=f"{tmp_path}/cifar-10-batches-bin/train").open([])
    assert files_at(tmp_path / "nothing") == []


@pytest.fixture
def db(tmp_path, monkeypatch):
    """db.py with a registry whose addresses are on a local server; returns the output, asserts the exit code."""
    server = Server()
    (tmp_path / "registry" / "metadata").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TESTBED_REGISTRY", str(tmp_path / "registry"))

    def invoke(*words, code=0):
        result = CliRunner().invoke(database.main, [str(w) for w in words], catch_exceptions=False)
        assert result.exit_code == code, result.output
        return result.output

    invoke.server, invoke.folder = server, tmp_path
    yield invoke
    server.close()


def test_cifar10_is_downloaded_and_checked(db):
    from torchvision.datasets import CIFAR10

    entries = json.loads((PROJECT / "registry" / "metadata" / "downloads.json").read_text())
    entry = entries["cifar-10-batches-py"]
    assert entry["files"] == [{"url": CIFAR10.url, "checksum": f"md5:{CIFAR10.tgz_md5}"}]
    cifar_data.save_batches(db.folder / "source" / "cifar-10-batches-py")
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        tar.add(db.folder / "source" / "cifar-10-batches-py", "cifar-10-batches-py")
    content = db.server.files["cifar-10-python.tar.gz"] = archive.getvalue()
    entry["files"] = [{
        "url": db.server.url("cifar-10-python.tar.gz"), "checksum": f"md5:{hashlib.md5(content).hexdigest()}"
    }]  # fmt: skip
    (db.folder / "registry" / "metadata" / "downloads.json").write_text(json.dumps({"cifar-10-batches-py": entry}))
    db("--download", "cifar10-test")
    samples = REGISTRY.eval_setting("cifar10-test").dataset.open([db.folder / "data"])
    assert np.array_equal(samples.load.raw, cifar_data.batches()["test_batch"][0])


def test_cifar10_1_its_corruptions_and_meta_sets_are_registered():
    assert REGISTRY.eval_setting("cifar10.1-v6").size == 2_000
    corrupted = REGISTRY.expand_eval_settings(["cifar10.1-c"])
    assert len({name.split(".")[2] for name in corrupted}) == 19
    assert len(REGISTRY.expand_eval_settings(["cifar10-meta"])) == 1_000


# ---- classifiers -----------------------------------------------------------------------------------------------


def resnet_parameters(depth, classes):
    """Convolutions, two numbers per channel of a batch norm, shortcuts of stages 2 and 3, last layer."""
    n = (depth - 2) // 6
    total, before = 9 * 3 * 16 + 2 * 16, 16
    for channels in (16, 32, 64):
        total += 9 * before * channels + (2 * n - 1) * 9 * channels**2 + 2 * n * 2 * channels
        total += before * channels + 2 * channels if channels != before else 0
        before = channels
    return total + 64 * classes + classes


def repvgg_parameters(width, last, classes):
    """Each block has a 3 x 3 and a 1 x 1 convolution with batch norms, and a batch norm where the shape stays."""
    total, before = 0, 3
    stages = [(min(64, int(64 * width)), 1, 1), (int(64 * width), 2, 1), (int(128 * width), 4, 2),
              (int(256 * width), 14, 2), (int(512 * last), 1, 2)]  # fmt: skip
    for channels, blocks, stride in stages:
        for block in range(blocks):
            same = before == channels and (stride == 1 or block > 0)
            total += 10 * before * channels + 4 * channels + (2 * channels if same else 0)
            before = channels
    return total + before * classes + classes


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_have_the_parameters_of_their_description(name):
    import torch

    data, arch = name.split("_", 1)
    classes = {"cifar10": 10, "cifar100": 100}[data]
    with torch.device("meta"):
        network = REGISTRY.model(name).classifier_loader.network().eval()
        logits = network(torch.empty(2, 3, 32, 32))
    assert tuple(logits.shape) == (2, classes)
    if arch.startswith("resnet"):
        expected = resnet_parameters(int(arch.removeprefix("resnet")), classes)
    else:
        expected = repvgg_parameters(*{"a0": (0.75, 2.5), "a1": (1, 2.5), "a2": (1.5, 2.75)}[arch[-2:]], classes)
    count = sum(parameter.numel() for parameter in network.parameters())
    assert count == expected
    # Of the training logs in chenyaofo/pytorch-cifar-models (n_params).
    logged = {"cifar10_repvgg_a0": "7.84M", "cifar100_resnet56": "0.86M"}
    assert f"{count / 1e6:.2f}M" == logged.get(name, f"{count / 1e6:.2f}M")


def test_layers_have_the_names_and_shapes_of_the_published_weights():
    import torch

    with torch.device("meta"):
        resnet, repvgg = (
            {
                key: tuple(value.shape)
                for key, value in REGISTRY.model(name).classifier_loader.network().state_dict().items()
            }
            for name in ("cifar10_resnet56", "cifar10_repvgg_a0")
        )
    norm = {"weight", "bias", "running_mean", "running_var", "num_batches_tracked"}
    assert resnet["conv1.weight"] == (16, 3, 3, 3)
    assert resnet["layer2.0.downsample.0.weight"] == (32, 16, 1, 1)
    assert {key.rpartition(".")[2] for key in resnet if key.startswith("layer3.0.downsample.1.")} == norm
    assert resnet["layer3.8.conv2.weight"] == (64, 64, 3, 3)  # nine blocks a stage
    assert not any(key.startswith(("layer1.0.downsample", "layer3.9")) for key in resnet)
    assert (resnet["fc.weight"], resnet["fc.bias"]) == ((10, 64), (10,))
    assert repvgg["stage0.rbr_dense.conv.weight"] == (48, 3, 3, 3)
    assert repvgg["stage3.13.rbr_1x1.conv.weight"] == (192, 192, 1, 1)
    assert {key.rpartition(".")[2] for key in repvgg if key.startswith("stage1.0.rbr_identity.")} == norm
    assert not any(
        key.startswith(("stage0.rbr_identity", "stage2.0.rbr_identity", "stage4.0.rbr_id")) for key in repvgg
    )
    assert repvgg["linear.weight"] == (10, 1280)


def test_networks_are_given_32_pixels_with_the_statistics_they_were_trained_with():
    statistics = {
        "cifar10": StandardNormalization([0.4914, 0.4822, 0.4465], [0.2023, 0.1994, 0.2010]),
        "cifar100": StandardNormalization([0.507, 0.4865, 0.4409], [0.2673, 0.2564, 0.2761]),
    }
    for name in NETWORKS:
        for spelled in (name, f"hub:chenyaofo/pytorch-cifar-models:{name}"):
            model = REGISTRY.model(spelled)
            assert model.transform == StandardTransform(32, 32)
            assert model.normalization == statistics[name.split("_")[0]]
    other = REGISTRY.model("hub:pytorch/vision:v0.10.0:resnet18")
    assert other.transform == StandardTransform(256, 224)


def test_hub_string_is_the_call_of_the_brief(monkeypatch, tmp_path):
    import torch

    monkeypatch.chdir(tmp_path)
    calls = []
    monkeypatch.setattr(torch.hub, "load", lambda *words, **more: calls.append((words, more["pretrained"])))
    REGISTRY.model("hub:chenyaofo/pytorch-cifar-models:cifar10_resnet56").classifier_loader()
    assert calls == [(("chenyaofo/pytorch-cifar-models", "cifar10_resnet56"), True)]


def publish(db, name, content, digits):
    file = f"{name}-{digits}.pt"
    db.server.files[file] = content
    entry = {
        "url": db.server.url(file),
        "file": file,
        "sha256": None,
        "sha256_prefix": digits,
        "licence": "BSD-3-Clause",
    }
    (db.folder / "registry" / "metadata" / "weights.json").write_text(json.dumps({name: entry}))
    return db.folder / "results" / "weights" / file


def test_weights_are_fetched_checked_and_loaded(db):
    import torch

    name = "cifar10_resnet20"
    content = io.BytesIO()
    torch.save(REGISTRY.model(name).classifier_loader.network().state_dict(), content)
    path = publish(db, name, content.getvalue(), hashlib.sha256(content.getvalue()).hexdigest()[:8])
    assert f"{name}: in results/weights/{path.name}" in db("--download-weights", name)
    path.rename(path.with_name(f"{name}.pt"))  # these are not the published weights, so their name promises nothing
    loaded = REGISTRY.model(name).classifier_loader().state_dict()
    assert loaded["fc.weight"].shape == (10, 64)


def test_weights_with_another_checksum_are_refused_in_one_line(db):
    path = publish(db, "cifar10_resnet56", b"something else", "187c023a")
    told = db("--download-weights", "cifar10_resnet56", code=1).splitlines()
    assert "is not the file that was published: expected sha256 187c023a, got" in told[-1]
    assert not path.exists()
    published = json.loads((PROJECT / "registry" / "metadata" / "weights.json").read_text())
    for name in NETWORKS:
        address = published[name]["url"].rpartition("/")
        assert address[0].startswith("https://github.com/chenyaofo/pytorch-cifar-models/releases/download/")
        assert address[2] == str(REGISTRY.model(name).classifier_loader) == published[name]["file"]


# ---- run.sh ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def replicated(tmp_path_factory):
    """`autoeval.py --replicate` on a small folder of the published layout, as a user types it."""
    root = tmp_path_factory.mktemp("replicate")
    cifar_data.save_benchmark(root / "data")
    (root / "weights").mkdir()
    for name in SKETCH:
        cifar_data.save_weights(REGISTRY.model(name), root / "weights" / f"{name}.pt")

    weights = {"TESTBED_WEIGHTS": str(root / "weights")}
    words = ("autoeval.py", "--replicate", "data", *WORDS)

    def again(*more):
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(root)
            patch.setenv("TESTBED_WEIGHTS", weights["TESTBED_WEIGHTS"])
            return tiny.call(*words, *more)

    again.root, again.first = root, tiny.script(*words, cwd=root, environment=weights)
    assert again.first.returncode == 0, again.first.stderr
    return again


def test_replicate_prints_the_tables_beside_the_published_ones(replicated):
    lines = replicated.first.stdout.splitlines()
    start = lines.index("RMSE of ResNet-56 (cifar10_resnet56), in percentage points")
    assert lines[start + 2].split() == ["Method", "CIFAR-10.1", "CIFAR-10.1-C", "CIFAR-10-F", "Overall"]
    rows = [line.split() for line in lines[start + 4 : start + 20]]
    assert [row[0] for row in rows[::3]] == ["Rotation", "ConfScore", "Entropy", "ATC", "ATC", "difference"]
    assert rows[1] == ["published", "7.285", "6.386", "7.763", "7.129"]  # of the brief
    for here, there, off in zip(rows[0][2:], rows[1][1:], rows[2][1:], strict=True):
        assert float(here) - float(there) == pytest.approx(float(off), abs=0.0011)
    assert max(map(len, lines[start : start + 20])) <= 80
    assert "sets here: 5 to fit lines on, 1 of CIFAR-10.1 + 2 of CIFAR-10.1-C + 2 of CIFAR-10-F; published: 1,000" in (
        replicated.first.stdout
    )
    assert "(published: 94.37)" in replicated.first.stdout


def test_models_without_published_numbers_have_a_plain_table(replicated):
    lines = replicated.first.stdout.splitlines()
    start = lines.index("RMSE of cifar10_resnet20, in percentage points")
    rows = [line.split() for line in lines[start + 4 : start + 10]]
    assert [row[0] for row in rows] == ["Rotation", "ConfScore", "Entropy", "ATC", "ATC", "FID"]
    assert all("here" in row for row in rows)


def test_sets_are_not_told_that_their_classes_are_in_another_order(replicated):
    assert "another order" not in replicated.first.stderr + replicated.first.stdout


def test_second_call_runs_nothing_again_and_writes_files(replicated):
    again = replicated("--format", "csv", "--out", "tables.md")
    assert again.returncode == 0, again.stderr
    assert "images/s" not in again.stderr and "trained" not in again.stdout
    cells = list(csv.DictReader(io.StringIO(again.stdout)))
    assert {cell["method"] for cell in cells} == {"Rotation", "ConfScore", "Entropy", "ATC", "ATC as defined", "FID"}
    assert "| ConfScore | here |" in (replicated.root / "tables.md").read_text()


def test_rmse_is_that_of_the_published_regression(replicated):
    """sklearn's LinearRegression on one score, as in the brief's code, from the logits that were stored."""
    from sklearn.linear_model import LinearRegression

    from testbed.store.find import find
    from testbed.store.measuring import outputs_of
    from testbed.store.opening import open_store

    store = open_store(str(replicated.root / "results" / "results.db"))
    scores, accuracies = {}, {}
    for one in find(store, ["cifar10_resnet20"]):
        outputs = outputs_of(store, REGISTRY, one)
        name = one.eval_setting.rpartition("data/")[2]
        scores[name] = softmax(outputs.logits).max(axis=1).mean()
        accuracies[name] = 100 * (outputs.logits.argmax(axis=1) == outputs.targets).mean()
    store.engine.dispose()
    fit = [name for name in scores if "new_data" in name]
    test = [name for name in scores if name.startswith("val/")]
    line = LinearRegression().fit([[scores[n]] for n in fit], [accuracies[n] for n in fit])
    off = line.predict([[scores[n]] for n in test]) - [accuracies[n] for n in test]
    expected = float(np.sqrt((off**2).mean()))
    told = csv.DictReader(io.StringIO(replicated("--format", "csv").stdout))
    (overall,) = [
        float(cell["rmse"])
        for cell in told
        if (cell["model"], cell["method"], cell["column"]) == ("cifar10_resnet20", "ConfScore", OVERALL)
    ]
    assert overall == pytest.approx(expected, rel=1e-5)
    assert max(accuracies.values()) > 50  # the network knows the classes: these are no numbers of guessing


def test_fid_is_measured_from_the_training_images_as_published(replicated):
    from testbed.store.estimates import estimates
    from testbed.store.opening import open_store

    store = open_store(str(replicated.root / "results" / "results.db"))
    baselines = ("no-change", "mean-of-fit")
    sources = {row["method"]: row["source"] for row in estimates(store) if row["method"] not in baselines}
    store.engine.dispose()
    assert sources == dict.fromkeys(("rotation", "confscore", "entropy", "atc", "atc-compat"), "cifar10-test") | {
        "fid": "cifar10-train"
    }


def test_published_tables_agree_with_themselves():
    """Overall is pooled over 1 + 19 + 20 sets: the square root of (a^2 + 19 b^2 + 20 c^2) / 40, rounded."""
    published = read_published(registry_folders())
    assert (published.fit_sets, list(published.sets.values())) == (1000, [1, 19, 20])
    assert [table.names[0] for table in published.tables] == ["cifar10_resnet56", "cifar10_repvgg_a0"]
    for table in published.tables:
        for method in ("Rotation", "ConfScore", "Entropy", "ATC", "FID"):
            squares = sum(n * table.rmse[method, column] ** 2 for column, n in published.sets.items())
            assert np.sqrt(squares / 40) == pytest.approx(table.rmse[method, OVERALL], abs=0.0011)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--replicate", "nowhere"), "Directory 'nowhere' does not exist"),
        (("--replicate", ".", "--source", "val"), "--replicate knows its settings and methods: leave out --source"),
        (("--replicate", "."), "no image sets at ."),
        (("--replicate", "data", "--models", "cifar10_resnet65"), "did you mean cifar10_resnet"),
        (("--replicate", "data", "--out", "tables.pdf"), "expected a name that ends in .csv, .json, .md, .tex"),
    ],
    ids=["no folder", "other options", "no sets", "no model", "no format"],
)
def test_wrong_words_are_answered_in_one_line(tmp_path, monkeypatch, words, told):
    from testbed.commands.autoeval import main

    if "data" in words:
        cifar_data.save_benchmark(tmp_path / "data", fit_sets=2)
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, list(words))
    assert result.exit_code != 0
    assert told in result.output.splitlines()[-1]
    assert not isinstance(result.exception, TestbedError)


def test_folder_without_cifar10_says_how_to_get_it(tmp_path, monkeypatch):
    import shutil

    from testbed.commands.autoeval import main

    cifar_data.save_benchmark(tmp_path / "data", fit_sets=2)
    shutil.rmtree(tmp_path / "data" / "own")
    monkeypatch.chdir(tmp_path)
    told = CliRunner().invoke(main, ["--replicate", "data"]).output
    assert told.splitlines()[-1].endswith("`python db.py --download cifar-10-batches-py` fetches it.")


def test_requirements_are_one_file():
    lines = (PROJECT / "requirements.txt").read_text().splitlines()
    assert {"torch", "torchvision", "numpy", "scipy"} <= {line.partition(">=")[0] for line in lines}
    assert "-e ." in lines  # `pip3 install -r requirements.txt` installs the testbed itself too


def test_every_row_of_the_page_names_a_test_of_this_file():
    page = (PROJECT / "docs" / "briefs" / "label-free.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| ")][1:]
    named = [line.rpartition("`test_")[2].rstrip("` |") for line in rows]
    assert len(rows) >= 25
    assert [name for name in named if f"test_{name}" not in globals()] == []
