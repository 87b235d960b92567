"""Pickled heatmaps become an .npz, and nothing that a pickle says is done."""

import os
import pickle

import numpy as np
import pytest
from click.testing import CliRunner

from shared_data import shared_data
from testbed.errors import DataError
from testbed.explain.convert_heatmaps import main, read_pickled_heatmaps
from testbed.explain.manifest import read_heatmap

MAPS = {486: np.arange(12.0).reshape(3, 4), 889: np.asfortranarray(np.eye(3, 4, dtype=">f4"))}


def saved(path, content):
    np.save(path, content, allow_pickle=True)
    return path


@pytest.mark.parametrize("key", [int, np.int64, np.uint16])
def test_maps_come_out_as_they_went_in(tmp_path, key):
    path = saved(tmp_path / "maps.npy", {key(c): heatmap for c, heatmap in MAPS.items()})
    heatmaps = read_pickled_heatmaps(path)
    assert {type(c) for c in heatmaps} == {int}
    for c, heatmap in MAPS.items():
        np.testing.assert_array_equal(heatmaps[c], heatmap, strict=True)


def test_file_of_an_older_numpy_is_read(tmp_path):
    """numpy 1 called the module numpy.core.multiarray, and numpy before 1.16 wrote pickles of protocol 3."""
    path = saved(tmp_path / "maps.npy", MAPS)
    header = path.read_bytes()[:128]
    stream = pickle.dumps(np.load(path, allow_pickle=True), protocol=3).replace(b"numpy._core.", b"numpy.core.")
    path.write_bytes(header + stream)
    assert b"cnumpy.core.multiarray" in path.read_bytes()
    np.testing.assert_array_equal(read_pickled_heatmaps(path)[486], MAPS[486])


def test_published_file_is_converted_in_one_command(tmp_path):
    """Maxima and salient pixels of the five maps: facts measured with the published program."""
    out = tmp_path / "cello.npz"
    told = CliRunner().invoke(main, [str(shared_data("contrastive", "cello.npy")), "--out", str(out)])
    assert told.exit_code == 0, told.output
    assert "5 heatmaps, 224 x 224" in told.output and "classes 402, 420, 486, 546, 889" in told.output
    for c, highest, salient in (
        *((486, 0.0406724, 2377), (889, 0.0469461, 481), (402, 0.1081829, 2490)),
        *((420, 0.0470792, 186), (546, 0.0912459, 1114)),
    ):
        heatmap = read_heatmap(out, (c,))
        assert heatmap.max() == pytest.approx(highest, abs=1e-7)
        assert (heatmap > 0.5 * heatmap.max()).sum() == salient


def test_command_warns_and_writes_beside_the_file(tmp_path):
    path = saved(tmp_path / "maps.npy", MAPS)
    told = CliRunner().invoke(main, [str(path)])
    assert told.exit_code == 0, told.output
    assert "is a pickle: np.load(..., allow_pickle=True) runs any code" in told.stderr
    with np.load(tmp_path / "maps.npz", allow_pickle=False) as written:
        assert sorted(written) == ["486", "889"]


class Touches:
    """Makes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_code_in_a_pickle_is_not_run(tmp_path):
    path = saved(tmp_path / "evil.npy", {486: Touches(tmp_path / "ran")})
    with pytest.raises(DataError, match=r"evil\.npy: it names \w+\.mkdir, .* nothing of it was run"):
        read_pickled_heatmaps(path)
    assert not (tmp_path / "ran").exists()
    np.load(path, allow_pickle=True)  # it would have been
    assert (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (np.ones((3, 4)), "got an array of numbers, which needs no conversion"),
        ({"cello": np.ones((3, 4))}, "expected class numbers as keys, got 'cello'"),
        ({-1: np.ones((3, 4))}, "expected class numbers as keys, got -1"),
        ({486: np.ones((3, 4, 3))}, r"class 486: expected a heatmap .* got an array of shape \(3, 4, 3\)"),
        ({486: [1, 2]}, "class 486: expected a heatmap .* got something else"),
        ({486: np.array(["a", "b"])}, "expected numbers, got values of the type 'U1'"),
        ({486: np.array([{}, {}], dtype=object)}, "class 486: expected a heatmap .* got something else"),
        ({}, "expected a pickled dictionary of class and heatmap"),
        ({10**5000: np.ones((3, 4))}, "is damaged: ValueError: Exceeds the limit"),
        (np.array([{}, {}], dtype=object), "expected a pickled dictionary of class and heatmap"),
    ],
)
def test_other_contents_are_refused_in_one_line(tmp_path, content, message):
    with pytest.raises(DataError, match=message):
        read_pickled_heatmaps(saved(tmp_path / "maps.npy", content))


def test_files_that_are_not_there_or_of_another_kind_are_named(tmp_path):
    with pytest.raises(DataError, match=r"none\.npy cannot be read: No such file"):
        read_pickled_heatmaps(tmp_path / "none.npy")
    (tmp_path / "text.npy").write_text("486")
    with pytest.raises(DataError, match=r"text\.npy: expected an \.npy file"):
        read_pickled_heatmaps(tmp_path / "text.npy")


def test_damaged_pickles_are_read_or_refused(tmp_path):
    """Any byte may be another, and the file may end anywhere: an error is always a DataError."""
    path = saved(tmp_path / "maps.npy", MAPS)
    whole = path.read_bytes()
    random = np.random.default_rng(0)
    refused = 0
    for _ in range(400):
        damaged = bytearray(whole[: random.integers(129, len(whole) + 1)])
        for place in random.integers(128, len(damaged), size=2):
            damaged[place] = random.integers(256)
        path.write_bytes(damaged)
        try:
            read_pickled_heatmaps(path)
        except DataError:
            refused += 1
    assert 0 < refused <= 400


def test_a_pickle_that_asks_for_a_huge_table_gets_none(tmp_path):
    """LONG_BINPUT names a place in the memo; the unpickler in C makes a table up to it, here of 32 GB."""
    path = saved(tmp_path / "maps.npy", MAPS)
    path.write_bytes(path.read_bytes()[:128] + b"\x80\x03Nr\xff\xff\xff\x7f.")
    with pytest.raises(DataError, match="expected a pickled dictionary"):
        read_pickled_heatmaps(path)
