"""Networks in ONNX files: against torch's own logits, and against what the onnx package reads in the same files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import tiny
from shared_data import shared_data
from testbed import StandardNormalization, StandardTransform
from testbed.entries.registry import Registry
from testbed.errors import EntryError, ModelError, TestbedError, UnknownName
from testbed.models.classifier import LoadedModel
from testbed.models.strings import onnx_models, resolve
from testbed.models.strings.onnx_file import read_onnx
from testbed.options import RunOptions
from testbed.perturb.attacks import projected_gradient_descent

onnx = pytest.importorskip("onnx", reason="pip install onnx")
pytest.importorskip("onnxruntime", reason="pip install onnxruntime")
SAID = ",mean=0.5,std=0.25"


def write(
    path: Path,
    shape: tuple[object, ...] = ("batch", 3, 8, 8),
    classes: int = 10,
    operators: tuple[str, ...] = (),
    axes: tuple[int, int] = (2, 3),
    metadata: dict[str, str] | None = None,
    kind: int = 1,
    more_outputs: tuple[str, ...] = (),
) -> np.ndarray:
    """A file that multiplies the mean of each channel with a matrix, which is returned; then further operators."""
    helper = onnx.helper
    matrix = np.random.default_rng(classes).normal(size=(3, classes)).astype(np.float32)
    steps = [helper.make_node("ReduceMean", ["images", "axes"], ["means"], keepdims=0)]
    if kind != 1:
        steps.insert(0, helper.make_node("Cast", ["images"], ["floats"], to=1))
        steps[1].input[0] = "floats"
    steps.append(helper.make_node("MatMul", ["means", "matrix"], ["product"]))
    for i, operator in enumerate(operators):
        steps.append(helper.make_node(operator, [steps[-1].output[0]], [f"step{i}"]))
    outputs = [steps[-1].output[0], *more_outputs]
    graph = helper.make_graph(
        steps,
        "tiny",
        [helper.make_tensor_value_info("images", kind, shape)],
        [helper.make_tensor_value_info(name, 1, None) for name in outputs],
        [onnx.numpy_helper.from_array(matrix, "matrix"), onnx.numpy_helper.from_array(np.array(axes), "axes")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    helper.set_model_props(model, metadata or {})
    onnx.save(model, path)
    return matrix


def loaded(name: str) -> nn.Module:
    model = LoadedModel(resolve(name), "cpu", RunOptions())
    network: nn.Module = model.network
    return network


IMAGES = torch.rand(7, 3, 8, 8, generator=torch.Generator().manual_seed(0))


# ---- what a file says ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tiny_nchw", "tiny_nhwc", "tiny_softmax", "tiny_static4"])
def test_a_file_is_read_as_the_onnx_package_reads_it(name: str) -> None:
    path = shared_data("hub-samples", f"{name}.onnx")
    read, theirs = read_onnx(path), onnx.load(path)
    for ours, values in ((read.inputs, theirs.graph.input), (read.outputs, theirs.graph.output)):
        assert [tensor.name for tensor in ours] == [value.name for value in values]
        sides = [[d.dim_value or None for d in value.type.tensor_type.shape.dim] for value in values]
        assert [list(tensor.shape) for tensor in ours] == sides
    assert list(read.last_operators.values()) == [theirs.graph.node[-1].op_type]


def test_weights_in_further_files_are_found_and_missed(tmp_path) -> None:
    write(tmp_path / "whole.onnx")
    model = onnx.load(tmp_path / "whole.onnx")
    onnx.save(model, tmp_path / "net.onnx", save_as_external_data=True, location="net.weights", size_threshold=100)
    assert [file.name for file in read_onnx(tmp_path / "net.onnx").files] == ["net.onnx", "net.weights"]
    before = loaded(f"onnx:{tmp_path / 'net.onnx'}{SAID}")
    content = bytearray((tmp_path / "net.weights").read_bytes())
    content[0] ^= 1
    (tmp_path / "net.weights").write_bytes(content)
    after = loaded(f"onnx:{tmp_path / 'net.onnx'}{SAID}")
    assert not torch.equal(before.state_dict()["files_sha256"], after.state_dict()["files_sha256"])
    (tmp_path / "net.weights").unlink()
    with pytest.raises(ModelError, match=r"net.onnx has its weights in net.weights, which is not beside it"):
        resolve(f"onnx:{tmp_path / 'net.onnx'}{SAID}")


@pytest.mark.parametrize("content", [b"", b"no model at all\n", b"\x08\x08\x3a\xff\xff\x03", b"PK\x03\x04" * 9])
def test_a_file_that_is_no_model_is_refused(tmp_path, content: bytes) -> None:
    (tmp_path / "net.onnx").write_bytes(content)
    with pytest.raises(ModelError, match=r"net.onnx is truncated, or no ONNX model$"):
        resolve(f"onnx:{tmp_path / 'net.onnx'}{SAID}")


def test_a_file_cut_anywhere_is_refused_in_one_line(tmp_path) -> None:
    write(tmp_path / "whole.onnx")
    whole = (tmp_path / "whole.onnx").read_bytes()
    cut = tmp_path / "net.onnx"
    for length in range(len(whole)):
        cut.write_bytes(whole[:length])
        try:
            loaded(f"onnx:{cut}{SAID}")
        except TestbedError:
            continue
        # What ends at the border of a field may be a model: only the words after the graph are then lacking.
        assert read_onnx(cut).inputs == read_onnx(tmp_path / "whole.onnx").inputs


# ---- how pictures are prepared ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "transform"),
    [
        ("", StandardTransform(9, 8)),
        (",resize=12,interpolation=bicubic", StandardTransform(12, 8, "bicubic")),
        (",resize=8x8", StandardTransform((8, 8), 8)),
    ],
)
def test_preparation_is_what_was_said(tmp_path, words: str, transform: StandardTransform) -> None:
    write(tmp_path / "net.onnx")
    model = resolve(f"onnx:{tmp_path / 'net.onnx'},mean=0.1,0.2,0.3,std=0.25{words}")
    assert model.transform == transform
    assert model.normalization == StandardNormalization(mean=[0.1, 0.2, 0.3], std=[0.25] * 3)
    assert ("(assumed)" in model.input_note) == ("interpolation" not in words)


def test_a_file_may_say_its_preparation_itself_and_the_string_goes_before(tmp_path) -> None:
    write(tmp_path / "net.onnx", metadata={"mean": "[0.1, 0.2, 0.3]", "std": "0.5", "resize": "10", "author": "me"})
    model = resolve(f"onnx:{tmp_path / 'net.onnx'},std=0.25")
    assert model.transform == StandardTransform(10, 8)
    assert model.normalization == StandardNormalization(mean=[0.1, 0.2, 0.3], std=[0.25] * 3)
    assert "resized to 10 (by the file)" in model.input_note


@pytest.mark.parametrize(
    ("file", "words", "message"),
    [
        ({}, "", "does not tell how its pictures are normalised: add ,mean=..., ,std=..., such as"),
        ({}, ",mean=0", "normalised: add ,std=..., such as"),
        ({}, f"{SAID},crop=9", "expected crop=8x8, the size of the input, got crop=9"),
        ({}, f"{SAID},crop=small", "expected crop=224 or crop=HEIGHTxWIDTH, got crop=small"),
        ({}, f"{SAID},layout=nhwc", r"expected layout nchw for \(\?, 3, 8, 8\), got 'nhwc'"),
        ({}, f"{SAID},resise=9", "no option 'resise'; did you mean resize"),
        ({}, ",mean=1,2,std=1", "expected mean=NUMBER or three numbers with commas between them, got mean=1,2"),
        ({}, ",mean=0,std=0", "std must be above 0"),
        ({}, f"{SAID},output=probs", "no output 'probs', the file has product"),
        ({"shape": ("n", 1, 8, 8)}, SAID, r"expected pictures of 3 channels, the input 'images' has \(\?, 1, 8, 8\)"),
        ({"shape": ("n", 3, "h", "w")}, SAID, "does not tell its size: add ,crop=224"),
        ({"shape": ("n", "c", 8, "w")}, SAID, "does not tell its channels: add ,layout=nchw or nhwc"),
        ({"shape": ("n", 192)}, SAID, r"expected an input of four axes, 'images' has \(\?, 192\)"),
        ({"kind": 2}, SAID, "expected an input of floating numbers, 'images' is of uint8"),
        ({"more_outputs": ("means",)}, SAID, "the file has the outputs product, means: add ,output=NAME"),
    ],
)
def test_what_cannot_be_run_is_refused_when_the_plan_is_made(tmp_path, file, words: str, message: str) -> None:
    write(tmp_path / "net.onnx", **file)
    with pytest.raises(EntryError, match=message):
        resolve(f"onnx:{tmp_path / 'net.onnx'}{words}")


def test_without_onnxruntime_the_package_is_named(monkeypatch) -> None:
    monkeypatch.setattr(onnx_models.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UnknownName, match=r"needs the package onnxruntime: pip install 'robustness-testbed\[onnx\]'"):
        resolve("onnx:net.onnx")


def test_a_bare_file_is_answered_with_the_string() -> None:
    with pytest.raises(UnknownName, match=r"'net.onnx' is an ONNX file, expected a model: onnx:net.onnx,mean="):
        Registry().model("net.onnx")


def test_planning_imports_no_onnxruntime(tmp_path) -> None:
    write(tmp_path / "net.onnx")
    code = (
        "import sys; from testbed.models.strings import resolve; "
        f"resolve('onnx:{tmp_path / 'net.onnx'}{SAID}'); print({{'onnxruntime', 'onnx', 'torch'}} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


# ---- what comes out --------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the other exporter of torch needs onnxscript
@pytest.mark.parametrize("free_batch", [True, False])
def test_logits_are_those_of_the_network_that_was_exported(tmp_path, free_batch: bool) -> None:
    """Seven pictures through a file of a fixed batch of two: the last batch is filled up, and cut."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(216, 5)).eval()
    axes = {"dynamic_axes": {"x": {0: "batch"}}} if free_batch else {}
    file = tmp_path / "net.onnx"
    torch.onnx.export(network, (torch.rand(2, 3, 8, 8),), str(file), dynamo=False, input_names=["x"], **axes)
    with torch.no_grad():
        expected = network(IMAGES)
    assert torch.allclose(loaded(f"onnx:{file}{SAID}")(IMAGES), expected, atol=1e-5)


