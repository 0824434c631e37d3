"""Finding hooks by name."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hookbus_schemas import ConfigError
from hookbus_subscribers import FunctionHook, load_hooks

SOURCE = """
from hookbus_subscribers import AuditLog, ToolHook, ToolHookWithContext, hook

@hook("no-drops")
async def no_drops(context):
    return False

again = no_drops
number = 7

def plain(context):
    return True

class Gate(ToolHook):
    name = "gate"

class Picky(ToolHook):
    name = "picky"

    def __init__(self, setting):
        self.setting = setting

class Broken(ToolHook):
    name = "broken"

    def __init__(self):
        raise RuntimeError("no\\ngo")

class Nameless(ToolHook):
    pass

class holder:
    inner = no_drops
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory of the test's own, importable only by what is under test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path not in ("", str(tmp_path))])
    before = set(sys.modules)
    (tmp_path / "kit_hooks.py").write_text(SOURCE)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith("kit_"):
            del sys.modules[name]


@pytest.mark.parametrize(
    ("target", "name"),
    [("kit_hooks:no_drops", "no-drops"), ("kit_hooks:Gate", "gate"), ("kit_hooks:holder.inner", "no-drops")],
)
def test_a_hook_or_a_class_of_hooks_is_found_in_the_working_directory(target: str, name: str) -> None:
    """As uvicorn finds applications."""
    assert [hook.name for hook in load_hooks(target)] == [name]


def test_a_module_with_one_hook_needs_no_attribute() -> None:
    """Two names of one hook are one; classes count only where no hook is made of them."""
    (found,) = load_hooks("kit_hooks")
    assert isinstance(found, FunctionHook)


def test_a_module_with_one_class_needs_no_attribute(folder: Path) -> None:
    """Imported classes are not its own."""
    source = "from hookbus_subscribers import AuditLog, ToolHook\nclass Only(ToolHook):\n    name = 'only'\n"
    (folder / "kit_class.py").write_text(source)
    assert [hook.name for hook in load_hooks("kit_class")] == ["only"]


def test_several_hooks_are_loaded_in_their_order() -> None:
    """One process may serve many."""
    assert [hook.name for hook in load_hooks("kit_hooks:Gate", "kit_hooks:no_drops")] == ["gate", "no-drops"]


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("", "should be module:hook"),
        ("kit_hooks:", "should be module:hook"),
        (":x", "should be module:hook"),
        ("kit_absent:x", "there is no module kit_absent"),
        ("kit_absent.deep:x", "there is no module kit_absent"),
        ("kit_needs", "module kit_needs cannot be imported: No module named 'kit_other'"),
        ("kit_broken", "module kit_broken cannot be imported: SyntaxError"),
        ("kit_exits", "module kit_exits cannot be imported: SystemExit: 3"),
        ("kit_empty", "module kit_empty has no hook"),
        ("kit_two", r"module kit_two has 2 hooks: a, b; name one, as in kit_two:a"),
        ("kit_hooks:absent", "module kit_hooks has no absent; hooks in it: no_drops"),
        ("kit_hooks:number", "kit_hooks:number is no hook but of type int"),
        ("kit_hooks:plain", "kit_hooks:plain is no hook but of type function: decorate it with @hook"),
        ("kit_hooks:holder", "kit_hooks:holder is no hook but of type type"),
        (
            "kit_hooks:Picky",
            r"kit_hooks:Picky is a class that needs arguments \(.*'setting'\)",
        ),
        ("kit_hooks:Broken", "kit_hooks:Broken cannot be made: RuntimeError: no go"),
        ("kit_hooks:Nameless", "hook name None should be text"),
    ],
)
def test_anything_else_is_refused_in_one_line_that_says_what_was_found(folder: Path, target: str, words: str) -> None:
    """Whoever typed it can see what to type instead."""
    (folder / "kit_needs.py").write_text("import kit_other")
    (folder / "kit_broken.py").write_text("def")
    (folder / "kit_exits.py").write_text("raise SystemExit(3)")
    (folder / "kit_empty.py").write_text("")
    (folder / "kit_two.py").write_text("from hookbus_subscribers import AuditLog\na = AuditLog()\nb = AuditLog()\n")
    with pytest.raises(ConfigError, match=words) as raised:
        load_hooks(target)
    assert "\n" not in str(raised.value)
