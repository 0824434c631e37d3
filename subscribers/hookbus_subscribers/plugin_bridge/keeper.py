"""Keeps a plugin's process running: one that has ended or hangs is started again, a few times. Below it is `child`."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence

import structlog

from hookbus_broker.log import say
from hookbus_broker.tasks import end_tasks
from hookbus_schemas import ConfigError
from hookbus_subscribers.plugin_bridge.channel import PluginUnavailable
from hookbus_subscribers.plugin_bridge.child import Child

log = structlog.get_logger()

RESTART_WAITS = (1.0, 2.0, 2.0)
"""Seconds before each restart; after the last one the plugin is given up."""

STEADY_AFTER = 60.0
"""Seconds without a fault after which earlier ones count no more."""


class Keeper:
    """One plugin's process, whichever it is at the time."""

    def __init__(
        self, hook: str, start: Callable[[], Awaitable[Child]], restart_waits: Sequence[float] = RESTART_WAITS
    ) -> None:
        """Prepare to keep the process.

        Args:
            hook: the plugin's hook, for the log.
            start: starts a process; raises `ConfigError` when the plugin cannot be loaded.
            restart_waits: seconds before each restart.
        """
        self._hook = hook
        self._start = start
        self._waits = restart_waits
        self._child: Child | None = None  # the one that can be asked
        self._last: Child | None = None  # that one, or the one that is being ended
        self._problem = ""
        self._changed = asyncio.Event()
        self._keeping: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the process.

        Raises:
            ConfigError: the plugin cannot be loaded.
        """
        self._child = self._last = await self._start()
        self._changed.set()
        self._keeping = asyncio.create_task(self._keep(self._child), name=f"{self._hook}-keeper")

    async def child(self, timeout: float) -> Child:
        """Return the running process, waiting for one that is being started again.

        Args:
            timeout: seconds to wait.

        Raises:
            PluginUnavailable: there is none.
        """
        if self._child is not None and self._child.channel.lost.done():
            self._lose(self._child.channel.lost.result())  # seen here before `_keep` had its turn
        try:
            async with asyncio.timeout(timeout):
                await self._changed.wait()
        except TimeoutError:
            raise PluginUnavailable(f"the plugin is not running yet: it {self._problem}") from None
        if self._child is None:
            raise PluginUnavailable(f"the plugin is not running: it {self._problem}")
        return self._child

    async def stop(self) -> None:
        """End the process and start no other."""
        if self._keeping is not None:
            await end_tasks([self._keeping], 10.0)
        self._child, self._problem = None, "was stopped"
        self._changed.set()
        if self._last is not None:
            await self._last.stop()

    async def _keep(self, child: Child) -> None:
        clock = asyncio.get_running_loop().time
        waits = iter(self._waits)
        while True:
            began = clock()
            self._lose(await child.ended())
            await child.stop()
            if clock() - began > STEADY_AFTER:
                waits = iter(self._waits)
            started = await self._again(waits)
            if started is None:
                self._give_up()
                return
            child = self._child = self._last = started
            self._changed.set()

    def _lose(self, problem: str) -> None:
        self._child, self._problem = None, problem
        self._changed.clear()

    async def _again(self, waits: Iterator[float]) -> Child | None:
        """Start another process; None when it has been tried often enough."""
        for wait in waits:
            say(log.warning, "plugin.ended", hook=self._hook, problem=self._problem, restart_after_s=wait)
            await asyncio.sleep(wait)
            try:
                child = await self._start()
            except (ConfigError, OSError) as error:  # no descriptors are left, say
                self._problem = str(error)
            else:
                say(log.info, "plugin.restarted", hook=self._hook, events=sorted(child.events))
                return child
        return None

    def _give_up(self) -> None:
        self._problem = f"{self._problem}, and was started again {len(self._waits)} times already: restart its hook"
        say(log.error, "plugin.given_up", hook=self._hook, problem=self._problem)
        self._changed.set()
