"""Numbers of things in words."""


def counted(number: int | float, thing: str) -> str:
    """A number of things: "1 pair", "34,999 pairs", "2 entries", "0 prefixes", "0.5 minutes"."""
    shown = f"{number:g}" if isinstance(number, float) else f"{number:,}"
    if number == 1:
        return f"{shown} {thing}"
    if thing.endswith("ry"):
        return f"{shown} {thing[:-1]}ies"
    return f"{shown} {thing}es" if thing.endswith("x") else f"{shown} {thing}s"
