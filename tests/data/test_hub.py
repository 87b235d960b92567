from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from data.parquet_files import class_label, write_parquet
from testbed import HubDataset
from testbed.data.hub import cache_folder, find_snapshot
from testbed.data.hub_layout import files_of_split, splits_of
from testbed.data.locate import MissingData
from testbed.errors import DataError

pytest.importorskip("pyarrow")

COMMIT = "0123456789abcdef0123456789abcdef01234567"
OLDER = "fedcba9876543210fedcba9876543210fedcba98"


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A hand-made cache with one data set: two splits at the newest commit, one at an older one."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    place = tmp_path / "hub" / "datasets--ann--birds"
    names = {"label": class_label("tench", "goldfish")}
    for commit, splits in ((COMMIT, ("validation", "test")), (OLDER, ("validation",))):
        for split in splits:
            file = place / "snapshots" / commit / "data" / f"{split}-00000-of-00001.parquet"
            blob = write_parquet(place / "blobs" / f"{commit}-{split}", {"label": [1, 0]}, features=names)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.symlink_to(blob)
    for name, commit in (("main", COMMIT), ("refs/convert/parquet", OLDER)):
        (place / "refs" / name).parent.mkdir(parents=True, exist_ok=True)
        (place / "refs" / name).write_text(commit)
    return place


@pytest.mark.parametrize(
    ("how", "commit"),
    [
        ({"split": "validation"}, COMMIT),
        ({"split": "val", "revision": "main"}, COMMIT),
        ({"revision": OLDER}, OLDER),
        ({"revision": OLDER[:8]}, OLDER),
        ({"revision": "refs/convert/parquet"}, OLDER),
    ],
)
def test_split_is_found_in_the_cache_and_its_commit_recorded(hub, how, commit):
    samples = HubDataset("ann/birds", **how).open([])
    assert list(samples.ids) == ["validation-00000-of-00001.parquet/0", "validation-00000-of-00001.parquet/1"]
    assert samples.targets.tolist() == [1, 0]
    assert samples.revision == f"ann/birds@{commit}"


def test_commit_is_part_of_the_fingerprint(hub):
    newest, older = (HubDataset("ann/birds", c, split="validation").open([]).fingerprint for c in (COMMIT, OLDER))
    assert newest != older


@pytest.mark.parametrize(
    ("repo", "how", "message"),
    [
        ("ann/fish", {}, "data set ann/fish is not in the cache of the hub, "),
        ("ann/birds", {"revision": "v2"}, f"no revision 'v2' in the cache of the hub, .*; there are main, .*{COMMIT}"),
        (
            "ann/birds",
            {},
            "ann/birds@0123456: expected one split, got test, validation: say which, as in hf:OWN",
        ),
        ("ann/birds", {"split": "train"}, "ann/birds@0123456: no split 'train', there are test, validation"),
        ("ann/birds", {"config": "small"}, "no configuration 'small', there are data"),
    ],
)
def test_what_is_not_in_the_cache_is_told_in_one_line(hub, repo, how, message):
    with pytest.raises(DataError, match=message):
        HubDataset(repo, **how).open([])


def test_missing_shard_and_missing_network_are_told(hub):
    first = hub / "snapshots" / OLDER / "data" / "validation-00000-of-00001.parquet"
    first.rename(first.with_name("validation-00000-of-00002.parquet"))
    with pytest.raises(DataError, match="expected 2 files validation-00000-of-00002 and so on, 1 of them are missing"):
        HubDataset("ann/birds", OLDER).open([])


def test_shards_of_other_kinds_name_the_string_that_reads_them(hub):
    place = hub / "snapshots" / OLDER / "data"
    shutil.rmtree(place)
    place.mkdir()
    (place / "validation-00000-of-00001.tar").write_bytes(b"")
    with pytest.raises(DataError, match=r"expected parquet files, got .*: wds:.*/data/\*\.tar reads shards"):
        HubDataset("ann/birds", OLDER).open([])


def test_files_of_a_split_are_fetched_where_they_are_not_in_the_cache(hub, monkeypatch, tmp_path):
    """The hub's client stands in here for a network: it puts the files that it is asked for into the cache."""
    from fnmatch import fnmatch
    from types import SimpleNamespace

    import huggingface_hub
    import huggingface_hub.constants

    there = tmp_path / "there"
    shutil.move(str(hub / "snapshots" / COMMIT), there)
    (there / "README.md").write_text("---\nconfigs:\n- config_name: a\n  data_files: data/*\n---\n")
    asked = []

    def dataset_info(self, repo_id, revision, files_metadata):
        files = [p.relative_to(there).as_posix() for p in there.rglob("*") if not p.is_dir()]
        return SimpleNamespace(sha=COMMIT, siblings=[SimpleNamespace(rfilename=f, size=1) for f in files])

    def snapshot_download(repo_id, repo_type, revision, allow_patterns):
        asked.append(allow_patterns)
        for file in [p for p in there.rglob("*") if not p.is_dir()]:
            name = file.relative_to(there).as_posix()
            if any(fnmatch(name, pattern) for pattern in allow_patterns):
                target = hub / "snapshots" / COMMIT / name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, target)
        return str(hub / "snapshots" / COMMIT)

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr("testbed.data.network._reachable", lambda address: True)
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", dataset_info)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    (there / "README.md").write_text(
        "---\nconfigs:\n- config_name: a\n  data_files:\n  - split: test\n    path: data/test-*\n---\n"
    )
    samples = HubDataset("ann/birds").open([])
    assert samples.revision == f"ann/birds@{COMMIT}"
    assert asked == [["README.md"], ["README.md", "data/test-00000-of-00001.parquet"]]
    assert len(HubDataset("ann/birds", split="test").open([])) == 2
    assert len(asked) == 2  # now they are there