def test_channels_last_files_get_their_pictures_so(tmp_path) -> None:
    matrix = write(tmp_path / "net.onnx", ("batch", 8, 8, 3), axes=(1, 2))
    found = loaded(f"onnx:{tmp_path / 'net.onnx'}{SAID}")(IMAGES)
    assert np.allclose(found, IMAGES.numpy().mean(axis=(2, 3)) @ matrix, atol=1e-5)


@pytest.mark.parametrize("operators", [("Softmax",), ("Softmax", "Identity")])
def test_probabilities_become_their_logarithms(tmp_path, operators: tuple[str, ...]) -> None:
    """Declared by the last operator, or seen in a first pass."""
    matrix = write(tmp_path / "net.onnx", operators=operators)
    network = loaded(f"onnx:{tmp_path / 'net.onnx'}{SAID}")
    expected = torch.from_numpy(IMAGES.numpy().mean(axis=(2, 3)) @ matrix).log_softmax(dim=1)
    assert torch.allclose(network(IMAGES), expected, atol=1e-5)
    assert network.recorded_facts["onnx"]["outputs"] == "logarithm of its probabilities"


def test_the_background_of_1001_outputs_is_left_out(tmp_path) -> None:
    matrix = write(tmp_path / "net.onnx", classes=1001)
    found = loaded(f"onnx:{tmp_path / 'net.onnx'}{SAID}")(IMAGES)
    assert np.allclose(found, IMAGES.numpy().mean(axis=(2, 3)) @ matrix[:, 1:], atol=1e-5)


