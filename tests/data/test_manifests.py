from __future__ import annotations

import pytest

from testbed import ManifestDataset
from testbed.data.samples import UNKNOWN
from testbed.errors import DataError


def manifest(folder, text, encoding="utf-8"):
    path = folder / "list.csv"
    path.write_text(text, encoding=encoding)
    return path


@pytest.mark.parametrize(
    ("text", "ids", "targets", "space"),
    [
        ("image,label\nb.png,dog\na.png,cat\n", ["b.png", "a.png"], [1, 0], "own"),
        ("image,label\na.png,10\nb.png,2\n", ["a.png", "b.png"], [10, 2], "own"),
        ("label,image\nn15075141,a.png\nn01440764,b.png\n", ["a.png", "b.png"], [999, 0], "imagenet"),
        ("image,photographer\nsub/c.png,Ann\n", ["sub/c.png"], [UNKNOWN], "own"),
    ],
)
def test_lines_become_samples_in_their_order(image_folder, text, ids, targets, space):
    folder = image_folder(["a.png", "b.png", "sub/c.png"])
    samples = ManifestDataset(manifest(folder, text)).open([])
    assert list(samples.ids) == ids
    assert samples.targets.tolist() == targets
    assert samples.label_space == space
    assert samples.load(0).size == (4, 4)


def test_file_saved_by_a_spreadsheet_is_read(image_folder):
    folder = image_folder(["a.png"])
    path = manifest(folder, "image,label\r\na.png,cat\r\n", encoding="utf-8-sig")
    assert list(ManifestDataset(path).open([]).ids) == ["a.png"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("image,label\nnone.png,cat\n", "lists none.png, but there is no such file below"),
        ("image,label\n", "lists no images: expected a header line and one line per image"),
        ("", "lists no images"),
        ("file,label\na.png,cat\n", "expected a column 'image', got file, label"),
        ("image,label\na.png,cat\na.png\n", "line 3: expected 2 cells, got fewer"),
    ],
)
def test_wrong_manifest_is_refused(image_folder, text, message):
    path = manifest(image_folder(["a.png"]), text)
    with pytest.raises(DataError) as error:
        ManifestDataset(path).open([])
    assert str(path) in str(error.value)
    assert message in str(error.value)


def test_missing_or_undecodable_manifest_is_named(tmp_path):
    with pytest.raises(DataError, match=r"manifest .*none\.csv cannot be read: No such file or directory"):
        ManifestDataset(tmp_path / "none.csv").open([])
    path = tmp_path / "latin.csv"
    path.write_bytes("image,label\nä.png,1\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"latin\.csv cannot be read: .*utf-8"):
        ManifestDataset(path).open([])


def test_labels_rule_can_be_named(image_folder):
    path = manifest(image_folder(["a.png", "b.png"]), "image,label\na.png,10\nb.png,2\n")
    assert ManifestDataset(path, labels="sorted").open([]).targets.tolist() == [0, 1]
    with pytest.raises(DataError, match="labels must be auto, imagenet, integer or sorted, got 'name'"):
        ManifestDataset(path, labels="name").open([])