@pytest.mark.parametrize(
    ("variables", "place"),
    [
        ({"HF_HUB_CACHE": "/a"}, "/a"),
        ({"HUGGINGFACE_HUB_CACHE": "/b"}, "/b"),
        ({"HF_HOME": "/c"}, "/c/hub"),
        ({"XDG_CACHE_HOME": "/d"}, "/d/huggingface/hub"),
    ],
)
def test_cache_is_where_the_client_of_the_hub_has_it(monkeypatch, variables, place):
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert cache_folder() == Path(place)
    with pytest.raises(MissingData):
        find_snapshot("ann/birds")


# ---- which files are which split: the rules of datasets 5.2.0 -------------------------------------------------


@pytest.mark.parametrize(
    ("files", "head", "config", "splits"),
    [
        (
            ["data/a-00000-of-00002.parquet", "data/a-00001-of-00002.parquet", "data/b-00000-of-00001.parquet"],
            {},
            None,
            {"a": [0, 1], "b": [2]},
        ),
        (["data/train-00000-of-00001-ab6d3d8ffc378699.parquet"], {}, None, {"train": [0]}),
        (["test/test-00000-of-00005.parquet"], {}, None, {"test": [0]}),
        (["cifar100/train-00000-of-00001.parquet", "cifar10/x.parquet"], {}, "cifar100", {"train": [0]}),
        (["plain_text/test/0000.parquet", "plain_text/train/0000.parquet"], {}, None, {"test": [0], "train": [1]}),
        (["val/x.parquet", "training/x.parquet"], {}, None, {"validation": [0], "train": [1]}),
        (["my_dev.parquet", "eval-2.parquet", "other.parquet"], {}, None, {"validation": [0], "test": [1]}),
        (["attest.parquet", "contest.parquet"], {}, None, {"train": [0, 1]}),
        (
            ["x/a.parquet", "x/y/b.parquet", "z.parquet"],
            {"configs": [{"config_name": "default", "data_files": [{"split": "s", "path": "x/*"}]}]},
            None,
            {"s": [0]},
        ),
        (
            ["x/a.parquet", "x/y/b.parquet", "z.parquet"],
            {
                "configs": [
                    {"config_name": "a", "data_files": "z.parquet"},
                    {"config_name": "b", "data_files": {"s": ["x/**"]}, "default": True},
                ]
            },
            None,
            {"s": [0, 1]},
        ),
        (
            ["x/test.parquet", "y/test.parquet"],
            {"configs": [{"config_name": "x", "data_dir": "x"}, {"config_name": "y", "data_dir": "y"}]},
            "y",
            {"test": [1]},
        ),
    ],
)
def test_splits_are_told_by_readme_and_names(files, head, config, splits):
    found = splits_of(files, head, config, "here")
    assert found == {split: [files[i] for i in numbers] for split, numbers in splits.items()}


@pytest.mark.parametrize(
    ("files", "head", "config", "message"),
    [
        (["a/test/0.parquet", "b/test/0.parquet"], {}, None, "expected one configuration, got a, b: say which"),
        (["a/0.parquet"], {"configs": [{"config_name": "b"}]}, "a", "no configuration 'a', there are b"),
        (["notes.txt"], {}, None, "no files ending in .parquet or .tar"),
        (["default/partial-validation/0000.parquet"], {}, None, "is only the beginning of the split"),
    ],
)
def test_files_that_are_no_split_are_refused(files, head, config, message):
    with pytest.raises(DataError, match=message):
        files_of_split(files, head, config, None, "here")


def test_files_beside_the_pictures_are_no_part_of_a_split():
    files = ["README.md", "dataset_info.json", "a.parquet", "__x__/b.parquet", ".cache/c.parquet"]
    assert files_of_split(files, {}, None, None, "here") == ["a.parquet"]


def test_split_whose_files_were_not_fetched_still_counts():
    """A cache may hold the files of one split alone: that must not decide what a string without a split means."""
    listed = [{"split": "train", "path": "train*"}, {"split": "test", "path": "test*"}]
    head = {"configs": [{"config_name": "default", "data_files": listed}]}
    with pytest.raises(DataError, match="expected one split, got train, test"):
        files_of_split(["test.parquet"], head, None, None, "here")
    assert files_of_split(["test.parquet"], head, None, "test", "here") == ["test.parquet"]
    with pytest.raises(DataError, match="none of the files of the split 'train' is there"):
        files_of_split(["test.parquet"], head, None, "train", "here")
