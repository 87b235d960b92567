"""Every address that the registry declares is https, and what comes from it is compared; or here is the reason."""

from __future__ import annotations

import re
import urllib.request
from fnmatch import fnmatchcase

import pytest

from shared_data import PROJECT
from testbed.data.download import read_downloads
from testbed.data.fetch import Remote, fetch
from testbed.errors import DataError
from testbed.models.weights.places import read_published

REGISTRY = [PROJECT / "registry"]
# Their publishers tell no checksum, and nobody has fetched them here to make one. They are pictures, read as pictures.
WITHOUT = ("imagenet-sketch", "imagenet-c-bar", "imagenet-3dcc-*", "imagenet-9", "model-vs-human-*")


def test_every_dataset_comes_by_https_and_with_a_checksum():
    unchecked = set()
    for name, download in read_downloads(REGISTRY).items():
        for file in download.files:
            assert file.url.startswith("https://") and file.host and "@" not in file.host, name
            if file.checksum is None:
                unchecked.add(name)
            else:
                assert re.fullmatch("md5:[0-9a-f]{32}|sha1:[0-9a-f]{40}|sha256:[0-9a-f]{64}", file.checksum), name
    assert {name for name in unchecked if not any(fnmatchcase(name, glob) for glob in WITHOUT)} == set()
    for glob in WITHOUT:  # who has a checksum by now is taken off the list
        assert any(fnmatchcase(name, glob) for name in unchecked), glob


def test_all_weights_come_by_https_and_with_the_digits_that_their_publisher_tells():
    """torch.hub has the first eight digits of the sha256 in the name of a file. Weights are read as tensors only."""
    for name, one in read_published(REGISTRY).items():
        assert one.remote.url.startswith("https://") and "@" not in one.remote.host, name
        assert re.fullmatch("sha256:[0-9a-f]{8,64}", one.remote.checksum or ""), name


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://host/x", "data:text/plain,x", "//host/x", "x"])
def test_other_kinds_of_addresses_are_refused(tmp_path, url):
    with pytest.raises(DataError, match="expected an address that begins with https://"):
        fetch(Remote(url), tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_a_secure_address_that_leads_to_one_that_is_not_is_refused(tmp_path, monkeypatch):
    class Answer:
        url, status, closed = "http://elsewhere/x", 200, False

        def close(self):
            self.closed = True

    answer = Answer()
    monkeypatch.setattr(urllib.request, "urlopen", lambda request, timeout: answer)
    with pytest.raises(DataError, match=r"https://host/x leads to http://elsewhere/x: expected an address that begins"):
        fetch(Remote("https://host/x"), tmp_path / "x", pause_s=0.0)
    assert answer.closed and not (tmp_path / "x").exists()
