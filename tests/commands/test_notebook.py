"""The testbed from Python."""

import numpy as np
import pytest
import torch
from torch import nn

import testbed
import tiny
from testbed import EvalSetting, StandardNormalization
from testbed.store import manage
from testbed.store.opening import open_store


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TESTBED_REGISTRY", str(tiny.REGISTRY))


def network():
    torch.manual_seed(3)
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 10)).eval()


def images():
    rng = np.random.default_rng(1)
    return rng.integers(0, 256, (30, 8, 8, 3), dtype=np.uint8), np.arange(30) % 10


def test_bare_module_with_a_setting_made_on_the_spot():
    net = network()
    setting = EvalSetting(name="mine", dataset=testbed.ArrayDataset(make=images, num_classes=10))
    normalization = StandardNormalization(mean=[0.5] * 3, std=[0.25] * 3)
    table = testbed.evaluate(net, setting, normalization=normalization, name="net", quiet=True)
    assert list(table.columns) == ["model", "eval_setting", "metric", "value", "ci_low", "ci_high", "n"]
    x = (torch.from_numpy(images()[0]).permute(0, 3, 1, 2) / 255 - 0.5) / 0.25
    expected = net(x).detach().numpy()
    top1 = table[table.metric == "top1"].iloc[0]
    assert top1.value == pytest.approx(100 * np.mean(expected.argmax(1) == images()[1]))
    stored = testbed.evaluate(net, [setting], normalization=normalization, name="net", quiet=True)
    assert stored.equals(table)


def test_unnamed_module_is_named_after_its_class_and_weights():
    setting = EvalSetting(name="mine", dataset=testbed.ArrayDataset(make=images, num_classes=10))
    names = {testbed.evaluate(net, setting, quiet=True).model[0] for net in (network(), network())}
    assert len(names) == 1
    assert names.pop().startswith("Sequential@")


def top1(*arguments, **options):
    table = testbed.evaluate(*arguments, quiet=True, gpus="cpu", **options)
    return table[table.metric == "top1"].value.iloc[0]


def constant(label, layers=()):
    """A classifier that always says `label`."""
    net = nn.Sequential(nn.Flatten(), *layers, nn.Linear(192, 10))
    nn.init.zeros_(net[-1].weight)
    net[-1].bias.data = torch.eye(10)[label] * 5
    return net


def test_two_databases_in_one_folder_keep_their_own_logits():
    setting = EvalSetting(name="mine", dataset=testbed.ArrayDataset(make=images, num_classes=10))
    for db, net in (("a.db", constant(1)), ("b.db", constant(2))):
        testbed.evaluate(net, setting, name="net", db=db, quiet=True)
    assert [testbed.logits("net", "mine", db=db)[0].argmax() for db in ("a.db", "b.db")] == [1, 2]
    open_b = open_store("b.db")
    manage.remove_model(open_b, "net", override=True)
    assert [problem for _, problem in manage.verify(open_store("a.db"))] == [""]


def test_named_module_with_other_weights_is_run_again_with_what_is_derived_from_it():
    for label, asked in ((2, ["tiny", "tiny-even"]), (4, "tiny"), (6, "tiny-even")):
        top1(constant(label), asked, name="net")
        assert testbed.logits("net", "tiny")[0].argmax() == label
        assert testbed.logits("net", "tiny-even")[0].argmax() == label // 2


def test_named_module_prepared_otherwise_is_run_again():
    net = network()
    first = top1(net, "tiny-even", name="net")
    other = StandardNormalization(mean=[0.9, 0.1, 0.5], std=[0.01, 0.2, 0.2])
    assert top1(net, "tiny-even", name="net", normalization=other) != first
    assert top1(net, "tiny-even", name="net") == first


def test_unnamed_module_prepared_otherwise_has_a_name_of_its_own():
    ways = (None, StandardNormalization(mean=[0.5] * 3, std=[0.2] * 3), StandardNormalization([0.4] * 3, [0.2] * 3))
    for way in (*ways, *ways):
        top1(network(), "tiny", normalization=way)
    top1(network(), "tiny", transform=testbed.StandardTransform(8, 8))
    assert len(set(testbed.results().model)) == 4


@pytest.mark.parametrize(
    ("given", "more", "words"),
    [
        (lambda images: torch.zeros(len(images), 10), {}, "expected name=..., since a function has no weights"),
        (nn.Flatten(), {}, "expected name=..., since a Flatten has no weights"),
        (network(), {"transform": lambda image: image}, "expected name=..., since a function that prepares"),
    ],
)
def test_what_cannot_be_told_from_another_needs_a_name(given, more, words):
    with pytest.raises(testbed.TestbedError, match=words):
        top1(given, "tiny", **more)


def test_module_is_left_in_the_mode_it_was_in():
    net = constant(1, [nn.Dropout(), nn.Identity()]).train()
    net[1].eval()
    top1(net, "tiny")
    assert [layer.training for layer in net.modules()] == [True, True, False, True, True]


def test_interrupted_evaluation_is_no_result(monkeypatch):
    def interrupt(images):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        top1(interrupt, "tiny", name="net")


def test_names_results_and_logits_read_the_store():
    table = testbed.evaluate(["tiny_a", "tiny_b"], ["tiny", "tiny-even"], gpus=["cpu"], quiet=True)
    assert set(table.model) == {"tiny_a", "tiny_b"}
    assert testbed.results("tiny_a", "tiny*", metric="top1").eval_setting.tolist() == ["tiny", "tiny-even"]
    assert testbed.logits("tiny_b", "tiny-even").shape == (100, 5)


