"""Autonomy, asked by an executor in whose process it lives."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hookbus_schemas import ConfigError, ResolvedPath, ToolHookContext, Verdict
from hookbus_subscribers import Autonomy, AutonomySettings
from policies.conftest import Asking, Case, Disk, cases


@pytest.mark.parametrize("case", cases("autonomy.jsonl"), ids=lambda case: case["id"])
async def test_a_shared_case_is_answered_as_it_says(case: Case, asking: Asking, disk: Disk) -> None:
    """One line of the file of cases."""
    case = disk.fill(case)
    hook = Autonomy(AutonomySettings(**case["config"]))
    admission = await asking.admit(hook, case["tool"], case.get("arguments_json") or case["arguments"])
    assert ("allow" if admission.allowed else "deny") == case["expect"], admission.reason


@pytest.mark.parametrize(
    ("config", "tool", "arguments", "reason"),
    [
        pytest.param(
            {"mode": "readonly"}, "shell", {}, "shell may change something, and the mode is readonly", id="readonly"
        ),
        pytest.param(
            {"workspace_only": True, "workspace_root": "{W}"},
            "read_file",
            {"path": "/etc/passwd"},
            "path /etc/passwd is outside the workspace {W}",
            id="outside",
        ),
        pytest.param(
            {"workspace_only": True, "workspace_root": "{W}"},
            "read_file",
            {"path": "{W}/link/secret.txt"},
            "path {W}/link/secret.txt is outside the workspace {W}: it leads to {O}/secret.txt",
            id="link",
        ),
        pytest.param(
            {"forbidden_path_globs": ["/etc/*"]},
            "read_file",
            {"path": "/etc/passwd"},
            "path /etc/passwd is forbidden by /etc/*",
            id="forbidden",
        ),
        pytest.param(
            {"forbidden_path_globs": ["/etc"]},
            "shell",
            {"command": "cat /etc/passwd"},
            "the command line names a path that is forbidden by /etc",
            id="forbidden command",
        ),
        pytest.param({"allow_shell": False}, "shell", {}, "shell commands are not allowed", id="no shell"),
        pytest.param(
            {"allowed_shell_command_globs": []}, "shell", {"command": "ls"}, "no shell command is allowed", id="no glob"
        ),
        pytest.param(
            {"allowed_shell_command_globs": ["ls *"]},
            "shell",
            {"command": "rm --password=hunter2"},
            "shell command rm is not among the allowed ones",
            id="command",
        ),
        pytest.param(
            {"allowed_shell_command_globs": ["ls *"]},
            "shell",
            {"command": "TOKEN=hunter2 ls -l"},
            "shell command TOKEN=... is not among the allowed ones",
            id="assignment",
        ),
    ],
)
async def test_a_denial_says_which_rule_and_quotes_no_contents(
    config: Case, tool: str, arguments: Case, reason: str, asking: Asking, disk: Disk
) -> None:
    """The model reads it; so may whoever reads the log."""
    hook = Autonomy(AutonomySettings(**disk.fill(config)))
    assert (await asking.admit(hook, tool, disk.fill(arguments))).reason == disk.fill(reason)


INSIDE = {"workspace_only": True, "workspace_root": "{W}"}
ATTACKS = [
    pytest.param(INSIDE, "copy", {"from": {"path": "/etc/passwd"}}, id="nested argument"),
    pytest.param(INSIDE, "copy", {"files": [{"name": "/etc/passwd"}]}, id="below a name"),
    pytest.param(INSIDE, "copy", {"files": {"/etc/passwd": "x"}}, id="a key is a path"),
    pytest.param(INSIDE, "copy", {"filePath": "/etc/passwd"}, id="camel case"),
    pytest.param(INSIDE, "copy", {"FILE-PATH": "/etc/passwd"}, id="upper case"),
    pytest.param(INSIDE, "read_file", {"path": "~/x"}, id="home"),
    pytest.param(INSIDE, "read_file", {"path": "file:///etc/passwd"}, id="file URL"),
    pytest.param(INSIDE, "read_file", {"path": "file:%2Fetc/passwd"}, id="quoted file URL"),
    pytest.param(INSIDE, "read_file", {"path": "a.txt", "cwd": "/etc"}, id="cwd outside"),
    pytest.param(INSIDE, "read_file", {"path": "../a.txt", "cwd": "{W}"}, id="relative to cwd"),
    pytest.param(INSIDE, "read_file", {"path": "{W}/" + "x" * 300}, id="name too long"),
    pytest.param(INSIDE, "read_file", {"path": "{W}/loop/x"}, id="beyond a loop"),
    pytest.param(INSIDE, "shell", {"command": "ls > ../x", "cwd": "{W}"}, id="relative redirection"),
    pytest.param(INSIDE, "shell", {"command": "cd .. && ls > {W}/../x"}, id="redirection upwards"),
    pytest.param(INSIDE, "shell", {"command": "cd /; ls > x", "cwd": "{W}"}, id="redirection after cd"),
    pytest.param(INSIDE, "shell", {"command": "ls > $X"}, id="redirection that nobody knows"),
    pytest.param(INSIDE, "shell", {"command": "ls > {W}/link/x"}, id="redirection through a link"),
    pytest.param(
        INSIDE, "shell", {"command": "cd /; ls > /proc/self/cwd/{W}/../x", "cwd": "{W}"}, id="redirection by a process"
    ),
    pytest.param(INSIDE, "shell", {"command": "cd {W} && ls > ../x"}, id="redirection upwards after the first cd"),
    pytest.param(INSIDE, "shell", {"command": "cd /tmp && ls > x", "cwd": "{W}"}, id="redirection after cd outside"),
    pytest.param(
        INSIDE, "shell", {"command": "cd sub && cd / && ls > x", "cwd": "{W}"}, id="redirection after a second cd"
    ),
    pytest.param(INSIDE, "shell", {"command": "env -C / sh <<< 'ls > x'", "cwd": "{W}"}, id="shell started elsewhere"),
    pytest.param(
        INSIDE, "shell", {"command": "timeout 5 sh -c 'ls > /x'", "cwd": "{W}"}, id="shell started by another"
    ),
    pytest.param(INSIDE, "read_file", {"path": " /etc/passwd", "cwd": "{W}"}, id="a space before the path"),
    pytest.param({"allow_shell": False}, "zsh", {"script": "ls"}, id="another shell"),
    pytest.param({"allow_shell": False}, "run_terminal_cmd", {"input": "ls"}, id="a terminal"),
    pytest.param(INSIDE, "edit", {"target_file": "/etc/passwd"}, id="target file"),
    pytest.param(INSIDE, "run", {"cmd": "bash -c 'ls > /etc/x'"}, id="redirection in a shell in a shell"),
    pytest.param({"mode": "readonly"}, "process", {"Action": "start", "action": "list"}, id="two actions"),
    pytest.param({"mode": "readonly"}, "process", {"action": "restart"}, id="unknown action"),
    pytest.param({"mode": "readonly", "read_only_tools": ["*"]}, "shell", {}, id="readers do not cover a shell"),
    pytest.param({"forbidden_path_globs": ["~/.ssh/*"]}, "shell", {"command": "cat $HOME/.ssh/id"}, id="$HOME"),
    pytest.param({"forbidden_path_globs": ["/etc/*"]}, "shell", {"command": "cat /e't'c/x"}, id="quoted path"),
    pytest.param({"forbidden_path_globs": ["/etc/*"]}, "shell", {"command": "cat /e\\tc/x"}, id="escaped path"),
    pytest.param({"allow_shell": False}, "Bash", {"script": "ls"}, id="a shell by another name"),
    pytest.param({"allow_shell": False}, "anything", {"command": "ls"}, id="a command in any tool"),
    pytest.param({"allow_shell": False}, "process", {}, id="process starts by default"),
    pytest.param({"allowed_shell_command_globs": ["ls"]}, "shell", {"script": "rm"}, id="command in no known argument"),
    pytest.param({"allowed_shell_command_globs": ["ls"]}, "shell", {"command": ["rm"]}, id="command as a list"),
    pytest.param({"allowed_shell_command_globs": ["ls*"]}, "shell", {"command": "ls=1 rm"}, id="a variable named ls"),
    pytest.param({"allowed_shell_command_globs": ["ls"]}, "shell", {"a": {"cmd": "rm"}}, id="nested command"),
]


@pytest.mark.parametrize(("config", "tool", "arguments"), ATTACKS)
async def test_arguments_written_by_an_attacker_are_denied(
    config: Case, tool: str, arguments: Case, asking: Asking, disk: Disk
) -> None:
    """Each tries to get past a rule by how something is written."""
    hook = Autonomy(AutonomySettings(**disk.fill(config)))
    admission = await asking.admit(hook, tool, disk.fill(arguments))
    assert [(one.hook, one.decision) for one in admission.decisions] == [("Autonomy", Verdict.DENY)]


@pytest.mark.parametrize(
    ("config", "tool", "arguments"),
    [
        pytest.param(INSIDE, "shell", {"command": "ls 2>/dev/null", "cwd": "{W}"}, id="output to nowhere"),
        pytest.param(INSIDE, "shell", {"command": "ls > ../x 2>&1", "cwd": "{W}/sub"}, id="redirection inside"),
        pytest.param(INSIDE, "shell", {"command": "cd {W}/sub && ls > x"}, id="redirection after the first cd"),
        pytest.param(INSIDE, "shell", {"command": "cd sub; ls > x 2> /dev/null", "cwd": "{W}"}, id="relative first cd"),
        pytest.param(INSIDE, "shell", {"command": "ls > /dev/stdout"}, id="standard output"),
        pytest.param(
            INSIDE, "read_file", {"path": "b.txt", "working_directory": "{W}/sub"}, id="relative to a directory"
        ),
        pytest.param({"mode": "readonly"}, "process", {"action": " List "}, id="action trimmed"),
        pytest.param({"mode": "readonly", "read_only_tools": ["rocket_*"]}, "rocket_state", {}, id="a further reader"),
    ],
)
async def test_harmless_calls_are_let_pass(
    config: Case, tool: str, arguments: Case, asking: Asking, disk: Disk
) -> None:
    """A rule that denies everything is switched off."""
    hook = Autonomy(AutonomySettings(**disk.fill(config)))
    assert (await asking.admit(hook, tool, disk.fill(arguments))).allowed


@pytest.mark.parametrize(
    ("config", "says"),
    [
        pytest.param({"mode": "readonyl"}, "autonomy.mode is 'readonyl'", id="mode"),
        pytest.param({"workspace_only": True}, "workspace_root should be a folder", id="no root"),
        pytest.param({"workspace_root": "here"}, "workspace_root should be absolute, not here", id="relative root"),
        pytest.param({"workspace_root": "~nobody-at-all/x"}, "workspace_root should be absolute", id="home of nobody"),
        pytest.param({"workspace_root": "/w\0"}, "workspace_root should be absolute", id="NUL in the root"),
        pytest.param({"forbidden_path_globs": ["secrets/*"]}, "should begin with .* unlike secrets", id="no place"),
        pytest.param({"forbidden_path_globs": ["$HOME/x"]}, "should begin with .* unlike", id="a variable"),
        pytest.param({"forbidden_path_globs": ["/etc/"]}, "not end with /, unlike /etc/", id="slash at the end"),
        pytest.param({"forbidden_path_globs": "/etc/*"}, "autonomy.forbidden_path_globs", id="no list"),
        pytest.param({"allowed_shell_command_globs": [1]}, "autonomy.allowed_shell_command_globs", id="no text"),
        pytest.param({"modus": "full"}, "autonomy.modus is no setting: did you mean mode?", id="misspelt"),
    ],
)
def test_settings_that_cannot_mean_anything_name_the_field(config: Case, says: str) -> None:
    """A typo is never full access."""
    with pytest.raises(ConfigError, match=says):
        AutonomySettings(**config)


async def test_a_tool_says_what_its_parameters_are(asking: Asking, disk: Disk) -> None:
    """What it declares counts, and the usual names do not beside it."""
    executor = await asking.executor(Autonomy(AutonomySettings(**disk.fill(INSIDE), allow_shell=False)))

    @executor.tool(paths=["where"], command="run", read_only=True)
    async def tool(where: str = "", run: str = "", path: str = "", command: str = "") -> str:
        return f"ran {where}{run}{path}{command}"

    answers = [
        await executor.execute("tool", arguments)
        for arguments in ({"where": "/etc"}, {"path": "/etc"}, {"run": "ls"}, {"command": "ls"})
    ]
    assert [answer.denied_by for answer in answers] == ["Autonomy"] * 4
    assert "shell commands" in answers[1].reason


async def test_a_tool_that_declares_that_it_reads_runs_in_readonly_mode(asking: Asking) -> None:
    """As one that declares that it does not is denied, whatever its name."""
    executor = await asking.executor(Autonomy(AutonomySettings(mode="readonly")))

    @executor.tool(read_only=True)
    async def launch() -> str:
        return "counted down"

    @executor.tool(name="read_file", read_only=False)
    async def read() -> str:
        return "read"

    assert (await executor.execute("launch", {})).text == "counted down"
    assert (await executor.execute("read_file", {})).denied_by == "Autonomy"


def _context(arguments: str, *paths: ResolvedPath) -> ToolHookContext:
    return ToolHookContext(
        tool_name="read_file", arguments_json=arguments, call_id="c", executor_id="e", sent_at_ms=0, deadline_ms=0,
        resolved_paths=paths,
    )  # fmt: skip


async def test_a_path_that_the_executor_did_not_resolve_is_denied(disk: Disk) -> None:
    """An executor of another language may know fewer names of paths than this hook."""
    hook = Autonomy(AutonomySettings(**disk.fill(INSIDE)))
    inside = str(disk.workspace / "a.txt")
    arguments = json.dumps({"path": inside})
    answers = [
        await hook.before_execute(_context(arguments)),
        await hook.before_execute(_context(arguments, ResolvedPath(argument="path", given=inside, real=inside))),
    ]
    assert [answer.decision for answer in answers] == [Verdict.DENY, Verdict.ALLOW]


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param('{"command":"' + "ls; " * 25_000 + '"}', id="100 kB command"),
        pytest.param('{"command":"' + "$(" * 3_000 + "ls" + ")" * 3_000 + '"}', id="3,000-deep command"),
        pytest.param('{"a":' * 3_000 + "1" + "}" * 3_000, id="3,000-deep arguments"),
        pytest.param('{"path":"' + "./" * 60_000 + '"}', id="100 kB path"),
        pytest.param('{"path":' * 900 + '"x"' + "}" * 900, id="900-deep paths"),
    ],
)
async def test_large_arguments_are_answered_and_the_hook_goes_on(arguments: str, asking: Asking) -> None:
    """Neither a crash nor an error: a decision of the hook or a refusal of the executor."""
    executor = await asking.executor(Autonomy(AutonomySettings(allowed_shell_command_globs=("ls*",))))
    admission = await executor.admit("shell", arguments)
    assert [one.decision for one in admission.decisions if one.decision is Verdict.ERROR] == []
    assert admission.allowed or admission.reason
    direct = await Autonomy(AutonomySettings(allowed_shell_command_globs=("ls*",))).before_execute(_context(arguments))
    assert direct.decision in (Verdict.ALLOW, Verdict.DENY)
    assert (await executor.admit("shell", {"command": "ls"})).allowed


_parts = st.sampled_from(
    ["..", ".", "link", "dlink", "inner", "sub", "loop", "a.txt", "secret.txt", "deep", "x.txt", ""]
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True, deadline=None)
@given(st.lists(_parts, max_size=6), st.booleans())
async def test_a_path_is_inside_exactly_if_the_kernel_opens_a_file_inside(
    disk: Disk, asking: Asking, parts: list[str], absolute: bool
) -> None:
    """What is opened is asked of the kernel: links, ``..`` and loops in every order."""
    given_path = "/".join(([str(disk.workspace)] if absolute else ["."]) + parts)
    hook = Autonomy(AutonomySettings(**disk.fill(INSIDE)))
    admission = await asking.admit(hook, "read_file", {"path": given_path, "cwd": str(disk.workspace)})
    try:
        opened = os.open(disk.workspace / given_path if not absolute else given_path, os.O_RDONLY)
    except OSError:
        return  # nothing is opened, so nothing leaves the workspace
    real = _place(opened)
    assert admission.allowed == _within(real, disk.workspace)


def _place(opened: int) -> Path:
    real = Path(f"/proc/self/fd/{opened}").readlink()
    os.close(opened)
    return real


def _within(path: Path, root: Path) -> bool:
    return path == root or root in path.parents
