"""What the tests of the hook's side share."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from hooking import Bus


@pytest.fixture
async def bus(bus_url: str) -> AsyncIterator[Bus]:
    """A bus of the test's own."""
    async with AsyncExitStack() as stack:
        yield Bus(bus_url, stack)
