"""Files of weights, heatmaps and published pickles with any bytes changed: read, or refused in one line.

None of them runs code, and none takes memory that it does not hold.
"""

from __future__ import annotations

import csv
import io
import pickle
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from faults.bounds import no_longer_than, no_more_than
from faults.fuzzing import fuzz_settings
from testbed.data.cifar_files import read as read_cifar
from testbed.errors import DataError, TestbedError
from testbed.explain.convert_heatmaps import read_pickled_heatmaps
from testbed.explain.manifest import ExplanationManifest, read_heatmap

RAN = []  # what a file has run


def note_run(word):
    RAN.append(word)


class Evil:
    """What an attacker pickles: a call of a function of this machine."""

    def __reduce__(self):
        return note_run, ("run",)


@st.composite
def changed(draw, content: bytes):
    """The bytes, cut and with some of them changed or put in."""
    made = bytearray(content[: draw(st.integers(0, len(content)) | st.just(len(content)))])
    for _ in range(draw(st.integers(0, 5)) if made else 0):
        place = draw(st.integers(0, len(made) - 1) | st.integers(0, min(200, len(made) - 1)))
        put = draw(
            st.binary(min_size=1, max_size=4) | st.sampled_from([b"\xff\xff\xff\x7f", b"r", b"c", b"R", b"\x94", b"."])
        )
        made[place : place + draw(st.sampled_from([0, len(put)]))] = put
    return bytes(made)


def read_or_refused(read, path, gigabytes=1.0):
    """What was read, or None; an error is one line of ours, and nothing of the file has run."""
    try:
        with no_longer_than(30), no_more_than(gigabytes):
            return read(path)
    except TestbedError as error:
        told = str(error)
    finally:
        assert RAN == []
    assert told.isprintable() and len(told) < 2000
    return None


# ---- checkpoints -------------------------------------------------------------------------------------------


def weights_files() -> dict[str, bytes]:
    import torch
    from safetensors.torch import save

    state = {"1.weight": torch.arange(6.0).reshape(2, 3), "1.bias": torch.ones(2, dtype=torch.float16)}
    made = {"w.safetensors": save(state)}
    for name, more in (("w.pth", {}), ("old.pth", {"_use_new_zipfile_serialization": False})):
        content = io.BytesIO()
        torch.save({"state_dict": state, "epoch": 3, "arch": "x"}, content, **more)
        made[name] = content.getvalue()
    return made


WEIGHTS = weights_files()


@fuzz_settings(100)
@given(data=st.data())
def test_any_checkpoint_is_loaded_or_refused_in_one_line(tmp_path_factory, data):
    import torch

    from testbed.models.weights import load_checkpoint

    name = data.draw(st.sampled_from(sorted(WEIGHTS)))
    path = tmp_path_factory.mktemp("weights") / name
    path.write_bytes(data.draw(changed(WEIGHTS[name])))
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3, 2))
    before = [parameter.clone() for parameter in network.parameters()]
    if read_or_refused(lambda p: load_checkpoint(network, p) or network, path, 2.0) is None:
        for parameter, was in zip(network.parameters(), before, strict=True):
            assert parameter.shape == was.shape


@pytest.mark.parametrize("place", ["alone", "state_dict", "name", "tensor"])
def test_code_in_a_checkpoint_does_not_run(tmp_path, place):
    import torch

    from testbed.models.weights import read_tensors

    content = {"alone": Evil(), "state_dict": {"state_dict": Evil()}, "name": {Evil(): 1}, "tensor": [Evil()]}[place]
    content = {"name": {"a": [Evil()]}}.get(place, content)
    torch.save(content, tmp_path / "w.pth")
    with pytest.raises(TestbedError, match="holds pickled code"):
        read_tensors(tmp_path / "w.pth")
    assert RAN == []


def test_published_weights_that_a_package_loads_run_no_code_either(tmp_path, monkeypatch):
    """torchvision asks for pickled code where it loads a file that it has fetched; so does code of torch.hub."""
    import torch

    from testbed import Model
    from testbed.models.classifier import load_network
    from testbed.models.weights import UNSAFE_VARIABLE
    from testbed.options import RunOptions

    torch.save(Evil(), tmp_path / "w.pth")
    entry = Model(
        name="m",
        transform=None,
        classifier_loader=lambda: torch.load(tmp_path / "w.pth", weights_only=False),
        eval_batch_size=1,
    )
    with pytest.raises(TestbedError, match="its file holds pickled code: expected tensors only") as error:
        load_network(entry, RunOptions())
    assert RAN == [] and "--unsafe-pickle runs it" in str(error.value) and "\n" not in str(error.value)
    monkeypatch.setenv(UNSAFE_VARIABLE, "1")
    load_network(entry, RunOptions())
    assert RAN.pop() == "run"


# ---- heatmaps ----------------------------------------------------------------------------------------------


def heatmap_files() -> dict[str, bytes]:
    from PIL import Image

    array = np.arange(12.0).reshape(3, 4)
    made = {}
    for name, save in (
        ("m.npy", lambda f: np.save(f, array)),
        ("m.npz", lambda f: np.savez_compressed(f, **{"7": array, "8": array})),
        ("m.png", lambda f: Image.fromarray(array.astype(np.uint8)).save(f, "PNG")),
        ("pickled.npy", lambda f: np.save(f, {486: array, np.int64(9): array.astype(">f4")}, allow_pickle=True)),
    ):
        content = io.BytesIO()
        save(content)
        made[name] = content.getvalue()
    return made


HEATMAPS = heatmap_files()


