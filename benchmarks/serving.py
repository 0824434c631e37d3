"""The other side of the contestants, each a process of its own: ``python -m benchmarks.serving KIND ...``.

`hooks URL NAME...` serves hooks with the kit, `built-in URL CONFIG NAME...` those that come with hookbus, `webhook` an
HTTP endpoint. Each ends when its standard input does.
"""

import asyncio
import json
import logging
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import uvloop

from benchmarks import built_in
from hookbus_broker import BusSettings, connect
from hookbus_cli import logs
from hookbus_schemas import Hook, ToolHookContext
from hookbus_subscribers import Decision, HookServer, hook

SLOW = 0.05
"""Seconds that the slow hook takes."""


def decide(arguments_json: str) -> bool:
    """Decide what every contestant decides."""
    return "DROP TABLE" not in arguments_json


def _judge(name: str) -> Hook:
    @hook(name)
    async def judge(context: ToolHookContext) -> bool | Decision:
        if name.startswith("slow"):
            await asyncio.sleep(SLOW)
        if name == "raises":
            raise ValueError
        return decide(context.arguments_json)

    return judge


async def _serve_hooks(url: str, hooks: Iterable[Hook]) -> None:
    async with AsyncExitStack() as stack:
        connection = await stack.enter_async_context(await connect(BusSettings(url=url), name="hooks", url=url))
        for one in hooks:
            await stack.enter_async_context(HookServer(one, connection))
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)


async def _serve_webhook() -> None:
    import uvicorn

    async def app(_: dict[str, object], receive: object, send: object) -> None:
        assert callable(receive)
        assert callable(send)
        body = (await receive())["body"]
        allowed = decide(json.loads(body)["arguments_json"])
        answer = json.dumps({"decision": "allow" if allowed else "deny"}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(answer)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", lifespan="off"))
    serving = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 - uvicorn tells it in no other way
        await asyncio.sleep(0.01)
    print(server.servers[0].sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.should_exit = True
    await serving


@asynccontextmanager
async def serving(*arguments: str, stderr: int | None = None) -> AsyncIterator[str]:
    """Run this module as a process; yield the first line that it prints. `stderr` is as for a subprocess."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.serving", *arguments, stdin=-1, stdout=-1, stderr=stderr
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with asyncio.timeout(30):
            yield (await process.stdout.readline()).decode().strip()
    finally:
        process.stdin.close()
        try:
            async with asyncio.timeout(5):
                await process.wait()
        except TimeoutError:
            process.kill()


if __name__ == "__main__":
    logs.configure(logging.INFO if sys.argv[1] == "built-in" else logging.CRITICAL)  # AuditLog writes lines
    match sys.argv[1:]:
        case ["hooks", url, *names]:
            uvloop.run(_serve_hooks(url, map(_judge, names)))
        case ["built-in", url, config, *names]:
            uvloop.run(_serve_hooks(url, built_in.made(Path(config), names)))
        case ["webhook"]:
            uvloop.run(_serve_webhook())
