"""Downloads over a server that breaks off, ignores ranges and changes its mind; the file must be the published one."""

from __future__ import annotations

import errno
import hashlib
import random
import socket

import pytest

from local_server import Server
from testbed.data import fetch as fetching
from testbed.data.fetch import Remote, digest_of, fetch, gigabytes
from testbed.errors import DataError

CONTENT = random.Random(0).randbytes(300_000)
OTHER = random.Random(1).randbytes(300_000)


@pytest.fixture
def server():
    server = Server()
    server.files["data.bin"] = CONTENT
    yield server
    server.close()


def checksum(content, kind="sha256"):
    return f"{kind}:{hashlib.new(kind, content).hexdigest()}"


def get(server, folder, **what):
    return fetch(Remote(server.url("data.bin"), **what), folder / "data.bin", pause_s=0)


def refusal(server, folder, **what):
    with pytest.raises(DataError) as error:
        get(server, folder, **what)
    assert "\n" not in str(error.value)
    assert not (folder / "data.bin").exists()
    return str(error.value)


def left(folder):
    return sorted(p.name for p in folder.iterdir())


@pytest.mark.parametrize("kind", ["md5", "sha1", "sha256"])
def test_file_comes_whole_and_leaves_nothing_else(server, tmp_path, kind):
    assert get(server, tmp_path, checksum=checksum(CONTENT, kind), size=300_000).read_bytes() == CONTENT
    assert left(tmp_path) == ["data.bin"]
    get(server, tmp_path)
    assert len(server.asked) == 1  # what is there is not asked for again


@pytest.mark.parametrize("etag", [True, False])
@pytest.mark.parametrize("published", [True, False])
def test_broken_connection_goes_on_where_it_was(server, tmp_path, etag, published):
    server.etag, server.break_after = etag, [100_000, 0, 50_000]
    assert get(server, tmp_path, checksum=checksum(CONTENT) if published else None).read_bytes() == CONTENT
    spans = [span for _, span in server.asked]
    if etag or published:
        assert spans == [None, "bytes=100000-", "bytes=100000-", "bytes=150000-"]
    else:  # nothing could tell whether both pieces are of one file
        assert spans == [None, None, None, None]
    assert left(tmp_path) == ["data.bin"]


def test_server_that_ignores_ranges_sends_all_of_it_again(server, tmp_path):
    server.ranges, server.break_after = False, [100_000, 200_000]
    assert get(server, tmp_path, checksum=checksum(CONTENT)).read_bytes() == CONTENT


@pytest.mark.parametrize("etag", [True, False])
def test_file_that_changes_between_tries_is_never_mixed(server, tmp_path, etag):
    def change(request):
        if request == 2:
            server.files["data.bin"] = OTHER

    server.etag, server.break_after, server.before_answer = etag, [100_000], change
    assert get(server, tmp_path, checksum=checksum(OTHER)).read_bytes() == OTHER
    assert left(tmp_path) == ["data.bin"]


def test_changed_file_without_a_published_checksum_is_the_new_one(server, tmp_path):
    server.break_after = [100_000]
    server.before_answer = lambda request: server.files.update({"data.bin": OTHER[:250_000]}) if request == 2 else None
    assert get(server, tmp_path).read_bytes() == OTHER[:250_000]


def test_server_that_ignores_if_range_is_found_out_by_the_tag(server, tmp_path, monkeypatch):
    server.break_after = [100_000]
    server.before_answer = lambda request: server.files.update({"data.bin": OTHER}) if request == 2 else None
    honest = fetching.urllib.request.Request.add_header

    def add_header(self, name, value):
        if name != "If-Range":
            honest(self, name, value)

    monkeypatch.setattr(fetching.urllib.request.Request, "add_header", add_header)
    assert get(server, tmp_path).read_bytes() == OTHER


def test_run_that_was_stopped_goes_on_in_the_next(server, tmp_path):
    server.break_after = [100_000] + [0] * 20
    told = refusal(server, tmp_path, checksum=checksum(CONTENT))
    assert told.startswith(
        f"{server.url('data.bin')} cannot be fetched, 5 tries failed (the connection broke off after"
    )
    assert told.endswith("what has come is kept, and the same command goes on from there")
    assert left(tmp_path) == ["data.bin.part", "data.bin.part.json"]
    assert (tmp_path / "data.bin.part").read_bytes() == CONTENT[:100_000]
    server.break_after = []
    assert get(server, tmp_path, checksum=checksum(CONTENT)).read_bytes() == CONTENT
    assert server.asked[-1] == ("data.bin", "bytes=100000-")
    assert left(tmp_path) == ["data.bin"]


def test_whole_part_of_a_stopped_run_is_only_checked(server, tmp_path):
    server.break_after = [100_000] + [0] * 20
    refusal(server, tmp_path)
    (tmp_path / "data.bin.part").write_bytes(CONTENT)
    asked = len(server.asked)
    assert get(server, tmp_path, checksum=checksum(CONTENT)).read_bytes() == CONTENT
    assert len(server.asked) == asked


