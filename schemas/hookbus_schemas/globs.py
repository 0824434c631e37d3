"""Globs in which only ``*`` is special: any run of characters, ``/`` and newlines among them."""


def matches(glob: str, value: str) -> bool:
    """Tell whether the whole value matches; case counts; time is linear, whoever wrote the value."""
    first, *rest = glob.split("*")
    if not rest:
        return value == glob
    *middle, last = rest
    if not value.startswith(first) or not value.endswith(last) or len(value) < len(first) + len(last):
        return False
    position, end = len(first), len(value) - len(last)
    for part in middle:
        found = value.find(part, position, end)
        if found < 0:
            return False
        position = found + len(part)
    return True


def matches_any(globs: tuple[str, ...], value: str) -> bool:
    """Tell whether any of the globs matches the whole value."""
    return any(matches(glob, value) for glob in globs)
