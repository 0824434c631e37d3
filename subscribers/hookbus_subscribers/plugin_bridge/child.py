"""One process of Node.js that runs one plugin: started, watched, killed with whatever it started itself.

Above it is `keeper`, which starts another one; below it `channel`.
"""

import asyncio
import os
import signal
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from hookbus_broker.tasks import end_tasks
from hookbus_schemas import ConfigError
from hookbus_subscribers.plugin_bridge.channel import MAX_ANSWER_BYTES, Channel, PluginError, PluginUnavailable
from hookbus_subscribers.plugin_bridge.manifest import Manifest
from hookbus_subscribers.plugin_bridge.node import Node
from hookbus_subscribers.plugin_bridge.output import Output
from hookbus_subscribers.plugin_bridge.wire import Notice

BRIDGE = Path(__file__).with_name("bridge.mjs")

KEPT_VARIABLES = ("PATH", "HOME", "LANG", "TZ")
"""Variables of this process that every plugin is given."""

LOAD_TIMEOUT = 15.0
"""Seconds that a plugin has to load."""

SHUTDOWN_TIMEOUT = 2.0
"""Seconds that a plugin has to end what it is at."""

KILL_TIMEOUT = 5.0
"""Seconds in which a killed process should be gone."""

READ_BYTES = 64 * 1024
"""Bytes of what a plugin prints that are read at once."""

# Waits for the plugin; a second process waits for the owner's end of the pipe (descriptor 3) to be closed, which the
# system does even when the owner is killed. Either ends the whole group: the plugin, and whatever it has started.
_GUARD = """
exec 3<&0 </dev/null
"$@" 3<&- &
plugin=$!
{ read -r _ <&3; kill -KILL 0; } &
wait "$plugin"
echo "the plugin's process has ended with status $?"
kill -KILL 0
"""


@dataclass(frozen=True, slots=True)
class Plugin:
    """A plugin that can be started.

    Attributes:
        folder: where it is, and where its process runs.
        entry: the file that holds its module.
        manifest: what it says of itself.
        config: its configuration.
        environment: names of variables that it is given beside `KEPT_VARIABLES`.
    """

    folder: Path
    entry: Path
    manifest: Manifest
    config: dict[str, Any]
    environment: tuple[str, ...] = ()

    @property
    def hook(self) -> str:
        """The name of its hook."""
        return self.manifest.hook


class Child:
    """The running process of a plugin.

    Attributes:
        channel: the way to ask it.
        events: what its handlers are for: ``tool:before``, ``tool:after``.
    """

    def __init__(
        self,
        plugin: Plugin,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """Take the process, and our end of the socket on which it speaks."""
        self.channel = Channel(reader, writer, self._hear)
        self.events: frozenset[str] = frozenset()
        self._plugin = plugin
        self._process = process
        self._printing = asyncio.create_task(self._log_output(), name=f"{plugin.hook}-output")

    @classmethod
    async def start(cls, plugin: Plugin, node: Node) -> Self:
        """Start the process and load the plugin.

        Raises:
            ConfigError: the plugin cannot be loaded; the message has its own words.
        """
        ours, its = socket.socketpair()
        with its:
            reader, writer = await asyncio.open_unix_connection(sock=ours, limit=MAX_ANSWER_BYTES)
            try:
                process = await _spawn(plugin, node, its)
            except BaseException as error:
                writer.close()
                if isinstance(error, OSError):
                    raise ConfigError(f"{plugin.hook}: {node.path} cannot be started: {error}") from None
                raise
        child = cls(plugin, process, reader, writer)
        try:
            await child._load()
        except BaseException:
            await child.stop()
            raise
        return child

    async def _load(self) -> None:
        about = {"pluginId": self._plugin.manifest.id, "entry": str(self._plugin.entry), "config": self._plugin.config}
        try:
            await self.channel.request("init", about, timeout=LOAD_TIMEOUT)
        except PluginUnavailable as error:
            raise ConfigError(f"{self._plugin.hook} cannot be loaded from {self._plugin.entry}: it {error}") from None
        except PluginError as error:
            raise ConfigError(f"{self._plugin.hook} cannot be loaded from {self._plugin.entry}: {error}") from None

    async def ended(self) -> str:
        """Wait until the process cannot be asked any more; return why."""
        return await asyncio.shield(self.channel.lost)

    async def stop(self) -> None:
        """End the process: asked first, then killed with all that it has started. Harmless when it has ended."""
        try:
            with suppress(PluginError, PluginUnavailable):
                await self.channel.request("shutdown", {}, timeout=SHUTDOWN_TIMEOUT)
            await self.channel.close()
        finally:
            self._kill()
        with suppress(TimeoutError):  # the kernel may hold on to a process whose disk does not answer
            async with asyncio.timeout(KILL_TIMEOUT):
                await self._process.wait()
        await asyncio.wait([self._printing], timeout=1.0)  # what was printed last; others may hold the pipe open
        await end_tasks([self._printing], 1.0)
        self._process._transport.close()  # type: ignore[attr-defined]  # it has no public way to let go of its pipes

    def _kill(self) -> None:
        if self._process.returncode is None:  # not reaped, so no other group can have its number
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        if self._process.stdin is not None:
            self._process.stdin.close()

    async def _log_output(self) -> None:
        output = Output(self._plugin.hook)
        assert self._process.stdout is not None  # noqa: S101 - it was asked for
        try:
            while data := await self._process.stdout.read(READ_BYTES):
                output.feed(data)
        finally:
            output.end()

    def _hear(self, notice: Notice) -> None:
        """Take which events there are handlers for: said before `init` is answered, and whenever one is added."""
        match notice:
            case Notice("subscriptions", {"events": list(events)}):
                self.events = frozenset(event for event in events if isinstance(event, str))


async def _spawn(plugin: Plugin, node: Node, its: socket.socket) -> asyncio.subprocess.Process:
    """Start the guard, which starts Node.js; what the plugin prints comes by a pipe, its answers by the socket."""
    command = [str(node.path), *node.options, str(BRIDGE), str(its.fileno())]
    return await asyncio.create_subprocess_exec(
        "/bin/sh",
        "-c",
        _GUARD,
        "hookbus-plugin",
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        limit=READ_BYTES,
        cwd=plugin.folder,
        env=_environment(plugin),
        pass_fds=(its.fileno(),),
        start_new_session=True,
    )


def _environment(plugin: Plugin) -> dict[str, str]:
    return {name: os.environ[name] for name in (*KEPT_VARIABLES, *plugin.environment) if name in os.environ}
