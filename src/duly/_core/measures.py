"""Format durations and sizes."""


def span(seconds: float | None) -> str:
    """Format a duration: 350ms, 12.3s, 5m 20s, 3h 12m, 2d 4h."""
    if seconds is None:
        return "-"
    sign, left = ("-", -seconds) if seconds < 0 else ("", seconds)
    if left < 0.9995:
        return f"{sign}{left * 1000:.0f}ms" if left else "0s"
    if left < 59.95:
        return f"{sign}{left:.1f}".removesuffix(".0") + "s"
    whole = round(left)
    for unit, size, smaller, part in (("m", 60, "s", 1), ("h", 3600, "m", 60), ("d", 86400, "h", 3600)):
        if whole < size * (60 if unit != "h" else 24) or unit == "d":
            rest = whole % size // part
            return f"{sign}{whole // size}{unit}" + (f" {rest}{smaller}" if rest else "")
    raise AssertionError


def size_text(count: float) -> str:
    """Format a number of bytes."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"
