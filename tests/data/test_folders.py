from __future__ import annotations

import os
import shutil

import numpy as np
import pytest
from PIL import Image

from testbed import StandardDataset
from testbed.data.samples import UNKNOWN
from testbed.errors import DataError, EntryError, ImageError

# Places in the ImageNet list as printed in the readme files of the common model zoos.
WNIDS = {"n01440764": 0, "n02123045": 281, "n07753592": 954, "n15075141": 999}


def opened(folder, **how):
    return StandardDataset(path=folder, **how).open([])


@pytest.mark.parametrize(
    ("names", "labels", "targets", "space", "num_classes"),
    [
        (list(WNIDS), "auto", list(WNIDS.values()), "imagenet", 1000),
        (["0", "1", "10", "2"], "auto", [0, 1, 10, 2], "own", None),
        (["00", "01", "999"], "auto", [0, 1, 999], "imagenet", 1000),
        (["cat", "dog", "zebra"], "auto", [0, 1, 2], "own", 3),
        (["hen", "ostrich", "zebra"], "auto", [8, 9, 340], "imagenet", 1000),
        (["3", "cat", "n01440764"], "auto", [0, 1, 2], "own", 3),
        (["10", "2"], "sorted", [0, 1], "own", 2),
        (["cat", "n01440764"], "none", [UNKNOWN, UNKNOWN], "own", None),
    ],
)
def test_class_folders_become_targets(image_folder, names, labels, targets, space, num_classes):
    samples = opened(image_folder([f"{n}/a.png" for n in names]), labels=labels)
    assert list(samples.ids) == [f"{n}/a.png" for n in names]
    assert samples.targets.tolist() == targets
    assert samples.targets.dtype == np.int64
    assert (samples.label_space, samples.num_classes) == (space, num_classes)


def test_folders_0_to_999_keep_their_numbers_although_they_sort_as_strings(tmp_path, image_folder):
    one = image_folder(["0/a.png"]) / "0" / "a.png"
    for number in range(1000):
        folder = tmp_path / "imagenetv2" / str(number)
        folder.mkdir(parents=True)
        shutil.copyfile(one, folder / "a.png")
    samples = opened(tmp_path / "imagenetv2")
    assert [str(t) for t in samples.targets] == [i.split("/")[0] for i in samples.ids]
    assert samples.targets[2] == 10  # the third folder in string order
    assert samples.label_space == "imagenet"


@pytest.mark.parametrize(
    ("names", "labels", "message"),
    [
        (["n01440764", "cat"], "imagenet", "expected ImageNet wnids, got cat (1 of 2 class names"),
        (["n00000000"], "auto", "expected ImageNet wnids, got n00000000"),
        (["0", "cat"], "integer", "expected integer class names, got 'cat'"),
        (["99999999999999999999"], "auto", "expected class numbers up to 2147483647, got 99999999999999999999"),
        (["crane", "hen"], "auto", "got 'crane': call it n02012849 or n03126707"),
    ],
)
def test_class_names_that_break_the_rule_are_named(image_folder, names, labels, message):
    with pytest.raises(DataError) as error:
        opened(image_folder([f"{n}/a.png" for n in names]), labels=labels)
    assert message in str(error.value)


def test_stray_picture_beside_class_folders_is_named(image_folder):
    folder = image_folder(["cat/a.png", "stray.png"])
    with pytest.raises(DataError) as error:
        opened(folder)
    assert str(error.value) == f"{folder}: expected images inside class folders, got stray.png beside them"
    assert len(opened(folder, labels="none")) == 2


def test_only_pictures_count(image_folder):
    folder = image_folder(["cat/a.png", "cat/.hidden.png", "cat/B.JPG", "cat/deep/er.png"])
    (folder / "cat" / "notes.txt").write_text("no picture")
    assert list(opened(folder).ids) == ["cat/B.JPG", "cat/a.png", "cat/deep/er.png"]


@pytest.mark.parametrize("made", [True, False])
def test_folder_without_pictures_is_refused(tmp_path, made):
    folder = tmp_path / "empty"
    if made:
        (folder / "cat").mkdir(parents=True)
    with pytest.raises(DataError) as error:
        opened(folder)
    assert str(folder) in str(error.value)
    assert ("no images in" if made else "does not exist") in str(error.value)


def test_missing_dataset_says_where_to_put_it_and_how_to_get_it(tmp_path):
    dataset = StandardDataset(name="val", source="image-net.org, ILSVRC2012")
    with pytest.raises(DataError) as error:
        dataset.open([tmp_path / "first", tmp_path / "second"])
    assert str(error.value) == (
        f"dataset 'val' not found: expected a folder of class folders at {tmp_path / 'first' / 'val'}. "
        "Get it: image-net.org, ILSVRC2012. Or name the folder that holds 'val' with --data-root or TESTBED_DATA."
    )


def test_file_in_the_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "val").write_text("a tar that was never unpacked")
    with pytest.raises(DataError, match=r"val is a file, expected a folder; manifest:FILE\.csv reads a list"):
        StandardDataset(name="val").open([tmp_path])


def test_broken_link_among_pictures_fails_by_its_name(image_folder):
    folder = image_folder(["cat/a.png"])
    (folder / "cat" / "gone.png").symlink_to(folder / "nowhere.png")
    (folder / "cat" / "itself.png").symlink_to("itself.png")
    samples = opened(folder)
    assert list(samples.ids) == ["cat/a.png", "cat/gone.png", "cat/itself.png"]
    for index in (1, 2):
        with pytest.raises(ImageError, match=f"unreadable image {folder / samples.ids[index]}"):
            samples.load(index)


