"""From address to data root: whatever happens on the way, the tree is that of an undisturbed download or absent."""

from __future__ import annotations

import errno
import hashlib
import json
from pathlib import Path

import pytest

from data.test_unpack import tar, tree
from local_server import Server
from shared_data import PROJECT, shared_data
from testbed import ArrayDataset, StandardDataset
from testbed.data import download as downloading
from testbed.data.download import Download, download_for, find_place, find_places, install, read_downloads, with_hint
from testbed.data.fetch import Remote
from testbed.data.locate import find
from testbed.entries.registry import load_registry
from testbed.errors import DataError

REGISTRY = [PROJECT / "registry"]
MEMBERS = {f"wrapped/set/{kind}/{i}.jpg": f"{kind}{i}".encode() * 500 for kind in ("snow", "fog") for i in range(40)}
EXPECTED = {f"set/{name.removeprefix('wrapped/set/')}": content for name, content in MEMBERS.items()}


@pytest.fixture
def server():
    server = Server()
    yield server
    server.close()


@pytest.fixture
def offered(server, tmp_path):
    """A function that puts an archive on the server and returns the download of it."""

    def offer(members, name="set.tar.gz", **what):
        content = tar(tmp_path / name, members, "w:gz").read_bytes()
        server.files[name] = content
        return one(server, [name], **{"checksum": f"md5:{hashlib.md5(content).hexdigest()}", **what})

    return offer


def one(server, names, places=None, checksum=None):
    places = places or {"set/snow": "set/snow", "set/fog": "set/fog"}
    return Download("a-set", tuple(Remote(server.url(n), checksum) for n in names), places, "CC0")


def test_archive_comes_under_the_names_it_is_looked_for(offered, tmp_path):
    root = tmp_path / "data"
    assert install(offered(MEMBERS), root, pause_s=0) == [root / "set" / "snow", root / "set" / "fog"]
    assert tree(root) == EXPECTED
    assert [p.name for p in root.iterdir()] == ["set"]
    assert install(offered(MEMBERS), root, pause_s=0) == []


def test_shards_come_as_they_are_into_one_folder(server, tmp_path):
    files = []
    for name in ("val-00.tar", "val-01.tar"):
        content = tar(tmp_path / name, {"a.cls": b"0"}, "w").read_bytes()
        server.files[name] = content
        files.append(Remote(server.url(name), f"sha256:{hashlib.sha256(content).hexdigest()}"))
    root = tmp_path / "data"
    assert install(Download("shards", tuple(files), {"": "val"}, "CC0", unpack=False), root, pause_s=0) == [
        root / "val"
    ]
    assert tree(root) == {f"val/{name}": server.files[name] for name in ("val-00.tar", "val-01.tar")}