def test_float16_and_float64_inputs_get_what_they_take(tmp_path) -> None:
    for kind in (10, 11):
        matrix = write(tmp_path / "net.onnx", kind=kind)
        found = loaded(f"onnx:{tmp_path / 'net.onnx'}{SAID}")(IMAGES)
        assert np.allclose(found, IMAGES.numpy().mean(axis=(2, 3)) @ matrix, atol=1e-2)


def test_outputs_that_are_no_matrix_are_refused_when_it_is_loaded(tmp_path) -> None:
    write(tmp_path / "net.onnx", operators=("Shape", "Cast"))
    with pytest.raises(ModelError, match=r"net.onnx: onnxruntime cannot open it: "):  # Cast lacks its attribute
        loaded(f"onnx:{tmp_path / 'net.onnx'}{SAID}")
    write(tmp_path / "net.onnx", operators=("ReduceSum",))  # over all axes, the pictures too
    with pytest.raises(ModelError, match=r"expected outputs of shape \(pictures, classes\), 'step0' of 2 .*\(1, 1\)"):
        loaded(f"onnx:{tmp_path / 'net.onnx'}{SAID}")


# ---- what it cannot do -----------------------------------------------------------------------------------


def test_an_attack_is_refused_and_not_harmless(tmp_path) -> None:
    write(tmp_path / "net.onnx")
    network = loaded(f"onnx:{tmp_path / 'net.onnx'}{SAID}")
    targets = network(IMAGES).argmax(dim=1)
    with pytest.raises(ModelError, match="gives neither gradients nor layers"):
        projected_gradient_descent("linf", 0.1, 0.02, 3, random_start=False)(IMAGES, network, targets, None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"compile": True}, "--compile: an ONNX file"),
        ({"record": ("features",)}, "--record: "),
        ({"amp": "bf16"}, "--amp"),
    ],
)
def test_options_that_look_into_a_network_are_refused(tmp_path, options, words: str) -> None:
    write(tmp_path / "net.onnx")
    report, _ = tiny.run(tmp_path, [f"onnx:{tmp_path / 'net.onnx'}{SAID}"], ["tiny"], **options)
    assert words in tiny.failure(report)