def test_links_are_followed_but_not_in_a_circle(image_folder):
    elsewhere = image_folder(["b.png"], root="elsewhere")
    folder = image_folder(["3/a.png", "4/deep/a.png"])
    (folder / "3" / "back").symlink_to(folder)
    (folder / "4" / "deep" / "up").symlink_to("..")
    (folder / "5").symlink_to(elsewhere)
    (folder / "6").symlink_to(elsewhere)
    (elsewhere / "round").symlink_to(folder)
    assert list(opened(folder).ids) == ["3/a.png", "4/deep/a.png", "5/b.png", "6/b.png"]


def test_folder_that_cannot_be_read_is_named(image_folder, monkeypatch):
    folder = image_folder(["cat/a.png", "dog/a.png"])
    scan = os.scandir

    def scandir(path):
        if str(path).endswith("dog"):  # a test run by root may read everything
            raise PermissionError(13, "Permission denied")
        return scan(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(DataError) as error:
        opened(folder)
    assert str(error.value) == f"folder {folder / 'dog'} cannot be read: Permission denied"


def test_later_roots_and_other_spellings_are_searched(tmp_path, image_folder):
    image_folder(["cat/a.png"], root="second/ILSVRC2012_val")
    dataset = StandardDataset(name="val", also=["ILSVRC2012_val"])
    assert list(dataset.open([tmp_path / "first", tmp_path / "second"]).ids) == ["cat/a.png"]


def test_pictures_load_as_rgb_by_index(image_folder):
    folder = image_folder(["a/1.png", "b/2.png"])
    Image.fromarray(np.full((4, 4), 7, dtype=np.uint8)).save(folder / "b" / "2.png")
    grey = opened(folder).load(1)
    assert grey.mode == "RGB"
    assert (np.asarray(grey) == 7).all()


def test_fingerprint_follows_the_data_and_not_the_place(tmp_path, image_folder):
    folder = image_folder(["a/1.png", "b/2.png"])
    first = opened(folder)
    shutil.copytree(folder, tmp_path / "copy")
    copy = opened(tmp_path / "copy")
    assert copy.fingerprint == first.fingerprint
    assert copy.cache_salt != first.cache_salt  # two copies on one machine are two places in the cache
    (folder / "b" / "2.png").write_bytes(b"of another size")
    assert opened(folder).fingerprint != first.fingerprint
    (tmp_path / "copy" / "b").rename(tmp_path / "copy" / "c")
    assert opened(tmp_path / "copy").fingerprint != first.fingerprint


def test_truncated_picture_fails_by_its_name(image_folder):
    folder = image_folder(["a/1.png"])
    whole = Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8))
    path = folder / "a" / "cut.jpg"
    whole.save(path)
    path.write_bytes(path.read_bytes()[:700])
    samples = opened(folder)
    with pytest.raises(ImageError) as error:
        samples.load(samples.ids.index("a/cut.jpg"))
    assert str(error.value).startswith(f"unreadable image {path}: OSError: image file is truncated")


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({}, "expected name or path, got name=None, path=None"),
        ({"name": "a", "path": "b"}, "expected name or path, got name='a', path='b'"),
        ({"name": "a", "labels": "wnid"}, "labels must be auto, imagenet, integer, sorted, none or if-any, got 'wnid'"),
    ],
)
def test_wrong_declaration_is_refused_when_made(how, message):
    with pytest.raises(EntryError) as error:
        StandardDataset(**how)
    assert str(error.value) == f"StandardDataset: {message}"


def test_own_numbers_of_class_folders_leave_other_folders_out(image_folder):
    folder = image_folder(["chair/1.png", "alarm_clock/1.png", "squeegee/1.png"])
    dataset = StandardDataset(path=folder, classes={"alarm_clock": 7, "chair": 2, "vase": 0})
    samples = dataset.open([])
    assert list(samples.ids) == ["alarm_clock/1.png", "chair/1.png"]
    assert samples.targets.tolist() == [7, 2]
    assert samples.label_space == "own"
    assert hash(dataset) == hash(StandardDataset(path=folder, classes={"alarm_clock": 7, "chair": 2, "vase": 0}))
    with pytest.raises(DataError, match="expected class folders such as vase with jpg"):
        StandardDataset(path=folder, classes={"vase": 0}).open([])


def test_if_any_takes_labels_from_class_folders_and_none_from_pictures_alone(image_folder):
    alone = opened(image_folder(["b.png", "a.png"], root="alone"), labels="if-any")
    assert (list(alone.ids), alone.targets.tolist(), alone.num_classes) == (["a.png", "b.png"], [UNKNOWN] * 2, None)
    sorted_out = opened(image_folder(["cat/a.png", "dog/a.png"], root="sorted"), labels="if-any")
    assert (sorted_out.targets.tolist(), sorted_out.num_classes) == ([0, 1], 2)
    with pytest.raises(DataError, match=r"expected images inside class folders, got a\.png beside them"):
        opened(image_folder(["cat/a.png", "a.png"], root="mixed"), labels="if-any")
    with pytest.raises(DataError, match="expected one folder per class, got 1 pictures without any"):
        opened(image_folder(["a.png"], root="declared"))  # a declared set without class folders is a mistake
