"""Which stored files lie where."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.store import files
from testbed.store.places import Place, is_remote, under

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
