"""When the outbox's file is forced to the disk: seen by the calls of `os.fsync`, since no test can cut the power."""

import errno
import os
import threading

import pytest

from executor.conftest import World
from hookbus_schemas import Outcome
from support import until


class Disk:
    """Stands for the disk: every `fsync` passes here, on its way to the real one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.synced = 0
        self.broken = False
        self.threads: set[int] = set()
        real = os.fsync

        def fsync(file: int) -> None:
            self.threads.add(threading.get_ident())
            if self.broken:
                raise OSError(errno.EIO, "Input/output error")
            real(file)
            self.synced += 1

        monkeypatch.setattr(os, "fsync", fsync)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    """Every `fsync` of the test."""
    return Disk(monkeypatch)


async def test_always_means_that_a_call_is_on_the_disk_before_its_tool_runs(world: World, disk: Disk) -> None:
    """So after a loss of power each tool that ran has a record; and the loop is never held up."""
    executor = await world.executor(outbox_fsync="always")
    before: list[int] = []

    @executor.tool
    async def work() -> str:
        before.append(disk.synced)
        return ""

    async with executor:
        at_start = disk.synced
        disk.threads.clear()
        for _ in range(3):
            await executor.execute("work", {})
        assert at_start < before[0] < before[1] < before[2]
        assert threading.get_ident() not in disk.threads


async def test_a_call_does_not_run_whose_record_the_disk_does_not_take(world: World, disk: Disk) -> None:
    """It is denied with the reason, once; when the disk is well again calls run."""
    executor = await world.started(outbox_fsync="always")
    disk.broken = True
    refused = await executor.execute("echo", {"text": "ran"})
    disk.broken = False
    assert (refused.outcome, refused.denied_by) == (Outcome.DENIED, "executor")
    assert "cannot be brought to the disk: Input/output error" in refused.reason
    assert (await executor.execute("echo", {"text": "ran"})).text == "ran"
    await executor.flush()
    assert [event.outcome for event in await world.events()] == [Outcome.DENIED, Outcome.COMPLETED]


async def test_interval_syncs_by_itself_and_no_call_waits(world: World, disk: Disk) -> None:
    """A disk that fails is logged, not felt."""
    executor = await world.started(outbox_fsync="interval")
    at_start = disk.synced
    assert (await executor.execute("echo", {"text": "ran"})).text == "ran"
    await until(lambda: disk.synced > at_start)
    disk.broken = True
    assert (await executor.execute("echo", {"text": "ran"})).text == "ran"


async def test_never_syncs_nothing(world: World, disk: Disk) -> None:
    """The default: the death of the process loses nothing all the same."""
    executor = await world.started()
    await executor.execute("echo", {"text": "ran"})
    await executor.flush()
    assert disk.synced == 0
