"""The client itself against a real API server, and against none."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from kneekeeper.kube.client import Kube
from kneekeeper.kube.errors import ServerTrouble
from kneekeeper.kube.resources import CONFIG_MAPS
from tests.integration.place import NAMESPACES


@pytest.fixture
def dead_server(api_server: str, tmp_path: Path) -> str:
    """A kubeconfig that names an address where nobody listens."""
    config = yaml.safe_load(Path(api_server).read_text())
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:9"
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(config))
    return str(file)


async def test_a_server_that_is_not_there_is_trouble(dead_server):
    async with await Kube.connect("test", dead_server) as kube:
        with pytest.raises(ServerTrouble):
            await kube.get(NAMESPACES, "", "default")


async def test_lists_are_read_page_by_page(place, monkeypatch):
    monkeypatch.setattr("kneekeeper.kube.client.PAGE_SIZE", 2)
    for number in range(5):
        await place.kube.create(CONFIG_MAPS, place.namespace, {"metadata": {"name": f"page-{number}"}})
    names = await place.names(CONFIG_MAPS)
    assert [n for n in names if n.startswith("page-")] == [f"page-{n}" for n in range(5)]
