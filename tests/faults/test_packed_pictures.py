"""Archives and shards that are damaged at any byte: read, or told in one line; no memory for what is not there."""

from __future__ import annotations

import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiny
from data.packing import make_tar, make_zip, picture, samples_of
from faults.bounds import no_longer_than, no_more_than
from faults.fuzzing import fuzz_settings
from testbed.data.packed_folders import ArchiveDataset
from testbed.data.shards import ShardDataset
from testbed.errors import DataError

FOLDERS = {f"set/{label}/{'n' * 120}{label}.png": picture(label) for label in range(3)}


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    shard = samples_of({"a": 0, "b": 1}) | {"b.json": b'{"label": 1}', "b.npy": b""}
    return {
        "tar": make_tar(folder / "x.tar", FOLDERS).read_bytes(),
        "stored": make_zip(folder / "s.zip", FOLDERS, zipfile.ZIP_STORED).read_bytes(),
        "deflated": make_zip(folder / "d.zip", FOLDERS).read_bytes(),
        "shard": make_tar(folder / "0.tar", {k: v for k, v in shard.items() if v}).read_bytes(),
    }


@pytest.mark.parametrize("kind", ["tar", "stored", "deflated", "shard"])
@fuzz_settings(120)
@given(data=st.data())
def test_damaged_archives_are_read_or_told_in_one_line(whole, tmp_path_factory, kind, data):
    content = bytearray(whole[kind])
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(0, len(content))) :]
    for _ in range(data.draw(st.integers(0, 4)) if content else 0):
        # Headers of a tar stand at multiples of 512: most damage shall meet one.
        block = 512 * data.draw(st.integers(0, (len(content) - 1) // 512))
        place = min(block + data.draw(st.integers(0, 511)), len(content) - 1)
        content[place] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("damaged") / "x"
    path.write_bytes(bytes(content))
    dataset = ShardDataset(str(path)) if kind == "shard" else ArchiveDataset(path)
    told = ""
    with no_longer_than(60), no_more_than(1):
        try:
            samples = dataset.open([])
            for index in range(len(samples)):
                samples.load(index)
        except DataError as error:
            told = str(error)
    assert "\n" not in told


def test_a_tar_that_declares_a_terabyte_takes_no_memory(tmp_path):
    data = bytearray(make_tar(tmp_path / "x.tar", FOLDERS).read_bytes())
    for kind in (data[156:157], b"x", b"L", b"S"):  # a file, headers that tarfile reads whole, a file with holes
        data[124:136] = b"%011o\0" % (1 << 32)
        data[156:157] = kind
        data[148:156] = b" " * 8
        data[148:156] = b"%06o\0 " % sum(data[:512])
        (tmp_path / "x.tar").write_bytes(bytes(data))
        with no_more_than(1), pytest.raises(DataError) as error:
            ArchiveDataset(tmp_path / "x.tar").open([])
        assert "\n" not in str(error.value)


# ---- through the engine ----------------------------------------------------------------------------------------


def test_bad_members_are_left_out_as_bad_files_are(tmp_path):
    files = {f"{number % 3}/{number}.png": picture(number, 12) for number in range(10)} | {"0/3.png": b"no picture"}
    setting = f"zip:{make_zip(tmp_path / 'x.zip', files)}"
    report, _ = tiny.run(tmp_path / "a", ["tiny_pictures"], [setting])
    assert "unreadable image 0/3.png in" in tiny.failure(report)
    report, store = tiny.run(tmp_path / "b", ["tiny_pictures"], [setting], skip_bad_images=True)
    assert not report.failed
    assert len(tiny.logits(store, "tiny_pictures", setting)) == 9


def test_a_member_with_a_wrong_checksum_is_left_out_too(tmp_path):
    files = {f"{number % 3}/{number}.png": picture(number, 12) for number in range(10)}
    path = make_zip(tmp_path / "x.zip", files, zipfile.ZIP_STORED)
    data = bytearray(path.read_bytes())
    data[data.index(files["0/3.png"]) + 60] ^= 1
    path.write_bytes(bytes(data))
    report, store = tiny.run(tmp_path, ["tiny_pictures"], [f"zip:{path}"], skip_bad_images=True)
    assert not report.failed
    assert len(tiny.logits(store, "tiny_pictures", f"zip:{path}")) == 9


@pytest.mark.parametrize("make", [make_tar, make_zip])
def test_other_contents_of_the_same_size_are_noticed(tmp_path, make):
    files = {f"{number % 3}/{number}.png": picture(number, 12) for number in range(10)}
    kind = "tar" if make is make_tar else "zip"
    path = make(tmp_path / f"x.{kind}", files)
    setting = f"{kind}:{path}"
    tiny.run(tmp_path, ["tiny_pictures"], [setting])
    swapped = bytearray(files["0/3.png"])
    swapped[-5] ^= 1  # the checksum of IEND: Pillow reads such a picture
    make(path, files | {"0/3.png": bytes(swapped)})
    for check, action in (("listing", "done"), ("content", "run")):
        report, _ = tiny.run(tmp_path, ["tiny_pictures"], [setting], check_data=check)
        assert [pair.action for pair in report.plan.pairs] == [action]
