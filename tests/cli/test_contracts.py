"""``hookbus contracts`` on a bus that somebody else runs, and what `check` says of a session with a contract."""

import json
from pathlib import Path

from cli.running import hookbus, one_by_one, running

CONTRACT = {
    "id": "ctr_1",
    "max_tool_calls": 2,
    "scoped_capabilities": [{"tool_name": "read_file", "allowed_paths": ["/srv/a"]}],
}


async def test_a_contract_from_attaching_to_removing(tmp_path: Path) -> None:
    """Each command sees what the one before did, and `check` what the contract says."""
    (tmp_path / "contract.json").write_text(json.dumps(CONTRACT))
    read = ("check", "read_file", '{"path": "/etc/passwd"}', "--session", "s 1")
    async with running(tmp_path, "up") as up:
        await up.says("hooks: AuditLog, Autonomy, ContractScope, SemanticKernelPolicy")
        free, attached, bound, twice, replaced, shown, listed, removed, again = await one_by_one(
            tmp_path,
            read,
            ("contracts", "attach", "s 1", "contract.json"),
            read,
            ("contracts", "attach", "s 1", "contract.json"),
            ("contracts", "attach", "s 1", "contract.json", "--replace"),
            ("contracts", "show", "s 1"),
            ("contracts", "list", "--json"),
            ("contracts", "remove", "s 1"),
            read,
        )
    assert (free.code, again.code) == (0, 0)
    assert (attached.code, attached.out) == (0, "ctr_1 attached to s 1\n")
    assert bound.code == 1
    assert "path /etc/passwd is outside what contract ctr_1 grants read_file" in bound.out
    assert (twice.code, twice.err) == (2, "hookbus: session s 1 has a contract already: change it with --replace\n")
    assert replaced.code == 0
    about = {"session": "s 1", "revision": 2, "name": "", "max_runtime_seconds": 0.0, "expires_at": None}
    assert json.loads(shown.out) == about | CONTRACT | {"created_by": "", "calls_used": 0}
    assert [row["session"] for row in json.loads(listed.out)] == ["s 1"]
    assert (removed.code, removed.out) == (0, "contract of s 1 removed\n")


async def test_a_contract_is_made_of_options_too(tmp_path: Path, bus_url: str) -> None:
    """For the bounds that need no list."""
    bounds = ("--max-tool-calls", "100", "--max-runtime-seconds", "60", "--expires-at", "2999-01-01T00:00:00Z")
    attached, named, listed = await one_by_one(
        tmp_path,
        ("contracts", "attach", "s1", *bounds),
        ("contracts", "attach", "s2", "--id", "ctr_1", "--max-tool-calls", "1"),
        ("contracts", "list", "--json"),
        HOOKBUS_URL=bus_url,
    )
    assert (attached.code, named.code, named.out) == (0, 0, "ctr_1 attached to s2\n")
    first, second = json.loads(listed.out)
    assert attached.out == f"{first['id']} attached to s1\n"
    assert first["id"].startswith("ctr_")
    limits = (first["max_tool_calls"], first["max_runtime_seconds"], first["expires_at"])
    assert (limits, second["max_tool_calls"]) == ((100, 60, "2999-01-01T00:00:00Z"), 1)


async def test_a_slip_attaches_nothing(tmp_path: Path, bus_url: str) -> None:
    """Each is one line that says what to do, with exit code 2."""
    (tmp_path / "good.json").write_text(json.dumps(CONTRACT))
    (tmp_path / "field.json").write_text('{"id": "c", "max_tool_call": 5}')
    (tmp_path / "broken.json").write_text('{"id": ')
    slips = {
        ("show", "ghost"): "session ghost has no contract: `hookbus contracts list` shows those that have",
        ("remove", "ghost"): "session ghost has no contract",
        ("attach", "s", "none.json"): "contract none.json cannot be read: No such file or directory",
        ("attach", "s", "field.json"): "contract: max_tool_call: Extra inputs are not permitted",
        ("attach", "s", "broken.json"): "contract: ",
        ("attach", "s"): "give a contract: a file, - for standard input, or a bound such as --max-tool-calls 100",
        ("attach", "s", "--id", "c"): "give a contract",
        ("attach", "s", "--max-tool-calls", "-1"): "contract: max_tool_calls: ",
        ("attach", "s", "--expires-at", "soon"): "contract: expires_at: ",
        ("attach", "s", "--max-runtime-seconds", "nan"): "contract: max_runtime_seconds: ",
        ("attach", "s", "--max-tool-calls", "5", "--id", ""): "contract: id: ",
        ("attach", "s", "good.json", "--max-tool-calls", "5"): "either a file or the fields of a contract, not both",
        ("attach", " ", "good.json"): "a session's id should be text that is not blank",
    }
    assert (await hookbus(tmp_path, "hooks", "add", "guard", HOOKBUS_URL=bus_url)).code == 0
    commands = [("contracts", *arguments) for arguments in slips]
    for ended, says in zip(await one_by_one(tmp_path, *commands, HOOKBUS_URL=bus_url), slips.values(), strict=True):
        (line,) = ended.err.splitlines()
        assert (ended.code, ended.out) == (2, "")
        assert says in line
    listed = await hookbus(tmp_path, "contracts", "list", HOOKBUS_URL=bus_url)
    assert listed.out == "no session has a contract: attach one with `hookbus contracts attach SESSION FILE`\n"
