"""Files are written whole, with the access that they had or that the system gives new ones."""

import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepsim.base.errors import OutputError
from stepsim.base.writing import (
    check_new_folder,
    check_separate,
    whole_file,
    write_folder,
    write_whole,
)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file that is there."""
    file = tmp_path / "a.json"
    file.write_bytes(b"old")
    return file


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o755])
def test_a_file_that_is_replaced_keeps_its_mode_and_owner(path: Path, mode: int) -> None:
    path.chmod(mode)
    before = path.stat()
    write_whole(path, b"new")
    assert path.read_bytes() == b"new"
    assert mode_of(path) == mode
    assert (path.stat().st_uid, path.stat().st_gid) == (before.st_uid, before.st_gid)
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="gives files away")
def test_a_file_of_somebody_else_stays_theirs(path: Path) -> None:
    os.chown(path, 12345, 23456)
    path.chmod(0o640)
    write_whole(path, b"new")
    assert (path.stat().st_uid, path.stat().st_gid, mode_of(path)) == (12345, 23456, 0o640)


def test_an_owner_that_cannot_be_kept_is_no_error(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "chown", refuse)
    path.chmod(0o600)
    write_whole(path, b"new")
    assert path.read_bytes() == b"new"
    assert mode_of(path) == 0o600


def test_a_private_file_is_private_while_it_is_written(path: Path) -> None:
    path.chmod(0o600)
    with whole_file(path) as file:
        file.write(b"new")
        (part,) = (each for each in path.parent.iterdir() if each != path)
        assert mode_of(part) == 0o600
        assert path.read_bytes() == b"old"


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_a_new_file_has_the_mode_of_any_other_new_file(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        write_whole(tmp_path / "a.json", b"new")
    finally:
        os.umask(before)
    assert mode_of(tmp_path / "a.json") == 0o666 & ~mask


def test_the_mask_of_the_process_is_never_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def changed(mask: int) -> int:
        raise AssertionError("another thread's files would be made with this mask")

    monkeypatch.setattr(os, "umask", changed)
    threads = [
        threading.Thread(target=write_whole, args=(tmp_path / f"{i}.json", b"new"))
        for i in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(list(tmp_path.iterdir())) == 4


def test_a_failure_leaves_the_old_file_and_nothing_else(path: Path) -> None:
    def fail() -> None:
        with whole_file(path) as file:
            file.write(b"half")
            raise OSError(28, "No space left on device")

    with pytest.raises(OutputError, match=r"a\.json: cannot write: No space left"):
        fail()
    assert path.read_bytes() == b"old"
    assert list(path.parent.iterdir()) == [path]


def test_a_link_stays_a_link_to_the_file_that_is_written(path: Path) -> None:
    link = path.with_name("link.json")
    link.symlink_to(path)
    write_whole(link, b"new")
    assert link.is_symlink()
    assert path.read_bytes() == b"new"


def test_files_of_a_folder_are_all_there(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "run"
    assert write_folder(folder, [("a", b"1"), ("b", b"2")]) == [folder / "a", folder / "b"]
    assert {each.name: each.read_bytes() for each in folder.iterdir()} == {"a": b"1", "b": b"2"}


@pytest.mark.parametrize("there", [True, False])
def test_files_of_a_folder_are_none_where_one_fails(tmp_path: Path, there: bool) -> None:
    folder = tmp_path / "new" / "run"
    if there:
        folder.mkdir(parents=True)

    def files() -> Iterator[tuple[str, bytes]]:
        yield "a", b"1"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_folder(folder, files())
    assert folder.exists() == there
    assert list(tmp_path.rglob("a")) == []


def test_a_folder_that_cannot_be_new_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    for name, why in {
        ".": "not empty",
        "file": "Not a directory",
        "file/run": "Not a directory",
        "link": "a link to nothing",
        "a\0b": "no file can have this name",
        "x" * 300: "File name too long",
    }.items():
        with pytest.raises(OutputError, match=why):
            check_new_folder(tmp_path / name)
    check_new_folder(tmp_path / "new" / "run")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["file", "link"]


def test_outputs_do_not_lie_in_a_folder_of_others(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="lies in a folder that is an output"):
        check_separate([], [tmp_path / "run" / "a.json", tmp_path / "run"])