@pytest.mark.parametrize("rubbish", [OTHER[:1000], OTHER + OTHER], ids=["short", "too long"])
@pytest.mark.parametrize("notes", ["", '{"url": "http://elsewhere"}', "[]"])
def test_part_of_unknown_origin_does_no_harm(server, tmp_path, rubbish, notes):
    (tmp_path / "data.bin.part").write_bytes(rubbish)
    (tmp_path / "data.bin.part.json").write_text(notes)
    assert get(server, tmp_path, checksum=checksum(CONTENT)).read_bytes() == CONTENT


def test_wrong_checksum_is_refused_and_thrown_away(server, tmp_path):
    told = refusal(server, tmp_path, checksum=checksum(OTHER))
    digest = hashlib.sha256(CONTENT).hexdigest()
    assert f"expected {checksum(OTHER).replace(':', ' ')}, got {digest}. It was thrown away." in told
    assert left(tmp_path) == []
    assert len(server.asked) == 1  # it came in one piece, so that asking again would not help


def test_first_digits_of_a_checksum_are_enough(server, tmp_path):
    short = checksum(CONTENT)[: len("sha256:") + 8]
    assert get(server, tmp_path, checksum=short).read_bytes() == CONTENT
    assert digest_of(tmp_path / "data.bin").startswith(short.removeprefix("sha256:"))
    assert "is not the file that was published" in refusal(server, tmp_path / "b", checksum="sha256:00000000")


def test_wrong_size_is_refused_before_it_is_fetched(server, tmp_path):
    assert "expected 5 bytes, the server offers 300,000" in refusal(server, tmp_path, size=5)


def test_busy_server_is_asked_again_and_a_missing_file_is_not(server, tmp_path):
    server.errors = [503, 429, 500]
    assert get(server, tmp_path).read_bytes() == CONTENT
    del server.files["data.bin"]
    asked = len(server.asked)
    assert "answers 404 Not Found: look for its new address" in refusal(server, tmp_path / "b")
    assert len(server.asked) == asked + 1


def test_absent_server_is_said_in_one_line(tmp_path):
    server = Server()
    server.close()
    assert "5 tries failed ([Errno" in refusal(server, tmp_path)


UNREACHED = [
    socket.gaierror(socket.EAI_NONAME, "Name or service not known"),
    OSError(errno.ENETUNREACH, "Network is unreachable"),
    TimeoutError("timed out"),
]


@pytest.mark.parametrize("cause", UNREACHED, ids=lambda cause: type(cause).__name__)
def test_server_that_cannot_be_reached_is_not_tried_again(tmp_path, monkeypatch, cause):
    asked = []

    def connect(*arguments, **more):
        asked.append(arguments)
        raise cause

    monkeypatch.setattr("socket.create_connection", connect)
    with pytest.raises(DataError) as error:
        fetch(Remote("http://no.such.host/data.bin"), tmp_path / "data.bin", pause_s=60)
    assert str(error.value).startswith("http://no.such.host/data.bin cannot be fetched, its server cannot be reached (")
    assert "what has come is kept" not in str(error.value)  # nothing has
    assert len(asked) == 1


def test_line_that_breaks_and_is_away_for_a_moment_is_tried_again(server, tmp_path, monkeypatch):
    server.break_after = [100_000]
    honest, away = fetching.urllib.request.urlopen, [socket.gaierror(socket.EAI_AGAIN, "try again")]

    def sometimes(*arguments, **more):
        if len(server.asked) == 1 and away:
            raise fetching.urllib.error.URLError(away.pop())
        return honest(*arguments, **more)

    monkeypatch.setattr(fetching.urllib.request, "urlopen", sometimes)
    assert get(server, tmp_path, checksum=checksum(CONTENT)).read_bytes() == CONTENT
    assert not away


def test_addresses_of_files_are_refused(tmp_path):
    (tmp_path / "x").write_text("secret")
    with pytest.raises(DataError, match="begins with https"):
        fetch(Remote((tmp_path / "x").as_uri()), tmp_path / "y")


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_full_disk_is_one_line_and_is_not_tried_again(server, tmp_path, monkeypatch, code):
    def full(*_):
        raise OSError(code, "full")

    monkeypatch.setattr(fetching, "_copy", full)
    assert "no room left for" in refusal(server, tmp_path)
    assert len(server.asked) == 1


def test_lack_of_room_is_told_before_anything_is_written(server, tmp_path, monkeypatch):
    monkeypatch.setattr(fetching.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 1000}))
    assert "no room in" in refusal(server, tmp_path)
    assert left(tmp_path) == []


def test_folder_that_cannot_be_written_is_one_line(server, tmp_path, monkeypatch):
    def refused(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(fetching._Part, "begin", refused)
    assert "cannot write" in refusal(server, tmp_path)


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 bytes"), (8212, "8.2 kB"), (687_552_512, "688 MB"), (22.6e9, "22.6 GB")]
)
def test_sizes_are_told_as_people_say_them(size, text):
    assert gigabytes(size) == text
