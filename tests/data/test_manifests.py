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
        ('image , label\n a.png , cat\n"b.png", "dog"\n', ["a.png", "b.png"], [0, 1], "own"),
        ("image,label\na.png,3\nb.png,\nsub/c.png, \n", ["a.png", "b.png", "sub/c.png"], [3, UNKNOWN, UNKNOWN], "own"),
        ("image,label\na.png,\n", ["a.png"], [UNKNOWN], "own"),
        ("image,label\na.png,7;3\nb.png,999 + 0\n", ["a.png", "b.png"], [7, 999], "imagenet"),
        ("image,label\na.png,n15075141;n01440764\n", ["a.png"], [999], "imagenet"),
        ("image,label\na.png,hen;dog\nb.png,cat\n", ["a.png", "b.png"], [2, 0], "own"),
        ('image,label\na.png,"tench, Tinca tinca"\nb.png,great_white_shark\n', ["a.png", "b.png"], [0, 2], "imagenet"),
        ("image,label\na.png,3\na.png,3\n", ["a.png", "a.png"], [3, 3], "own"),
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
        ("image,label\na.png,cat\na.png\n", "line 3: expected 2 cells, got 1"),
        ("image,label\n\na.png,cat,dog\n", "line 3: expected 2 cells, got 3"),
        ("image,label\na.png,cat\n ,cat\n", "line 3: expected the path of an image, got an empty cell"),
        ("image,Class\na.png,cat\n", "expected a column 'label', got image, Class"),
        ("image,Label\na.png,cat\n", "expected a column 'label', got image, Label"),
        ("image,label\na.png,3;\n", "line 2: expected a label or several joined by ; or +, got '3;'"),
        ("image,label\na.png,3\na.png,5\n", "line 3: expected the labels that a.png has in line 2, got others"),
        (
            "image,label\na.png,n01440764\na.png,n01440764\nb.png,n01443537\nc.png,tensh\n",
            "line 5: expected ImageNet wnids as most labels are, got 'tensh'",
        ),
        ("image,label\na.png,0\nb.png,1\nc.png,x\n", "line 4: expected class numbers as most labels are, got 'x'"),
        ("image,label\na.png,0\nb.png,1;x\n", "line 3: expected class numbers as most labels are, got 'x'"),
        (
            "image,label\na.png,0\nb.png,-1\n",
            "line 3: expected class numbers 0, 1, 2, ... or nothing for no label, got -1",
        ),
        ("image,label\na.png,3.0\n", "line 2: expected class numbers 0, 1, 2, ... or nothing for no label, got 3.0"),
        (
            "image,label\na.png,99999999999999999999\n",
            "line 2: expected class numbers up to 2147483647, got 99999999999999999999",
        ),
        ("image,label\na.png,tench\nb.png,crane\n", "line 3: expected names of one ImageNet class each, got 'crane'"),
    ],
)
def test_wrong_manifest_is_refused(image_folder, text, message):
    path = manifest(image_folder(["a.png", "b.png", "c.png"]), text)
    with pytest.raises(DataError) as error:
        ManifestDataset(path).open([])
    assert str(path) in str(error.value)
    assert message in str(error.value)


def test_all_labels_of_pictures_with_several_are_told(image_folder):
    path = manifest(image_folder(["a.png", "b.png"]), "image,label\na.png,dog;cat\nb.png,eel\nc.png,\n")
    assert ManifestDataset(path).several_labels() == {"a.png": (1, 0)}


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