@pytest.mark.parametrize("disturbed", ["breaks", "ignores ranges", "no tag", "changes"])
def test_disturbed_download_gives_the_same_tree(offered, server, tmp_path, disturbed):
    download = offered(MEMBERS)
    whole = server.files["set.tar.gz"]
    server.break_after = [len(whole) // 3, 0, len(whole) // 3]
    server.ranges, server.etag = disturbed != "ignores ranges", disturbed != "no tag"
    if disturbed == "changes":  # another file is begun, and replaced by the published one
        server.files["set.tar.gz"] = bytes(len(whole))
        server.before_answer = lambda request: server.files.update({"set.tar.gz": whole}) if request == 2 else None
    install(download, tmp_path / "data", pause_s=0)
    assert tree(tmp_path / "data") == EXPECTED


@pytest.mark.parametrize(
    ("members", "what", "told"),
    [
        ({**MEMBERS, "wrapped/set/../../../evil": b"x"}, {}, "was refused: its member"),
        (MEMBERS, {"checksum": "md5:00"}, "is not the file that was published: expected md5 00"),
        (MEMBERS, {"places": {"other": "other"}}, "expected 'other' in what was fetched, found wrapped"),
    ],
)
def test_what_is_not_as_published_leaves_no_data_set(offered, tmp_path, members, what, told):
    with pytest.raises(DataError) as error:
        install(offered(members, **what), tmp_path / "data", pause_s=0)
    assert told in str(error.value)
    assert [p.name for p in (tmp_path / "data").iterdir()] in ([], [".downloads"])
    assert not list(tmp_path.rglob("evil"))


def test_damaged_archive_without_a_checksum_is_fetched_again_next_time(offered, server, tmp_path):
    download = offered(MEMBERS, checksum=None)
    whole = server.files["set.tar.gz"]
    server.files["set.tar.gz"] = whole[:-500]
    with pytest.raises(DataError, match="It was removed: the same command fetches it again"):
        install(download, tmp_path / "data", pause_s=0)
    server.files["set.tar.gz"] = whole
    install(download, tmp_path / "data", pause_s=0)
    assert tree(tmp_path / "data") == EXPECTED


def test_archive_with_a_wrong_byte_is_no_error_of_the_disk_and_fetched_again(offered, server, tmp_path):
    download = offered(MEMBERS, checksum=None)
    whole = server.files["set.tar.gz"]
    server.files["set.tar.gz"] = whole[:-6] + bytes([whole[-6] ^ 1]) + whole[-5:]  # in the checksum of gzip
    with pytest.raises(DataError, match=r"is damaged and cannot be unpacked: BadGzipFile: CRC check failed.*removed"):
        install(download, tmp_path / "data", pause_s=0)
    assert list((tmp_path / "data").iterdir()) == []
    server.files["set.tar.gz"] = whole
    install(download, tmp_path / "data", pause_s=0)
    assert tree(tmp_path / "data") == EXPECTED


@pytest.mark.parametrize("folder", ["set/snow", "set/snow/empty/deep"])
def test_empty_folder_is_filled(offered, tmp_path, folder):
    (tmp_path / "data" / folder).mkdir(parents=True)
    assert tmp_path / "data" / "set" / "snow" in install(offered(MEMBERS), tmp_path / "data", pause_s=0)
    assert tree(tmp_path / "data") == EXPECTED


@pytest.mark.parametrize("stop", [KeyboardInterrupt, OSError(errno.ENOSPC, "No space left on device")])
def test_interrupted_unpacking_never_counts_as_complete(offered, server, tmp_path, monkeypatch, stop):
    whole, root = downloading.unpack, tmp_path / "data"

    def half(archive, folder, leave_out):
        whole(archive, folder, ["fog"])
        raise stop

    monkeypatch.setattr(downloading, "unpack", half)
    with pytest.raises(KeyboardInterrupt if stop is KeyboardInterrupt else DataError) as error:
        install(offered(MEMBERS), root, pause_s=0)
    assert stop is KeyboardInterrupt or "no room left to unpack into" in str(error.value)
    assert [p.name for p in root.iterdir()] == [".downloads"]
    monkeypatch.undo()
    install(offered(MEMBERS), root, pause_s=0)
    assert tree(root) == EXPECTED
    assert len(server.asked) == 1  # the archive was whole, so that it is not fetched twice


def test_plain_files_come_together_in_one_folder(server, tmp_path):
    server.files["d/data.npy"] = b"images"
    download = one(server, ["d/data.npy", "d/labels.npy"], places={"": "arrays"})
    with pytest.raises(DataError, match="answers 404"):
        install(download, tmp_path / "data", pause_s=0)
    assert not (tmp_path / "data" / "arrays").exists()
    server.files["d/labels.npy"] = b"labels"
    install(download, tmp_path / "data", pause_s=0)
    assert tree(tmp_path / "data") == {"arrays/data.npy": b"images", "arrays/labels.npy": b"labels"}


def test_two_processes_do_not_fetch_the_same_thing_at_once(offered, tmp_path):
    download, root = offered(MEMBERS), tmp_path / "data"
    with (
        downloading._alone(root / ".downloads" / "a-set"),
        pytest.raises(DataError, match="a-set is being fetched by another process"),
    ):
        install(download, root, pause_s=0)
    assert install(download, root, pause_s=0)


# ---- the catalogue ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("there", "found"),
    [
        (["r2/set/snow/1.jpg"], {"set/snow": "r2/set/snow"}),
        (["r1/fog-set/1/1.jpg"], {}),
        (["r1/fog-set/1/1.jpg", "r2/fog-set/2/1.jpg"], {"set/fog": "r1/fog-set/1"}),
        (["r1/set/snow/empty/"], {}),
        (["r1/set/snow/", "r2/set/snow/1.jpg"], {"set/snow": "r2/set/snow"}),
    ],
)
def test_place_is_there_in_any_root_and_under_any_name(tmp_path, there, found):
    for path in there:
        folder, _, file = path.rpartition("/")
        (tmp_path / folder).mkdir(parents=True)
        if file:
            (tmp_path / path).touch()
    download = Download("a-set", (), {"snow": "set/snow", "fog": "set/fog"}, "CC0")
    datasets = [StandardDataset(name=f"set/fog/{i}", also=[f"fog-set/{i}"]) for i in (1, 2)]
    roots = [tmp_path / "r1", tmp_path / "r2"]
    places = find_places(download, {"a-set": download}, datasets, roots)
    assert places == {place: tmp_path / path for place, path in found.items()}


def test_folder_of_links_is_not_empty(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "data" / "val").mkdir(parents=True)
    (tmp_path / "data" / "val" / "n01440764").symlink_to(tmp_path / "elsewhere")
    assert find_place(StandardDataset(name="val"), [tmp_path / "data"]) == tmp_path / "data" / "val"


