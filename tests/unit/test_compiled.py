from pathlib import Path

import pytest

from kneekeeper.compiled import CACHE, COMPILED, unpack


def test_the_images_machine_code_is_copied_into_numbas_cache(tmp_path: Path):
    (tmp_path / "image/twin").mkdir(parents=True)
    (tmp_path / "image/twin/kernel.nbc").write_bytes(b"code")
    unpack({COMPILED: str(tmp_path / "image"), CACHE: str(tmp_path / "cache")})
    unpack({COMPILED: str(tmp_path / "image"), CACHE: str(tmp_path / "cache")})  # a restarted container
    assert (tmp_path / "cache/twin/kernel.nbc").read_bytes() == b"code"


def test_outside_of_an_image_nothing_is_copied(tmp_path: Path):
    unpack({})
    unpack({COMPILED: str(tmp_path / "missing"), CACHE: str(tmp_path / "cache")})
    assert list(tmp_path.iterdir()) == []


def test_a_cache_that_cannot_be_written_is_told_and_no_error(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    (tmp_path / "image").mkdir()
    (tmp_path / "cache").write_text("a file where the folder should be")
    unpack({COMPILED: str(tmp_path / "image"), CACHE: str(tmp_path / "cache")})
    assert "Mount a writable folder" in caplog.text
