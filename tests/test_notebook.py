"""The testbed from Python."""

import numpy as np
import pytest
import torch
from torch import nn

import testbed
import tiny
from testbed import EvalSetting, StandardNormalization


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


def test_names_results_and_logits_read_the_store():
    table = testbed.evaluate(["tiny_a", "tiny_b"], ["tiny", "tiny-even"], gpus=["cpu"], quiet=True)
    assert set(table.model) == {"tiny_a", "tiny_b"}
    assert testbed.results("tiny_a", "tiny*", metric="top1").eval_setting.tolist() == ["tiny", "tiny-even"]
    assert testbed.logits("tiny_b", "tiny-even").shape == (100, 5)


def test_failure_is_one_error_that_names_it():
    with pytest.raises(testbed.TestbedError, match="1 of 1 pairs failed: tiny_raises on tiny: ZeroDivisionError"):
        testbed.evaluate("tiny_raises", "tiny", gpus=["cpu"], quiet=True)


@pytest.mark.parametrize(
    ("models", "settings", "options", "words"),
    [
        (3, "tiny", {}, "expected a model's name, a Model or a module, got int"),
        ("tiny_a", 3, {}, "expected a setting's name or an EvalSetting, got int"),
        ("tiny_a", "tiny", {"batchsize": 3}, "batchsize"),
    ],
)
def test_wrong_arguments_are_refused_in_words(models, settings, options, words):
    with pytest.raises(testbed.TestbedError, match=words):
        testbed.evaluate(models, settings, quiet=True, **options)
