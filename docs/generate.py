"""Writes the tables of docs/configuration.md from the settings themselves; `--check` only compares.

Every section of every component is found by importing all modules, so none can be forgotten.
"""

import importlib
import pkgutil
import re
import sys
from pathlib import Path

from hookbus_broker import Section
from hookbus_broker.settings import variable

PAGE = Path(__file__).parent / "configuration.md"
PACKAGES = ("hookbus_broker", "hookbus_executor", "hookbus_subscribers", "hookbus_cli")
START, END = "<!-- settings:start -->", "<!-- settings:end -->"


def sections() -> list[type[Section]]:
    """Return every section of hookbus, `bus` first, then by table."""
    for name in PACKAGES:
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(package.__path__, f"{name}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    found = [section for section in _below(Section) if section.__module__.startswith(PACKAGES)]
    return sorted((one for one in found if one.table), key=lambda one: (one.table != "bus", one.table))


def _below(section: type[Section]) -> set[type[Section]]:
    return set().union(*({one} | _below(one) for one in section.__subclasses__()))


def tables() -> str:
    """Return the part of the page that is generated."""
    return "\n".join(_table(section) for section in sections())


def _table(section: type[Section]) -> str:
    about = (section.__doc__ or "").split("\n\n")[0].replace("\n", " ")
    rows = [
        f"| `{field}` | `{variable(section, field)}` | {_default(info.get_default(call_default_factory=True))} "
        f"| {_words(info.description or '')} |"
        for field, info in section.model_fields.items()
    ]
    head = ["| setting | variable | default | what it is |", "|---|---|---|---|"]
    return "\n".join([f"\n## `[{section.table}]`\n", f"{about}\n", *head, *rows, ""])


def _default(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, tuple | list):
        return ", ".join(f"`{one}`" for one in value) or "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value:.15g}`" if isinstance(value, float) else f"`{value}`" if str(value) else "empty"


def _words(description: str) -> str:
    return " ".join(description.replace("``", "`").split()).replace("|", "\\|")


def page(text: str) -> str:
    """Return the page with its generated part written anew."""
    return re.sub(f"{START}.*{END}", lambda _: f"{START}\n{tables()}\n{END}", text, flags=re.DOTALL)


def main() -> None:
    """Write the page, or with `--check` end with an error if it is out of date."""
    before = PAGE.read_text(encoding="utf-8")
    after = page(before)
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(after, encoding="utf-8")
    elif before != after:
        sys.exit(f"{PAGE.name} is not what the settings say: run `make settings`")


if __name__ == "__main__":
    main()
