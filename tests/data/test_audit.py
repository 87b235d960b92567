"""What a set of images lacks is found from its folders, and what cannot be read by reading it."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from shared_data import shared_data
from testbed import ArrayDataset, ManifestDataset, StandardDataset
from testbed.data.audit import look_over, uneven, unreadable
from testbed.data.labels import imagenet_wnids
from testbed.data.listed import ListedDataset

WNIDS = imagenet_wnids()


def looked_over(image_folder, names, per_class=1, labels="auto", classes=None):
    folder = image_folder([f"{name}/{i}.png" for name in names for i in range(per_class)])
    return look_over(StandardDataset(path=folder, labels=labels).open([]), classes)


def test_real_photographs_are_counted_by_class():
    samples = StandardDataset(path=shared_data("imagenet-samples"), labels="imagenet").open([])
    found = look_over(samples)
    assert (found.images, found.names, set(found.per_class.values())) == (500, "wnids", {1})
    assert list(found.per_class) == list(WNIDS[::2])
    missing = f"500 of 1000 classes have no image: {WNIDS[1]}, {WNIDS[3]}, {WNIDS[5]}, {WNIDS[7]} and 496 more"
    assert found.problems == (missing,)
    assert look_over(samples, range(0, 1000, 2)).problems == ()
    assert unreadable(samples, range(0, 500, 50)) == []


@pytest.mark.parametrize(
    ("names", "classes", "kind", "problems"),
    [
        (WNIDS[:3], (0, 1, 2), "wnids", ()),
        (WNIDS[:3], (), "wnids", ()),
        (WNIDS[:3], (0, 2, 7), "wnids", (f"1 of 3 classes have no image: {WNIDS[7]}",)),
        (["cat", "dog"], None, "names", ()),
        (["0", "1", "3"], None, "integers", ()),
        (["0", "1", "3"], range(4), "integers", ("1 of 4 classes have no image: class 2",)),
        (
            [*WNIDS[:3], "extra"],
            None,
            "names",
            ("extra among classes that are wnids: all of them now count in the order of their names",),
        ),
        (
            ["0", "1", "2", "x"],
            None,
            "names",
            ("x among classes that are integers: all of them now count in the order of their names",),
        ),
        (
            ["tench", "goldfish", "great_white_shrak"],
            None,
            "names",
            (
                "great_white_shrak among classes that are names of ImageNet's classes: all of them now count in the "
                "order of their names",
            ),
        ),
        (
            [f"class_{i}" for i in range(11)],
            None,
            "names",
            ("classes count in the order of their names, class_10 before class_2: pad the numbers",),
        ),
        ([f"class_{i:02}" for i in range(11)], None, "names", ()),
        (["a1", "b10", "b2"], None, "names", ()),
    ],
)
def test_class_folders_are_judged_by_their_names(image_folder, names, classes, kind, problems):
    found = looked_over(image_folder, names, classes=classes)
    assert (found.names, found.problems) == (kind, problems)


@pytest.mark.parametrize("last", [2, 10, 1000])
def test_folders_that_count_from_one_are_found_out(image_folder, last):
    found = looked_over(image_folder, [str(i) for i in range(1, last + 1)])
    assert found.problems == (f"classes are numbered 1 to {last}: the classifiers count from 0 to {last - 1}",)


@pytest.mark.parametrize(
    ("names", "labels", "classes"),
    [
        (["1"], "auto", None),
        (["0", "1", "2"], "auto", None),
        (["1", "3"], "auto", None),
        (["1", "2"], "auto", (1, 2)),  # a setting of these classes
        (["1", "2"], "sorted", None),  # which makes them 0 and 1
    ],
)
def test_other_numbers_are_not_said_to_count_from_one(image_folder, names, labels, classes):
    assert looked_over(image_folder, names, labels=labels, classes=classes).problems == ()


def test_folders_that_made_no_labels_are_no_classes(image_folder):
    # ImageNet-E: each edit of a picture in a folder of its own, labels in a list.
    folder = image_folder([f"{edit}/{i}.png" for edit in ("ori", "bg10") for i in range(3)], "data/imagenet-e")
    (folder / "labels.txt").write_text("0.png 7\n1.png 7\n2.png 9\n")
    dataset = ListedDataset(name="imagenet-e", listing="labels.txt", separator=" ")
    found = look_over(dataset.open([folder.parent]))
    assert (found.names, found.per_class, found.problems) == ("", {"7": 4, "9": 2}, ())


def test_labels_of_a_manifest_are_counted_whatever_the_folders_are_called(image_folder):
    images = [f"class_{i}/{k}.png" for i in (2, 10) for k in range(2)]
    folder = image_folder(images)
    (folder / "own.csv").write_text(
        "image,label\n" + "".join(f"{image},{i % 2 * 3}\n" for i, image in enumerate(images))
    )
    found = look_over(ManifestDataset(csv=folder / "own.csv").open([]))
    assert (found.names, found.per_class, found.problems) == ("", {"0": 2, "3": 2}, ())
    (folder / "imagenet.csv").write_text("image,label\n" + "".join(f"{image},{WNIDS[5]}\n" for image in images))
    assert look_over(ManifestDataset(csv=folder / "imagenet.csv").open([]), ()).per_class == {WNIDS[5]: 4}


def test_only_the_rows_of_a_setting_are_counted_but_all_folders_judged(image_folder):
    folder = image_folder([f"class_{c}/{i}.png" for c in range(11) for i in range(2)])
    samples = StandardDataset(path=folder).open([])
    found = look_over(samples, None, [0, 1, 2])
    assert (found.images, found.per_class) == (3, {"class_0": 2, "class_1": 1})
    assert found.problems == ("classes count in the order of their names, class_10 before class_2: pad the numbers",)


def test_arrays_lack_classes_too():
    images = np.zeros((4, 8, 8, 3), np.uint8)
    dataset = ArrayDataset(make=lambda: (images, np.array([0, 0, 1, 3])), num_classes=5)
    found = look_over(dataset.open([]))
    assert found.per_class == {"0": 2, "1": 1, "3": 1}
    assert found.problems == ("2 of 5 classes have no image: class 2, class 4",)


def test_pictures_without_labels_have_no_classes(image_folder):
    found = looked_over(image_folder, ["a", "b"], labels="none")
    assert (found.images, found.names, found.per_class, found.problems) == (2, "", {}, ())


@pytest.mark.parametrize(
    ("counts", "told"),
    [
        ({f"c{i}": 50 for i in range(40)}, ""),
        ({**{f"c{i}": 50 for i in range(40)}, "c7": 49}, "c7 has 49 images, the other classes 50"),
        ({f"c{i}": i for i in range(40)}, ""),
        ({}, ""),
    ],
)
def test_class_that_differs_from_all_others_is_named(counts, told):
    assert uneven(counts) == told


def test_unreadable_and_truncated_files_are_named(image_folder):
    folder = image_folder([f"a/{i}.png" for i in range(5)], size=32)
    (folder / "a" / "1.png").write_bytes(b"not a picture")
    whole = (folder / "a" / "3.png").read_bytes()
    (folder / "a" / "3.png").write_bytes(whole[: len(whole) // 2])
    picture = folder / "a" / "5.jpg"
    Image.effect_noise((64, 64), 50).convert("RGB").save(picture)
    picture.write_bytes(picture.read_bytes()[:-400])
    samples = StandardDataset(path=folder).open([])
    assert [image for image, _ in unreadable(samples)] == ["a/1.png", "a/3.png", "a/5.jpg"]
    assert [image for image, _ in unreadable(samples, [0, 3])] == ["a/3.png"]
    assert "truncated" in dict(unreadable(samples))["a/5.jpg"]
