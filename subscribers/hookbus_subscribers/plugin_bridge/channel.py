"""Many requests at once to one plugin's process, each answer tied to its request by id. Below it is `wire`."""

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import dataclass

from hookbus_broker.tasks import end_tasks
from hookbus_schemas import HookbusError, InvalidMessage
from hookbus_subscribers.plugin_bridge.wire import Notice, Response, notification_line, read_line, request_line

MAX_ANSWER_BYTES = 1024 * 1024
"""Longest line that a plugin's process may write."""

MAX_WRITING_BYTES = 64 * 1024 * 1024
"""Bytes on their way to a plugin beyond which nothing more is sent; also the longest request."""

MAX_REQUESTS = 1024
"""Requests that may be without an answer at once."""


class PluginUnavailable(HookbusError):
    """A plugin gave no usable answer: its process has ended, hangs or is not to be had."""


class PluginError(HookbusError):
    """A handler of a plugin failed; the message is what it threw."""


@dataclass(slots=True)
class _Waiting:
    answer: asyncio.Future[object]
    timer: asyncio.TimerHandle


class Channel:
    """JSON-RPC 2.0 with a plugin's process.

    A request without an answer in time, a line that is no message, the end of the stream: each is the end of the
    channel, and whoever waits hears of it.

    Attributes:
        lost: done when the channel has ended, with the reason.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        on_notice: Callable[[Notice], object],
    ) -> None:
        """Take the two ends of the stream, and who hears what the process says unasked; begin to read."""
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._reader = reader
        self._writer = writer
        self._on_notice = on_notice
        self._numbers = itertools.count(1)
        self._waiting: dict[int, _Waiting] = {}
        self._reading = asyncio.create_task(self._read(), name="plugin-channel")

    async def request(self, method: str, params: object, *, timeout: float) -> object:
        """Return the result.

        The time counts whether or not the caller still waits: a process that does not answer hangs, for others too.

        Args:
            method: what to do.
            params: with what.
            timeout: seconds after which the channel is given up.

        Raises:
            PluginError: the answer was an error.
            PluginUnavailable: there was none.
        """
        number = next(self._numbers)
        if len(self._waiting) >= MAX_REQUESTS:
            raise PluginUnavailable(f"{MAX_REQUESTS} requests are without an answer already")
        self._write(request_line(number, method, params))
        loop = asyncio.get_running_loop()
        timer = loop.call_later(timeout, self.end, f"did not answer within {timeout:g} seconds")
        waiting = self._waiting[number] = _Waiting(loop.create_future(), timer)
        return await waiting.answer

    async def notify(self, method: str, params: object, *, timeout: float) -> None:
        """Say something that has no answer; return when the process takes it.

        Args:
            method: what happened.
            params: what about.
            timeout: seconds after which the channel is given up, since the process does not read.

        Raises:
            PluginUnavailable: it cannot be said.
        """
        self._write(notification_line(method, params))
        try:
            async with asyncio.timeout(timeout):
                await self._writer.drain()
        except TimeoutError:
            self.end(f"did not read for {timeout:g} seconds")
        except OSError as error:
            self.end(f"cannot be written to: {error}")
        if self.lost.done():
            raise PluginUnavailable(self.lost.result())

    def end(self, reason: str) -> None:
        """Give the channel up; the first reason counts."""
        if self.lost.done():
            return
        self.lost.set_result(reason)
        for waiting in self._waiting.values():
            waiting.timer.cancel()
            if not waiting.answer.done():
                waiting.answer.set_exception(PluginUnavailable(reason))
        self._waiting.clear()
        self._writer.transport.abort()

    async def close(self) -> None:
        """End the channel and what reads from it."""
        self.end("was stopped")
        await end_tasks([self._reading], 1.0)

    def _write(self, line: bytes) -> None:
        if self.lost.done():
            raise PluginUnavailable(self.lost.result())
        writing = self._writer.transport.get_write_buffer_size()
        if writing + len(line) > MAX_WRITING_BYTES:
            raise PluginUnavailable(
                f"{writing + len(line)} bytes on their way are over the {MAX_WRITING_BYTES} allowed"
            )
        self._writer.write(line)

    async def _read(self) -> None:
        reason = "ended"
        try:
            while line := await self._reader.readline():
                self._take(line)
        except ValueError as error:  # InvalidMessage is one; asyncio's own for a line over the limit
            words = str(error) if isinstance(error, InvalidMessage) else f"a line of over {MAX_ANSWER_BYTES} bytes"
            reason = f"broke the bridge's stream: {words}"
        except OSError:
            pass
        finally:
            self.end(reason)

    def _take(self, line: bytes) -> None:
        said = read_line(line)
        if isinstance(said, Notice):
            self._on_notice(said)
        else:
            self._settle(said)

    def _settle(self, response: Response) -> None:
        waiting = self._waiting.pop(response.id, None)
        if waiting is None:
            raise InvalidMessage(f"an answer to request {response.id}, which nobody waits for")
        waiting.timer.cancel()
        if waiting.answer.done():
            return  # whoever asked has gone
        if response.error is not None:
            waiting.answer.set_exception(PluginError(response.error))
        else:
            waiting.answer.set_result(response.result)
