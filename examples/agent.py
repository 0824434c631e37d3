"""An agent's side: one tool, two calls of it."""

import asyncio

from hookbus_broker import BusSettings
from hookbus_executor import Executor, Session

executor = Executor("agent-1", bus=BusSettings.load())


@executor.tool
async def db_query(sql: str) -> str:
    """Run one statement."""
    return f"ran: {sql}"


async def main() -> None:
    """Do what a model would have asked for."""
    async with executor:
        for sql in ("SELECT 1", "DROP TABLE users"):
            result = await executor.execute("db_query", {"sql": sql}, session=Session(id="s1"))
            print(f"{result.outcome}: {result.text}")


asyncio.run(main())
