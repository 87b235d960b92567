"""Pictures whose labels stand in a text file beside them."""

import pytest

from testbed.data.listed import ListedDataset
from testbed.errors import DataError


def test_a_list_with_names_of_columns_gives_paths_and_class_names(image_folder, tmp_path):
    root = image_folder(["City/cat 1.png", "City/dog.png", "Desert/cat.png", "Desert/unlisted.png"], root="pug")
    (root / "labels.csv").write_text(
        "world,filename,label\nCity,City/cat 1.png,Cat\nCity,City/dog.png,Dog\nDesert,Desert/cat.png,Cat\n"
    )
    dataset = ListedDataset("pug", "labels.csv", ("filename", "label"), classes={"Dog": 0, "Cat": 7})
    samples = dataset.open([tmp_path])
    assert list(samples.ids) == ["City/cat 1.png", "City/dog.png", "Desert/cat.png"]
    assert samples.targets.tolist() == [7, 0, 7]
    assert samples.load(1).size == (4, 4)
    assert hash(dataset) == hash(
        ListedDataset("pug", "labels.csv", ("filename", "label"), classes={"Dog": 0, "Cat": 7})
    )


def test_edits_of_one_picture_share_its_line(image_folder, tmp_path):
    root = image_folder(["ori/val_1.jpg", "inver/val_1.png", "inver/val_2.png", "inver/val_3.png"], root="e")
    (root / "labels.txt").write_text("val_1.JPEG\t12\nval_2.JPEG\t999\n")
    samples = ListedDataset("e", "labels.txt", separator="\t").open([tmp_path])
    assert dict(zip(samples.ids, samples.targets.tolist(), strict=True)) == {
        "inver/val_1.png": 12,
        "inver/val_2.png": 999,
        "ori/val_1.jpg": 12,
    }


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (None, {}, "list of labels .* cannot be read: No such file"),
        ("a.png,one\n", {}, "expected a picture and the number of its class, got 'a.png,one'"),
        ("a.png,Cow\n", {"classes": {"Cat": 1}}, "expected a picture and one of the classes, got 'a.png,Cow'"),
        ("a,b\n", {"columns": ("image", "label")}, "expected the columns image and label, got a, b"),
        ("other.png,1\n", {}, "none of the pictures listed in list.csv is there"),
    ],
)
def test_a_bad_list_is_told_in_one_line(image_folder, tmp_path, text, options, message):
    root = image_folder(["a.png"], root="set")
    if text is not None:
        (root / "list.csv").write_text(text)
    with pytest.raises(DataError, match=message):
        ListedDataset("set", "list.csv", **options).open([tmp_path])


def test_a_missing_set_says_where_to_get_it(tmp_path):
    with pytest.raises(DataError, match=r"dataset 'set' not found: expected a folder with pictures and list\.csv"):
        ListedDataset("set", "list.csv", source="somewhere").open([tmp_path])
