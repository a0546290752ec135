"""Downloads, from a server on this machine."""

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from fedmr_med.data.datasets import DATASETS, RemoteFile
from fedmr_med.errors import ConfigError
from fedmr_med.lab.datasets.download import download_dataset, download_files
from tests.helpers.archives import ARRAYS, read_dataset, write_mini
from tests.helpers.errors import raises


class Server(ThreadingHTTPServer):
    """Serves a folder and counts the requests."""

    def __init__(self, folder: Path) -> None:
        self.requests: list[str] = []
        requests = self.requests

        class Handler(SimpleHTTPRequestHandler):
            def log_message(self, format: str, *args: object) -> None:
                requests.append(self.path)

        super().__init__(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
        self.url = f"http://127.0.0.1:{self.server_port}/"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    folder = tmp_path / "served"
    folder.mkdir()
    (folder / "a.bin").write_bytes(b"a" * 300_000)
    with Server(folder) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def remote(server: Server, name: str, content: bytes) -> RemoteFile:
    return RemoteFile(name, server.url + name, hashlib.md5(content).hexdigest())


def test_a_file_arrives_and_is_not_fetched_twice(server: Server, tmp_path: Path):
    file = remote(server, "a.bin", b"a" * 300_000)
    for _ in range(2):
        paths = download_files([file], tmp_path / "data")
        assert paths == [tmp_path / "data" / "a.bin"]
        assert paths[0].read_bytes() == b"a" * 300_000
    assert server.requests == ["/a.bin"]


def test_a_damaged_file_is_fetched_again(server: Server, tmp_path: Path):
    (tmp_path / "a.bin").write_bytes(b"aaa")
    download_files([remote(server, "a.bin", b"a" * 300_000)], tmp_path)
    assert (tmp_path / "a.bin").stat().st_size == 300_000


def test_a_wrong_checksum_is_refused_and_nothing_stays(server: Server, tmp_path: Path):
    with raises("data.checksum"):
        download_files([remote(server, "a.bin", b"other")], tmp_path / "data")
    assert list((tmp_path / "data").iterdir()) == []


def test_a_missing_file_and_a_dead_server_are_named(server: Server, tmp_path: Path):
    with raises("data.no-download"):
        download_files([remote(server, "absent.bin", b"")], tmp_path / "data")
    with raises("data.no-download"):
        download_files([RemoteFile("x", "http://127.0.0.1:9/x", "0" * 32)], tmp_path / "data")
    assert list((tmp_path / "data").iterdir()) == []


def test_the_published_files_are_those_the_readers_look_for(tmp_path: Path):
    for name in ARRAYS:
        files = DATASETS.get(name).files
        write_mini(name, tmp_path / name, per_class=1)
        assert sorted(path.name for path in (tmp_path / name).iterdir()) == sorted(file.name for file in files)
        assert all(re.fullmatch("[0-9a-f]{32}", file.md5) and file.url.endswith(file.name) for file in files)


def test_the_command_downloads_a_dataset_that_can_be_read(server: Server, tmp_path: Path, monkeypatch):
    from fedmr_med.lab.cli.download import download

    served = tmp_path / "served"
    write_mini("fmnist", served)
    record = DATASETS.get("fmnist")
    files = tuple(remote(server, file.name, (served / file.name).read_bytes()) for file in record.files)
    monkeypatch.setitem(DATASETS._items, "fmnist", replace(record, files=files))
    app = typer.Typer()
    app.command()(download)
    result = CliRunner().invoke(app, ["fmnist", "--root", str(tmp_path / "data"), "--json"])
    assert result.exit_code == 0, result.output
    assert len(json.loads(result.stdout)["files"]) == 4
    assert len(read_dataset("fmnist", tmp_path / "data").train) == 60


def test_names_that_cannot_be_downloaded_are_refused(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"'isic2019' cannot be downloaded\. Fed-ISIC2019 has a licence"):
        download_dataset("isic2019", tmp_path)
    with pytest.raises(ConfigError, match=r"'shakespeare' cannot be downloaded.*LEAF scripts"):
        download_dataset("shakespeare", tmp_path)
    with pytest.raises(ConfigError, match=r"'cifar' is not one of .* Did you mean cifar10"):
        download_dataset("cifar", tmp_path)