def test_a_blend_of_onnx_files_is_refused(tmp_path) -> None:
    write(tmp_path / "net.onnx")
    name = f"onnx:{tmp_path / 'net.onnx'}"
    with pytest.raises(EntryError, match="has no weights of its own that could be averaged"):
        Registry().model(f"blend:{name},mean=0,std=1+{name},mean=0,std=1@0.5")


def test_a_run_stores_logits_and_provenance_and_sees_a_file_that_changed(tmp_path) -> None:
    from testbed.store.find import find

    file = tmp_path / "net.onnx"
    write(file)
    name = f"onnx:{file},mean=0,std=1"
    report, store = tiny.run(tmp_path, [name], ["tiny"])
    assert not report.failed
    (evaluation,) = find(store, [name])
    assert list(evaluation.provenance.weights_files) == ["net.onnx"]
    assert evaluation.provenance.other["onnx"]["providers"] == "CPUExecutionProvider"
    assert evaluation.weights_sha256
    assert tiny.run(tmp_path, [name], ["tiny"])[0].plan.pairs[0].action == "done"
    write(file, operators=("Softmax",))
    pair = tiny.run(tmp_path, [name], ["tiny"])[0].plan.pairs[0]
    assert (pair.action, pair.reason) == ("run", "its weights file net.onnx has changed")
