"""The table of hooks."""

import pytest

from hookbus_executor.hooks import HookTable, RegisteredHook, from_bucket
from hookbus_schemas import FailurePolicy, HookRegistration, subjects


def test_hooks_stand_in_their_order_then_by_name() -> None:
    """Reports are the same every time."""
    hooks = [RegisteredHook(name, HookRegistration(order=order)) for name, order in (("z", 1), ("b", 2), ("a", 2))]
    assert [hook.name for hook in HookTable(hooks).hooks] == ["z", "a", "b"]


def test_only_hooks_whose_globs_match_are_asked() -> None:
    """Globs choose by tool, events by time."""
    table = HookTable(
        [
            RegisteredHook("all", HookRegistration()),
            RegisteredHook("db", HookRegistration(tools=("db_*", "sql"))),
            RegisteredHook("after", HookRegistration(events=("after",))),
        ]
    )
    assert [hook.name for hook in table.for_tool("db_drop")] == ["all", "db"]
    assert [hook.name for hook in table.for_tool("shell")] == ["all"]


def test_a_hook_on_the_bus_wins_over_one_of_its_name_in_the_process() -> None:
    """A plugin in the agent's process cannot answer in the name of another team's hook."""
    on_bus, in_process = RegisteredHook("h", HookRegistration(), 3), RegisteredHook("h", HookRegistration(order=1))
    assert HookTable([on_bus], [in_process]).hooks == (on_bus,)


def test_a_key_that_is_no_name_hides_behind_no_hook() -> None:
    """Fail closed: it denies, also where a hook has the name that it looks like."""
    hook, odd = from_bucket(subjects.token("a.b"), b"{}", 1), from_bucket("a.b", b"{}", 2)
    assert (hook.name, odd.name) == ("a.b", "a.b")
    for entries in ([hook, odd], [odd, hook]):
        assert HookTable(entries).hooks == (odd,)


def test_made_up_tool_names_do_not_fill_the_memory() -> None:
    """The table remembers a bounded number of tools."""
    table = HookTable([RegisteredHook("h", HookRegistration())])
    for number in range(5000):
        assert len(table.for_tool(f"tool{number}")) == 1
    assert len(table._by_tool) <= 1024


@pytest.mark.parametrize(
    ("value", "says"),
    [
        pytest.param(b"garbage", "cannot be read", id="no JSON"),
        pytest.param(b'{"failure_policy":"alow"}', "failure_policy", id="unknown policy"),
        pytest.param(b'{"timeout_ms":6000}', "timeout_ms", id="timeout over the limit"),
        pytest.param(b'{"tools":[]}', "tools", id="no tools"),
    ],
)
def test_a_registration_that_cannot_be_read_fails_closed_for_every_tool(value: bytes, says: str) -> None:
    """Nobody can tell what the hook was to guard, so it guards everything."""
    hook = from_bucket("h", value, 1)
    assert says in hook.problem
    assert hook.asked_about("anything")
    assert hook.registration.failure_policy is FailurePolicy.DENY


@pytest.mark.parametrize("key", ["=", "x" * 800, "=ZZ", "a.b", "ä" * 200])
def test_a_key_that_is_no_name_fails_closed_under_a_name_that_the_record_holds(key: str) -> None:
    """Whoever writes the bucket cannot make a hook that is asked and never settled."""
    hook = from_bucket(key, b"{}", 1)
    assert hook.problem
    assert 0 < len(hook.name.encode()) <= 256
    assert hook.key == key


def test_a_name_is_read_from_its_escaped_key() -> None:
    """Keys of the bucket are tokens."""
    assert from_bucket(subjects.token("plugin:ä b"), b"{}", 1).name == "plugin:ä b"


def test_a_registration_that_cannot_be_read_stands_under_the_name_that_its_key_escapes() -> None:
    """Who requires the hook, or removes it, names it so; and no hook in the process may answer in its place."""
    hook = from_bucket(subjects.token("plugin:ä b"), b"garbage", 1)
    in_process = RegisteredHook("plugin:ä b", HookRegistration())
    assert hook.problem
    assert HookTable([hook], [in_process]).hooks == (hook,)
