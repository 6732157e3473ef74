"""`python -m kneekeeper.dashboard`: serve the page, from a cluster or from files."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from aiohttp import web
from kubernetes.aio.config import ConfigException

from kneekeeper import __version__
from kneekeeper.compiled import unpack
from kneekeeper.dashboard.access import Actions
from kneekeeper.dashboard.files import Folder, FolderError
from kneekeeper.dashboard.server import Dashboard
from kneekeeper.dashboard.store import Store
from kneekeeper.dashboard.watches import follow
from kneekeeper.kube.client import Kube

STOP_S = 2.0
"""Streams have no end of their own; a stop does not wait for their viewers."""


def main() -> int:
    """0 after a signal, 1 where nothing can be shown."""
    arguments = _parser().parse_args()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)
    unpack(os.environ)
    try:
        asyncio.run(serve(arguments))
    except (FolderError, ConfigException, OSError) as error:
        print(f"kneekeeper dashboard: {error}", file=sys.stderr)
        return 1
    return 0


async def serve(arguments: argparse.Namespace) -> None:
    """Until SIGTERM or SIGINT. Raises FolderError, ConfigException, OSError."""
    stop = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, stop.set)
    store = Store()
    async with AsyncExitStack() as stack:
        actions: Actions | None = None
        if arguments.from_files is not None:
            folder = Folder(arguments.from_files)
            folder.load(store)
            follower = folder.follow(store)
            source = f"files in {arguments.from_files.name}"
        else:
            kube = await stack.enter_async_context(await Kube.connect(f"{__version__} dashboard", arguments.kubeconfig))
            if arguments.actions:
                as_viewer = partial(_as_viewer, arguments.kubeconfig)
                actions = Actions(kube, as_viewer, store, lambda: datetime.now(UTC))
            follower = follow(kube, store, tuple(arguments.namespace))
            source = "cluster"
        runner = web.AppRunner(Dashboard(store, source, actions).application(), shutdown_timeout=STOP_S)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        site = web.TCPSite(runner, arguments.host, arguments.port)
        await site.start()
        host, port = runner.addresses[0][:2]
        print(f"dashboard at http://{host}:{port}/", flush=True)
        async with asyncio.TaskGroup() as tasks:
            following = tasks.create_task(follower)
            await stop.wait()
            following.cancel()


@asynccontextmanager
async def _as_viewer(kubeconfig: str | None, token: str) -> AsyncIterator[Kube]:
    async with await Kube.connect_as(token, f"{__version__} dashboard", kubeconfig) as kube:
        yield kube


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m kneekeeper.dashboard", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on (default: this machine only)")
    parser.add_argument("--port", type=int, default=8090, help="0 takes a free one")
    parser.add_argument("--from-files", type=Path, metavar="DIR", help="show the objects in DIR/*.yaml, no cluster")
    parser.add_argument("--kubeconfig", help="left out: the pod's ServiceAccount, else the user's kubeconfig")
    parser.add_argument("--namespace", action="append", default=[], help="watch only this one; may be repeated")
    parser.add_argument(
        "--actions", action="store_true", help="let viewers with a bearer token retune, suspend and approve"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