def test_folder_of_one_sketch_set_is_not_that_of_the_other():
    registry = load_registry(parts=["eval_settings"])
    one, other = (registry.eval_setting(name).dataset for name in ("imagenet-sketch", "sketch-16"))
    assert not {one.name, *one.also} & {other.name, *other.also}


def missing(dataset):
    with pytest.raises(DataError) as error:
        dataset.open([Path("nowhere")])
    return str(with_hint(error.value, dataset, REGISTRY))


def test_missing_data_names_the_command_where_there_is_one():
    on_disk = StandardDataset(name="imagenet-c/fog/3", labels="imagenet", source="zenodo")
    assert missing(on_disk).endswith("`python db.py --download imagenet-c-weather` fetches it.")
    # A set's own name goes before one that it shares with another set.
    sketch = StandardDataset(name="imagenet-sketch", also=("sketch",))
    assert missing(sketch).endswith("`python db.py --download imagenet-sketch` fetches it.")
    assert "--download" not in missing(StandardDataset(name="val"))
    assert "--download" not in missing(ArrayDataset(path="nowhere"))
    broken = DataError("empty")
    assert with_hint(broken, on_disk, REGISTRY) is broken


def test_every_address_is_secure_and_every_checksum_whole():
    digits = {"md5": 32, "sha1": 40, "sha256": 64}
    for name, download in read_downloads(REGISTRY).items():
        assert download.licence, name
        for file in download.files:
            assert file.url.startswith("https://"), name
            if file.checksum:
                kind, _, value = file.checksum.partition(":")
                assert len(value) == digits[kind] and int(value, 16), name


def test_every_download_serves_a_registered_setting():
    registry = load_registry(parts=["eval_settings"])
    downloads = read_downloads(REGISTRY)
    datasets = {registry.runnable(name).dataset for name in registry.eval_settings.entries}
    served = {found.name for found in (download_for(d, downloads) for d in datasets if d) if found}
    results = {name for name, download in downloads.items() if "--import-csv" in download.then}  # no images
    assert served == set(downloads) - results
    for name, used in {
        "imagenetv2-threshold-0.7-format-val": "imagenetv2-threshold-0.7-format-val",
        "imagenet-c.glass_blur.5_on-disk": "imagenet-c-blur",
        "imagenet-a": "imagenet-a",
        "imagenet-9.only_bg_t": "imagenet-9",
        "cue-conflict": "model-vs-human-cue-conflict",
        "sketch-16": "model-vs-human-sketch",
        "cifar10-c.fog.1_on-disk": "CIFAR-10-C",
        "cifar10.1-v6": "cifar10.1",
        "cifar10-test": "cifar-10-batches-py",
        "cifar100-train": "cifar-100-python",
    }.items():
        assert download_for(registry.runnable(name).dataset, downloads).name == used
    for name in ("val", "stylized_imagenet", "objectnet-1.0", "imagenetv2-topimages"):
        assert download_for(registry.runnable(name).dataset, downloads) is None


def test_every_place_is_where_its_setting_looks(tmp_path):
    registry = load_registry(parts=["eval_settings"])
    downloads = read_downloads(REGISTRY)
    for name in registry.eval_settings.entries:
        dataset = registry.runnable(name).dataset
        download = download_for(dataset, downloads)
        if download is None:
            continue
        names = [dataset.name, *dataset.also]
        below = [n for n in names for p in download.places.values() if f"{n}/".startswith(f"{p}/")]
        (tmp_path / name / below[0]).mkdir(parents=True)
        assert find(dataset.name, dataset.also, [tmp_path / name], "", "") == tmp_path / name / below[0]


def test_checksum_of_the_catalogue_is_that_of_the_real_file():
    labels = shared_data("cifar10.1-predictions", "cifar10.1_v6_labels.npy")
    (file,) = [f for f in read_downloads(REGISTRY)["cifar10.1"].files if f.file_name == labels.name]
    assert file.checksum == f"sha256:{hashlib.sha256(labels.read_bytes()).hexdigest()}"
    assert file.size == labels.stat().st_size


@pytest.mark.parametrize(
    ("content", "told"),
    [("{", "is not valid JSON"), ("[]", "got a list"), ('{"x": {"files": []}}', "'x' needs files, places and licence")],
)
def test_broken_catalogue_is_one_line(tmp_path, content, told):
    (tmp_path / "metadata").mkdir()
    (tmp_path / "metadata" / "downloads.json").write_text(content)
    with pytest.raises(DataError, match=told):
        read_downloads([tmp_path])
    assert read_downloads([tmp_path / "none"]) == {}
    assert json.loads((REGISTRY[0] / "metadata" / "downloads.json").read_text())
