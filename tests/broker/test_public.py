"""What the package promises by name."""

import hookbus_broker


def test_every_public_name_is_there_and_none_beside() -> None:
    """`__all__` is exact: sorted, complete, and nothing but modules beside it."""
    public = {name for name in vars(hookbus_broker) if not name.startswith("_")}
    modules = {name for name in public if type(getattr(hookbus_broker, name)).__name__ == "module"}
    assert public - modules == set(hookbus_broker.__all__)
