"""Numbers and fields, out of the texts that a server answers with."""


def number(text: str | bytes | None) -> float:
    """Read a number; what is none is 0."""
    try:
        return float(text) if text is not None else 0.0
    except ValueError:
        return 0.0


def fields(text: str) -> dict[str, str]:
    """Read `calls=5,usec=44`, as lines of INFO have it."""
    return dict(part.split("=", 1) for part in text.split(",") if "=" in part)