@fuzz_settings(120)
@given(data=st.data())
def test_any_heatmap_is_read_or_refused_in_one_line(tmp_path_factory, data):
    name = data.draw(st.sampled_from(sorted(HEATMAPS)))
    path = tmp_path_factory.mktemp("maps") / name
    path.write_bytes(data.draw(changed(HEATMAPS[name])))
    heatmap = read_or_refused(lambda p: read_heatmap(p, (7,)), path)
    assert heatmap is None or (heatmap.ndim == 2 and heatmap.dtype == np.float64)


@fuzz_settings(100)
@given(data=st.data())
def test_any_pickled_heatmaps_are_read_or_refused_in_one_line(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("maps") / "m.npy"
    path.write_bytes(data.draw(changed(HEATMAPS["pickled.npy"])))
    maps = read_or_refused(read_pickled_heatmaps, path)
    assert maps is None or all(type(c) is int and m.ndim == 2 for c, m in maps.items())


CELLS = st.sampled_from(
    ["one.png", "m.npz", "m.npy", "", "7", "7;8", "-1", "..", "/", "x" * 300, "\0", "9" * 30]
) | st.text(max_size=8)


@fuzz_settings(100)
@given(
    header=st.permutations(["image", "heatmap", "class", "contrast"]).map(lambda names: names[:])
    | st.lists(CELLS, max_size=4),
    rows=st.lists(st.lists(CELLS, max_size=6), max_size=3),
    data=st.data(),
)
def test_any_list_of_heatmaps_opens_or_is_refused_in_one_line(tmp_path_factory, header, rows, data):
    folder = tmp_path_factory.mktemp("maps")
    (folder / "one.png").write_bytes(HEATMAPS["m.png"])
    for name in ("m.npz", "m.npy"):
        (folder / name).write_bytes(data.draw(st.just(HEATMAPS[name]) | changed(HEATMAPS[name])))
    with (folder / "list.csv").open("w", newline="", encoding="utf-8", errors="surrogatepass") as file:
        csv.writer(file, escapechar="\\").writerows([header, *rows])

    def opened(path):
        samples = ExplanationManifest(str(path)).open([])
        return [samples.load(i) for i in range(len(samples.ids))]

    pictures = read_or_refused(opened, folder / "list.csv")
    assert pictures is None or pictures


# ---- published pickles ---------------------------------------------------------------------------------------


def batch(protocol: int) -> bytes:
    rows = np.random.default_rng(0).integers(0, 256, (2, 3072)).astype(np.uint8)
    return pickle.dumps({b"data": rows, b"labels": [3, 5], b"filenames": [b"a.png", b"b.png"]}, protocol)


@pytest.mark.parametrize("protocol", [0, 2, 4])
@fuzz_settings(50)
@given(data=st.data())
def test_any_batch_of_cifar_is_read_or_refused_in_one_line(tmp_path_factory, data, protocol):
    path = tmp_path_factory.mktemp("cifar") / "test_batch"
    path.write_bytes(data.draw(changed(batch(protocol))))
    found = read_or_refused(lambda p: read_cifar([p]), path)
    assert found is None or (found[0].shape == (len(found[1]), 32, 32, 3) and found[0].dtype == np.uint8)


def test_an_evil_pickle_would_run():
    pickle.loads(pickle.dumps(Evil()))
    assert RAN.pop() == "run"


def test_a_batch_of_cifar_as_published_is_read(tmp_path):
    for protocol in (0, 2, 4):
        (tmp_path / "test_batch").write_bytes(batch(protocol))
        images, labels = read_cifar([tmp_path / "test_batch"])
        assert images.shape == (2, 32, 32, 3) and labels.tolist() == [3, 5]


@pytest.mark.parametrize(
    "content", [pickle.dumps(Evil()), pickle.dumps({b"data": Evil()}), b"cposix\nsystem\n(S'id'\ntR."]
)
def test_code_in_a_published_pickle_does_not_run(tmp_path, content):
    (tmp_path / "test_batch").write_bytes(content)
    with pytest.raises(
        DataError, match=r"expected a published file of CIFAR, whole and unchanged: it holds .*, which is not run"
    ):
        read_cifar([tmp_path / "test_batch"])
    (tmp_path / "m.npy").write_bytes(HEATMAPS["pickled.npy"][:128] + content)
    with pytest.raises(DataError, match="only arrays of numbers are taken; nothing of it was run"):
        read_pickled_heatmaps(tmp_path / "m.npy")
    assert RAN == []


def test_a_batch_that_asks_for_a_huge_table_gets_none(tmp_path):
    (tmp_path / "test_batch").write_bytes(b"\x80\x03Nr\xff\xff\xff\x7f.")
    assert read_or_refused(lambda p: read_cifar([p]), tmp_path / "test_batch", 0.5) is None


def test_weights_that_unpack_to_far_more_than_they_are_are_refused(tmp_path):
    """A zip of zeros where torch keeps the bytes of a tensor."""
    import torch

    from testbed.models.weights import read_tensors

    torch.save({"w": torch.zeros(4)}, tmp_path / "w.pth")
    with (
        zipfile.ZipFile(tmp_path / "w.pth") as whole,
        zipfile.ZipFile(tmp_path / "bomb.pth", "w", zipfile.ZIP_DEFLATED) as bomb,
    ):
        for info in whole.infolist():
            content = whole.read(info)
            bomb.writestr(info.filename, bytes(64 << 20) if "data/" in info.filename else content)
    found = read_or_refused(read_tensors, tmp_path / "bomb.pth", 0.5)
    assert found is None or found["w"].shape == (4,)