def test_limited_and_published_results_are_reached_by_argument(tmp_path):
    from testbed.store.formats.published import import_published, read_csv
    from testbed.store.opening import open_store

    top1(network(), "tiny", name="net")
    top1(network(), "tiny", name="net", limit=20)
    (tmp_path / "paper.csv").write_text("model,tiny\nnet,12.5\n")
    import_published(open_store(None), read_csv(tmp_path / "paper.csv"), {}, "paper")
    which = ("net", "tiny", "top1")
    assert testbed.results(*which).variant.tolist() == [""]
    assert testbed.results(*which, variant="limit=20").n.tolist() == [20]
    assert testbed.results(*which, source="paper").value.tolist() == [12.5]
    every = testbed.results(*which, variant="*", source="*")
    assert sorted(zip(every.variant, every.source, strict=True)) == [("", "own"), ("", "paper"), ("limit=20", "own")]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"variant": "limit=9"}, r"net on tiny: no result of limit=9 .*stored: version 1"),
        ({"source": "paper"}, r"net on tiny: no published \(paper\) result"),
        ({"metric": "top2"}, "no metric 'top2' there; did you mean top5, top1"),
        ({"metric": "qqqq"}, "no metric 'qqqq' there: expected top1"),
    ],
)
def test_results_that_are_not_there_say_what_is(more, message):
    top1(network(), "tiny", name="net")
    with pytest.raises(testbed.TestbedError, match=message):
        testbed.results("net", "tiny", **more)


def test_results_without_labels_point_to_the_outputs(image_folder):
    folder = f"folder:{image_folder(['0.png', '1.png'], size=8)}"
    testbed.evaluate(network(), folder, name="net", gpus="cpu", quiet=True)
    with pytest.raises(testbed.TestbedError, match=r"no image has a label: testbed\.outputs has the logits"):
        testbed.results("net", folder, metric="top1")
    assert testbed.outputs("net", folder).ids.tolist() == ["0.png", "1.png"]


def test_outputs_have_the_targets_and_ids_of_the_logits():
    top1(network(), "tiny", name="net")
    stored = testbed.outputs("net", "tiny")
    assert (stored.logits == testbed.logits("net", "tiny")).all()
    assert stored.targets.tolist() == [i % 10 for i in range(200)]  # as the registry file makes them
    assert len(set(stored.ids)) == 200


def test_dir_shows_what_is_public_and_nothing_else():
    shown = set(dir(testbed))
    assert shown == {*testbed.__all__, "__version__", "classify", "plotting", "weights", "zero_shot"}
    assert all(hasattr(testbed, name) for name in shown)


@pytest.mark.parametrize("name", ["classify", "plotting", "weights", "zero_shot"])
def test_dir_of_a_public_module_shows_its_names(name):
    module = getattr(testbed, name)
    assert dir(module)
    assert all(hasattr(module, public) for public in dir(module))
    assert {"plotting": "draw_points", "classify": "smoothed"}.get(name, dir(module)[0]) in dir(module)


def test_failure_is_one_error_that_names_it():
    with pytest.raises(testbed.TestbedError, match="1 of 1 pairs failed: tiny_raises on tiny: ZeroDivisionError"):
        testbed.evaluate("tiny_raises", "tiny", gpus=["cpu"], quiet=True)


@pytest.mark.parametrize(
    ("models", "settings", "options", "words"),
    [
        (3, "tiny", {}, "expected a model's name, a Model or a module, got int"),
        ("tiny_a", 3, {}, "expected a setting's name or an EvalSetting, got int"),
        ("tiny_a", "tiny", {"batchsize": 3}, "batchsize"),
        ("tiny_a", "tiny", {"limit": 0}, "--limit: expected a whole number from 1 on, got 0"),
        ("tiny_a", "tiny", {"limit": -3}, "--limit: expected a whole number from 1 on, got -3"),
        ("tiny_a", "tiny", {"limit": 0.5}, "--limit: expected a whole number from 1 on, got 0.5"),
        ("tiny_a", "tiny", {"batch_size": 0}, "--batch-size: expected a whole number from 1 on, got 0"),
        ("tiny_a", "tiny", {"logits_dtype": "int"}, "--logits-dtype: expected float32 or float16, got 'int'"),
        ("tiny_a", "tiny", {"amp": "fp8"}, "--amp: expected bf16 or fp16, got 'fp8'"),
    ],
)
def test_wrong_arguments_are_refused_in_words(models, settings, options, words):
    with pytest.raises(testbed.TestbedError, match=words):
        testbed.evaluate(models, settings, quiet=True, **options)


def test_predict_gives_outputs_and_stores_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outputs = testbed.predict("tiny_a", "tiny.noise", registry=[str(tiny.REGISTRY)], limit=20)
    assert (outputs.logits.shape, outputs.model, len(set(outputs.targets.tolist()))) == ((20, 10), "tiny_a", 10)
    assert list(tmp_path.iterdir()) == []
    how = dict(registry=[str(tiny.REGISTRY)], limit=20)
    table = testbed.evaluate("tiny_a", "tiny.noise", **how, gpus="cpu", quiet=True)
    assert table[table.metric == "top1"].value.tolist() == [pytest.approx(100 * outputs.accuracy)]


def test_predict_takes_a_bare_module_and_leaves_its_mode(tmp_path):
    import torch

    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 10)).train()
    outputs = testbed.predict(net, "tiny", registry=[str(tiny.REGISTRY)], record=("features",))
    assert outputs.extras["features"].shape == (200, 192)
    assert net.training
    with pytest.raises(testbed.TestbedError, match=r"testbed\.predict: .*'colour'"):
        testbed.predict(net, "tiny", registry=[str(tiny.REGISTRY)], colour="red")
