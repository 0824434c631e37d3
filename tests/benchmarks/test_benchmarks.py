"""The benchmark runs and says what it measured; how fast anything was is asserted nowhere."""

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LATENCY = {"name", "baseline", "ratio", "p50_ms", "p99_ms", "p99.9_ms"}
RATE = {"name", "baseline", "ratio", "per_second"}
BAR = {"bar", "holds"}
COST = {"what the caller pays for its event, of its own thread", "... by the clock"}
"""Rows beside nothing: what they must reach is a time."""
BUILT_IN = {
    "hookbus admission, AuditLog, Autonomy, ContractScope",
    "Autonomy alone, in process, a plain path check",
}


@pytest.mark.timeout(120)
async def test_a_run_writes_its_figures_and_names_each_bar_once(tmp_path: Path) -> None:
    """One round of everything; each row has figures, a baseline, and a bar where the design sets one."""
    output = tmp_path / "figures.json"
    arguments = ("-m", "benchmarks", "--rounds", "1", "--json", str(output))
    path = os.pathsep.join([str(ROOT), *(one for one in sys.path if one)])
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, stdout=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(100):
            printed, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, printed.decode()
    said = json.loads(output.read_text())
    assert {"date", "processor", "cores", "loop", "python", "client", "server"} == set(said["circumstances"])
    compared = [row for row in said["rows"] if row["name"] not in COST]
    assert all(set(row) - BAR in (LATENCY, RATE) and row["ratio"] > 0 for row in compared)
    costs = [set(row) - BAR for row in said["rows"] if row["name"] in COST]
    assert costs == [LATENCY - {"baseline", "ratio"}] * 2
    assert {row["name"] for row in said["rows"]} >= BUILT_IN
    bars = [row["bar"] for row in said["rows"] if "bar" in row]
    assert sorted(bars) == ["<= 1.1", "<= 2", "<= 50 µs", ">= 0.8", ">= 1", ">= 3", ">= 3"]
