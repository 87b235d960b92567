"""Which stored files lie where."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.errors import StoreError
from testbed.store import files
from testbed.store.places import Place, checked_root, is_remote, under

RESULTS = Path("/results")
BELOW = "logits/val/resnet50-0123.npy"


@pytest.mark.parametrize(
    ("stored", "remote", "path"),
    [
        (BELOW, False, "/results/logits/val/resnet50-0123.npy"),
        ("file:///big/val/resnet50-0123.npy", False, "/big/val/resnet50-0123.npy"),
        ("s3://bucket/prefix/val/resnet50-0123.npy", True, None),
        ("gs://bucket/val/resnet50-0123.npy", True, None),
    ],
)
def test_a_row_says_where_a_file_lies(stored, remote, path):
    place = Place(RESULTS, stored)
    assert is_remote(stored) is place.remote is remote
    if path is not None:
        assert place.path == Path(path)
    assert str(place) == (path or stored)


def test_recorded_arrays_lie_beside_their_logits_everywhere():
    here = Place(RESULTS, BELOW)
    assert here.array("logits") == here
    assert here.array("my features").path == files.array_path(here.path, "my features")
    there = Place(RESULTS, under("s3://bucket/prefix", BELOW))
    assert there.stored == "s3://bucket/prefix/val/resnet50-0123.npy"
    assert there.array("features").stored == "s3://bucket/prefix/val/resnet50-0123~features.npy"


@pytest.mark.parametrize(
    ("given", "root"),
    [
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/some/prefix/", "s3://bucket/some/prefix"),
        ("s3://bucket/a.b=c-1", "s3://bucket/a.b=c-1"),
        ("gs://bucket/prefix", "gs://bucket/prefix"),
        ("hdfs://host:8020/logits", "hdfs://host:8020/logits"),
        ("file:///big/logits", "file:///big/logits"),
    ],
)
def test_urls_that_files_are_kept_under(given, root):
    assert checked_root(given) == root


SECRET = "wJalrXUtnFEMI"


@pytest.mark.parametrize(
    "given",
    [
        f"s3://key:{SECRET}@bucket/x",
        f"s3://key:{SECRET}/K7MDENG@bucket/x",  # secret keys of AWS hold slashes
        f"s3://key:{SECRET}/x",
        f"s3:/key:{SECRET}@bucket/x",
        f"s3://bucket/x?token={SECRET}",
        f"s3://bucket/x#{SECRET}",
        f"simplecache::s3://{SECRET}/x",
    ],
)
def test_urls_with_secrets_are_refused_without_repeating_them(given):
    with pytest.raises(StoreError, match="expected a URL without user, password or parameters") as told:
        checked_root(given)
    assert SECRET not in str(told.value) and "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("", "expected a URL such as"),
        ("results", "expected a URL such as"),
        ("s3://", "expected a URL such as"),
        ("s3:///", "expected a URL such as"),
        ("s3:bucket", "expected a URL such as"),
        ("s3://bucket/a b", "expected a URL such as"),
        ("s3://bucket/a\nb", "expected a URL such as"),
        ("memory://x", "got memory:, which is gone when the command ends"),
        ("https://host/x", "got https:, which cannot be written"),
        ("file://folder/x", "expected file:/// with a path from the root on"),
        ("s3://bucket/../x", r"expected a URL without //, \. and \.\. in its path"),
        ("s3://bucket/./x", r"expected a URL without //, \. and \.\. in its path"),
        ("s3://bucket//x", r"expected a URL without //, \. and \.\. in its path"),
        ("file:///a/../b", r"expected a URL without //, \. and \.\. in its path"),
    ],
)
def test_other_urls_are_refused_with_what_is_expected(given, expected):
    with pytest.raises(StoreError, match=f"^TESTBED_LOGITS: .*{expected}"):
        checked_root(given, "TESTBED_LOGITS")


def test_a_folder_of_the_results_by_another_name_is_where_files_are_made(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path)
    for root in (f"file://{tmp_path}/logits", f"file://{tmp_path}/link/logits"):
        assert Place(tmp_path, under(root, BELOW)).stays_where_made
    assert not Place(tmp_path, under(f"file://{tmp_path}/other", BELOW)).stays_where_made
    assert not Place(tmp_path, under("s3://bucket/logits", BELOW)).stays_where_made
